"""What went wrong in the accounting of systems that do this job, as the public reports tell it, and what holds here."""

import pytest

from extender.snapshot_file import Snapshot
from tests.builders import ClusterBuilder, PodBuilder, changed, cluster, extender_on, pod

BUILT = cluster().dgx1v("a")
UUIDS = BUILT.uuids("a")


def restarted(pods: list[dict[str, object]], built: ClusterBuilder = BUILT) -> dict[str, list[int]]:
    """Free GPUs of every node as a new process counts them from the stored pods."""
    again = extender_on(ClusterBuilder(topologies=built.topologies, pods=tuple(pods)))
    return {name: again.free(name) for name in again.names()}


async def test_the_same_pod_is_created_and_deleted_a_thousand_times():
    """gpushare-scheduler-extender 201: free memory is exactly what it was."""
    extender = extender_on(BUILT)
    stays = pod("stays").gpus(1)
    await extender.place(stays, "a")
    before = extender.free("a")
    for number in range(1000):
        comes = pod("comes-and-goes").gpus(1 + number % 4)
        assert len(await extender.place(comes, "a")) == 1 + number % 4
        extender.binder.delete_pod("default", "comes-and-goes")
        assert extender.free("a") == before
    assert len(extender.cluster.ledger) == 1
    assert restarted(extender.binder.pods()) == {"a": before}


def test_the_same_pod_is_seen_twice():
    """Volcano 4809: an event and a resync show the same pod; it is counted once, by its UID."""
    holder = pod("holder").holding("a", UUIDS[0], UUIDS[3])
    extender = extender_on(BUILT.with_pods(holder))
    for _ in range(3):
        extender.cluster.apply_pod(holder.build())
    assert extender.free("a") == [1, 2, 4, 5, 6, 7]
    extender.cluster.remove_pod(holder.uid)
    assert extender.free("a") == list(range(8))


def test_the_delete_event_of_an_eight_gpu_pod_is_missed_and_the_next_list_repairs_it():
    """HAMi 2923: whoever lists all pods finds those that are gone, and the node is usable again."""
    extender = extender_on(BUILT.with_pods(pod("large").holding("a", *UUIDS)))
    asked = pod("next").gpus(8)
    assert extender.filter(asked)["NodeNames"] == []
    listed: list[dict[str, object]] = []
    for uid in extender.cluster.pod_uids() - {str(each["uid"]) for each in listed}:
        extender.cluster.remove_pod(uid)
    assert extender.filter(asked)["NodeNames"] == ["a"]


async def test_an_allocation_names_a_gpu_that_the_node_no_longer_has():
    """HAMi 2592: the node is closed for new pods until that is resolved, explain says so, and nothing is given twice."""
    extender = extender_on(BUILT.with_pods(pod("holder").holding("a", UUIDS[2])))
    extender.cluster.apply_topology(changed(BUILT.topologies[0], without=2))
    asked = pod("next").gpus(1)
    refused = extender.filter(asked)["FailedAndUnresolvableNodes"]
    assert refused == {"a": "linkwise: closed: a pod on the node holds a GPU that the node no longer has"}
    error = await extender.bind(asked, "a")
    assert "default/holder" in error
    assert UUIDS[2] in error
    extender.cluster.apply_topology(BUILT.topologies[0])
    assert 2 not in await extender.place(asked, "a")


@pytest.mark.parametrize("end", ["the pod is deleted", "the pod has failed"])
def test_the_pod_that_held_the_missing_gpu_ends_and_the_others_are_usable(end: str):
    """k8s-device-plugin 2038: one GPU falls off the bus; the other seven keep working."""
    holder = pod("holder").holding("a", UUIDS[2])
    extender = extender_on(BUILT.with_pods(holder))
    extender.cluster.apply_topology(changed(BUILT.topologies[0], without=2))
    if end == "the pod is deleted":
        extender.cluster.remove_pod(holder.uid)
    else:
        extender.cluster.apply_pod(holder.bound_to("a", holder.annotations["linkwise.dev/allocation"], phase="Failed").build())
    assert extender.filter(pod("next").gpus(7))["NodeNames"] == ["a"]


async def test_everything_counted_survives_write_restart_and_read():
    """HAMi 2876, 1330: a counted field is missing in what is written, so a restart undercounts."""
    built = cluster().dgx1v("a").bridges("b").mesh("c")
    extender = extender_on(built)
    shapes: dict[str, PodBuilder] = {
        "a": pod("several").gpus(2, "train").gpus(1, "serve").init(4).sidecar(1),
        "b": pod("floor").gpus(2).min_bandwidth(300).plain(),
        "c": pod("init").init(3).gpus(1),
    }
    for node, asked in shapes.items():
        await extender.place(asked, node)
    free = {node: extender.free(node) for node in shapes}
    assert [len(gpus) for gpus in free.values()] == [4, 6, 1]
    assert restarted(extender.binder.pods(), built) == free


def test_a_terminating_pod_is_counted_until_its_containers_have_ended():
    """Kueue 10076."""
    holder = pod("holder").holding("a", *UUIDS[:4])
    extender = extender_on(BUILT.with_pods(holder.terminating()))
    assert extender.free("a") == [4, 5, 6, 7]
    ended = holder.terminating().bound_to("a", holder.annotations["linkwise.dev/allocation"], phase="Succeeded")
    extender.cluster.apply_pod(ended.build())
    assert extender.free("a") == list(range(8))


def test_the_topology_is_deleted_and_created_again_while_pods_run():
    """Kueue 11858: accounting unchanged."""
    extender = extender_on(BUILT.with_pods(pod("holder").holding("a", UUIDS[5])))
    extender.cluster.remove_topology("a")
    assert extender.filter(pod("next").gpus(1))["NodeNames"] == []
    extender.cluster.apply_topology(BUILT.topologies[0])
    assert extender.free("a") == [0, 1, 2, 3, 4, 6, 7]


def test_a_pod_came_around_the_extender():
    """gpushare-scheduler-extender 75, 228, 11: it uses GPUs that nobody knows, so its node takes nobody until that is known."""
    extender = extender_on(BUILT.with_pods(pod("stranger").gpus(2).bound_to("a")))
    asked = pod("next").gpus(1)
    assert extender.filter(asked)["NodeNames"] == []
    extender.cluster.apply_topology(changed(BUILT.topologies[0], holders={0: "default/stranger", 1: "default/stranger"}))
    assert extender.filter(pod("next").gpus(6))["NodeNames"] == ["a"]
    assert extender.free("a") == [2, 3, 4, 5, 6, 7]


def test_a_snapshot_of_a_snapshot_is_the_same_cluster():
    holder = pod("holder").holding("a", UUIDS[0])
    extender = extender_on(BUILT.with_pods(holder, pod("waits").gpus(2)))
    again = Snapshot(topologies=BUILT.topologies, pods=tuple(extender.binder.pods()))
    assert again.to_list() == BUILT.with_pods(holder, pod("waits").gpus(2)).snapshot().to_list()
