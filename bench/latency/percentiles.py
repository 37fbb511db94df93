"""Many times in a few figures: the percentiles that a latency is judged by, and a ladder of them for a curve.

Used by `walk` and `crowd`. Percentiles are times that were really measured (nearest rank), never in between. The ladder gets closer towards the end, as in HdrHistogram's
plots: the slowest calls are the interesting ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LADDER: Final = (0, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92.5, 95, 97, 98, 99, 99.25, 99.5, 99.75, 99.9, 99.95, 99.99, 100)


@dataclass(frozen=True, slots=True)
class Latency:
    """The calls of one kind to one server; times in ms. ``first_ms``: the very first call, which is not among the others."""

    calls: int
    first_ms: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float
    calls_per_s: float
    ladder: tuple[tuple[float, float], ...]  # (percent, ms)


def latency(seconds: Sequence[float], first: float) -> Latency:
    """Return the figures of measured times, at least one."""
    ordered = sorted(second * 1000 for second in seconds)
    p50, p90, p99, p999 = (percentile(ordered, percent) for percent in (50, 90, 99, 99.9))
    ladder = tuple((float(percent), percentile(ordered, percent)) for percent in LADDER)
    return Latency(len(ordered), first * 1000, p50, p90, p99, p999, ordered[-1], 1000 * len(ordered) / sum(ordered), ladder)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the smallest of the values, given in order, that at least so many percent of them do not exceed.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50), percentile([1.0, 2.0, 3.0, 4.0], 99)
    (2.0, 4.0)
    """
    return ordered[max(0, math.ceil(round(percent * len(ordered) / 100, 9)) - 1)]
