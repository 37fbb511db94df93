"""A plan of shares is right where an oracle that tries every assignment of containers to GPUs says so; what it takes is what the ledger will charge."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from extender.binding import allocate
from extender.cluster import NodeGpus, Room, charges
from extender.containers import ContainerKind
from extender.demand import Demand, Part, Shape
from extender.placement import Plan
from extender.placement.shares import Rooms, best_gpus, is_one_share, plan_shares
from tests.machines import (
    BRIDGE_AND_PAIR,
    BRIDGES_CROSSED,
    DGX1V,
    DGX2_16,
    HGX_H100_8,
    PCIE8_PHB,
    SMALL_MACHINES,
    SUMMIT_6,
    Machine,
    irregular_machines,
    oracle_of,
    relabelled,
)
from tests.oracles import MachineOracle
from topology.capacity import MOST_GPUS
from topology.links import Distance
from topology.topology_class import TopologyClass, members, topology_class

APP, SIDECAR, INIT = ContainerKind.APP, ContainerKind.SIDECAR, ContainerKind.INIT
SIZE = 24  # units of memory of every GPU here; amounts are small, so that they often do not fit
Set = frozenset[int]


class BestFit:
    """A preference of the pods to come for nothing, so that the least left decides."""

    def cost_of_shares(self, _kind: TopologyClass, rooms: Rooms, _mib: int) -> NDArray[np.float64]:
        return np.zeros(rooms.left.shape)

    def costs_on(self, kind: TopologyClass, _room: Room, _mib: int) -> list[float]:
        return [0.0] * kind.size


def class_of(machine: Machine) -> TopologyClass:
    return topology_class(machine.matrix, machine.inventory)


def room_of(left: list[int], held: int = 0, offered: int = SIZE) -> Room:
    """A node's room: a GPU is idle where all of it is left; those of ``held`` are other pods' own."""
    mine = [0 if held >> gpu & 1 else amount for gpu, amount in enumerate(left)]
    idle = sum(1 << gpu for gpu, amount in enumerate(mine) if amount == offered)
    beyond = (0,) * (MOST_GPUS - len(left))
    return Room(idle, tuple(mine) + beyond, (offered,) * len(left) + beyond)


def planned(shape: Shape, machine: Machine, room: Room) -> Plan | None:
    return plan_shares(shape, class_of(machine), room, BestFit())


def shape(*parts: tuple[ContainerKind, int, int], **wishes: object) -> Shape:
    """A shape of (kind, GPUs, MiB of each; 0 for whole ones)."""
    made = tuple(Part(*part) for part in parts)
    return Shape(made, **{"careful": max(part.gpus for part in made) > 1, **wishes})  # type: ignore[arg-type]


# --- the oracle -----------------------------------------------------------------------------------------------------


def assignments(machine: MachineOracle, wanted: Shape, room: Room, chosen: tuple[Set, ...] = ()) -> Iterator[tuple[Set, ...]]:
    """Yield every way to give each container GPUs, one after the other in the order of starting, that keeps all rules."""
    if len(chosen) == len(wanted.parts):
        if len(own_gpus(wanted, chosen)) == wanted.gpus:
            yield chosen
        return
    part = wanted.parts[len(chosen)]
    for gpus in map(frozenset, combinations(range(len(machine.codes)), part.gpus)):
        extended = (*chosen, gpus)
        if keeps_links(machine, wanted, gpus) and keeps_amounts(wanted, room, extended):
            yield from assignments(machine, wanted, room, extended)


def own_gpus(wanted: Shape, chosen: tuple[Set, ...]) -> Set:
    return frozenset().union(*(gpus for part, gpus in zip(wanted.parts, chosen, strict=False) if not part.is_share))


def keeps_links(machine: MachineOracle, wanted: Shape, gpus: Set) -> bool:
    if len(gpus) < 2:
        return True
    together = machine.on_one_numa_node(gpus) or not wanted.one_numa
    return together and machine.worst(gpus) <= wanted.ceiling and machine.bandwidth(gpus) >= wanted.floor


def keeps_amounts(wanted: Shape, room: Room, chosen: tuple[Set, ...]) -> bool:
    """Replay the start of the pod: no GPU ever gives more than is left of it, and none is both whole and shared."""
    own = own_gpus(wanted, chosen)
    in_use: dict[int, int] = {}
    running: Set = frozenset()
    for part, gpus in zip(wanted.parts, chosen, strict=False):
        if part.is_share:
            if gpus & own or any(in_use.get(gpu, 0) + part.mib > room.left[gpu] for gpu in gpus):
                return False
            if part.kind is not INIT:
                in_use |= {gpu: in_use.get(gpu, 0) + part.mib for gpu in gpus}
        else:
            if gpus & running or any(not room.idle >> gpu & 1 for gpu in gpus):
                return False
            if part.kind is not INIT:
                running |= gpus
    return True


# --- against the oracle ---------------------------------------------------------------------------------------------

kinds = st.sampled_from([APP, APP, SIDECAR, INIT])
mibs = st.sampled_from([4, 6, 8, 10, 12, 16, 24])
limits = {
    "one_numa": st.booleans(),
    "floor": st.sampled_from([0.0, 0.0, 12.0, 25.0, 50.0, 100.0]),
    "ceiling": st.sampled_from([Distance.SYS, *Distance]),
    "careful": st.booleans(),
    "as_allocator": st.booleans(),
}


@st.composite
def part_lists(draw: st.DrawFn, most: int = 3) -> tuple[Part, ...]:
    """Draw the parts of a pod with a share at least; the shares of all its containers lie on as many GPUs, as the annotation says."""
    count = draw(st.sampled_from([1, 1, 2, 3]))
    shares = st.builds(Part, kinds, st.just(count), mibs)
    whole = st.builds(Part, kinds, st.integers(1, 3))
    parts = [draw(shares), *draw(st.lists(shares | whole, max_size=most - 1))]
    return tuple(sorted(draw(st.permutations(parts)), key=lambda part: part.kind is APP))


def rooms(machine: Machine) -> st.SearchStrategy[Room]:
    lefts = st.lists(st.sampled_from([SIZE, SIZE, 0, 5, 10, 14, 20]), min_size=machine.size, max_size=machine.size)
    return st.builds(room_of, lefts, st.sampled_from([0, 0, 1, 2, 4]))


small_machines = st.one_of(irregular_machines(3, 4), st.sampled_from([m for m in SMALL_MACHINES if m.size <= 4]))


@settings(deadline=None, max_examples=300)
@given(st.data(), small_machines, part_lists())
def test_there_is_a_plan_exactly_where_some_assignment_of_containers_to_gpus_exists(data: st.DataObject, machine: Machine, parts: tuple[Part, ...]):
    wanted = Shape(parts, **{name: data.draw(values, label=name) for name, values in limits.items()})  # type: ignore[arg-type]
    room = data.draw(rooms(machine), label="room")
    made = planned(wanted, machine, room)
    possible = next(assignments(oracle_of(machine), wanted, room), None)
    assert (made is not None) == (possible is not None), f"the oracle finds {possible}"
    if made is not None:
        assert keeps_every_rule(oracle_of(machine), wanted, room, made)


def keeps_every_rule(machine: MachineOracle, wanted: Shape, room: Room, made: Plan) -> bool:
    chosen = tuple(frozenset(members(mask)) for mask in made.masks)
    return (
        [len(gpus) for gpus in chosen] == [part.gpus for part in wanted.parts]
        and all(keeps_links(machine, wanted, gpus) for gpus in chosen)
        and keeps_amounts(wanted, room, chosen)
        and len(own_gpus(wanted, chosen)) == wanted.gpus
        and frozenset().union(*chosen) == frozenset(members(made.union))
    )


@settings(deadline=None, max_examples=150)
@given(st.data(), st.sampled_from([machine for machine in SMALL_MACHINES if machine.size > 4]), part_lists(most=4))
def test_a_plan_on_eight_gpus_keeps_every_rule(data: st.DataObject, machine: Machine, parts: tuple[Part, ...]):
    wanted = Shape(parts, **{name: data.draw(values, label=name) for name, values in limits.items()})  # type: ignore[arg-type]
    room = data.draw(rooms(machine), label="room")
    made = planned(wanted, machine, room)
    assert made is None or keeps_every_rule(oracle_of(machine), wanted, room, made)


@settings(deadline=None, max_examples=200)
@given(st.data(), st.sampled_from(SMALL_MACHINES), part_lists(most=4))
def test_what_a_plan_takes_is_what_the_ledger_will_charge(data: st.DataObject, machine: Machine, parts: tuple[Part, ...]):
    """One rule at the hold of a scored pod, at the promise and at the rebuild from what is written."""
    demand = Demand(Shape(parts), tuple(f"c{number}" for number in range(len(parts))))
    room = data.draw(rooms(machine), label="room")
    made = planned(demand.shape, machine, room)
    if made is None:
        return
    gpus = NodeGpus.of(machine.inventory)
    charged = charges(allocate("node", demand, made, gpus), demand.kinds)
    assert {gpus.bit_of[uuid]: mib for uuid, mib in charged.shares.items()} == dict(demand.shares(made.masks))
    assert gpus.mask_of(charged.uuids) == made.union
    assert all(mib <= room.left[bit] for bit, mib in demand.shares(made.masks))


@settings(deadline=None, max_examples=200)
@given(st.data(), st.one_of(irregular_machines(3, 5), st.sampled_from(SMALL_MACHINES)), part_lists(most=2))
def test_numbering_the_gpus_anew_changes_no_bandwidth_no_worst_link_and_no_worth(data: st.DataObject, machine: Machine, parts: tuple[Part, ...]):
    """The set may be another of equal value."""
    wanted = Shape(parts, **{name: data.draw(values, label=name) for name, values in limits.items()})  # type: ignore[arg-type]
    room = data.draw(rooms(machine), label="room")
    order = data.draw(st.permutations(range(machine.size)), label="order")
    other = relabelled(machine, list(order))
    moved = Room(
        sum(1 << new for new, old in enumerate(order) if room.idle >> old & 1),
        tuple(room.left[old] for old in order) + room.left[machine.size :],
        room.offered,
    )
    first, second = planned(wanted, machine, room), planned(wanted, other, moved)
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert value(wanted, machine, room, first) == value(wanted, other, moved, second)


def value(wanted: Shape, machine: Machine, room: Room, made: Plan) -> tuple[object, ...]:
    kind = class_of(machine)
    rest = room.idle & ~made.union
    return round(made.bandwidth, 6), made.worst, round(float(kind.worth[rest]), 6), int(kind.whole_islands[rest])


# --- one share of one GPU, on many nodes at once ---------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(st.data(), st.sampled_from([*SMALL_MACHINES, DGX2_16]), mibs)
def test_the_gpu_chosen_among_many_nodes_is_the_one_that_the_nodes_own_plan_takes(data: st.DataObject, machine: Machine, mib: int):
    found = data.draw(st.lists(rooms(machine), min_size=1, max_size=6), label="rooms")
    together = Rooms(
        np.array([room.idle for room in found], np.int64),
        np.array([room.left for room in found], np.int32),
        np.array([room.offered for room in found], np.int32),
    )
    assert list(together) == found
    best = best_gpus(class_of(machine), together, mib, BestFit()).tolist()
    for bit, room in zip(best, found, strict=True):
        made = planned(Shape((Part(APP, 1, mib),), careful=False), machine, room)
        assert (None if bit < 0 else 1 << bit) == (None if made is None else made.union)
        assert (bit >= 0) == any(amount >= mib for amount in room.left)


def test_what_needs_the_search_is_told_from_what_does_not():
    assert is_one_share(shape((APP, 1, 4)))
    assert is_one_share(shape((INIT, 1, 4)))
    assert not any(is_one_share(other) for other in (shape((APP, 2, 4)), shape((APP, 1, 0)), shape((APP, 1, 4), (APP, 1, 4))))


# --- preferences ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "left", "wanted", "expected"),
    [
        pytest.param(HGX_H100_8, [24, 24, 10, 6, 24, 24, 24, 24], shape((APP, 1, 6)), [[3]], id="the tightest fit of the shared ones"),
        pytest.param(HGX_H100_8, [24, 24, 10, 5, 24, 24, 24, 24], shape((APP, 1, 6)), [[2]], id="a shared one before any idle one"),
        pytest.param(BRIDGES_CROSSED, [24, 24, 24, 24, 24, 24, 0, 24], shape((APP, 1, 6)), [[7]], id="the widow before a whole pair"),
        pytest.param(
            BRIDGES_CROSSED, [24, 24, 24, 24, 24, 24, 12, 24], shape((APP, 1, 20)), [[7]], id="the partner of a shared one before a whole pair"
        ),
        pytest.param(BRIDGES_CROSSED, [24] * 8, shape((APP, 2, 6)), [[0, 2]], id="two shares on a bridged pair"),
        pytest.param(
            BRIDGES_CROSSED, [24, 24, 24, 24, 14, 14, 24, 24], shape((APP, 2, 6)), [[4, 5]], id="on the pair that is shared already: no fresh island"
        ),
        pytest.param(
            BRIDGES_CROSSED,
            [24, 14, 24, 24, 14, 24, 24, 24],
            shape((APP, 2, 6)),
            [[1, 3]],
            id="on a broken pair before a whole one, but never off the bridge",
        ),
        pytest.param(
            BRIDGES_CROSSED,
            [14, 14, 5, 5, 24, 24, 24, 24],
            shape((APP, 2, 6), careful=False),
            [[0, 1]],
            id="bandwidth does not matter: the shared ones",
        ),
        pytest.param(BRIDGES_CROSSED, [24] * 8, shape((APP, 1, 6), (APP, 1, 8)), [[0], [0]], id="two containers share one GPU where they fit"),
        pytest.param(
            BRIDGES_CROSSED, [24] * 8, shape((APP, 1, 16), (APP, 1, 16)), [[0], [2]], id="two that do not fit on one break one pair, not two"
        ),
        pytest.param(BRIDGES_CROSSED, [24] * 8, shape((APP, 2, 16), (APP, 2, 6)), [[0, 2], [0, 2]], id="two of two share one pair"),
        pytest.param(BRIDGES_CROSSED, [24] * 8, shape((APP, 2, 0), (APP, 1, 6)), [[0, 2], [1]], id="whole GPUs and a share: a pair, and one beside"),
        pytest.param(BRIDGE_AND_PAIR, [24] * 4, shape((APP, 1, 0), (APP, 2, 6)), [[2], [0, 1]], id="the small whole one leaves the bridge alone"),
        pytest.param(SUMMIT_6, [24] * 6, shape((APP, 3, 6)), [[0, 1, 2]], id="a triple"),
        pytest.param(PCIE8_PHB, [24, 14, 24, 24, 24, 24, 24, 24], shape((APP, 2, 6)), [[0, 1]], id="without NVLink: behind one switch"),
        pytest.param(DGX1V, [24] * 8, shape((INIT, 1, 9), (APP, 1, 6)), [[0], [0]], id="an init container on its app's GPU"),
        pytest.param(DGX1V, [24, 24, 8, 24, 24, 24, 24, 24], shape((INIT, 1, 9), (APP, 1, 6)), [[1], [2]], id="elsewhere where that has too little"),
        pytest.param(DGX1V, [24] * 8, shape((SIDECAR, 1, 20), (INIT, 1, 6), (APP, 1, 4)), [[0], [1], [0]], id="an init container beside its sidecar"),
        pytest.param(
            DGX1V, [24] * 8, shape((INIT, 2, 0), (APP, 1, 6)), [[1, 2], [0]], id="an init container's whole GPUs are not its app's shared one"
        ),
    ],
)
def test_preferred_plan(machine: Machine, left: list[int], wanted: Shape, expected: list[list[int]]):
    made = planned(wanted, machine, room_of(left))
    assert made is not None
    assert [list(members(mask)) for mask in made.masks] == expected


def test_sizes_are_each_gpus_own_never_the_average():
    """gpushare-scheduler-extender 40, 219: cards of 8 and 16 GB in one node."""
    mixed = Room(0b1111, (8, 16, 8, 16) + (0,) * 12, (8, 16, 8, 16) + (0,) * 12)
    twelve = planned(shape((APP, 1, 12)), BRIDGE_AND_PAIR, mixed)
    eight = planned(shape((APP, 1, 8)), PCIE8_PHB, replace(mixed))
    assert twelve is not None
    assert twelve.union & 0b1010
    assert eight is not None
    assert eight.union & 0b0101, "the smaller card, which fits best"
    assert planned(shape((APP, 3, 12)), BRIDGE_AND_PAIR, mixed) is None


@pytest.mark.parametrize(
    ("left", "wanted", "fits"),
    [
        pytest.param([24] * 16, shape((APP, 16, 24)), True, id="all of all"),
        pytest.param([24] * 15 + [23], shape((APP, 16, 24)), False, id="a MiB too little on the last"),
        pytest.param([12] * 16, shape((APP, 16, 12), (SIDECAR, 1, 1)), False, id="all of all, and one more"),
        pytest.param([24] * 16, shape((APP, 16, 12), (APP, 16, 12)), True, id="half of all, twice"),
        pytest.param([24] * 16, shape((APP, 8, 0), (APP, 8, 24)), True, id="half of them whole, half in full"),
        pytest.param([24] * 16, shape((APP, 9, 0), (APP, 8, 24)), False, id="seventeen GPUs"),
        pytest.param([10] * 8 + [20] * 8, shape((APP, 8, 20), (APP, 8, 10)), True, id="each where it fits"),
    ],
)
def test_sixteen_gpus(left: list[int], wanted: Shape, fits: bool):
    """The most that a node has: every bit of a mask and every column of the amounts."""
    made = planned(wanted, DGX2_16, room_of(left))
    assert (made is not None) == fits
    assert made is None or keeps_every_rule_but_links(wanted, room_of(left), made)


def keeps_every_rule_but_links(wanted: Shape, room: Room, made: Plan) -> bool:
    chosen = tuple(frozenset(members(mask)) for mask in made.masks)
    return [len(gpus) for gpus in chosen] == [part.gpus for part in wanted.parts] and keeps_amounts(wanted, room, chosen)


def test_bandwidth_and_worst_link_are_those_of_the_largest_container():
    made = planned(shape((APP, 3, 6), (APP, 1, 0)), SUMMIT_6, room_of([24] * 6))
    assert made is not None
    assert (made.bandwidth, made.worst) == (oracle_of(SUMMIT_6).bandwidth(frozenset({0, 1, 2})), "NV2")


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(shape(*[(APP, 1, 13)] * 9), id="nine containers, room for eight"),
        pytest.param(shape(*[(APP, 2, 13)] * 5), id="five pairs, room for four"),
        pytest.param(shape(*[(APP, 1, 13)] * 8, (APP, 1, 12)), id="the last of nine finds too little"),
        pytest.param(shape(*[(SIDECAR, 1, 13)] * 8, (INIT, 1, 12), (APP, 1, 1)), id="an init container finds too little"),
        pytest.param(shape(*[(APP, 1, mib) for mib in (13, 14, 15, 16, 17, 18, 19, 20, 21)]), id="nine of nine sizes"),
        pytest.param(shape(*[(APP, 4, 13)] * 2, (APP, 4, 12), floor=10.0), id="four on each of four GPUs"),
    ],
)
@pytest.mark.parametrize("machine", [HGX_H100_8, DGX1V], ids=lambda machine: machine.name)
def test_a_pod_of_many_containers_that_does_not_fit_is_answered_without_trying_every_order(machine: Machine, wanted: Shape, looks: Callable[[], int]):
    """One pod must not hold up the calls of all others. Counted, not timed: 8! orders would be 40,320."""
    assert planned(wanted, machine, room_of([24] * 8)) is None
    assert looks() < 2000


def test_a_pod_of_many_containers_is_given_up_soon_on_each_of_many_nodes_that_are_nearly_full(looks: Callable[[], int]):
    """A filter call asks about hundreds, and one that outlasts the Lease ends the leader: a tenth of the work of a pod of few containers on each."""
    wanted, random = shape(*[(APP, 2, 10 + number) for number in range(8)]), Random(5)
    rooms = [room_of([random.choice((11, 12, 20, 25, 33, 40)) for _ in range(8)], offered=80) for _ in range(30)]
    in_vain = [planned(wanted, HGX_H100_8, room) for room in rooms].count(None)
    assert in_vain > 5
    assert looks() < 300 * in_vain + 20 * len(rooms)
