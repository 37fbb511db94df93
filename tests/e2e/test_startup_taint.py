"""Nodes that register with the startup taint lose it when their GPUs can be placed on, by one write of the replica that leads.

On the real API server, with the rights and the policies of the manifests in force. What the policy refuses is in `test_manifests`; a kubelet that registers with the taint,
and an agent that hands GPUs over, are in `test_topology_manager`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.dynamic.exceptions import ForbiddenError

from extender.sample_machines import sample
from tests.builders import pod
from tests.e2e.conftest import MANIFESTS
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender, serve, shipped_configuration
from tests.e2e.fault_proxy import FaultProxy
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.program import wait_until

JsonObject = dict[str, Any]

STARTUP = {"key": "linkwise.dev/agent-not-ready", "effect": "NoSchedule"}
OTHER = {"key": "team/other", "value": "x", "effect": "PreferNoSchedule"}
NODES = r"^/api/v1/nodes/"


@pytest.fixture(scope="module")
def way(control_plane: ControlPlane) -> Iterator[FaultProxy]:
    """Stand between the extender and the API server."""
    with FaultProxy(control_plane.url, control_plane.certificate_authority) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def extender(control_plane: ControlPlane, accounts: None, way: FaultProxy) -> Iterator[RunningExtender]:
    """Run the extender under the policies and behind the fault injector, and kube-scheduler."""
    control_plane.api().apply_file(MANIFESTS / "admission-policy.yaml")
    running = serve(control_plane, server=way.url).wait_leads()
    control_plane.start_scheduler(shipped_configuration(running.url))
    wait_until(lambda: _is_in_force(control_plane), what="the policies are in force")
    yield running
    LiveCluster(control_plane).empty()


def _is_in_force(plane: ControlPlane) -> bool:
    """Try, as the extender, what it may not."""
    plane.api().create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "probe"}})
    try:
        plane.api("linkwise-extender").patch("Node", "probe", {"metadata": {"labels": {"probe": "x"}}})
    except ForbiddenError:
        return True
    finally:
        plane.api().delete("Node", "probe")
    return False


def register(cluster: LiveCluster, name: str) -> str:
    """Let a Node come with its taints; returns its UID."""
    cluster.make_node(name)
    return str(cluster.api.patch("Node", name, {"spec": {"taints": [OTHER, STARTUP]}})["metadata"]["uid"])


def publish(cluster: LiveCluster, name: str, owner: str) -> None:
    """Publish a topology as the agent of that Node does, looked at now."""
    item = sample("dgx1v", name, observed_at=datetime.now(UTC)).to_object()
    item["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": owner}]
    cluster.api.apply({**item, "status": {}})
    cluster.api.patch("GPUTopology", name, {"status": item["status"]}, subresource="status")


def taints(cluster: LiveCluster, name: str) -> list[JsonObject]:
    found: list[JsonObject] = cluster.api.get("Node", name)["spec"].get("taints", [])
    return found


def wait_awaits(extender: RunningExtender, awaited: str) -> None:
    wait_until(lambda: extender.metric("linkwise_startup_taints", awaited=awaited) == 1, 10, f"a node waits for {awaited}")


def test_the_taint_goes_when_the_topology_comes_and_not_before_and_a_pod_that_waits_is_placed(
    cluster: LiveCluster, extender: RunningExtender
) -> None:
    """kube-scheduler keeps the pod off the node by the taint; its removal wakes the pod."""
    uid = register(cluster, "node-a")
    cluster.make_pod(pod("waits").gpus(2))
    cluster.wait_event("untolerated taint", "waits", reason="FailedScheduling")
    wait_awaits(extender, "topology")
    assert taints(cluster, "node-a") == [OTHER, STARTUP]
    publish(cluster, "node-a", uid)
    wait_until(lambda: taints(cluster, "node-a") == [OTHER], what="the taint is taken off")
    assert cluster.wait_bound("waits")["spec"]["nodeName"] == "node-a"
    wait_until(lambda: extender.metric("linkwise_startup_taints") == 0, what="no node is told as tainted")


def test_a_node_that_registers_anew_is_not_let_in_by_the_topology_of_the_one_before(cluster: LiveCluster, extender: RunningExtender) -> None:
    """A pool replaces a machine under its name; the garbage collector has not come yet."""
    before = register(cluster, "node-a")
    publish(cluster, "node-a", before)
    wait_until(lambda: taints(cluster, "node-a") == [OTHER], what="the taint is taken off")
    cluster.api.delete("Node", "node-a")
    anew = register(cluster, "node-a")
    wait_awaits(extender, "topology")
    assert taints(cluster, "node-a") == [OTHER, STARTUP]
    publish(cluster, "node-a", anew)
    wait_until(lambda: taints(cluster, "node-a") == [OTHER], what="the taint is taken off")


def test_a_taint_that_somebody_puts_at_the_same_moment_survives(cluster: LiveCluster, extender: RunningExtender, way: FaultProxy) -> None:
    """At the end of the list: the write that is on its way takes ours. In front of it: that write does nothing, and the next one takes ours."""
    late = {"key": "team/late", "effect": "NoSchedule"}
    for name, others in (("node-e", [OTHER, STARTUP, late]), ("node-f", [late, OTHER, STARTUP])):
        held = way.hold("PATCH", f"{NODES}{name}", times=1)
        publish(cluster, name, register(cluster, name))
        held.wait_hit()
        cluster.api.patch("Node", name, {"spec": {"taints": others}})
        held.release()
        left = [taint for taint in others if taint != STARTUP]
        wait_until(lambda name=name, left=left: taints(cluster, name) == left, what=f"the startup taint of {name} alone is gone")
    assert [call.status for call in way.seen("PATCH", f"{NODES}node-e")] == [200]
    assert [call.status for call in way.seen("PATCH", f"{NODES}node-f")] == [422, 200]


def test_of_two_replicas_only_the_one_that_leads_writes(
    cluster: LiveCluster, extender: RunningExtender, way: FaultProxy, control_plane: ControlPlane
) -> None:
    """The other one knows as much, and leaves it to the leader; what becomes of it when it leads is in the unit tests."""
    with FaultProxy(control_plane.url, control_plane.certificate_authority) as other_way:
        second = serve(control_plane, server=other_way.url).wait_ready()
        held = way.hold("PATCH", f"{NODES}node-g", times=1)
        publish(cluster, "node-g", register(cluster, "node-g"))
        held.wait_hit()
        wait_awaits(second, "nothing")
        held.release()
        wait_until(lambda: taints(cluster, "node-g") == [OTHER], what="the taint is taken off")
        second.stop()
        assert len(way.seen("PATCH", f"{NODES}node-g")) == 1
        assert other_way.seen("PATCH", NODES) == []
