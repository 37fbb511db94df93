"""What a replay gave, as numbers: how full the cluster was, how broken its free GPUs, what pods got, how long they waited.

Called by `command`; `report` and `plot` show the `Figures`. GB/s are compared over the pods that every policy placed, so that none gains by refusing the hard ones.
"""

import math
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from extender.simulate.replay import Moment, Run


@dataclass(frozen=True, slots=True)
class Figures:
    """One policy's figures; percents are 0 to 100, None where there is nothing to take a mean of.

    ``allocated``: percent of the cluster's GPUs in use by the workload, the mean over the time from the first arrival to the last, or what it is at the end where time plays no
    part; ``most`` the highest. ``fragmentation``: percent of the cluster's worth that is lost as free GPUs do not lie together
    (`extender.placement.overall`), mean over arrivals.
    """

    policy: str
    placed: int
    refused: int
    never_placed: int
    allocated: float
    most: float
    fragmentation: float
    gb_per_s_mean: float | None
    gb_per_s_median: float | None
    pods_compared: int
    waiting_mean_s: float | None
    waiting_p95_s: float | None


def figures(runs: Sequence[Run]) -> list[Figures]:
    """Return the figures of each run of the same workload."""
    common = _placed_by_all(runs)
    return [_figures(run, common) for run in runs]


def _placed_by_all(runs: Sequence[Run]) -> AbstractSet[str]:
    """Return the pods with links of their own that every policy placed."""
    found = [{start.job.uid for start in run.starts if start.placed.mask.bit_count() > 1} for run in runs]
    return set.intersection(*found) if found else set()


def _figures(run: Run, common: AbstractSet[str]) -> Figures:
    rates = [start.placed.gb_per_s for start in run.starts if start.job.uid in common and start.placed.gb_per_s > 0]
    waits = sorted(start.at_s - start.job.arrives_s for start in run.starts)
    broken = [moment.fragmentation for moment in run.moments if moment.fragmentation is not None]
    return Figures(
        policy=run.policy,
        placed=len(run.starts),
        refused=len(run.refused),
        never_placed=len(run.waiting),
        allocated=_percent(_mean_gpus(run), run.capacity),
        most=_percent(max((moment.gpus for moment in run.moments), default=0.0), run.capacity),
        fragmentation=100 * fmean(broken) if broken else 0.0,
        gb_per_s_mean=fmean(rates) if rates else None,
        gb_per_s_median=median(rates) if rates else None,
        pods_compared=len(rates),
        waiting_mean_s=fmean(waits) if waits else None,
        waiting_p95_s=percentile(waits, 0.95) if waits else None,
    )


def _percent(gpus: float, capacity: int) -> float:
    return 100 * gpus / capacity if capacity else 0.0


def _mean_gpus(run: Run) -> float:
    """GPUs in use: the mean over the time from the first arrival to the last, or what was reached where everybody stays or comes at once."""
    first, last = run.jobs[0].arrives_s, run.jobs[-1].arrives_s
    if not run.timed or last <= first:
        return max((moment.gpus for moment in run.moments), default=0.0)
    return sum(gpus * seconds for gpus, seconds in _spans(run.moments, last)) / (last - first)


def _spans(moments: Sequence[Moment], until_s: float) -> Iterable[tuple[float, float]]:
    """Yield GPUs in use and for how long, up to a time."""
    for moment, following in pairwise(moments):
        if moment.at_s < until_s:
            yield moment.gpus, min(following.at_s, until_s) - moment.at_s


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that at least that share of the values does not exceed.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]
