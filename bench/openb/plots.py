"""Pictures of the runs as small SVG files; matplotlib is needed for them and for nothing else, and its absence is said and skipped.

The colours are those of the other benches: grey for counting, muted colours for the paper's policies, one strong colour for whatever is not of the paper.
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.openb.report import Runs, allocated_at

_COLOURS: Final = {
    "random": "#b8b8b8",
    "dotprod": "#8c8c8c",
    "clustering": "#e0b05c",
    "packing": "#c97b63",
    "bestfit": "#7a9e7e",
    "fgd": "#9ec5e8",
}
_OTHERS: Final = ("#1f6fb2", "#0b3c66")
_SATURATED = 80  # percent arrived: below it every policy places everything


def curves(runs: Runs, trace: str, path: Path) -> None:
    """Draw GPU allocated and F of one trace by percent arrived, the mean over the seeds, a line a policy."""
    figure = _figure(2)
    if figure is None:
        print(f"matplotlib is not installed: {path.name} is not drawn", file=sys.stderr)
        return
    allocation, fragments = figure.subplots(1, 2)
    for policy, colour in _coloured(runs.policies):
        own = [run.curves for run in runs.of(policy, trace)]
        percents = np.arange(len(own[0].allocated))
        allocation.plot(percents[_SATURATED:], np.mean([one.allocated for one in own], axis=0)[_SATURATED:], color=colour, label=policy)
        fragments.plot(percents[1:], np.mean([one.fragmentation for one in own], axis=0)[1:], color=colour)
    allocation.set_title(f"{trace}: GPU allocated, percent", loc="left")
    fragments.set_title(f"{trace}: F, percent of the cluster", loc="left")
    for axes in (allocation, fragments):
        axes.set_xlabel("GPU arrived, percent of the cluster")
    _save(figure, path, (allocation, fragments))


def bars(runs: Runs, path: Path) -> None:
    """Draw GPU allocated at 100 percent arrived, one group of bars a trace."""
    figure = _figure(1)
    if figure is None:
        print(f"matplotlib is not installed: {path.name} is not drawn", file=sys.stderr)
        return
    axes = figure.subplots()
    width = 0.8 / len(runs.policies)
    for at, (policy, colour) in enumerate(_coloured(runs.policies)):
        heights = [runs.mean(policy, trace, allocated_at(100)) for trace in runs.traces]
        axes.bar([place + (at + 0.5) * width - 0.4 for place in range(len(heights))], heights, width, color=colour, label=policy)
    axes.set_xticks(range(len(runs.traces)), runs.traces, rotation=45, ha="right")
    axes.set_ylim(bottom=75)
    axes.set_title("GPU allocated when 100 percent has arrived, percent; the axis begins at 75", loc="left")
    _save(figure, path, (axes,))


def _coloured(policies: Sequence[str]) -> list[tuple[str, str]]:
    others = [policy for policy in policies if policy not in _COLOURS]
    return [(policy, _COLOURS.get(policy) or _OTHERS[others.index(policy) % len(_OTHERS)]) for policy in policies]


def _figure(columns: int) -> Any:
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    return Figure(figsize=(10, 4.2 if columns == 2 else 4.6), layout="constrained")


def _save(figure: Any, path: Path, all_axes: Sequence[Any]) -> None:
    import matplotlib as mpl

    # Text stays text and ids are fixed: the same figures give the same small file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 9}):
        for axes in all_axes:
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)
            axes.set_axisbelow(True)
        figure.legend(loc="outside lower center", ncols=7, frameon=False, fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
