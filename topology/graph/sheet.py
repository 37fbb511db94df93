"""SVG files out of fragments: one machine alone, or several side by side with captions and a figure under each.

Every sheet brings its own light ground, so that it reads on a white slide and on a dark page alike. Called by `linkwise inspect --output svg` and by
the demo, which draws where one pod went by two ways of choosing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from topology.graph import palette
from topology.graph.svg import FONT, Box, Fragment, Type, escaped, moved, number, rect, text, width_of

MARGIN: Final = 28.0
BETWEEN: Final = 40.0


@dataclass(frozen=True, slots=True)
class Panel:
    """One drawing of a row: ``caption`` over it, ``figure`` (large, for example `100 GB/s`) and ``note`` under it."""

    fragment: Fragment
    caption: str
    figure: str = ""
    note: str = ""
    colour: str = palette.INK


def standalone(fragment: Fragment, description: str = "GPU topology") -> str:
    """Return a whole SVG file with this drawing; ``description`` is read aloud by screen readers."""
    width, height = fragment.width + 2 * MARGIN, fragment.height + 2 * MARGIN
    ground = rect(Box(0.5, 0.5, width - 1, height - 1), palette.SHEET)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{number(width)}" height="{number(height)}" '
        f'viewBox="0 0 {number(width)} {number(height)}" font-family="{FONT}" role="img">'
        f"<title>{escaped(description)}</title>{ground}{moved(fragment.body, MARGIN, MARGIN)}</svg>\n"
    )
    return svg.replace("><", ">\n<")  # one element a line, so that two versions can be compared


def side_by_side(panels: Sequence[Panel], title: str = "", foot: str = "") -> Fragment:
    """Compose drawings in one row, all scaled to the height of the lowest; ``title`` stands over the row, ``foot`` under it."""
    height = min(panel.fragment.height for panel in panels)
    head = 44.0 if title else 0.0
    body, x, tallest = "", 0.0, 0.0
    for panel in panels:
        scale = height / panel.fragment.height
        width = max(panel.fragment.width * scale, width_of(panel.caption, 16) * 1.06, width_of(panel.note, 13), width_of(panel.figure, 34))
        body += _panel(panel, Box(x, head, width, height), scale)
        tallest = max(tallest, 34 + height + (52 if panel.figure else 0) + (22 if panel.note else 0))
        x += width + BETWEEN
    total = max(x - BETWEEN, width_of(title, 20) * 1.06, width_of(foot, 12))
    if title:
        body += text(total / 2, 20, title, Type(20, palette.INK, bold=True, anchor="middle"))
    if foot:
        body += text(total / 2, head + tallest + 26, foot, Type(12, palette.INK_FAINT, anchor="middle"))
    return Fragment(total, head + tallest + (32 if foot else 0), body)


def _panel(panel: Panel, area: Box, scale: float) -> str:
    drawing = moved(panel.fragment.body, area.middle - panel.fragment.width * scale / 2, area.y + 34, scale)
    parts = [text(area.middle, area.y + 16, panel.caption, Type(16, palette.INK, bold=True, anchor="middle")), drawing]
    y = area.y + 34 + area.height
    if panel.figure:
        y += 46
        parts.append(text(area.middle, y, panel.figure, Type(34, panel.colour, bold=True, anchor="middle")))
    if panel.note:
        y += 22
        parts.append(text(area.middle, y, panel.note, Type(13, palette.INK_SOFT, anchor="middle")))
    return "".join(parts)
