"""A side places pods as its policy says: Linkwise as the served extender does, counting as stock Kubernetes does; neither promises a GPU twice."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.requests import quantity
from extender.settings import Policy, Settings
from extender.simulate.jobs import Job
from extender.simulate.sides import COUNT, POLICIES, Placed, Side, side
from tests.builders import ClusterBuilder, PodBuilder, cluster, extender_on, pod
from topology.errors import DemandError

MIXED = cluster().dgx1v("dgx").bridges("pairs").mesh("mesh")


def side_of(policy: str, built: ClusterBuilder = MIXED) -> Side:
    return side(policy, built.snapshot(), Settings())


def job(asked: PodBuilder) -> Job:
    return Job(asked.build())


wanted = st.lists(
    st.builds(
        lambda gpus, care: (gpus, care),
        st.lists(st.sampled_from([1, 1, 2, 2, 3, 4, 8]), min_size=1, max_size=2),
        st.sampled_from([{}, {"topology": "none"}, {"max_distance": "NVLINK"}, {"min_bandwidth": "50"}]),
    ),
    min_size=1,
    max_size=12,
)


def as_pod(number: int, gpus: list[int], wishes: dict[str, str]) -> PodBuilder:
    asked = pod(f"p{number}").annotated(**({} if max(gpus) < 2 else wishes))
    for at, count in enumerate(gpus):
        asked = asked.gpus(count, f"c{at}")
    return asked


@settings(max_examples=30, deadline=None)
@given(wanted, st.sampled_from(Policy))
def test_linkwise_goes_where_filter_prioritize_and_bind_go(pods: list[tuple[list[int], dict[str, str]]], policy: Policy):
    """The same pods one after another over the verbs, in bytes, and through the side: the same nodes and GPUs."""
    served, simulated = extender_on(MIXED, Settings(policy=policy)), side_of(policy.value)
    for number, (gpus, wishes) in enumerate(pods):
        asked = as_pod(number, gpus, wishes)
        placed = simulated.place(job(asked))
        if placed is None:
            assert served.filter(asked)["NodeNames"] == []
            continue
        fitting = served.filter(asked)["NodeNames"]
        scores = served.prioritize(asked, *fitting) if len(fitting) > 1 else {fitting[0]: 10}
        node = max(scores, key=lambda name: scores[name])
        assert asyncio.run(served.bind(asked, node)) == ""
        bits = [bit for bit in range(16) if placed.mask >> bit & 1]
        assert (placed.node, bits) == (node, served.indices(asked, node))


@settings(max_examples=30, deadline=None)
@given(wanted, st.sampled_from(POLICIES), st.data())
def test_what_left_is_free_again_and_nothing_is_held_twice(pods: list[tuple[list[int], dict[str, str]]], policy: str, data: st.DataObject):
    """Pods come and leave in any order; the free GPUs are always those that no running pod has."""
    own = side_of(policy)
    running: dict[str, tuple[Job, str, int]] = {}
    for number, (gpus, wishes) in enumerate(pods):
        new = job(as_pod(number, gpus, wishes))
        placed = own.place(new)
        if placed is not None:
            assert not any(node == placed.node and mask & placed.mask for _, node, mask in running.values())
            running[new.uid] = (new, placed.node, placed.mask)
        if running and data.draw(st.booleans()):
            gone, _, _ = running.pop(data.draw(st.sampled_from(sorted(running))))
            own.finish(gone)
    view = own.cluster.view()
    held = {name: int(view.usable[row] & ~view.free[row]) for name, row in view.row_of.items()}
    assert held == {name: sum(mask for _, node, mask in running.values() if node == name) for name in held}


def gpus_of(placed: Placed | None) -> tuple[str, list[int]]:
    assert placed is not None
    return placed.node, [bit for bit in range(16) if placed.mask >> bit & 1]


def test_counting_takes_the_first_node_and_there_the_lowest_gpus():
    """Whatever their links: after a notebook on GPU 0 the four lowest free GPUs of a DGX-1V have no NVLink ring."""
    own = side_of(COUNT)
    assert gpus_of(own.place(job(pod("notebook").gpus(1)))) == ("dgx", [0])
    four = own.place(job(pod("four").gpus(4)))
    assert gpus_of(four) == ("dgx", [1, 2, 3, 4])
    best = side_of("pack").place(job(pod("four").gpus(4)))
    assert four is not None
    assert best is not None
    assert four.gb_per_s < 20
    assert best.gb_per_s >= 100
    assert gpus_of(own.place(job(pod("next").gpus(4)))) == ("pairs", [0, 1, 2, 3])


def test_counting_gives_an_init_container_the_gpus_of_its_pod():
    """Kubelet reuses them; a sidecar keeps its own."""
    own = side_of(COUNT, cluster().dgx1v("dgx"))
    assert gpus_of(own.place(job(pod("a").init(3).gpus(2)))) == ("dgx", [0, 1, 2])
    assert gpus_of(own.place(job(pod("b").sidecar(1).init(1).gpus(2)))) == ("dgx", [3, 4, 5])


def test_counting_goes_by_the_model_as_a_node_selector_would():
    """It is the one wish that stock Kubernetes knows a way for."""
    placed = side_of(COUNT).place(job(pod("a").gpus(2).annotated(gpu_model="*A100-SXM4-40GB*, *H200*")))
    assert gpus_of(placed) == ("mesh", [0, 1])


def test_a_node_without_cpu_takes_no_pod_and_gives_it_back_when_pods_leave():
    """Pods with and without GPUs share a node's CPU, under every policy."""
    built = cluster().mesh("mesh").node("mesh", cpu="8")
    for policy in POLICIES:
        own = side_of(policy, built)
        plain, gpu = Job(_asking(pod("plain").plain(), "6")), Job(_asking(pod("gpu").gpus(1), "3"))
        assert own.place(plain) is not None
        assert own.place(gpu) is None
        own.finish(plain)
        assert own.place(gpu) is not None
        assert own.never(Job(_asking(pod("huge").plain(), "9"))) == "no node has its CPU and memory, or is selected by it"


