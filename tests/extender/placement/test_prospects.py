"""The tables of prospects say what the plan on a mask would get, cost and leave, for every mask that was looked at."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster import Room
from extender.containers import ContainerKind
from extender.demand import Part, Shape
from extender.placement import IMPOSSIBLE, Placement, Plan, Prospects
from extender.placement.plan import plan
from extender.sample_machines import SAMPLE_MACHINES, sample
from topology.topology_class import TopologyClass, topology_class

APP = ContainerKind.APP
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
