"""What is kept of sentences is what a placement without memory tells, after any change; rows that fit are told nothing."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.demand import read_demand
from extender.placement import Placement
from extender.reasons import Refusal, wire_sentence
from tests.builders import cluster, extender_on, pod

NODES = ("a", "b", "c", "d")
BUILT = cluster().dgx1v("a").pcie("b").mesh("c").bridges("d")
ASKED = {
    "two GPUs": pod().gpus(2),
    "a floor": pod().gpus(2).min_bandwidth(200),
    "a share": pod().shared(30),
    "a large share": pod().shared(79),
    "shares with a floor": pod().shared(40).annotated(gpu_count="2", min_bandwidth="100"),
}


@settings(deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(NODES), st.integers(0, 7), st.booleans()), max_size=8), name=st.sampled_from(sorted(ASKED)))
def test_sentences_are_those_of_a_placement_that_has_kept_nothing(steps: list[tuple[str, int, bool]], name: str):
    extender = extender_on(BUILT)
    demand = read_demand(ASKED[name].build())
    kept = Placement()
    for number, (node, gpus, leaves) in enumerate(steps):
        uuids = extender.gpus_of(node)
        holder = pod(f"p{number}").holding(node, *uuids[gpus % len(uuids) :][:2])
        extender.cluster.apply_pod(holder.build())
        if leaves:
            extender.cluster.remove_pod(holder.uid)
        view = extender.cluster.view()
        told, fresh = kept.told(demand, view), Placement()
        codes = fresh.fits(demand.shape, view).code
        for row, code in enumerate(codes.tolist()):
            numbers = fresh.numbers(demand.shape, view, row)
            expected = wire_sentence(Refusal(code), demand.asked, numbers) if code else ""
            assert told.sentences[told.numbers[row]] == expected


def test_sentences_of_a_shape_are_bounded():
    """A shape that lives for months on a changing cluster does not collect sentences for ever."""
    extender = extender_on(BUILT)
    demand, placement = read_demand(pod().gpus(9).build()), Placement()
    view = extender.cluster.view()
    told = placement.told(demand, view)
    for number in range(2000):
        told.put(np.array([0]), f"sentence {number}")
    extender.cluster.apply_pod(pod("p").holding("a", extender.gpus_of("a")[0]).build())
    told = placement.told(demand, extender.cluster.view())
    assert len(told.sentences) < 10
    assert told.sentences[told.numbers[0]].startswith("linkwise: ")
