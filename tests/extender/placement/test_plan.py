"""A plan is right where an oracle that tries every split of the GPUs over the containers says so."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.containers import ContainerKind
from extender.demand import Part, Shape
from extender.placement import Plan
from extender.placement.plan import plan
from tests.machines import (
    BRIDGE_AND_PAIR,
    BRIDGES_CROSSED,
    DGX1V,
    HGX_H100_8,
    PCIE8_PHB,
    SMALL_MACHINES,
    SUMMIT_6,
    Machine,
    irregular_machines,
    oracle_of,
)
from tests.oracles import MachineOracle
from topology.links import Distance
from topology.topology_class import TopologyClass, members, topology_class

APP, SIDECAR, INIT = ContainerKind.APP, ContainerKind.SIDECAR, ContainerKind.INIT
Set = frozenset[int]


def class_of(machine: Machine) -> TopologyClass:
    return topology_class(machine.matrix, machine.inventory)


def shape(*parts: tuple[ContainerKind, int], **wishes: object) -> Shape:
    made = tuple(Part(kind, gpus) for kind, gpus in parts)
    return Shape(made, **{"careful": max(part.gpus for part in made) > 1, **wishes})  # type: ignore[arg-type]


def everything(kind: TopologyClass) -> int:
    return (1 << kind.size) - 1


def found(kind: TopologyClass, wanted: Shape, mask: int | None = None) -> Plan:
    made = plan(wanted, kind, everything(kind) if mask is None else mask)
    assert made is not None
    return made


# --- as NVIDIA's device plugin --------------------------------------------------------------------------------------


def test_containers_get_their_sets_one_after_another_as_kubelet_asks_its_plugin():
    """The first one's set is taken from all GPUs and the next one's from the rest; otherwise the larger one comes first."""
    wanted = shape((APP, 2), (APP, 3))
    ours, theirs = (found(class_of(SUMMIT_6), replace(wanted, as_allocator=asked)) for asked in (False, True))
    assert gpus_of(ours) == [(3, 4), (0, 1, 2)]
    assert gpus_of(theirs) == [(0, 1), (3, 4, 5)]
    single = found(class_of(DGX1V), shape((APP, 4), as_allocator=True), 0b111011)
    assert (members(single.union), single.worst) == ((0, 1, 3, 4), "SYS")


def test_a_split_that_one_after_another_misses_is_found_all_the_same():
    """The two-GPU container first takes what the one with a floor needs; a pod is never refused for the order of its containers."""
    kind = class_of(BRIDGE_AND_PAIR)
    for parts in (((APP, 1), (APP, 2)), ((APP, 2), (APP, 1))):
        for mask in range(1 << kind.size):
            for floor in (0.0, 100.0):
                wanted = shape(*parts, floor=floor)
                ours, theirs = plan(wanted, kind, mask), plan(replace(wanted, as_allocator=True), kind, mask)
                assert (ours is None) == (theirs is None)


def test_an_init_container_stays_inside_its_pods_gpus():
    """As kubelet gives the app containers the devices that their init containers had."""
    made = found(class_of(DGX1V), shape((INIT, 1), (APP, 2), as_allocator=True))
    assert made.masks[0] & ~made.masks[1] == 0
    assert made.union.bit_count() == 2


# --- the oracle -----------------------------------------------------------------------------------------------------


def splits(machine: MachineOracle, wanted: Shape, free: Set, chosen: tuple[Set, ...] = ()) -> Iterator[tuple[Set, ...]]:
    """Yield every way to give each container a set of its own that meets floor and ceiling, with no GPU beyond the effective request."""
    if len(chosen) == len(wanted.parts):
        if len(frozenset().union(*chosen)) == wanted.gpus:
            yield chosen
        return
    part = wanted.parts[len(chosen)]
    for gpus in map(frozenset, combinations(sorted(free - running_beside(wanted, chosen)), part.gpus)):
        if allowed(machine, wanted, gpus):
            yield from splits(machine, wanted, free, (*chosen, gpus))


def running_beside(wanted: Shape, chosen: tuple[Set, ...]) -> Set:
    """GPUs of the containers that run when the next one starts: init containers have ended by then, sidecars and apps have not."""
    return frozenset().union(*(gpus for part, gpus in zip(wanted.parts, chosen, strict=False) if part.kind is not INIT))


def allowed(machine: MachineOracle, wanted: Shape, gpus: Set) -> bool:
    if len(gpus) < 2:
        return True
    together = machine.on_one_numa_node(gpus) or not wanted.one_numa
    return together and machine.worst(gpus) <= wanted.ceiling and machine.bandwidth(gpus) >= wanted.floor


# --- against the oracle ---------------------------------------------------------------------------------------------


def kubelet_order(parts: list[Part]) -> tuple[Part, ...]:
    """Init containers and sidecars stand before the others, in the order in which they were written."""
    return tuple(sorted(parts, key=lambda part: part.kind is APP))


part_lists = st.lists(st.builds(Part, st.sampled_from([APP, APP, SIDECAR, INIT]), st.integers(1, 4)), min_size=1, max_size=4).map(kubelet_order)
limits = {
    "one_numa": st.booleans(),
    "floor": st.sampled_from([0.0, 0.0, 12.0, 25.0, 50.0, 100.0, 150.0]),
    "ceiling": st.sampled_from(Distance),
    "careful": st.booleans(),
    "as_allocator": st.booleans(),
}


@settings(deadline=None, max_examples=250)
@given(st.data(), st.one_of(irregular_machines(3, 5), st.sampled_from([m for m in SMALL_MACHINES if m.size <= 6])), part_lists)
def test_there_is_a_plan_exactly_where_some_split_over_the_containers_exists(data: st.DataObject, machine: Machine, parts: tuple[Part, ...]):
    wanted = Shape(parts, **{name: data.draw(values, label=name) for name, values in limits.items()})  # type: ignore[arg-type]
    mask = data.draw(st.just(machine.everything) | st.integers(0, machine.everything), label="mask")
    made = plan(wanted, class_of(machine), mask)
    possible = next(splits(oracle_of(machine), wanted, frozenset(members(mask))), None)
    assert (made is not None) == (possible is not None), f"the oracle finds {possible}"
    if made is not None:
        assert is_split(oracle_of(machine), wanted, frozenset(members(mask)), made)


def is_split(machine: MachineOracle, wanted: Shape, free: Set, made: Plan) -> bool:
    """Tell whether a plan keeps every rule; unlike `splits` it looks at one way only."""
    chosen: tuple[Set, ...] = ()
    for part, mask in zip(wanted.parts, made.masks, strict=True):
        gpus = frozenset(members(mask))
        if len(gpus) != part.gpus or not gpus <= free or gpus & running_beside(wanted, chosen) or not allowed(machine, wanted, gpus):
            return False
        chosen = (*chosen, gpus)
    return frozenset().union(*chosen) == frozenset(members(made.union)) and made.union.bit_count() == wanted.gpus


@settings(deadline=None, max_examples=150)
@given(st.data(), st.sampled_from(SMALL_MACHINES), part_lists)
def test_a_plan_on_eight_gpus_keeps_every_rule(data: st.DataObject, machine: Machine, parts: tuple[Part, ...]):
    wanted = Shape(parts, **{name: data.draw(values, label=name) for name, values in limits.items()})  # type: ignore[arg-type]
    mask = data.draw(st.just(machine.everything) | st.integers(0, machine.everything), label="mask")
    made = plan(wanted, class_of(machine), mask)
    assert made is None or is_split(oracle_of(machine), wanted, frozenset(members(mask)), made)


@settings(max_examples=100)
@given(st.data(), st.one_of(irregular_machines(3, 5), st.sampled_from([m for m in SMALL_MACHINES if m.size <= 4])), part_lists)
def test_the_largest_container_gets_the_best_set_that_any_split_leaves_it(data: st.DataObject, machine: Machine, parts: tuple[Part, ...]):
    wanted = Shape(parts, ceiling=data.draw(limits["ceiling"], label="ceiling"))
    mask = data.draw(st.just(machine.everything) | st.integers(0, machine.everything), label="mask")
    made, oracle = plan(wanted, class_of(machine), mask), oracle_of(machine)
    if made is not None:
        best = max(largest_bandwidth(oracle, split) for split in splits(oracle, wanted, frozenset(members(mask))))
        assert made.bandwidth >= 0.99 * best - 1e-9


def largest_bandwidth(machine: MachineOracle, split: tuple[Set, ...]) -> float:
    size = max(map(len, split))
    return max(machine.bandwidth(gpus) if size > 1 else 0.0 for gpus in split if len(gpus) == size)


# --- preferences ----------------------------------------------------------------------------------------------------


def gpus_of(made: Plan) -> list[tuple[int, ...]]:
    return [members(mask) for mask in made.masks]


@pytest.mark.parametrize(
    ("machine", "wanted", "expected"),
    [
        pytest.param(BRIDGES_CROSSED, shape((APP, 2), (APP, 2)), [(0, 2), (1, 3)], id="each container gets a bridged pair"),
        pytest.param(BRIDGES_CROSSED, shape((APP, 1), (APP, 1)), [(0,), (2,)], id="two single GPUs break one pair, not two"),
        pytest.param(SUMMIT_6, shape((APP, 2), (APP, 3)), [(3, 4), (0, 1, 2)], id="the large container gets the triple"),
        pytest.param(PCIE8_PHB, shape((APP, 2), (APP, 1)), [(0, 1), (2,)], id="a pair behind one switch"),
        pytest.param(BRIDGES_CROSSED, shape((INIT, 2), (APP, 2)), [(0, 2), (0, 2)], id="an init container runs on the app's GPUs"),
        pytest.param(BRIDGES_CROSSED, shape((INIT, 4), (APP, 2)), [(0, 1, 2, 3), (0, 2)], id="a larger one takes as many more as it needs"),
        pytest.param(
            BRIDGE_AND_PAIR, shape((INIT, 2), (APP, 1)), [(0, 1), (0,)], id="an init container that is the largest decides where the app sits"
        ),
        pytest.param(BRIDGES_CROSSED, shape((SIDECAR, 2), (INIT, 2), (APP, 2)), [(1, 3), (0, 2), (0, 2)], id="but never those of a running sidecar"),
        pytest.param(HGX_H100_8, shape((SIDECAR, 3), (INIT, 2), (APP, 2)), [(0, 1, 2), (4, 5), (4, 5)], id="though they came first"),
        pytest.param(
            BRIDGES_CROSSED, shape((INIT, 2), (SIDECAR, 2), (APP, 1)), [(0, 2), (0, 2), (1,)], id="those of a sidecar that is still to come"
        ),
    ],
)
def test_preferred_plan(machine: Machine, wanted: Shape, expected: list[tuple[int, ...]]):
    assert gpus_of(found(class_of(machine), wanted)) == expected


def test_bandwidth_and_worst_link_are_those_of_the_largest_container():
    made = found(class_of(SUMMIT_6), shape((APP, 2), (APP, 3)))
    assert (made.bandwidth, made.worst) == (oracle_of(SUMMIT_6).bandwidth(frozenset({0, 1, 2})), "NV2")
    assert made.union == 0b011111


def test_one_gpu_has_no_bandwidth_and_no_link():
    made = found(class_of(DGX1V), shape((APP, 1)))
    assert (made.bandwidth, made.worst, made.union.bit_count()) == (0.0, None, 1)


def test_a_floor_binds_no_container_of_one_gpu():
    made = found(class_of(BRIDGES_CROSSED), shape((APP, 2), (APP, 1), floor=300.0))
    assert made.bandwidth == 300.0


def test_init_containers_in_a_row_share_the_gpus_that_the_largest_of_them_needs():
    made = found(class_of(DGX1V), shape((INIT, 2), (INIT, 4), (INIT, 3), (APP, 1)))
    assert made.union.bit_count() == 4


def test_no_gpu_beyond_what_kubelet_counts_even_where_the_apps_could_sit_better():
    """The widow would be best for the app, but then the init container's pair would be two GPUs more."""
    made = found(class_of(BRIDGES_CROSSED), shape((SIDECAR, 2), (INIT, 2), (APP, 1), floor=300.0), 0b11111)
    assert made.union.bit_count() == 4
    assert gpus_of(made)[2][0] in gpus_of(made)[1]


