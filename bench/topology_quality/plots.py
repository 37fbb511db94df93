"""Pictures of the results as small SVG files; matplotlib is needed for them and for nothing else, and its absence is said and skipped.

One colour a policy in all pictures: grey for counting, muted colours for those who look at links, one strong colour for Linkwise.
"""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.topology_quality import mapa, remainders
from bench.topology_quality.remainders import Share
from bench.topology_quality.summary import Summary

_COLOURS: Final = {
    "lowest index": "#b8b8b8",
    "topo-aware": "#8c8c8c",
    "greedy": "#e0b05c",
    "preserve": "#c97b63",
    "go-gpuallocator": "#7a9e7e",
    mapa.OWN_RINGS: "#9ec5e8",
    mapa.PLUGGED: "#1f6fb2",
    mapa.PLUGGED_NONE: "#0b3c66",
    remainders.LINKWISE: "#1f6fb2",
}


def sensitive_jobs(summaries: Sequence[Summary], path: Path) -> None:
    """Draw mean (bar) and 25th percentile (line) of sensitive jobs, one group of bars a machine."""

    def draw(axes: Any) -> None:
        machines = list(dict.fromkeys(summary.machine for summary in summaries))
        for at, policy in enumerate(mapa.POLICIES):
            own = [summary for summary in summaries if summary.policy == policy]
            places = [machines.index(summary.machine) + (at - len(mapa.POLICIES) / 2 + 0.5) * 0.1 for summary in own]
            axes.bar(places, [summary.sensitive_mean for summary in own], 0.09, color=_COLOURS[policy], label=policy)
            axes.hlines([summary.sensitive_p25 for summary in own], [x - 0.045 for x in places], [x + 0.045 for x in places], "black", linewidth=1)
        axes.set_xticks(range(len(machines)), machines)
        axes.set_ylabel("predicted GB/s of sensitive jobs")
        axes.set_title("300 jobs, first in first out: mean, and 25th percentile as a line", loc="left")

    _save(draw, path)


def best_left(shares: Sequence[Share], path: Path) -> None:
    """Draw the share of pods of two and of four GPUs that got the best of the empty machine."""

    def draw(axes: Any) -> None:
        groups = list(dict.fromkeys((share.machine, share.k) for share in shares))
        for at, policy in enumerate(remainders.POLICIES):
            own = [share for share in shares if share.policy == policy]
            places = [groups.index((share.machine, share.k)) + (at - len(remainders.POLICIES) / 2 + 0.5) * 0.2 for share in own]
            axes.bar(places, [100 * share.best / share.pods for share in own], 0.18, color=_COLOURS[policy], label=policy)
        axes.set_xticks(range(len(groups)), [f"{machine}\n{k} GPUs" for machine, k in groups], fontsize=7)
        axes.set_ylabel("percent of pods")
        axes.set_title("pods that got the best of the empty machine; they come and go, 85 percent full", loc="left")

    _save(draw, path)


def by_gpu_count(lines: Mapping[str, Sequence[float]], counts: Sequence[int], path: Path) -> None:
    """Draw GB/s by the number of GPUs, a line each; the first one is what was measured."""

    def draw(axes: Any) -> None:
        for at, (label, values) in enumerate(lines.items()):
            colour = ("black", "#1f6fb2", "#c97b63")[at]
            axes.plot(counts, values, marker="o", color=colour, linestyle="-" if at == 0 else "--", label=label)
        axes.set_xlabel("GPUs 0 to n-1 of a DGX-1 with P100")
        axes.set_ylabel("GB/s")
        axes.set_ylim(bottom=0)
        axes.set_title("all-reduce: measured and modelled", loc="left")

    _save(draw, path)


def _save(draw: Callable[[Any], None], path: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        print(f"matplotlib is not installed: {path.name} is not drawn")
        return
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Text stays text and ids are fixed: the same figures give the same small file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)
        axes.set_axisbelow(True)
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
