"""The curves of the runs as one SVG file: GPU allocated and fragmentation side by side, a line a policy.

Called by `command`. Written by hand, as two panels of lines need no library; text stays text, and the same runs give the same file.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from extender.simulate.curves import Curve, curves
from extender.simulate.replay import Run

_COLOURS: Final = {"pack": "#15803d", "spread": "#0b6bcb", "gpuallocator": "#7c3aed", "count": "#c2410c"}
_WIDTH, _HEIGHT, _LEFT, _TOP = 380, 220, 44, 40  # of one panel, and where it stands; pixels
_POINTS: Final = 160
_TOPS: Final = (4, 8, 20, 40, 100)  # percent at the top of a panel: the first that is enough
_GRID: Final = 4  # lines of the grid above zero


def plot(runs: Sequence[Run], title: str) -> str:
    """Return the SVG file."""
    width, height = 2 * (_WIDTH + _LEFT) + 24, _HEIGHT + _TOP + 56
    both = [curves(run, _POINTS) for run in runs]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, name in enumerate(("GPU allocated, percent", "Fragmentation, percent of the cluster")):
        own = [(run.policy, curve[number]) for run, curve in zip(runs, both, strict=True)]
        parts += _panel(_LEFT + number * (_WIDTH + _LEFT), name, own)
    parts += _legend([run.policy for run in runs], height - 14)
    return "\n".join([*parts, "</svg>", ""])


def _panel(left: int, name: str, lines: Sequence[tuple[str, Curve]]) -> Iterator[str]:
    yield f'<text x="{left}" y="{_TOP - 14}" font-weight="bold" fill="#111111">{escape(name)}</text>'
    top = next(top for top in _TOPS if top >= max(min(value, 100.0) for _, curve in lines for value in curve.values))
    for line in range(_GRID + 1):
        y = _y(line / _GRID)
        yield f'<line x1="{left}" y1="{y:g}" x2="{left + _WIDTH}" y2="{y:g}" stroke="#e5e5e5"/>'
        yield f'<text x="{left - 6}" y="{y + 4:g}" text-anchor="end" fill="#555555">{top * line // _GRID}</text>'
    for policy, curve in lines:
        step = _WIDTH / (len(curve.values) - 1)
        points = " ".join(f"{left + number * step:.1f},{_y(value / top):.1f}" for number, value in enumerate(curve.values))
        yield f'<polyline points="{points}" fill="none" stroke="{_COLOURS[policy]}" stroke-width="1.6"/>'
    yield f'<text x="{left + _WIDTH}" y="{_TOP + _HEIGHT + 18}" text-anchor="end" fill="#555555">{escape(lines[0][1].axis)}</text>'


def _legend(policies: Sequence[str], y: int) -> Iterator[str]:
    x = _LEFT
    for policy in policies:
        yield f'<line x1="{x}" y1="{y - 4}" x2="{x + 18}" y2="{y - 4}" stroke="{_COLOURS[policy]}" stroke-width="3"/>'
        yield f'<text x="{x + 24}" y="{y}" fill="#111111">{escape(policy)}</text>'
        x += 60 + 7 * len(policy)


def _y(share: float) -> float:
    return _TOP + _HEIGHT * (1 - share)