def test_several_containers_are_planned_at_least_as_fast_as_a_greedy_split_would():
    """The large container comes first, as the reported bandwidth is its own."""
    kind = class_of(DGX1V)
    made = found(kind, shape((APP, 2), (APP, 4)))
    alone = kind.best_set(everything(kind), 4)
    assert alone is not None
    assert made.bandwidth >= 0.99 * alone.bandwidth


@pytest.mark.parametrize("mask", [0, 0b1, 0b10000])
def test_too_few_gpus_are_no_plan(mask: int):
    assert plan(shape((APP, 2)), class_of(DGX1V), mask) is None
    assert plan(shape((APP, 1), (APP, 1)), class_of(DGX1V), mask) is None


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(shape(*[(APP, 1)] * 8), id="eight containers"),
        pytest.param(shape(*[(APP, 2)] * 4, floor=50.0), id="four pairs with a floor"),
        pytest.param(shape((INIT, 4), *[(APP, 1)] * 8, floor=1000.0), id="a floor that nothing meets"),
        pytest.param(shape((INIT, 3), (INIT, 2), (SIDECAR, 1), *[(APP, 1)] * 5, ceiling=Distance.NVLINK), id="init containers within NVLink"),
    ],
)
@pytest.mark.parametrize("free", [8, 7])
def test_pods_of_many_containers_are_answered_without_trying_every_order(wanted: Shape, free: int, looks: Callable[[], int]):
    """HAMi 2750: exponential search time with many slices. Counted, not timed: 8! orders would be 40,320."""
    kind = class_of(DGX1V)
    plan(wanted, kind, everything(kind) >> (8 - free))
    assert looks() < 2000
