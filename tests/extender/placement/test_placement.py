"""The situations of `tests/SITUATIONS.md`, and what is remembered between calls: the answer from the cache is the answer computed anew."""

import random
import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster import Cluster, Room, View
from extender.demand import Demand, Shape, read_demand
from extender.placement import Placement
from extender.reasons import Refusal, full_sentence
from tests.builders import Clock, PodBuilder, changed, cluster, pod
from topology.links import Distance

GPU = "nvidia.com/gpu"
SITUATIONS = Path(__file__).resolve().parents[2] / "SITUATIONS.md"
ALL = range(8)


def node_of(kind: str, free: object = ALL, unhealthy: object = ()) -> View:
    """One node named `node` of a machine kind, on which all GPUs but the ``free`` ones are held."""
    built = cluster().machine(kind, "node")
    uuids = built.uuids("node")
    held = [uuid for gpu, uuid in enumerate(uuids) if gpu not in free]  # type: ignore[operator]
    state = Cluster(GPU, Clock())
    state.apply_topology(changed(built.topologies[0], unhealthy=unhealthy))  # type: ignore[arg-type]
    if held:
        state.apply_pod(pod("others").holding("node", *held).build())
    return state.view()


def demand_of(asked: PodBuilder) -> Demand:
    return read_demand(asked.build())


def bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def placed(asked: PodBuilder, view: View) -> dict[str, list[int]] | Refusal:
    """Return the GPUs of each container, or the refusal; filter's answer and bind's are one."""
    demand, placement = demand_of(asked), Placement()
    refusal = Refusal(int(placement.fits(demand.shape, view).code[0]))
    plan = placement.place(demand.shape, view, 0)
    assert (plan is not None) == (refusal is Refusal.FITS)
    assert placement.refusal(demand.shape, view, 0) is refusal
    return refusal if plan is None else {name: bits(mask) for name, mask in zip(demand.containers, plan.masks, strict=True)}


ONE, TWO, FOUR = pod().gpus(1), pod().gpus(2), pod().gpus(4)
TWICE_TWO = pod().gpus(2, "a").gpus(2, "b")

FITTING = [
    pytest.param(ONE, node_of("bridges"), {"main": [0]}, id="1 one GPU, idle pairs"),
    pytest.param(ONE, node_of("bridges", [0, 1, 3, 4, 5]), {"main": [0]}, id="2 one GPU, one widow"),
    pytest.param(TWO, node_of("bridges"), {"main": [0, 2]}, id="3 two GPUs, the lowest two share no link"),
    pytest.param(TWO, node_of("bridges", [0, 1]), {"main": [0, 1]}, id="4 two GPUs of two pairs, no floor"),
    pytest.param(FOUR, node_of("bridges", [0, 1, 4, 6]), {"main": [0, 1, 4, 6]}, id="10 exactly as many as asked"),
    pytest.param(ONE.annotated(gpu_model="*a100*"), node_of("bridges", [3]), {"main": [3]}, id="12 the model in another case"),
    pytest.param(TWO.max_distance("NVLINK"), node_of("bridges", [0, 1, 3]), {"main": [1, 3]}, id="14 NVLink at most, a pair is free"),
    pytest.param(FOUR.max_distance("NVLINK"), node_of("dgx1v"), {"main": [0, 1, 2, 3]}, id="16 a clique of the cube mesh"),
    pytest.param(TWO.min_bandwidth(300), node_of("bridges", [0, 1, 3]), {"main": [1, 3]}, id="18 a floor that is exactly the best"),
    pytest.param(TWICE_TWO, node_of("bridges", [0, 1, 2, 3]), {"a": [0, 2], "b": [1, 3]}, id="19 two containers, two pairs"),
    pytest.param(pod().gpus(1, "a").gpus(2, "b"), node_of("bridges", [0, 1, 3]), {"a": [0], "b": [1, 3]}, id="21 a pair and a widow"),
    pytest.param(TWO.init(1), node_of("bridges", [0, 1, 2, 3]), {"init": [0], "main": [0, 2]}, id="22 a small init container"),
    pytest.param(ONE.init(3), node_of("mesh"), {"init": [0, 1, 2], "main": [0]}, id="23 a large init container"),
    pytest.param(
        pod().gpus(1, "a").gpus(1, "b").init(2).min_bandwidth(300),
        node_of("bridges", [0, 1, 2, 4, 6]),
        {"init": [0, 2], "a": [0], "b": [2]},
        id="24 an init container with a floor over single-GPU apps",
    ),
    pytest.param(
        pod().gpus(1).sidecar(1).init(1), node_of("mesh"), {"sidecar": [1], "init": [0], "main": [0]}, id="25 an init container beside a sidecar"
    ),
    pytest.param(
        pod().gpus(1).init(1).sidecar(1),
        node_of("mesh", [0, 1]),
        {"init": [0], "sidecar": [1], "main": [0]},
        id="26 an init container before a sidecar",
    ),
    pytest.param(TWO.annotated(topology="none"), node_of("bridges", [0, 1, 4, 5]), {"main": [0, 1]}, id="27 bandwidth does not matter"),
    pytest.param(
        TWO.annotated(topology="none").min_bandwidth(300), node_of("bridges", [0, 1, 4, 5]), {"main": [4, 5]}, id="28 it does not, above a floor"
    ),
    pytest.param(pod().gpus(8), node_of("nvswitch"), {"main": list(ALL)}, id="30 all GPUs"),
    pytest.param(TWO.max_distance("NODE"), node_of("pcie", [0, 4, 6]), {"main": [4, 6]}, id="32 within one socket"),
    pytest.param(
        pod().gpus(2, "a").gpus(1, "b").min_bandwidth(300),
        node_of("bridges", [0, 1, 3]),
        {"a": [1, 3], "b": [0]},
        id="33 the floor binds the large one",
    ),
    pytest.param(ONE.annotated(policy="spread"), node_of("bridges", [0, 1, 3, 4, 5]), {"main": [0]}, id="34 spread chooses nodes, not links"),
    pytest.param(FOUR.annotated(numa="single"), node_of("pcie"), {"main": [0, 1, 2, 3]}, id="35 four on one socket"),
    pytest.param(TWO.annotated(nic_distance="PIX"), node_of("pcie"), {"main": [2, 3]}, id="37 a pair beside its NIC"),
    pytest.param(TWICE_TWO.annotated(numa="single"), node_of("pcie", [0, 2, 4, 6]), {"a": [0, 2], "b": [4, 6]}, id="40 a socket for each container"),
    pytest.param(
        TWO.annotated(numa="single", max_distance="PIX", min_bandwidth="20"), node_of("pcie", [0, 2, 4, 5]), {"main": [4, 5]}, id="41 all at once"
    ),
    pytest.param(
        pod().gpus(4).annotated(policy="gpuallocator"), node_of("dgx1v", [0, 1, 3, 4, 5]), {"main": [0, 1, 3, 4]}, id="42 as NVIDIA's plugin would"
    ),
]

