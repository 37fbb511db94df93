"""One picture of a run: pods a second, and the processor time of a pod by program. matplotlib is needed for it and for nothing else."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.end_to_end.judging import Size, of
from bench.end_to_end.variants import VARIANTS, Sampling

_COLOURS: Final = {"no extender": "#b8b8b8", "no extender, unbatched": "#8c8c8c", "null extender": "#e0b05c", "linkwise": "#1f6fb2"}
_PROGRAMS: Final = {
    "extender": "#1f6fb2",
    "kube-scheduler": "#e0b05c",
    "kube-apiserver": "#c97b63",
    "etcd": "#7a9e7e",
    "kwok": "#b8b8b8",
    "load": "#dddddd",
}


def draw(sizes: Sequence[Size], path: Path) -> None:
    """Draw all sizes into one SVG file."""
    if importlib.util.find_spec("matplotlib") is None:
        print(f"matplotlib is not installed: {path.name} is not drawn", file=sys.stderr)
        return
    from matplotlib.figure import Figure

    groups = [(size, sampling) for size in sizes for sampling in Sampling if of(size.half, "linkwise", sampling)]
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    rate, cost = figure.subplots(1, 2)
    _rates(rate, groups)
    _costs(cost, groups)
    for axes in (rate, cost):
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg")


def _rates(axes: Any, groups: Sequence[tuple[Size, Sampling]]) -> None:
    for at, variant in enumerate(VARIANTS):
        places, heights = [], []
        for group, (size, sampling) in enumerate(groups):
            own = [one.pods_per_s for one in of(size.half, variant.name, sampling)]
            if own:
                place = group + (at - 1.5) * 0.2
                places.append(place)
                heights.append(median(own))
                axes.plot([place] * len(own), own, ".", color="black", markersize=3)
        axes.bar(places, heights, 0.18, color=_COLOURS[variant.name], label=variant.name)
    axes.set_xticks(range(len(groups)), [f"{size.nodes} nodes\n{sampling.value}" for size, sampling in groups], fontsize=8)
    axes.set_title("pods a second, half full: median, each round a dot", loc="left", fontsize=9)
    axes.legend(frameon=False, fontsize=8)


def _costs(axes: Any, groups: Sequence[tuple[Size, Sampling]]) -> None:
    ticks, names = [], []
    for group, (size, sampling) in enumerate(groups):
        for at, variant in enumerate(VARIANTS):
            own = of(size.half, variant.name, sampling)
            if not own:
                continue
            place, base = group * 5 + at, 0.0
            for program, colour in _PROGRAMS.items():
                value = median(1000 * one.cpu_s.get(program, 0.0) / one.pods for one in own)
                axes.bar(place, value, 0.8, bottom=base, color=colour, label=program if group == at == 0 else None)
                base += value
            ticks.append(place)
            names.append(variant.name.replace("no extender", "none").replace(" extender", ""))
    axes.set_xticks(ticks, names, rotation=90, fontsize=7)
    axes.set_title("processor milliseconds a pod, by program", loc="left", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
