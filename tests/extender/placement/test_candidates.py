"""Candidates that are kept and brought up to date are those of a first look, and what others hold tentatively counts for their rows alone."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster import Room, View
from extender.demand import Demand, read_demand
from extender.demand_class import DemandClass
from extender.placement import Candidates, Placement, Rooms
from extender.placement.candidates import look
from extender.reasons import Refusal
from tests.builders import PodBuilder, cluster, extender_on, pod

NODES = cluster().dgx1v("a", "b").pcie("c")
ASKED = [pod().gpus(1), pod().gpus(2), pod().shared(4), pod().shared(4).gpus(2, "other"), pod().gpus(2).annotated(topology="none")]


def demand_of(asked: PodBuilder) -> Demand:
    return read_demand(asked.build())


def lists(found: Candidates) -> list[list[float]]:
    return [part.tolist() for part in (found.bandwidth, found.worth_lost, found.broken, found.left, found.cost)]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 7), st.integers(0, 4)), max_size=6))
def test_what_was_kept_and_brought_up_to_date_is_what_a_first_look_finds(steps: list[tuple[str, int, int]]):
    """After any pods, for whole GPUs, shares and both."""
    extender, kept = extender_on(NODES), Placement()
    for number, (node, gpu, which) in enumerate(steps):
        uuids = NODES.uuids(node)
        extender.cluster.apply_pod(pod(f"p{number}").holding(node, uuids[gpu % len(uuids)]).build())
        view, demand = extender.cluster.view(), demand_of(ASKED[which])
        rows = np.nonzero(kept.fits(demand.shape, view).code == Refusal.FITS)[0]
        first = Placement()
        assert lists(kept.candidates(demand, view, rows, {})) == lists(first.candidates(demand, view, rows, {}))


def test_what_others_hold_counts_for_their_row_alone():
    """The pod costs more where it would take the last of an island; the other rows are as they were."""
    view, placement, demand = extender_on(NODES).cluster.view(), Placement(), demand_of(pod().gpus(2))
    rows = np.arange(3)
    alone = placement.candidates(demand, view, rows, {})
    beside = placement.candidates(demand, view, rows, {1: Room(0b1, view.room(1).left, view.room(1).offered)})
    assert beside.possible.tolist() == [True, False, True]
    assert [beside.cost[0], beside.cost[2]] == [alone.cost[0], alone.cost[2]]
    assert lists(placement.candidates(demand, view, rows, {})) == lists(alone), "nothing of it is kept"


def test_another_target_judges_anew():
    """Costs of before are forgotten with the outlook that they came from."""
    view, placement, demand = extender_on(NODES).cluster.view(), Placement(), demand_of(pod().gpus(1))
    before = placement.candidates(demand, view, np.arange(3), {})
    placement.expect((DemandClass(0, 8, popularity=1.0),))
    after = placement.candidates(demand, view, np.arange(3), {})
    assert after.cost.tolist() != before.cost.tolist()
    assert after.bandwidth.tolist() == before.bandwidth.tolist()


def test_a_pod_without_gpus_costs_nothing_where_no_node_tells_of_its_cpu():
    """Unknown CPU is no bound."""
    view = extender_on(NODES).cluster.view()
    assert Placement().cost_without_gpus(4000, view, np.arange(3)).tolist() == pytest.approx([0.0, 0.0, 0.0])


MANY = (
    cluster()
    .dgx1v(*(f"d{number}" for number in range(5)))
    .pcie(*(f"p{number}" for number in range(5)))
    .bridges(*(f"b{number}" for number in range(5)))
)
HELD = st.lists(st.tuples(st.integers(0, 14), st.sampled_from([0, 3, 11, 20])), max_size=40)


@settings(deadline=None, max_examples=60)
@given(HELD, st.sampled_from([*ASKED, pod().shared(9).annotated(gpu_model="*L40S*,*V100*")]), st.sampled_from(["0", "1500m", "40"]), st.booleans())
def test_one_node_at_a_time_is_what_all_at_once_are_to_the_last_bit(held: list[tuple[int, int]], asked: PodBuilder, cpu: str, beside: bool):
    """Few rows are looked at in plain Python, many by numpy; what is kept must not depend on how many changed."""
    built = MANY
    for name in ("d0", "p1", "b2", "d3"):
        built = built.node(name, cpu="64")
    extender = extender_on(built)
    names = extender.names()
    for number, (node, gib) in enumerate(held):
        holder = pod(f"p{number}").shared(gib) if gib else pod(f"p{number}").gpus(1)
        if names[node] in extender.filter(holder, names[node])["NodeNames"]:
            asyncio.run(extender.bind(holder, names[node]))
    raw = asked.build()
    raw["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    demand, view, placement = read_demand(raw), extender.cluster.view(), extender.verbs.placement
    rows = np.arange(view.rows)
    rooms = {row: Room(view.room(row).idle & 0b1011, view.room(row).left, view.room(row).offered) for row in range(0, 15, 2)} if beside else {}
    together = placement.candidates(demand, view, rows, rooms)
    for row in rows.tolist():
        alone = Placement(placement.weights, placement.outlook)
        alone.judge(view)
        found = look(demand, view, np.array([row]), one_room(view, row, rooms), alone, placement.judge(view, demand.shape))
        if alone.fits(demand.shape, view).code[row] == Refusal.FITS and (found.possible[0] or together.possible[row]):
            assert [column[0] for column in lists(found)] == [column[row] for column in lists(together)]


def one_room(view: View, row: int, rooms: dict[int, Room]) -> Rooms:
    return Rooms.of(rooms[row] if row in rooms else view.room(row))
