"""A view speaks of one moment: nothing that happens later changes it, and nobody can write it."""

import pytest

from extender.cluster import Cluster
from tests.builders import changed, cluster, extender_on, pod

BUILT = cluster().dgx1v("a").mesh("b")


def state() -> Cluster:
    return extender_on(BUILT).cluster


def test_the_arrays_cannot_be_written():
    view = state().view()
    for array in (view.class_index, view.usable, view.free, view.closed, view.row_generation, view.cpu_left, view.memory_left, view.host_generation):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_what_happens_later_changes_no_view_that_was_handed_out():
    extender = extender_on(BUILT)
    view = extender.cluster.view()
    before = (view.free.tolist(), view.closed.tolist(), list(view.closed_by), [gpus.uuids for gpus in view.gpus], view.rows)
    extender.cluster.apply_pod(pod("p").holding("a", *BUILT.uuids("a")[:3]).build())
    extender.cluster.apply_pod(pod("stranger").gpus(1).bound_to("b").build())
    extender.cluster.remove_topology("b")
    extender.cluster.apply_topology(cluster().pcie("c").topologies[0])
    assert (view.free.tolist(), view.closed.tolist(), list(view.closed_by), [gpus.uuids for gpus in view.gpus], view.rows) == before
    later = extender.cluster.view()
    assert later.generation > view.generation
    assert later.rows == 3


def test_rows_of_names_that_came_later_are_not_this_views():
    extender = extender_on(BUILT)
    view = extender.cluster.view()
    extender.cluster.apply_topology(cluster().pcie("c").topologies[0])
    assert view.rows_of(["b", "c", "nowhere", "a"]).tolist() == [1, -1, -1, 0]
    assert extender.cluster.view().rows_of(["b", "c"]).tolist() == [1, 2]


def test_no_names_are_no_rows():
    assert state().view().rows_of([]).tolist() == []


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
