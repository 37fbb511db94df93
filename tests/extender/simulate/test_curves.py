"""A run as curves: the value that holds at each point, over time or over arrivals."""

from extender.simulate.curves import curves
from extender.simulate.jobs import Job
from extender.simulate.replay import Moment, Run, Start
from extender.simulate.sides import Placed
from tests.builders import pod


def job(name: str, arrives: float) -> Job:
    return Job(pod(name).gpus(1).build(), arrives)


def leaving(at_s: float) -> list[Start]:
    """Return the start of a pod that leaves then: time plays a part."""
    return [Start(job("x", 0), 0, Placed("n", 0, 1, 0.0, 1.0), at_s)]


def test_points_hold_the_last_value_before_them():
    """Steps, not slopes: between two events nothing changes."""
    moments = [Moment(0, 1, 2, 0, 0.5), Moment(50, 2, 4, 0, None), Moment(100, 2, 0, 0, 0.25)]
    allocated, broken = curves(Run("pack", 8, [job("a", 0), job("b", 50)], leaving(100), moments=moments), 5)
    assert allocated.values == (25.0, 25.0, 50.0, 50.0, 0.0)
    assert broken.values == (50.0, 50.0, 50.0, 50.0, 25.0)
    assert allocated.axis == "over 100 s"


def test_without_time_the_axis_counts_arrivals():
    """All come at once."""
    moments = [Moment(0, 1, 1, 0, None), Moment(0, 2, 2, 0, None), Moment(0, 3, 2, 0, None)]
    allocated, broken = curves(Run("pack", 2, [job("a", 0)] * 3, moments=moments), 3)
    assert (allocated.values, allocated.axis, broken.values) == ((50.0, 100.0, 100.0), "over 3 arrivals", (0.0, 0.0, 0.0))


def test_long_runs_are_told_in_hours():
    """A day is 24.0 h."""
    moments = [Moment(0, 1, 1, 0, None), Moment(86_400, 2, 1, 0, None)]
    assert curves(Run("pack", 2, [job("a", 0), job("b", 86_400)], leaving(86_400), moments=moments), 2)[0].axis == "over 24.0 h"