REFUSED = [
    pytest.param(
        TWO.annotated(numa="single"),
        node_of("pcie", [1, 5]),
        Refusal.NUMA,
        "2 of 8 GPUs free, at most 1 on one NUMA node, 2 asked on one",
        id="36 one free GPU a socket",
    ),
    pytest.param(
        pod().gpus(3).annotated(numa="single", nic_distance="PIX"),
        node_of("pcie"),
        Refusal.NUMA,
        "4 of 4 GPUs that have a NIC within PIX free, at most 2 on one NUMA node, 3 asked on one",
        id="38 two GPUs beside a NIC a socket",
    ),
    pytest.param(
        TWO.annotated(nic_distance="PIX"),
        node_of("mesh"),
        Refusal.NIC,
        "fewer than 2 GPUs of the node have a NIC within nic-distance PIX",
        id="39 no NIC is near",
    ),
    pytest.param(
        TWO.min_bandwidth(100),
        node_of("bridges", [0, 1]),
        Refusal.BANDWIDTH,
        "2 of 8 GPUs free, best pair 18 GB/s over SYS, 100 asked",
        id="5 two GPUs of two pairs, a floor",
    ),
    pytest.param(TWO, node_of("bridges", [3]), Refusal.NOT_ENOUGH_FREE, "1 of 8 GPUs free, 2 asked", id="6 one free GPU here, one there"),
    pytest.param(pod().gpus(5), node_of("mesh"), Refusal.TOO_SMALL, "the node has fewer than 5 healthy GPUs", id="7 more than the node has"),
    pytest.param(FOUR, node_of("mesh", unhealthy=[2]), Refusal.TOO_SMALL, "the node has fewer than 4 healthy GPUs", id="8 one is unhealthy"),
    pytest.param(FOUR, node_of("bridges", [0, 1, 2]), Refusal.NOT_ENOUGH_FREE, "3 of 8 GPUs free, 4 asked", id="9 one too few"),
    pytest.param(
        ONE.annotated(gpu_model="*H100*"),
        node_of("bridges"),
        Refusal.MODEL,
        "fewer than 1 GPUs of the node match gpu-model *H100*",
        id="11 another model",
    ),
    pytest.param(
        ONE.annotated(gpu_model="*A100*"),
        node_of("bridges", []),
        Refusal.NOT_ENOUGH_FREE,
        "0 of 8 GPUs that match *A100* free, 1 asked",
        id="13 the model, all held",
    ),
    pytest.param(
        TWO.max_distance("NVLINK"),
        node_of("bridges", [0, 1, 4, 6]),
        Refusal.DISTANCE,
        "4 of 8 GPUs free, best pair 18 GB/s over SYS, but none within max-distance NVLINK",
        id="15 no pair is whole",
    ),
    pytest.param(
        TWO.min_bandwidth(999),
        node_of("nvswitch"),
        Refusal.BANDWIDTH,
        "8 of 8 GPUs free, best pair 450 GB/s over NV18, 999 asked",
        id="17 a floor above all",
    ),
    pytest.param(
        TWICE_TWO.min_bandwidth(100),
        node_of("bridges", [0, 1, 4, 5]),
        Refusal.SPLIT,
        "4 of 8 GPUs free, the free GPUs cannot be split over the 2 GPU containers of the pod as it asks",
        id="20 one pair for two containers",
    ),
    pytest.param(
        TWO.max_distance("PIX"),
        node_of("pcie", [0, 2, 4, 6]),
        Refusal.DISTANCE,
        "4 of 8 GPUs free, best pair 22 GB/s over NODE, but none within max-distance PIX",
        id="31 half of each pair is held",
    ),
]