def _asking(asked: PodBuilder, cpu: str) -> dict[str, object]:
    raw = asked.build()
    raw["spec"]["containers"][0].setdefault("resources", {})["requests"] = {"cpu": cpu}
    return raw


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        pytest.param(pod("a").gpus(2).min_bandwidth(999), "999", id="more bandwidth than any set has"),
        pytest.param(pod("a").gpus(9), "9", id="more GPUs than any node has"),
        pytest.param(pod("a").gpus(1).annotated(gpu_model="*B200*"), "*B200*", id="a model that nobody has"),
        pytest.param(pod("a").gpus(1).annotated(gpu_modell="x"), "linkwise.dev/gpu-modell", id="an annotation that cannot be read"),
        pytest.param(pod("a").gpus(2), "", id="a pod that fits"),
    ],
)
def test_what_never_fits_is_said_with_the_reason(asked: PodBuilder, sentence: str):
    """The sentence is filter's own; it does not change while others run."""
    own = side_of("pack")
    for number in range(5):
        own.place(job(pod(f"other{number}").gpus(4)))
    why = own.never(job(asked))
    assert sentence in why
    assert bool(why) == bool(sentence)


def test_gpus_are_those_of_open_nodes():
    """A node that takes no pods is no capacity; what runs there in the snapshot does not count either way."""
    assert side_of("pack").gpus == 8 + 8 + 4
    foreign = pod("foreign").gpus(1).bound_to("mesh")
    assert side_of("pack", MIXED.with_pods(foreign)).gpus == 8 + 8


def test_a_pod_that_cannot_be_read_is_not_placed():
    """`never` tells it before; who asks all the same gets the demand's own error."""
    with pytest.raises(DemandError):
        side_of("pack").place(job(pod("a").gpus(1).annotated(gpu_modell="x")))


def test_linkwise_lets_pods_share_a_gpu_and_counting_does_not():
    """Two halves of a 40 GiB GPU: one GPU for Linkwise, two where GPUs are only counted; either way half a GPU was asked for each time."""
    for policy, expected in (("pack", [0b1, 0b1]), (COUNT, [0b1, 0b10])):
        own = side_of(policy, cluster().mesh("mesh"))
        placed = [own.place(job(pod(f"p{number}").shared(20))) for number in range(2)]
        assert [(one.mask, one.gpus) for one in placed if one is not None] == [(mask, 0.5) for mask in expected]


def test_a_share_on_each_of_two_gpus_counts_both_parts():
    """10 GiB of each of two 40 GiB GPUs are half a GPU."""
    placed = side_of("pack", cluster().mesh("mesh")).place(job(pod("a").shared(20).annotated(gpu_count="2")))
    assert placed is not None
    assert (placed.mask.bit_count(), placed.gpus) == (2, 0.5)
    assert placed.gb_per_s > 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["1", "7", "20", "500m"])), min_size=1, max_size=15))
def test_pods_without_gpus_go_where_prioritize_scores_them_highest(pods: list[tuple[bool, str]]):
    """Beside pods with GPUs, on nodes of which some tell their CPU."""
    built = MIXED.node("dgx", cpu="40").node("pairs", cpu="64")
    served, simulated = extender_on(built), side_of("pack", built)
    for number, (with_gpu, cpu) in enumerate(pods):
        asked = pod(f"p{number}").gpus(1) if with_gpu else pod(f"p{number}").plain()
        raw = _asking(asked, cpu)
        placed = simulated.place(Job(raw))
        if placed is None:
            continue
        open_nodes = [name for name, left in zip(served.names(), served.cluster.view().cpu_left.tolist(), strict=True) if left >= quantity(cpu, 1000)]
        call = json.dumps({"Pod": raw, "NodeNames": open_nodes}).encode()
        fitting = json.loads(served.verbs.filter(call))["NodeNames"]
        scores = {one["Host"]: one["Score"] for one in json.loads(served.verbs.prioritize(json.dumps({"Pod": raw, "NodeNames": fitting}).encode()))}
        assert scores[placed.node] == max(scores.values())
        served.cluster.apply_pod({**raw, "spec": {**raw["spec"], "nodeName": placed.node}}) if not with_gpu else asyncio.run(
            served.bind(asked, placed.node)
        )
