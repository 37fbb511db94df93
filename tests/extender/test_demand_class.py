"""Classes of demands: counted, faded, bounded, moved in steps by `workload`, and set by hand in one accepted form."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.demand_class import (
    COVERED,
    MOST_CLASSES,
    SEED_TARGET,
    DemandClass,
    DemandCounts,
    as_objects,
    has_moved,
    read_classes,
    rounded,
)
from tests.builders import Clock
from tests.strategies import json_values
from topology.errors import InputError

HALF_LIFE_S = 3600.0
SHARE = DemandClass(4000, 1, 10_240)
EIGHT = DemandClass(64_000, 8)

demands = st.builds(DemandClass, st.integers(0, 200_000), st.integers(0, 20), st.integers(0, 80_000), st.none() | st.sampled_from(["*T4*", "*H100*"]))


def counts(seed: tuple[DemandClass, ...] = SEED_TARGET, seed_pods: float = 50.0) -> tuple[DemandCounts, Clock]:
    clock = Clock()
    return DemandCounts(HALF_LIFE_S, clock, seed, seed_pods), clock


def shares(counted: DemandCounts) -> dict[tuple[int, int, int, str | None], float]:
    return {(one.cpu_milli, one.gpus, one.mib, one.model): one.popularity for one in counted.target()}


def test_before_any_pod_the_seed_counts():
    """All of it: its rarest class is above what is cut off."""
    counted, _ = counts()
    assert {one.gpus for one in counted.target()} == {1, 2, 4, 8}


def test_what_pods_ask_for_comes_to_count_more():
    """150 pods stand beside a seed of 50."""
    counted, _ = counts()
    for _ in range(150):
        counted.note(SHARE)
    assert shares(counted)[4000, 1, 10_240, None] == pytest.approx(0.75, abs=0.05)


def test_counts_halve_with_time_whether_the_pod_came_then_or_was_found_later():
    """A pod of an hour ago counts half, by the clock or by its age."""
    counted, clock = counts((), 0.0)
    counted.note(SHARE)
    clock.now += HALF_LIFE_S
    counted.note(EIGHT, age_s=2 * HALF_LIFE_S)
    found = shares(counted)
    assert found[4000, 1, 10_240, None] == pytest.approx(2 * found[64_000, 8, 0, None])


def test_a_year_of_pods_does_not_run_over():
    """Newer counts outgrow older ones only so far."""
    counted, clock = counts()
    for _ in range(300):
        clock.now += 40 * HALF_LIFE_S
        counted.note(SHARE)
    counted.note(EIGHT)
    found = shares(counted)
    assert found.get((4000, 1, 10_240, None), 0.0) < 0.1, "one pod an eternity is as good as none"
    assert sum(found.values()) == pytest.approx(1.0)


def test_cpu_is_rounded_so_that_alike_pods_are_one_class():
    """3152 and 3190 milli are both 3200."""
    counted, _ = counts((), 0.0)
    counted.note(DemandClass(3152, 1))
    counted.note(DemandClass(3190, 1))
    assert counted.target() == (DemandClass(3200, 1, popularity=1.0),)


@given(st.integers(-5, 10**9))
def test_rounding_keeps_two_digits_and_changes_little(cpu: int):
    """At most a twentieth away, and never absurd."""
    found = rounded(cpu)
    assert found == 0 or abs(found - min(cpu, 10_000_000)) <= found / 18
    assert len(str(found).rstrip("0")) <= 2


@given(st.lists(st.tuples(st.floats(0, 1e5), demands), max_size=40))
def test_the_target_is_shares_of_one_whatever_comes_in_whatever_order(pods: list[tuple[float, DemandClass]]):
    """The same pods at the same time give the same target, in any order."""
    targets = []
    for order in (pods, pods[::-1]):
        counted, clock = counts()
        for age, one in order:
            counted.note(one, age)
        clock.now += 60
        targets.append(counted.target())
    for a, b in zip(*targets, strict=True):
        assert a.popularity == pytest.approx(b.popularity)
    assert sum(one.popularity for one in targets[0]) == pytest.approx(1.0)
    assert all(one.gpus <= 16 for one in targets[0])


def test_rare_classes_are_left_out_and_their_number_is_bounded():
    """A thousand pods that are all different do not make a thousand classes."""
    counted, _ = counts((), 0.0)
    for mib in range(1, 5001):
        counted.note(DemandClass(1000, 1, mib))
    assert len(counted.target()) == MOST_CLASSES
    few, _ = counts((), 0.0)
    for size, often in ((1, 95), (2, 4), (4, 1)):
        for _ in range(often):
            few.note(DemandClass(0, size))
    assert [one.gpus for one in few.target()] == [1], f"one class covers {COVERED:.0%}"


@pytest.mark.parametrize(
    ("now", "moved"),
    [
        pytest.param((DemandClass(0, 1, popularity=1.0),), False, id="the same"),
        pytest.param((DemandClass(0, 1, popularity=0.96), DemandClass(0, 2, popularity=0.04)), False, id="a little"),
        pytest.param((DemandClass(0, 1, popularity=0.95), DemandClass(0, 2, popularity=0.05)), True, id="a step"),
        pytest.param((DemandClass(1, 1, popularity=1.0),), True, id="all of them ask for other things"),
    ],
)
def test_a_target_has_moved_once_half_the_differences_reach_a_step(now: tuple[DemandClass, ...], moved: bool):
    """Shares of 0.05 that went from some classes to others."""
    assert has_moved(now, (DemandClass(0, 1, popularity=1.0),), 0.05) is moved


def test_what_is_told_can_be_set_again():
    """GET and PUT speak one language."""
    found = read_classes(as_objects(SEED_TARGET))
    assert [(one.gpus, one.mib, one.cpu_milli) for one in found] == [(one.gpus, one.mib, one.cpu_milli) for one in SEED_TARGET]


@pytest.mark.parametrize(
    "classes",
    [
        pytest.param({}, id="no list"),
        pytest.param([], id="empty"),
        pytest.param([{"gpus": 1}], id="without popularity"),
        pytest.param([{"popularity": 1}], id="without GPUs"),
        pytest.param([{"gpus": 17, "popularity": 1}], id="larger than any node"),
        pytest.param([{"gpus": True, "popularity": 1}], id="no number"),
        pytest.param([{"gpus": 1, "popularity": 0}], id="nobody asks for it"),
        pytest.param([{"gpus": 1, "popularity": 1e300}], id="beyond all measure"),
        pytest.param([{"gpus": 1, "popularity": 1, "memoryMiB": -1}], id="less than nothing"),
        pytest.param([{"gpus": 0, "popularity": 1, "memoryMiB": 1024}], id="memory of no GPU"),
        pytest.param([{"gpus": 1, "popularity": 1, "cpuMilli": 1.5}], id="a part of a milli"),
        pytest.param([{"gpus": 1, "popularity": 1, "model": ""}], id="a model without a name"),
        pytest.param([{"gpus": 1, "popularity": 1, "cpu": 1}], id="unknown key"),
        pytest.param([{"gpus": 1, "popularity": 1}] * 201, id="too many"),
    ],
)
def test_classes_that_cannot_be_are_refused_with_the_accepted_form(classes: object):
    """The sentence names what was found and what would do."""
    with pytest.raises(InputError, match=r"accepted: a list of 1 to 200 objects"):
        read_classes(classes)


@given(json_values)
def test_any_json_is_read_or_refused(found: object):
    """Nothing crashes on bad input."""
    with contextlib.suppress(InputError):
        assert sum(one.popularity for one in read_classes(found)) == pytest.approx(1.0)
