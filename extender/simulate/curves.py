"""A run as two curves over time, or over arrivals where time plays no part: GPU allocated and fragmentation, percent, at evenly spaced points.

Called by `report` (a line of blocks) and `plot` (SVG).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from extender.simulate.replay import Run


@dataclass(frozen=True, slots=True)
class Curve:
    """Percents at evenly spaced points from the first arrival (0) to the last moment; ``axis`` says over what."""

    axis: str
    values: tuple[float, ...]


def curves(run: Run, points: int) -> tuple[Curve, Curve]:
    """Return GPU allocated and fragmentation of a run."""
    at = [moment.at_s for moment in run.moments] if run.timed else [float(moment.arrived) for moment in run.moments]
    gpus = [100 * moment.gpus / run.capacity if run.capacity else 0.0 for moment in run.moments]
    measured = [(place, 100 * moment.fragmentation) for place, moment in zip(at, run.moments, strict=True) if moment.fragmentation is not None]
    axis = f"over {_hours(at[-1] - at[0])}" if run.timed else f"over {len(run.jobs)} arrivals"
    ends = (at[0], at[-1])
    return Curve(axis, _sampled(at, gpus, points, ends)), Curve(axis, _sampled([x for x, _ in measured], [y for _, y in measured], points, ends))


def _sampled(at: Sequence[float], values: Sequence[float], points: int, ends: tuple[float, float]) -> tuple[float, ...]:
    """Return the value that holds at each point: a curve of steps."""
    first, last = ends
    if not values:
        return (0.0,) * points
    places = [first + (last - first) * number / max(1, points - 1) for number in range(points)]
    return tuple(values[max(0, bisect_right(at, place) - 1)] for place in places)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.0f} s"
