"""The cost of a placement is that of the sums written out, on any node, before and after; and it says what decision 16 says of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from extender.demand_class import SEED_TARGET, DemandClass
from extender.placement.outlook import (
    FULL_FROM,
    WEIGHT_INSIDE,
    WEIGHT_WHEN_FULL,
    WEIGHT_WITH_ROOM,
    Outlook,
    State,
    weight_of_fragmentation,
)
from extender.placement.outlook_tables import GpuKind
from extender.placement.prices import worth_of_rest
from extender.placement.shares import Rooms
from tests import outlook_oracle as slow
from topology.inventory import Gpu, Inventory
from topology.matrix import from_codes
from topology.topology_class import TopologyClass, members, topology_class

GIB = 1024
PAIRS = ["X NV12 SYS SYS", "NV12 X SYS SYS", "SYS SYS X NV12", "SYS SYS NV12 X"]
ALIKE = ["X SYS SYS SYS", "SYS X SYS SYS", "SYS SYS X SYS", "SYS SYS SYS X"]
UNKNOWN_CPU = 2**62


def class_of(rows: Sequence[str], models: Sequence[str] = ("T4",) * 4) -> TopologyClass:
    """A machine of four GPUs."""
    gpus = tuple(Gpu(index=bit, uuid=f"GPU-{bit}", model=model) for bit, model in enumerate(models))
    return topology_class(from_codes([row.split() for row in rows]), Inventory(gpus))


def rates_of(kind: TopologyClass) -> dict[tuple[int, ...], float]:
    """GB/s of every set, for the oracle."""
    return {members(mask): float(kind.bandwidth[mask]) for mask in range(1 << kind.size)}


@dataclass(frozen=True)
class Case:
    """A node of one kind in one state, and what is expected of the cluster."""

    kind: TopologyClass
    node: slow.OneNode
    cluster: slow.Cluster

    @property
    def outlook(self) -> Outlook:
        return Outlook(self.cluster.target, {GpuKind(*kind): count for kind, count in self.cluster.supply.items()})

    @property
    def prices(self) -> dict[int, NDArray[np.float64]]:
        return {gib: price_of(gib, self.cluster.target) for _, gib in self.cluster.supply}

    def cost(self, after: slow.OneNode, weight: float) -> float:
        """The cost as decision 16 writes it."""
        lost = slow.worth(self.node, self.cluster, self.prices) - slow.worth(after, self.cluster, self.prices)
        return lost + weight * (slow.fragmentation(after, self.cluster) - slow.fragmentation(self.node, self.cluster))


def price_of(gib: int, target: Sequence[DemandClass]) -> NDArray[np.float64]:
    counts: dict[int, float] = {}
    for one in target:
        if one.gpus and slow.gib_of(one) <= gib:
            counts[slow.gib_of(one) or gib] = counts.get(slow.gib_of(one) or gib, 0.0) + one.popularity * one.gpus
    sizes = tuple(sorted(counts, reverse=True))
    return worth_of_rest(sizes, tuple(counts[size] for size in sizes), gib)


def state_of(node: slow.OneNode) -> State:
    left = np.zeros((1, 16), np.int32)
    left[0, : len(node.left)] = node.left
    return State(np.array([node.cpu]), np.array([sum(idle << bit for bit, idle in enumerate(node.idle))]), left)


def rooms_of(node: slow.OneNode) -> Rooms:
    state, offered = state_of(node), np.zeros((1, 16), np.int32)
    offered[0, : len(node.offered)] = node.offered
    return Rooms(state.idle, state.left, offered)


demand_classes = st.builds(
    DemandClass,
    st.sampled_from([0, 1000, 4000, 16000]),
    st.sampled_from([0, 1, 1, 2, 4]),
    st.just(0),
    st.sampled_from([None, None, "T4", "a1*"]),
    st.floats(0.1, 1.0),
)
shares = st.builds(
    DemandClass, st.sampled_from([0, 2000, 4000]), st.sampled_from([1, 1, 2]), st.sampled_from([1, 4, 5, 9]).map(lambda gib: gib * GIB - 7)
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Nodes of one or two models, some GPUs idle, some shared, some held."""
    models = draw(st.sampled_from([("T4",) * 4, ("A100",) * 4, ("T4", "A100", "A100", "A100")]))
    kind = class_of(draw(st.sampled_from([PAIRS, ALIKE])), models)
    gib = {"T4": draw(st.sampled_from([8, 15])), "A100": draw(st.sampled_from([15, 39]))}
    offered = tuple(gib[model] * GIB for model in models)
    left = tuple(draw(st.sampled_from([0, 0, most // 3, most - GIB, most])) for most in offered)
    node = slow.OneNode(
        draw(st.sampled_from([0, 1500, 8000, UNKNOWN_CPU])), tuple(a == b for a, b in zip(left, offered, strict=True)), left, offered, models
    )
    target = tuple(draw(st.lists(demand_classes | shares, min_size=1, max_size=5)))
    supply = {("T4", gib["T4"]): draw(st.integers(1, 9)), ("A100", gib["A100"]): draw(st.integers(1, 9))}
    return Case(kind, node, slow.Cluster(target, supply, rates_of(kind)))


def cost_of(case: Case, after: slow.OneNode, weight: float) -> float:
    outlook = case.outlook
    numbers = outlook.numbers([case.kind], np.zeros(1, np.int32), rooms_of(case.node).offered)
    return float(outlook.cost(numbers, state_of(case.node), state_of(after), weight)[0])


@settings(deadline=None, max_examples=150)
@given(cases(), st.data(), st.sampled_from([0.0, WEIGHT_WITH_ROOM, WEIGHT_WHEN_FULL]))
def test_the_cost_of_a_pod_is_that_of_the_sums_written_out(case: Case, data: st.DataObject, weight: float):
    """Any GPUs taken whole, any share, any CPU: fast equals slow."""
    cpu = data.draw(st.sampled_from([0, 1000, 4000]))
    taken = data.draw(st.sets(st.integers(0, 3), max_size=4))
    after = replace(
        case.node,
        cpu=case.node.cpu - cpu,
        idle=tuple(idle and bit not in taken for bit, idle in enumerate(case.node.idle)),
        left=tuple(0 if bit in taken else left for bit, left in enumerate(case.node.left)),
    )
    hosts = [bit for bit, left in enumerate(after.left) if left >= GIB]
    if hosts:
        after = slow.with_share(after, data.draw(st.sampled_from(hosts)), GIB)
    assert cost_of(case, after, weight) == pytest.approx(case.cost(after, weight), abs=0.05)


@settings(deadline=None, max_examples=100)
@given(cases(), st.sampled_from([GIB, 3 * GIB - 5, 9 * GIB]))
def test_among_the_gpus_of_a_node_a_share_costs_what_the_sums_say_with_cpu_in_plenty(case: Case, mib: int):
    """The choice of the GPU on a node is the cost without its CPU."""
    found = case.outlook.cost_of_shares(case.kind, rooms_of(case.node), mib)[0]
    plenty = replace(case, node=replace(case.node, cpu=UNKNOWN_CPU))
    for bit, left in enumerate(case.node.left):
        if left >= mib:
            assert found[bit] == pytest.approx(plenty.cost(slow.with_share(plenty.node, bit, mib), WEIGHT_INSIDE), abs=0.05)


def test_nodes_of_several_kinds_are_judged_together_as_they_are_alone():
    """Machines of 2 and of 16 GPUs, of 4 and of 39 GiB, in one call."""
    sixteen = topology_class(from_codes([["X" if a == b else "NV6" for b in range(16)] for a in range(16)]))
    two = topology_class(from_codes([["X", "PIX"], ["PIX", "X"]]))
    offered = np.zeros((2, 16), np.int32)
    offered[0, :2], offered[1] = 4 * GIB, 39 * GIB
    before = State(np.array([9000, 9000]), np.array([0b11, 0xFFFF]), offered.copy())
    after = State(np.array([1000, 1000]), np.array([0b10, 0xFFF0]), np.where(np.arange(16) < [[1], [4]], 0, offered).astype(np.int32))
    together = Outlook()
    numbers = together.numbers([two, sixteen], np.array([0, 1], np.int32), offered)
    costs = together.cost(numbers, before, after, 1.0)
    for row, kind in enumerate((two, sixteen)):
        alone = Outlook()
        number = alone.numbers([kind], np.zeros(1, np.int32), offered[[row]])
        one, other = (State(s.cpu[[row]], s.idle[[row]], s.left[[row]]) for s in (before, after))
        assert alone.cost(number, one, other, 1.0)[0] == costs[row]


def test_a_single_gpu_leaves_pairs_whole_where_links_differ():
    """F with links: of two machines with three idle GPUs, the one whose bridged pair would stay loses less than where all would be strangers."""
    kind, offered = class_of(PAIRS), np.full((2, 16), 15 * GIB, np.int32)
    outlook = Outlook((DemandClass(0, 2, popularity=1.0),))
    numbers = outlook.numbers([kind], np.zeros(2, np.int32), offered)
    before = State(np.full(2, UNKNOWN_CPU), np.array([0b1110, 0b1110]), offered)
    after = State(before.cpu, np.array([0b1100, 0b1010]), offered)
    leaves_pair, leaves_strangers = outlook.cost(numbers, before, replace_left(after, before), 1.0)
    assert leaves_pair < leaves_strangers


def replace_left(after: State, before: State) -> State:
    """Nothing is left of GPUs that are held whole."""
    gone = (before.idle & ~after.idle)[:, None] >> np.arange(16) & 1
    return replace(after, left=np.where(gone, 0, after.left).astype(np.int32))


def test_unknown_cpu_leaves_the_gpus_to_decide():
    """Where no Node was seen, the worth of a node is that of its GPUs."""
    case = Case(class_of(ALIKE), slow.OneNode(UNKNOWN_CPU, (True,) * 4, (15 * GIB,) * 4, (15 * GIB,) * 4, ("T4",) * 4), SEEN)
    assert cost_of(case, replace(case.node, cpu=UNKNOWN_CPU - 64_000), 0.0) == 0.0
    one = replace(case.node, idle=(False, True, True, True), left=(0, *case.node.left[1:]))
    assert cost_of(case, one, 0.0) == pytest.approx(1000.0)


SEEN = slow.Cluster(SEED_TARGET, {("T4", 15): 4}, {})


def test_small_gpus_go_first_where_anybody_may_have_any():
    """A whole GPU costs by its memory: pods that need a large one find it free."""
    outlook = Outlook(SEED_TARGET, {GpuKind("T4", 15): 4, GpuKind("A100", 79): 4})
    kinds = [class_of(ALIKE), class_of(ALIKE, ("A100",) * 4)]
    offered = np.zeros((2, 16), np.int32)
    offered[0, :4], offered[1, :4] = 15 * GIB, 79 * GIB
    numbers = outlook.numbers(kinds, np.array([0, 1], np.int32), offered)
    before = State(np.full(2, UNKNOWN_CPU), np.array([15, 15]), offered)
    after = replace_left(State(before.cpu, np.array([14, 14]), offered), before)
    small, large = outlook.cost(numbers, before, after, WEIGHT_WITH_ROOM)
    assert small < large


@pytest.mark.parametrize(
    ("taken", "weight"),
    [
        pytest.param(0.0, WEIGHT_WITH_ROOM, id="empty"),
        pytest.param(FULL_FROM - 0.01, WEIGHT_WITH_ROOM, id="with room"),
        pytest.param(FULL_FROM, WEIGHT_WHEN_FULL, id="nearly full"),
        pytest.param(1.0, WEIGHT_WHEN_FULL, id="full"),
    ],
)
def test_fragmentation_weighs_more_once_the_cluster_is_nearly_full(taken: float, weight: float):
    """One step, of what is taken now: the same state has the same answer."""
    assert weight_of_fragmentation(taken) == weight