@pytest.mark.parametrize(("asked", "view", "gpus"), FITTING)
def test_situation_that_fits(asked: PodBuilder, view: View, gpus: dict[str, list[int]]):
    assert placed(asked, view) == gpus


@pytest.mark.parametrize(("asked", "view", "refusal", "sentence"), REFUSED)
def test_situation_that_is_refused_with_its_numbers(asked: PodBuilder, view: View, refusal: Refusal, sentence: str):
    assert placed(asked, view) is refusal
    demand = demand_of(asked)
    assert full_sentence(refusal, demand.asked, Placement().numbers(demand.shape, view, 0)) == sentence


@pytest.mark.parametrize(
    ("closing", "refusal"),
    [
        pytest.param(pod("x").gpus(1).bound_to("node", "garbage"), Refusal.ALLOCATION_UNREADABLE, id="29 an unreadable allocation"),
        pytest.param(pod("x").holding("node", "GPU-gone"), Refusal.GPU_MISSING, id="29 a GPU that is gone"),
        pytest.param(pod("x").gpus(1).bound_to("node"), Refusal.UNKNOWN_HOLDER, id="29 an unknown holder"),
    ],
)
@pytest.mark.parametrize("asked", [ONE, TWO.min_bandwidth(999), pod().gpus(99), ONE.annotated(gpu_model="none")])
def test_situation_of_a_closed_node(closing: PodBuilder, refusal: Refusal, asked: PodBuilder):
    state = Cluster(GPU, Clock())
    state.apply_topology(cluster().bridges("node").topologies[0])
    state.apply_pod(closing.build())
    assert placed(asked, state.view()) is refusal


def test_every_situation_of_the_table_has_a_case_and_every_case_a_situation():
    numbered = {int(number) for number in re.findall(r"^\| (\d+) \|", SITUATIONS.read_text(encoding="utf-8"), re.MULTILINE)}
    ids = [str(param.id) for param in (*FITTING, *REFUSED)] + ["29"]
    assert {int(case.split()[0]) for case in ids} == numbered == set(range(1, max(numbered) + 1))


# --- one node -------------------------------------------------------------------------------------------------------


def test_a_node_that_nobody_knows_has_no_topology():
    view, shape = node_of("mesh"), demand_of(TWO).shape
    assert Placement().refusal(shape, view, -1) is Refusal.NO_TOPOLOGY
    assert Placement().place(shape, view, -1) is None
    assert Placement().numbers(shape, view, -1).detail == ""


def test_what_is_outside_of_the_room_is_left_alone_and_may_leave_nothing():
    view, shape = node_of("bridges"), demand_of(TWO).shape
    beside = Placement().place(shape, view, 0, Room(0b11111010))
    assert beside is not None
    assert bits(beside.union) == [1, 3]
    assert Placement().place(shape, view, 0, Room(0b00000001)) is None


def test_the_numbers_of_a_refusal_are_those_of_sets_that_the_pod_would_accept():
    """A faster set beyond the ceiling is no answer to a pod that asks for both."""
    view = node_of("dgx1v")
    asked = demand_of(pod().gpus(4).min_bandwidth(120).max_distance("NVLINK"))
    numbers = Placement().numbers(asked.shape, view, 0)
    assert numbers.best is not None
    assert numbers.best < 120
    assert numbers.best_link == "NV1"


# --- what is remembered ---------------------------------------------------------------------------------------------

KINDS = ("bridges", "dgx1v", "mesh", "pcie")
shapes = st.sampled_from(
    [
        demand_of(asked).shape
        for asked in (
            ONE,
            TWO,
            FOUR,
            TWO.min_bandwidth(100),
            TWO.max_distance("PIX"),
            TWICE_TWO.min_bandwidth(20),
            pod().gpus(1).init(2),
            ONE.annotated(gpu_model="*A100*"),
            pod().shared(8),
            pod().shared(20).annotated(gpu_count="2", max_distance="NVLINK"),
            pod().shared(8, "a").shared(20, "b").init_shared(30),
            pod().gpus(2, "a").shared(30, "b"),
            pod().shared(30).annotated(gpu_model="*A100*", numa="single"),
        )
    ]
)


