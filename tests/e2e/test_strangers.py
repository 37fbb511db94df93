"""Pods that came to a node around Linkwise: their GPUs are never given to anybody else, although nobody here knows at first which ones they are.

The node is closed, by name, until its agent publishes what kubelet says of who holds what; the tests write that status in the agent's place.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.builders import pod
from tests.e2e.checks import check_cluster, indices_of
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender
from tests.e2e.live_cluster import LiveCluster
from topology.api import GpuHolder, GPUTopology

CLOSED = "closed: a pod that Linkwise did not place holds unknown GPUs of the node"
STRANGER = "default/stranger"


def seen(topology: GPUTopology, *positions: int, in_s: float = 0) -> GPUTopology:
    """Return the topology as the agent observes it, in so many seconds, when the stranger holds these GPUs."""
    holder = (GpuHolder(namespace="default", name="stranger", container="main"),)
    gpus = tuple(gpu.model_copy(update={"holders": holder if position in positions else ()}) for position, gpu in enumerate(topology.status.gpus))
    status = topology.status.model_copy(update={"gpus": gpus, "holders_observed": True, "observed_at": datetime.now(UTC) + timedelta(seconds=in_s)})
    return topology.model_copy(update={"status": status})


def by_node_name(cluster: LiveCluster) -> None:
    cluster.make_pod(pod("stranger").gpus(2).bound_to("bridges"))


def by_another_scheduler(cluster: LiveCluster) -> None:
    other = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [{"schedulerName": "other"}]}
    scheduler = cluster.plane.start_scheduler(other)
    cluster.make_pod(pod("stranger").gpus(2), "other")
    cluster.wait_bound("stranger")
    scheduler.stop()


def by_a_binding_of_somebody(cluster: LiveCluster) -> None:
    cluster.make_pod(pod("stranger").gpus(2), "nobody")
    cluster.api.bind("stranger", "bridges")


@pytest.mark.parametrize(
    "around",
    [
        pytest.param(by_node_name, id="spec.nodeName set by hand"),
        pytest.param(by_another_scheduler, id="another kube-scheduler"),
        pytest.param(by_a_binding_of_somebody, id="a Binding of somebody else"),
    ],
)
def test_a_node_with_a_stranger_is_closed_by_name_until_the_agent_says_what_it_holds(
    cluster: LiveCluster, extender: RunningExtender, around: Callable[[LiveCluster], None]
) -> None:
    topology = cluster.make_machine("bridges", "bridges")
    extender.wait_open("bridges")
    cluster.make_pod(pod("before").gpus(2))
    assert indices_of(cluster.wait_bound("before")) == [0, 2]

    around(cluster)
    assert f"pod {STRANGER} uses 2 nvidia.com/gpu and carries no allocation" in extender.wait_closed("bridges", CLOSED)
    cluster.make_pod(pod("ours").gpus(2).min_bandwidth(300))
    cluster.wait_event(f"linkwise: {CLOSED}", "ours", reason="FailedScheduling")
    assert extender.decision("ours")["nodes"][0]["reason"].endswith(f"pod {STRANGER} uses 2 nvidia.com/gpu and carries no allocation")
    assert extender.metric("linkwise_nodes", reason="UNKNOWN_HOLDER") == 1

    # 1 and 4 are halves of two bridges: of the free pairs, only 6 and 7 are whole.
    cluster.publish(seen(topology, 1, 4))
    assert indices_of(cluster.wait_bound("ours")) == [6, 7]
    cluster.make_pod(pod("rest").gpus(2))
    assert indices_of(cluster.wait_bound("rest")) == [3, 5]
    check_cluster(cluster.api, around={STRANGER})
    assert extender.nodes()["bridges"]["free"] == 0


def test_a_node_opens_when_its_stranger_has_ended(cluster: LiveCluster, extender: RunningExtender) -> None:
    cluster.make_machine("bridges", "bridges")
    by_node_name(cluster)
    extender.wait_closed("bridges", CLOSED)
    cluster.make_pod(pod("ours").gpus(8))
    cluster.wait_event("Insufficient nvidia.com/gpu", "ours", reason="FailedScheduling")
    cluster.end_pod("stranger")
    assert indices_of(cluster.wait_bound("ours")) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_stranger_that_was_deleted_by_force_holds_its_gpus_until_the_agent_says_otherwise(cluster: LiveCluster, extender: RunningExtender) -> None:
    topology = cluster.make_machine("bridges", "bridges")
    by_node_name(cluster)
    extender.wait_closed("bridges", CLOSED)
    cluster.publish(seen(topology, 0, 2))
    extender.wait_free("bridges", 6)
    running = [{"name": "main", "image": "", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}]
    cluster.api.patch("Pod", "stranger", {"status": {"phase": "Running", "containerStatuses": running}}, "default", subresource="status")
    cluster.api.delete("Pod", "stranger", grace_s=0)
    # Its containers may run on: kubelet has not said that they ended.
    cluster.make_pod(pod("ours").gpus(2))
    assert indices_of(cluster.wait_bound("ours")) == [1, 3]
    assert extender.nodes()["bridges"]["free"] == 4
    cluster.publish(seen(topology))
    extender.wait_free("bridges", 6)


@pytest.mark.parametrize(
    ("holds", "left"),
    [pytest.param((1, 3), [0, 2], id="others than the earlier one had"), pytest.param((0, 2), [1, 3], id="the same, by chance")],
)
def test_what_was_observed_of_an_earlier_pod_of_the_same_name_is_not_believed_of_the_one_there_now(
    cluster: LiveCluster, extender: RunningExtender, holds: tuple[int, int], left: list[int]
) -> None:
    topology = cluster.make_machine("bridges", "bridges")
    by_node_name(cluster)
    extender.wait_closed("bridges", CLOSED)  # it knows the pod: what is seen from now on is not said of an earlier one
    cluster.publish(seen(topology, 0, 2))
    extender.wait_free("bridges", 6)
    cluster.end_pod("stranger")
    cluster.api.delete("Pod", "stranger", grace_s=0)
    extender.wait_free("bridges", 8)

    by_node_name(cluster)
    extender.wait_closed("bridges", CLOSED)
    cluster.make_pod(pod("ours").gpus(2).min_bandwidth(300))
    cluster.wait_event(f"linkwise: {CLOSED}", "ours", reason="FailedScheduling")
    cluster.publish(seen(topology, *holds, in_s=1))
    assert indices_of(cluster.wait_bound("ours")) == left


def test_an_extender_that_starts_beside_a_stranger_closes_the_node_from_its_first_answer_on(
    control_plane: ControlPlane, cluster: LiveCluster, extender: RunningExtender
) -> None:
    cluster.make_machine("bridges", "bridges")
    by_node_name(cluster)
    assert extender.stop() == 0
    cluster.make_pod(pod("ours").gpus(2))
    extender.start().wait_leads()
    assert extender.nodes()["bridges"]["closed"]["code"] == "UNKNOWN_HOLDER"
    cluster.wait_event(f"linkwise: {CLOSED}", "ours", reason="FailedScheduling", timeout=30)
    assert cluster.node_of("ours") is None
