"""A view speaks of one moment: nothing that happens later changes it, and nobody can write it."""

import pytest

from extender.cluster import Cluster, Room, TentativeHold
from extender.node_names import NodeNames
from tests.builders import changed, cluster, extender_on, pod

BUILT = cluster().dgx1v("a").mesh("b")


def state() -> Cluster:
    return extender_on(BUILT).cluster


def test_the_arrays_cannot_be_written():
    view = state().view()
    for array in (
        *(view.class_index, view.usable, view.free, view.offered, view.left, view.closed, view.row_generation),
        *(view.cpu_left, view.memory_left, view.host_generation),
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_what_happens_later_changes_no_view_that_was_handed_out():
    extender = extender_on(BUILT)
    view = extender.cluster.view()
    before = (view.free.tolist(), view.left.tolist(), view.closed.tolist(), list(view.closed_by), [gpus.uuids for gpus in view.gpus], view.rows)
    extender.cluster.apply_pod(pod("p").holding("a", *BUILT.uuids("a")[:3]).build())
    extender.cluster.apply_pod(pod("stranger").gpus(1).bound_to("b").build())
    extender.cluster.remove_topology("b")
    extender.cluster.apply_topology(cluster().pcie("c").topologies[0])
    assert (
        view.free.tolist(),
        view.left.tolist(),
        view.closed.tolist(),
        list(view.closed_by),
        [gpus.uuids for gpus in view.gpus],
        view.rows,
    ) == before
    later = extender.cluster.view()
    assert later.generation > view.generation
    assert later.rows == 3


def test_rows_of_names_that_came_later_are_not_this_views():
    extender = extender_on(BUILT)
    view = extender.cluster.view()
    extender.cluster.apply_topology(cluster().pcie("c").topologies[0])
    assert view.rows_of(NodeNames.of(["b", "c", "nowhere", "a"])).tolist() == [1, -1, -1, 0]
    assert extender.cluster.view().rows_of(NodeNames.of(["b", "c"])).tolist() == [1, 2]


def test_no_names_are_no_rows():
    assert state().view().rows_of(NodeNames.of([])).tolist() == []


def test_the_same_view_is_handed_out_while_nothing_changes():
    cluster_state = state()
    assert cluster_state.view() is cluster_state.view()


def test_holds_of_others_are_joined_by_row_and_ones_own_do_not_count():
    extender = extender_on(BUILT)
    for uid, row, mask in (("p", 0, 0b0011), ("q", 0, 0b0100), ("r", 1, 0b0001)):
        extender.cluster.hold(uid, row, mask, seconds=2.0)
    view = extender.cluster.view()
    free = {row: int(view.free[row]) for row in (0, 1)}
    assert {row: room.idle for row, room in view.rooms_beside("p").items()} == {0: free[0] & ~0b0100, 1: free[1] & ~0b0001}
    assert {row: room.idle for row, room in view.rooms_beside("").items()} == {0: free[0] & ~0b0111, 1: free[1] & ~0b0001}


def test_only_healthy_gpus_offer_memory():
    """V100s of 32 GiB and A100s of 40 GiB; one that is held offers what it did, and has nothing left."""
    extender = extender_on(BUILT.with_pods(pod("p").holding("a", BUILT.uuids("a")[1])))
    extender.cluster.apply_topology(changed(BUILT.topologies[1], unhealthy=[2]))
    view = extender.cluster.view()
    offered = view.offered_now()
    assert offered.shape == view.left.shape
    assert offered[0, :9].tolist() == [32_768] * 8 + [0]
    assert offered[1, :5].tolist() == [40_960, 40_960, 0, 40_960, 0]
    assert (offered - view.left).nonzero() == ([0], [1])


GIB = 1024
BEYOND = (0,) * 12


@pytest.mark.parametrize(
    ("mask", "shares", "idle", "left"),
    [
        pytest.param(0b0001, ((0, 10),), 0b0110, (30, 40, 40, 5), id="a part of an idle GPU"),
        pytest.param(0b1000, ((3, 4),), 0b0111, (40, 40, 40, 1), id="a part of a shared one"),
        pytest.param(0b1000, ((3, 9),), 0b0111, (40, 40, 40, 0), id="more than is left by now leaves nothing"),
        pytest.param(0b0011, (), 0b0100, (0, 0, 40, 5), id="whole GPUs"),
        pytest.param(0b0011, ((1, 40),), 0b0100, (0, 0, 40, 5), id="one whole, one in part"),
        pytest.param(0, (), 0b0111, (40, 40, 40, 5), id="GPUs that are gone by now"),
    ],
)
def test_a_room_without_what_a_scored_pod_will_take(mask: int, shares: tuple[tuple[int, int], ...], idle: int, left: tuple[int, ...]):
    room = Room(0b0111, (40, 40, 40, 5, *BEYOND), (40, 40, 40, 40, *BEYOND))
    assert room.without(TentativeHold("p", 0, mask, 0.0, shares)) == Room(idle, (*left, *BEYOND), room.offered)


def test_the_room_of_a_node_is_what_its_pods_leave():
    extender = extender_on(BUILT)
    uuids = BUILT.uuids("b")
    extender.cluster.apply_pod(pod("whole").holding("b", uuids[0]).build())
    extender.cluster.apply_pod(pod("part").shared(10).sharing("b", {uuids[1]: 10 * GIB}).build())
    room = extender.cluster.view().room(1)
    assert room == Room(0b1100, (0, 30 * GIB, 40 * GIB, 40 * GIB, *BEYOND), (*(40 * GIB,) * 4, *BEYOND))


def test_parts_that_others_hold_tentatively_add_up_and_ones_own_do_not_count():
    extender = extender_on(BUILT)
    for uid, mib in (("p", 10 * GIB), ("q", 20 * GIB)):
        extender.cluster.hold(uid, 1, 0b0010, 2.0, ((1, mib),))
    view = extender.cluster.view()
    assert view.rooms_beside("p")[1].left[:4] == (40 * GIB, 20 * GIB, 40 * GIB, 40 * GIB)
    assert view.rooms_beside("")[1].left[:4] == (40 * GIB, 10 * GIB, 40 * GIB, 40 * GIB)
    assert view.rooms_beside("")[1].idle == 0b1101
    assert view.left[1, 1] == 40 * GIB, "a hold is no promise"
