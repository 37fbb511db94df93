"""Percentile curves of all servers as a small SVG file; matplotlib is needed for it and for nothing else, and its absence is said and skipped.

Used by `decision_latency`. The axis of percentiles is stretched towards 100, as HdrHistogram's plots have it: each step to the right holds a tenth of the calls before.
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.latency.report import GO, TWO_GPUS, Measured
from bench.latency.walk import ECHO, FILTER, PRIORITIZE

_COLOURS: Final = {ECHO: "#8c8c8c", GO: "#e0b05c"}
_OWN: Final = "#1f6fb2"
_TICKS: Final = (0, 50, 90, 99, 99.9)


def curves(measured: Sequence[Measured], path: Path) -> None:
    """Draw filter and prioritize of the largest number of names, 2-GPU pods where there are such."""
    if importlib.util.find_spec("matplotlib") is None:
        print(f"matplotlib is not installed: {path.name} is not drawn", file=sys.stderr)
        return
    import matplotlib as mpl
    from matplotlib.figure import Figure

    shown = max(measured, key=lambda one: (one.names, one.stream == TWO_GPUS))
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    # Text stays text and ids are fixed: the same figures give the same small file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 9}):
        for axes, label in zip(figure.subplots(1, 2, sharey=True), (FILTER, PRIORITIZE), strict=True):
            _draw(axes, shown, label)
        figure.axes[0].legend(frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})


def _draw(axes: Any, shown: Measured, label: str) -> None:
    for name, found in shown.walked.latencies.get(label, {}).items():
        points = [(_place(percent), time) for percent, time in found.ladder if percent < 100]
        axes.plot(*zip(*points, strict=True), color=_COLOURS.get(name, _OWN), label=name)
    axes.set_title(f"{label}, {shown.names} names: ms", loc="left")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xscale("log")
    axes.set_xticks([_place(percent) for percent in _TICKS], [f"{percent:g} %" for percent in _TICKS])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)


def _place(percent: float) -> float:
    """Return 1 / (share of slower calls)."""
    return 100 / (100 - percent)
