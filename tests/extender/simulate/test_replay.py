"""Pods arrive, wait, run and leave: the queue is first in, first out unless the rules say otherwise, and everybody ends somewhere."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.settings import Settings
from extender.simulate.jobs import Job
from extender.simulate.replay import DROPPED, Rules, Run, replay
from extender.simulate.sides import POLICIES, side
from tests.builders import cluster, pod

MESH = cluster().mesh("mesh")  # 4 GPUs


def job(name: str, gpus: int, arrives: float = 0.0, runs: float | None = None) -> Job:
    return Job(pod(name).gpus(gpus).build(), arrives, runs)


def run_of(jobs: list[Job], rules: Rules | None = None, policy: str = "pack") -> Run:
    return replay(policy, jobs, side(policy, MESH.snapshot(), Settings()), rules or Rules())


def starts(run: Run) -> dict[str, float]:
    return {start.job.name: start.at_s for start in run.starts}


# a runs on 3 of 4 GPUs until 10; b wants all, c one.
THREE = [job("a", 3, 0, 10), job("b", 4, 1, 10), job("c", 1, 2, 10)]


@pytest.mark.parametrize(
    ("rules", "expected", "refused"),
    [
        pytest.param(Rules(), {"a": 0, "b": 10, "c": 20}, {}, id="the head of the queue keeps the others waiting"),
        pytest.param(Rules(backfill=True), {"a": 0, "c": 2, "b": 12}, {}, id="others may pass it"),
        pytest.param(Rules(drop=True), {"a": 0, "c": 2}, {"default/b": DROPPED}, id="who finds no room is dropped"),
    ],
)
def test_the_rules_of_the_queue(rules: Rules, expected: dict[str, float], refused: dict[str, str]):
    """Nobody starts before its arrival, and each start is at an arrival or when somebody left."""
    run = run_of(THREE, rules)
    assert (starts(run), run.refused, run.waiting) == (expected, refused, [])


def test_nobody_leaves_who_is_told_to_stay():
    """Then the queue is never let in."""
    run = run_of(THREE, Rules(stay=True))
    assert starts(run) == {"a": 0}
    assert [waiting.name for waiting in run.waiting] == ["b", "c"]


def test_a_pod_that_never_fits_keeps_nobody_waiting():
    """It is refused when it comes, with the sentence of filter."""
    run = run_of([job("a", 5, 0), job("b", 4, 1)])
    assert starts(run) == {"b": 1}
    assert "5" in run.refused["default/a"]


def test_gpus_that_are_given_back_in_one_moment_are_free_together():
    """Two pods leave at 10; the one that waits for all four GPUs starts then."""
    run = run_of([job("a", 2, 0, 10), job("b", 2, 0, 10), job("c", 4, 5)])
    assert starts(run)["c"] == 10


def test_moments_tell_gpus_in_use_and_who_waits():
    """After every arrival and every departure."""
    run = run_of(THREE)
    assert [(moment.at_s, moment.gpus, moment.waiting) for moment in run.moments] == [
        (0, 3, 0),
        (1, 3, 1),
        (2, 3, 2),
        (10, 4, 1),
        (20, 1, 0),
        (30, 0, 0),
    ]
    assert run.timed
    assert not run_of([job("a", 1), job("b", 1)]).timed


jobs = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 20), st.one_of(st.none(), st.integers(0, 20))).map(lambda one: (one[0], float(one[1]), one[2])),
    min_size=1,
    max_size=15,
)


@settings(max_examples=40, deadline=None)
@given(jobs, st.builds(Rules, st.booleans(), st.booleans(), st.booleans()), st.sampled_from(POLICIES))
def test_everybody_is_placed_refused_or_waiting_and_never_too_many_at_once(asked: list[tuple[int, float, int | None]], rules: Rules, policy: str):
    """Without backfill starts stand in the order of arrival; GPUs in use follow from starts and ends alone."""
    ordered = sorted((job(f"p{number}", *one) for number, one in enumerate(asked)), key=lambda one: one.arrives_s)
    run = run_of(ordered, rules, policy)
    ends = [*(start.job.uid for start in run.starts), *run.refused, *(waiting.uid for waiting in run.waiting)]
    assert sorted(ends) == sorted(one.uid for one in ordered)
    assert not (rules.drop and run.waiting)
    assert all(start.at_s >= start.job.arrives_s for start in run.starts)
    if not rules.backfill:
        order = [ordered.index(start.job) for start in run.starts]
        assert order == sorted(order)
    for moment in run.moments:
        used = sum(start.placed.gpus for start in run.starts if start.at_s <= moment.at_s and (start.until_s is None or start.until_s > moment.at_s))
        assert moment.gpus <= 4
        assert moment.at_s != run.moments[-1].at_s or run.moments[-1].gpus == used
