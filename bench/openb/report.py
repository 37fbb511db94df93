"""Runs as tables: allocation and fragmentation beside the published figures, and how far ours are from them.

Called by `bench.placement_quality` with the runs of all policies, traces and seeds; `plots` draws the same runs.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.markdown import table
from bench.openb import published
from bench.openb.replay import Curves

AT = (100, 130)  # percent arrived, of GPU allocated
FRAGMENTATION_AT = (50, 80, 100)
STUDENT_975 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}  # by number of pairs; above: 2


@dataclass(frozen=True, slots=True)
class Run:
    """One replay."""

    policy: str
    trace: str
    seed: int
    curves: Curves

    def facts(self) -> dict[str, Any]:
        """Return it as plain data: the figures at the percents of the tables."""
        curves = self.curves
        return {
            "policy": self.policy,
            "trace": self.trace,
            "seed": self.seed,
            "allocated": {str(at): round(curves.allocated[at], 4) for at in AT},
            "fragmentation": {str(at): round(curves.fragmentation[at], 4) for at in FRAGMENTATION_AT},
            "dropped": curves.dropped,
        }


class Runs:
    """All runs of a command, by policy and trace, in the order of their seeds."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.all = sorted(runs, key=lambda run: run.seed)
        self.policies = tuple(dict.fromkeys(run.policy for run in self.all))
        self.traces = tuple(dict.fromkeys(run.trace for run in self.all))

    def of(self, policy: str, trace: str) -> list[Run]:
        """Return the runs of one policy on one trace, by seed."""
        return [run for run in self.all if (run.policy, run.trace) == (policy, trace)]

    def mean(self, policy: str, trace: str, figure: Callable[[Curves], float]) -> float:
        """Return the mean of a figure over the seeds."""
        return statistics.fmean(figure(run.curves) for run in self.of(policy, trace))

    def curves(self) -> Iterator[dict[str, Any]]:
        """Yield the curves of each policy on each trace as plain data, means over the seeds; index: percent arrived, null where no pod arrived near it in some run."""
        for policy, trace in product(self.policies, self.traces):
            own = [run.curves for run in self.of(policy, trace)]
            yield {"policy": policy, "trace": trace} | {
                name: [_rounded(value) for value in np.mean([getattr(one, name) for one in own], axis=0)]
                for name in ("allocated", "fragmentation", "occupied")
            }


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 2)


def allocated_at(percent: int) -> Callable[[Curves], float]:
    """Return the figure: GPU allocated when that percent has arrived."""
    return lambda curves: curves.allocated[percent]


def fragmentation_at(percent: int) -> Callable[[Curves], float]:
    """Return the figure: F when that percent has arrived."""
    return lambda curves: curves.fragmentation[percent]


def text(runs: Runs, data: Path) -> str:
    """Return all parts of the report."""
    seeds = sorted({run.seed for run in runs.all})
    parts = [
        f"{len(runs.traces)} traces, {len(seeds)} seeds ({seeds[0]} to {seeds[-1]}). 1,213 nodes, 6,212 GPUs; pods arrive until they ask for 1.3 times the cluster's GPUs.\n",
        _allocation_text(runs, data),
        _distance_text(runs, data),
        *(_paired_text(runs, policy) for policy in runs.policies if policy not in published.NAMES and "fgd" in runs.policies),
        _fragmentation_text(runs, data),
    ]
    return "\n".join(part for part in parts if part)


def _allocation_text(runs: Runs, data: Path) -> str:
    anchors = {at: published.allocated(data, at) for at in AT}
    bounds = published.bounds(data, AT[0])
    rows = []
    for trace in runs.traces:
        row = [trace]
        for policy in runs.policies:
            ours = " / ".join(f"{runs.mean(policy, trace, allocated_at(at)):.2f}" for at in AT)
            theirs = " / ".join(f"{anchors[at][trace, policy]:.2f}" for at in AT) if (trace, policy) in anchors[AT[0]] else ""
            row.append(f"{ours} ({theirs})" if theirs else ours)
        rows.append((*row, f"{bounds[trace]:.2f}" if trace in bounds else "-"))
    return (
        "## GPU allocated\n\nPercent of the cluster when 100 / 130 percent has arrived, mean over the seeds; in brackets what the paper's ten runs gave. Bound: no placer can "
        "exceed it at 100 percent.\n\n" + table(("trace", *runs.policies, "bound"), rows)
    )


def distances(runs: Runs, data: Path, policy: str, percent: int) -> list[float]:
    """Return ours minus published, points, of each trace with published figures."""
    anchors = published.allocated(data, percent)
    return [runs.mean(policy, trace, allocated_at(percent)) - anchors[trace, policy] for trace in runs.traces if (trace, policy) in anchors]


def _distance_text(runs: Runs, data: Path) -> str:
    rows = []
    for policy in runs.policies:
        cells = []
        for at in AT:
            found = distances(runs, data, policy, at)
            if found:
                cells += [f"{statistics.fmean(found):+.3f}", f"{statistics.fmean(map(abs, found)):.3f}", f"{max(found, key=abs):+.2f}"]
        if cells:
            rows.append((policy, *cells))
    head = ("policy", *(f"{what} at {at}" for at in AT for what in ("mean", "mean of amounts", "largest")))
    return (
        f"## Ours minus published\n\nPoints, over the traces; at most {published.MEANT_WITHIN} on average is meant.\n\n" + table(head, rows)
        if rows
        else ""
    )


def _paired_text(runs: Runs, policy: str) -> str:
    rows = []
    for trace in runs.traces:
        cells = []
        for at in AT:
            mean, half = paired(runs, policy, trace, at)
            cells.append(f"{mean:+.2f} ({mean - half:+.2f})" if half is not None else f"{mean:+.2f}")
        rows.append((trace, *cells))
    return (
        f"## {policy} minus fgd\n\nPoints of GPU allocated, mean over the same seeds, in brackets the lower end of its 95 percent interval.\n\n"
        + table(("trace", *(f"at {at}" for at in AT)), rows)
    )


def paired(runs: Runs, policy: str, trace: str, percent: int) -> tuple[float, float | None]:
    """Return the mean difference to FGD on the same seeds and half the width of its 95 percent interval, None for a single seed."""
    own = {run.seed: run.curves.allocated[percent] for run in runs.of(policy, trace)}
    found = [own[run.seed] - run.curves.allocated[percent] for run in runs.of("fgd", trace) if run.seed in own]
    if len(found) < 2:
        return statistics.fmean(found), None
    return statistics.fmean(found), STUDENT_975.get(len(found), 2.0) * statistics.stdev(found) / math.sqrt(len(found))


def _fragmentation_text(runs: Runs, data: Path) -> str:
    anchors = {at: published.fragmentation(data, at) for at in FRAGMENTATION_AT}
    rows: list[Sequence[str]] = []
    for trace in runs.traces:
        for policy in runs.policies:
            ours = [f"{runs.mean(policy, trace, fragmentation_at(at)):.2f}" for at in FRAGMENTATION_AT]
            theirs = [f" ({anchors[at][trace, policy]:.2f})" if (trace, policy) in anchors[at] else "" for at in FRAGMENTATION_AT]
            rows.append((trace, policy, *map("".join, zip(ours, theirs, strict=True))))
    return "## Fragmentation\n\nF, percent of the cluster, in brackets the paper's.\n\n" + table(
        ("trace", "policy", *(f"at {at} percent" for at in FRAGMENTATION_AT)), rows
    )