def random_event(rng: random.Random, state: Cluster) -> None:
    """Something happens to a node: a pod with whole GPUs or with parts comes, goes or garbles; GPUs break, vanish or are back; a new node comes."""
    number = rng.randrange(6)
    kind, name = KINDS[number % len(KINDS)], f"node-{number}"
    built = cluster().machine(kind, name)
    what = rng.randrange(8)
    if what >= 6:
        parts = {uuid: 1024 * rng.choice([4, 10, 25]) for uuid in rng.sample(built.uuids(name), rng.randrange(1, 3))}
        state.apply_pod(pod(f"p{rng.randrange(8)}").shared(4).sharing(name, parts).build())
    elif what == 0:
        state.apply_topology(built.topologies[0])
    elif what == 1:
        state.apply_topology(changed(built.topologies[0], unhealthy=[rng.randrange(4)], without=rng.choice([None, 3])))
    elif what == 2:
        state.remove_topology(name)
    elif what == 3:
        state.remove_pod(pod(f"p{rng.randrange(8)}").uid)
    elif what == 4:
        state.apply_pod(pod(f"p{rng.randrange(8)}").gpus(1).bound_to(name, rng.choice(["garbage", None])).build())
    else:
        uuids = rng.sample(built.uuids(name), rng.randrange(1, 4))
        state.apply_pod(pod(f"p{rng.randrange(8)}").holding(name, *uuids).build())


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 2**32), st.lists(st.lists(shapes, max_size=3), min_size=1, max_size=8))
def test_an_answer_brought_up_to_date_equals_one_computed_anew(seed: int, rounds: list[list[Shape]]):
    rng, state, placement = random.Random(seed), Cluster(GPU, Clock()), Placement()
    for asked in rounds:
        for _ in range(rng.randrange(4)):
            random_event(rng, state)
        view = state.view()
        for shape in asked:
            assert placement.fits(shape, view).code.tolist() == Placement().fits(shape, view).code.tolist()


def test_an_older_view_gets_its_own_answer_and_the_newer_one_after_it():
    state = Cluster(GPU, Clock())
    built = cluster().mesh("node")
    state.apply_topology(built.topologies[0])
    old = state.view()
    state.apply_pod(pod("p").holding("node", *built.uuids("node")).build())
    new = state.view()
    placement, shape = Placement(), demand_of(ONE).shape
    for view, refusal in ((new, Refusal.NOT_ENOUGH_FREE), (old, Refusal.FITS), (new, Refusal.NOT_ENOUGH_FREE)):
        assert placement.fits(shape, view).code.tolist() == [refusal]


def test_an_answer_is_kept_while_nothing_changes_and_cannot_be_written():
    placement, view, shape = Placement(), node_of("mesh"), demand_of(ONE).shape
    answer = placement.fits(shape, view)
    assert placement.fits(shape, view) is answer
    with pytest.raises(ValueError, match="read-only"):
        answer.code[0] = 1


def test_plans_of_equal_nodes_are_one():
    placement, shape = Placement(), demand_of(TWO).shape
    one, other = node_of("bridges", [0, 1, 3]), node_of("bridges", [0, 1, 3])
    assert placement.place(shape, one, 0) is placement.place(shape, other, 0)


def test_shapes_that_differ_in_a_wish_share_no_answer():
    placement, view = Placement(), node_of("bridges", [0, 1])
    near, far = demand_of(TWO.max_distance("NVLINK")).shape, demand_of(TWO).shape
    assert near.ceiling is Distance.NVLINK
    assert placement.fits(far, view).code.tolist() == [Refusal.FITS]
    assert placement.fits(near, view).code.tolist() == [Refusal.DISTANCE]


def test_tables_of_kinds_of_nodes_that_are_gone_are_let_go():
    """A node with failing links is of another kind each time somebody asks; what is kept does not grow with that, and answers stay those of a fresh process."""
    (topology,) = cluster().pcie("node").topologies
    state, placement, demand = Cluster(GPU, Clock()), Placement({1: 1.0}), demand_of(pod().gpus(1))
    most = 0
    for pairs in combinations(combinations(range(5), 2), 3):
        state.apply_topology(changed(topology, kept_apart=pairs))
        state.forget_gone()
        kept = placement.all_candidates(demand, state.view()).numbers
        most = max(most, len(placement.outlook))
    assert most <= 70
    assert kept.tolist() == Placement({1: 1.0}).all_candidates(demand, state.view()).numbers.tolist()
