"""Figures are those of the runs, worked out by hand here."""

import pytest

from extender.simulate.figures import figures, percentile
from extender.simulate.jobs import Job
from extender.simulate.replay import Moment, Run, Start
from extender.simulate.sides import Placed
from tests.builders import pod


def job(name: str, arrives: float = 0.0) -> Job:
    return Job(pod(name).gpus(2).build(), arrives)


def start(of: Job, at: float, gb_per_s: float, mask: int = 0b11, until: float | None = None) -> Start:
    return Start(of, at, Placed("n", 0, mask, gb_per_s, float(mask.bit_count())), until)


A, B, C = job("a", 0), job("b", 10), job("c", 20)


def test_allocation_is_the_mean_over_the_time_in_which_pods_came():
    """2 of 8 GPUs for 10 s, 4 for 5 s, 6 for 5 s; what follows the last arrival does not count."""
    moments = [Moment(0, 1, 2, 0, 0.1), Moment(10, 2, 4, 0, 0.3), Moment(15, 2, 6, 0, None), Moment(20, 3, 8, 0, None), Moment(90, 3, 0, 0, None)]
    (found,) = figures([Run("pack", 8, [A, B, C], [start(A, 0, 50, until=90)], moments=moments)])
    assert (found.allocated, found.most, found.fragmentation) == (pytest.approx(100 * 70 / 20 / 8), 100.0, pytest.approx(20.0))


def test_without_time_allocation_is_what_was_reached():
    """All come at once and stay."""
    moments = [Moment(0, 1, 2, 0, None), Moment(0, 2, 4, 0, None)]
    (found,) = figures([Run("pack", 8, [job("a"), job("b")], moments=moments)])
    assert (found.allocated, found.fragmentation) == (50.0, 0.0)


def test_bandwidth_is_compared_over_the_pods_that_every_policy_placed():
    """Nobody gains by refusing the hard ones; pods of one GPU have no links of their own."""
    one = Run("pack", 8, [A, B, C], starts=[start(A, 0, 100), start(B, 10, 50), start(C, 25, 0.0, 0b1)])
    other = Run("count", 8, [A, B, C], starts=[start(A, 4, 20)], refused={B.uid: "no"}, waiting=[C])
    ours, theirs = figures([one, other])
    assert (ours.gb_per_s_mean, ours.pods_compared, theirs.gb_per_s_mean) == (100, 1, 20)
    assert (ours.waiting_mean_s, ours.waiting_p95_s) == (pytest.approx(5 / 3), 5)
    assert (theirs.placed, theirs.refused, theirs.never_placed, theirs.waiting_mean_s) == (1, 1, 1, 4)


def test_what_nobody_has_is_none():
    """No pod was placed: there is no mean to tell."""
    (found,) = figures([Run("pack", 0, [A], refused={A.uid: "no"})])
    assert (found.gb_per_s_mean, found.waiting_mean_s, found.waiting_p95_s, found.allocated) == (None, None, None, 0.0)


def test_the_95th_percentile_is_a_value_that_occurs():
    """Of one hundred values the ninety-fifth."""
    assert percentile([float(n) for n in range(1, 101)], 0.95) == 95
    assert percentile([7.0], 0.95) == 7
