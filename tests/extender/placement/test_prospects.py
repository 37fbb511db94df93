"""The tables of prospects say what the plan on a mask would get, cost and leave, for every mask that was looked at."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster import Room
from extender.containers import ContainerKind
from extender.demand import Demand, Part, Shape
from extender.placement import IMPOSSIBLE, Placement, Plan, Prospects, Rooms
from extender.placement.fits import usable_mask
from extender.placement.plan import plan
from extender.sample_machines import SAMPLE_MACHINES, sample
from topology.capacity import MOST_GPUS
from topology.links import Distance
from topology.topology_class import TopologyClass, topology_class

APP, INIT = ContainerKind.APP, ContainerKind.INIT
PAIR = Shape((Part(APP, 2),))
shapes = st.sampled_from([Shape((Part(APP, 1),), careful=False), PAIR, Shape((Part(APP, 2),), floor=30.0), Shape((Part(APP, 2), Part(APP, 1)))])


def class_of(kind: str) -> TopologyClass:
    topology = sample(kind, "node")
    return topology_class(topology.matrix(), topology.inventory())


def in_room(shape: Shape, kind: TopologyClass, room: Room) -> Plan | None:
    return plan(shape, kind, room.idle)


@settings(deadline=None, max_examples=30)
@given(shapes, st.sampled_from(sorted(SAMPLE_MACHINES)), st.lists(st.integers(0, 15), max_size=8))
def test_every_entry_that_was_looked_at_is_that_of_its_plan(shape: Shape, name: str, masks: list[int]):
    kind = class_of(name)
    prospects = Prospects(shape, kind, in_room)
    prospects.look_at(np.array(masks, np.int64))
    for mask in masks:
        found = plan(shape, kind, mask)
        if found is None:
            assert (prospects.bandwidth[mask], prospects.worth_lost[mask]) == (IMPOSSIBLE, np.inf)
        else:
            rest = mask & ~found.union
            assert (prospects.bandwidth[mask], prospects.left[mask]) == (found.bandwidth, rest.bit_count())
            assert prospects.worth_lost[mask] == pytest.approx(kind.worth[mask] - kind.worth[rest])


def test_a_mask_is_planned_once_however_often_it_is_looked_at():
    asked: list[int] = []

    def planner(shape: Shape, kind: TopologyClass, room: Room) -> Plan | None:
        asked.append(room.idle)
        return plan(shape, kind, room.idle)

    prospects = Prospects(PAIR, class_of("mesh"), planner)
    for masks in ([3, 5, 3], [5], [], [15, 3]):
        prospects.look_at(np.array(masks, np.int64))
    assert sorted(asked) == [3, 5, 15]


def test_placement_keeps_the_tables_of_a_shape_and_a_class():
    placement, masks = Placement(), np.array([15], np.int64)
    tables = placement.prospects(PAIR, class_of("mesh"), masks)
    assert placement.prospects(PAIR, class_of("mesh"), masks) is tables
    assert placement.prospects(PAIR, class_of("bridges"), masks) is not tables
    assert tables.left[15] == 2


# --- shares ---------------------------------------------------------------------------------------------------------

GIB = 1024
shared_shapes = st.sampled_from(
    [
        Shape((Part(APP, 1, 10 * GIB),), careful=False),
        Shape((Part(INIT, 1, 30 * GIB),), careful=False),
        Shape((Part(APP, 2, 10 * GIB),)),
        Shape((Part(APP, 2, 30 * GIB),), careful=False),
        Shape((Part(APP, 2, 10 * GIB),), floor=30.0),
        Shape((Part(APP, 1, 10 * GIB), Part(APP, 1, 30 * GIB)), careful=False),
        Shape((Part(INIT, 1, 30 * GIB), Part(APP, 1, 10 * GIB), Part(APP, 2)), careful=True),
        Shape((Part(APP, 1, 10 * GIB),), careful=False, model="*A100*"),
        Shape((Part(APP, 2, 10 * GIB),), model="*A100*"),
        Shape((Part(APP, 1, 10 * GIB),), careful=False, nic_ceiling=Distance.PIX),
    ]
)


@st.composite
def rooms(draw: st.DrawFn, size: int) -> Room:
    left = [draw(st.sampled_from([40, 40, 40, 0, 8, 10, 25, 30])) * GIB for _ in range(size)]
    beyond = (0,) * (MOST_GPUS - size)
    return Room(sum(1 << bit for bit, mib in enumerate(left) if mib == 40 * GIB), (*left, *beyond), (*(40 * GIB,) * size, *beyond))


@settings(deadline=None, max_examples=100)
@given(st.data(), shared_shapes, st.sampled_from(sorted(SAMPLE_MACHINES)))
def test_what_many_nodes_would_give_is_what_each_nodes_own_plan_takes(data: st.DataObject, shape: Shape, name: str):
    """Filter, prioritize and bind cannot disagree: scores are about the very sets that are bound."""
    kind, placement = class_of(name), Placement()
    found = data.draw(st.lists(rooms(kind.size), min_size=1, max_size=4), label="rooms")
    together = Rooms(
        np.array([room.idle for room in found], np.int64),
        np.array([room.left for room in found], np.int32),
        np.array([room.offered for room in found], np.int32),
    )
    prospects = placement.room_prospects(shape, kind, together)
    wanted = usable_mask(shape, kind)
    for at, room in enumerate(found):
        made = placement.plan(shape, kind, room)
        if made is None:
            assert (prospects.bandwidth[at], prospects.union[at], prospects.taken[at].sum()) == (IMPOSSIBLE, 0, 0)
            continue
        rest = room.idle & wanted & ~made.union
        assert (prospects.bandwidth[at], prospects.union[at]) == (made.bandwidth, made.union)
        assert prospects.broken[at] == kind.whole_islands[room.idle & wanted] - kind.whole_islands[rest]
        assert prospects.worth_lost[at] == pytest.approx(placement.weighed(kind).worth[room.idle & wanted] - placement.weighed(kind).worth[rest])
        shares = dict(Demand(shape).shares(made.masks))
        for bit in range(MOST_GPUS):
            assert prospects.taken[at, bit] == (shares.get(bit, room.left[bit]) if made.union >> bit & 1 else 0)
