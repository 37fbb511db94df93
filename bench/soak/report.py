"""The report of a soak: targets, what happened, what it cost, and a picture of memory and lag over time."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.markdown import table
from bench.soak.judging import Found, Verdict


def text(found: Found, verdicts: Sequence[Verdict], happened: Mapping[str, object]) -> str:
    """Return the report below its heading."""
    first, last = found.samples[0], found.samples[-1]
    cpu = (last.cpu_s - first.cpu_s) / (last.at_s - first.at_s)
    rows = [
        (
            "resident memory, MiB: first, last, most",
            f"{first.resident_mib:.0f}, {last.resident_mib:.0f}, {max(one.resident_mib for one in found.samples):.0f}",
        ),
        ("processor, share of one core", f"{100 * cpu:.0f} percent"),
        ("a change until the extender tells of it, ms", percentiles([lag for _, lag in found.lags])),
        ("creation to binding, ms", percentiles([wait for _, wait in found.waits])),
        ("pods that wait: median, most", f"{median(one.waiting for one in found.samples):.0f}, {max(one.waiting for one in found.samples)}"),
        ("log lines by level", ", ".join(f"{level} {count}" for level, count in sorted(found.log.levels.items())) or "none"),
    ]
    parts = [
        "\n## Targets\n",
        table(("target", "found", "met"), [(one.target, one.found, "yes" if one.met else "**no**") for one in verdicts]),
        "\n## What happened\n",
        table(("what", "how often"), list(happened.items())),
        "\n## The extender\n",
        table(("figure", "found"), rows),
    ]
    if found.log.told:
        parts += ["\n## What its log warns of\n", table(("line", "times"), sorted(found.log.told.items(), key=lambda item: -item[1])[:20])]
    if found.wrong or found.troubles:
        parts += ["\n## What was wrong\n", "\n".join(f"- {line}" for line in [*found.wrong[:20], *found.troubles[:20]]), ""]
    return "\n".join(parts)


def percentiles(seconds: Sequence[float]) -> str:
    """Write p50, p99 and the most in milliseconds."""
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    return ", ".join(
        f"{name} {1000 * value:.0f}"
        for name, value in (("p50", median(ordered)), ("p99", ordered[int(0.99 * (len(ordered) - 1))]), ("most", ordered[-1]))
    )


def draw(found: Found, path: Path) -> None:
    """Draw memory, lag and waiting pods over time."""
    if importlib.util.find_spec("matplotlib") is None:
        print(f"matplotlib is not installed: {path.name} is not drawn", file=sys.stderr)
        return
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 9}):
        figure = Figure(figsize=(10, 6), layout="constrained")
        memory, lag, wait = figure.subplots(3, 1, sharex=True)
        minutes = [one.at_s / 60 for one in found.samples]
        memory.plot(minutes, [one.resident_mib for one in found.samples], color="#1f6fb2")
        memory.set_ylim(bottom=0)
        memory.set_title("resident memory of the extender, MiB", loc="left")
        _dots(lag, found.lags, "a change of a topology until the extender tells of it, ms")
        _dots(wait, found.waits, "a pod's creation to its binding, ms")
        wait.set_xlabel("minutes")
        for axes in (memory, lag, wait):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})


def _dots(axes: Any, points: Sequence[tuple[float, float]], title: str) -> None:
    axes.plot([at / 60 for at, _ in points], [1000 * value for _, value in points], ".", color="#1f6fb2", markersize=2)
    axes.set_yscale("log")
    axes.set_title(title, loc="left")
