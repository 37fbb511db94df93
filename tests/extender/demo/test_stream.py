import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.demand import read_demand
from extender.demo.stream import MOST_BUSY, Step, StreamPod, make_stream
from topology.api.annotations import MAX_DISTANCE, MIN_BANDWIDTH
from topology.links import Distance

GPUS = 72
streams = st.builds(make_stream, st.integers(0, 1000), st.integers(2, 80), st.just(GPUS), st.just("dgx1v-1"))


def pods_of(steps: tuple[Step, ...]) -> list[StreamPod]:
    return [step.pod for step in steps if step.arrives]


def test_same_seed_gives_the_same_stream_and_another_seed_another() -> None:
    assert make_stream(5, 24, GPUS, "a") == make_stream(5, 24, GPUS, "a")
    assert make_stream(5, 24, GPUS, "a") != make_stream(6, 24, GPUS, "a")


def test_stream_of_a_seed_is_the_same_on_every_machine() -> None:
    """Python promises the same draws for the same seed; the README's output rests on it."""
    assert [pod.name for pod in pods_of(make_stream(5, 8, GPUS, "a"))] == [
        "train-01",
        "infer-02",
        "train-03",
        "train-04",
        "large-05",
        "train-06",
        "large-07",
        "extreme-08",
    ]


@given(streams)
def test_every_pod_arrives_once_and_finishes_at_most_once_afterwards(steps: tuple[Step, ...]) -> None:
    arrived: set[str] = set()
    finished: set[str] = set()
    for step in steps:
        assert (step.pod.name in arrived) is not step.arrives
        assert step.pod.name not in finished
        (arrived if step.arrives else finished).add(step.pod.name)


@given(streams)
def test_pods_that_have_not_finished_never_ask_for_more_than_the_limit(steps: tuple[Step, ...]) -> None:
    asked = 0
    for step in steps[:-1]:
        asked += step.pod.total if step.arrives else -step.pod.total
        assert asked <= MOST_BUSY * GPUS


@given(streams)
def test_first_pod_selects_the_pictured_node_and_the_last_asks_for_too_much(steps: tuple[Step, ...]) -> None:
    pods = pods_of(steps)
    assert (pods[0].node, pods[0].total) == ("dgx1v-1", 4)
    assert float(pods[-1].wish(MIN_BANDWIDTH) or 0) > 450
    assert all(pod.node is None for pod in pods[1:])


@given(streams)
def test_extender_reads_every_pod_as_the_stream_means_it(steps: tuple[Step, ...]) -> None:
    for pod in pods_of(steps):
        shape = read_demand(pod.to_object()).shape
        assert tuple(part.gpus for part in shape.parts) == pod.gpus
        assert (shape.gpus, shape.largest) == (pod.total, pod.largest)
        assert shape.floor == float(pod.wish(MIN_BANDWIDTH) or 0)
        assert shape.ceiling is Distance[pod.wish(MAX_DISTANCE) or "SYS"]


@pytest.mark.parametrize("gpus", [(1,), (2,), (4,), (8,), (2, 2)], ids=str)
def test_a_long_stream_has_pods_of_every_size(gpus: tuple[int, ...]) -> None:
    assert gpus in {pod.gpus for pod in pods_of(make_stream(1, 100, GPUS, "a"))}
