"""From records to the few figures that are quoted: means, percentiles, targets.

A 25th percentile is taken over all jobs of all runs of a machine and policy. Predicted bandwidths lie on few levels, so that the percentile of a single run jumps
between two of them by one job more or less; the mean of the runs' own percentiles stands beside it in the JSON.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.topology_quality import mapa
from bench.topology_quality.mapa import Run


@dataclass(frozen=True, slots=True)
class Summary:
    """One policy on one machine over all runs; GB/s as MAPA predicts them, makespan in cycles."""

    machine: str
    policy: str
    runs: int
    sensitive_mean: float
    sensitive_p25: float
    sensitive_p25_mean_of_runs: float
    insensitive_mean: float
    makespan: float


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that was asked of Linkwise on one machine."""

    machine: str
    what: str
    got: float
    asked: float

    @property
    def met(self) -> bool:
        """Whether it holds; a ten-thousandth is rounding."""
        return self.got >= self.asked - 1e-4

    def facts(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "met": self.met}


def summaries(runs: Iterable[Run]) -> list[Summary]:
    """Return one `Summary` a machine and policy, in the order in which they come."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.machine, run.policy), []).append(run)
    return [_summary(machine, policy, group) for (machine, policy), group in groups.items()]


def _summary(machine: str, policy: str, runs: Sequence[Run]) -> Summary:
    return Summary(
        machine,
        policy,
        len(runs),
        _rounded(np.mean([np.mean(run.sensitive) for run in runs])),
        _rounded(np.percentile(np.concatenate([run.sensitive for run in runs]), 25)),
        _rounded(np.mean([np.percentile(run.sensitive, 25) for run in runs])),
        _rounded(np.mean([np.mean(run.insensitive) for run in runs])),
        _rounded(np.mean([run.makespan for run in runs])),
    )


def _rounded(value: Any) -> float:
    return round(float(value), 4)


def targets(found: Sequence[Summary], policy: str) -> list[Target]:
    """Return what is asked of a Linkwise policy: sensitive jobs as good as preserve's, others at most 5 percent behind greedy's, no longer makespan."""
    by = {(summary.machine, summary.policy): summary for summary in found}
    asked = []
    for machine in dict.fromkeys(summary.machine for summary in found):
        own, preserve, greedy = by[machine, policy], by[machine, "preserve"], by[machine, "greedy"]
        asked += [
            Target(machine, "sensitive, mean, against preserve", own.sensitive_mean, preserve.sensitive_mean),
            Target(machine, "sensitive, 25th percentile, against preserve", own.sensitive_p25, preserve.sensitive_p25),
            Target(machine, "insensitive, mean, against 95 percent of greedy", own.insensitive_mean, round(0.95 * greedy.insensitive_mean, 4)),
            Target(machine, "makespan, against preserve, negative", -own.makespan, -preserve.makespan),
        ]
    return asked


def anchor_distances(found: Sequence[Summary]) -> dict[str, float]:
    """Return how far our preserve is from the published mean on every machine, GB/s."""
    return {summary.machine: round(summary.sensitive_mean - mapa.ANCHORS[summary.machine], 2) for summary in found if summary.policy == "preserve"}
