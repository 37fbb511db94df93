"""Invariants 4 to 8 of the state on a real API server; 1 to 3 are what `test_storm` checks after every hundred pods.

tests/invariants looks for counterexamples to all of them by the thousand, on an API server of its own making. Here each is seen once with the real one.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from extender.sample_machines import SAMPLE_MACHINES
from tests.builders import PodBuilder, pod
from tests.e2e.api_server import JsonObject
from tests.e2e.calls import HTTP
from tests.e2e.checks import check_cluster, check_extender, indices_of
from tests.e2e.extender import RunningExtender
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.program import wait_until
from tests.invariants.machine import Node
from topology.api import GpuHolder, GPUTopology, read_gputopology

RUNNING = {
    "phase": "Running",
    "containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}],
}


def run(cluster: LiveCluster, name: str) -> None:
    """Write the status that kubelet writes when the containers run."""
    cluster.api.patch("Pod", name, {"status": RUNNING}, "default", subresource="status")


def seen(topology: GPUTopology, name: str, *positions: int, in_s: float = 0) -> GPUTopology:
    """Return the topology as its agent sees it, in so many seconds, when a pod of that name holds these GPUs."""
    holder = (GpuHolder(namespace="default", name=name, container="main"),)
    gpus = tuple(gpu.model_copy(update={"holders": holder if position in positions else ()}) for position, gpu in enumerate(topology.status.gpus))
    status = topology.status.model_copy(update={"gpus": gpus, "holders_observed": True, "observed_at": datetime.now(UTC) + timedelta(seconds=in_s)})
    return topology.model_copy(update={"status": status})


def verb(extender: RunningExtender, name: str, call: JsonObject) -> Any:
    answer = HTTP.post(f"{extender.url}/{name}", json=call)
    assert answer.status_code == 200
    return answer.json()


# --- 4 --------------------------------------------------------------------------------------------------------------


def test_a_terminating_pod_holds_its_gpus_until_its_containers_have_ended(cluster: LiveCluster, extender: RunningExtender) -> None:
    cluster.make_machine("mesh", "ending")
    extender.wait_open("ending")
    cluster.make_pod(pod("first").gpus(4), terminationGracePeriodSeconds=600)
    cluster.wait_bound("first")
    run(cluster, "first")
    cluster.api.delete("Pod", "first", "default")
    assert cluster.pod("first")["metadata"]["deletionTimestamp"]
    # kube-scheduler counts it as well; a Node that claims more GPUs than it has leaves the question to us.
    cluster.api.patch(
        "Node", "ending", {"status": {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}}}, subresource="status"
    )
    cluster.make_pod(pod("second").gpus(1))
    cluster.wait_event("linkwise: fewer than 1 GPU", "second", reason="FailedScheduling")
    assert extender.nodes()["ending"]["free"] == 0
    cluster.end_pod("first")
    cluster.wait_bound("second")
    check_cluster(cluster.api)


def test_a_pod_deleted_by_force_holds_its_gpus_until_the_agent_has_looked_again(cluster: LiveCluster, extender: RunningExtender) -> None:
    topology = cluster.make_machine("mesh", "forced")  # a name of its own: what was seen of a machine is not forgotten with its objects
    cluster.publish(seen(topology, "nobody"))
    extender.wait_open("forced")
    cluster.make_pod(pod("first").gpus(4))
    cluster.wait_bound("first")
    run(cluster, "first")
    cluster.publish(seen(topology, "first", 0, 1, 2, 3))
    cluster.api.delete("Pod", "first", "default", grace_s=0)
    assert cluster.api.find("Pod", "first", "default") is None
    # For kube-scheduler its GPUs are free at once.
    cluster.make_pod(pod("second").gpus(1))
    cluster.wait_event("linkwise: fewer than 1 GPU", "second", reason="FailedScheduling")
    cluster.publish(seen(topology, "first", 0, 1, 2, 3, in_s=2))
    time.sleep(2)
    assert cluster.node_of("second") is None, "it still runs"
    cluster.publish(seen(topology, "nobody", in_s=3))
    assert len(indices_of(cluster.wait_bound("second"))) == 1


# --- 5 --------------------------------------------------------------------------------------------------------------


def test_an_allocation_that_does_not_decode_closes_its_node_by_name_until_the_pod_is_gone(cluster: LiveCluster, extender: RunningExtender) -> None:
    for name in ("node-a", "node-b"):
        cluster.make_machine("mesh", name)
    extender.wait_open("node-a", "node-b")
    cluster.make_pod(pod("odd").gpus(1), scheduler="nobody")
    cluster.api.bind("odd", "node-a", annotations={"linkwise.dev/allocation": '{"v":1,"node":'})
    reason = extender.wait_closed("node-a", "cannot be read")
    assert "pod default/odd" in reason
    cluster.make_pod(pod("train").gpus(2))
    assert cluster.wait_bound("train")["spec"]["nodeName"] == "node-b"
    told = {node["node"]: node for node in extender.decision("train")["nodes"]}
    assert "pod default/odd" in told["node-a"]["reason"]
    cluster.api.delete("Pod", "odd", "default", grace_s=0)
    extender.wait_open("node-a")
    check_extender(extender, cluster.api)


# --- 6 --------------------------------------------------------------------------------------------------------------


def test_gpus_that_come_up_in_another_order_are_the_same_gpus(cluster: LiveCluster, extender: RunningExtender) -> None:
    cluster.make_machine("dgx1v", "cube")
    extender.wait_open("cube")
    cluster.make_pods(pod(f"pod-{number}").gpus(2) for number in range(2))
    for number in range(2):
        cluster.wait_bound(f"pod-{number}")
    free = extender.free("cube")
    turned = read_gputopology(Node("cube", "dgx1v", order="backwards").topology())
    cluster.publish(turned.model_copy(update={"status": turned.status.model_copy(update={"observed_at": datetime.now(UTC)})}))
    first = turned.spec.gpus[0].uuid
    wait_until(lambda: extender.get("nodes/cube")["gpus"][0]["uuid"] == first, what="the extender has seen the new order")
    assert extender.free("cube") == free
    cluster.make_pods(pod(f"later-{number}").gpus(2) for number in range(2))
    for number in range(2):
        cluster.wait_bound(f"later-{number}")
    check_cluster(cluster.api)
    check_extender(extender, cluster.api)


# --- 7 and 8 --------------------------------------------------------------------------------------------------------

ASKED = (
    pod("one").gpus(1),
    pod("pair").gpus(2),
    pod("fast-pair").gpus(2).min_bandwidth(200),
    pod("near-pair").gpus(2).max_distance("PIX"),
    pod("quad").gpus(4).min_bandwidth(90),
    pod("all").gpus(8),
    pod("two-containers").gpus(2, container="a").gpus(1, container="b"),
    pod("hopper").gpus(1).annotated(gpu_model="*H100*"),
)


@pytest.fixture
def machines(cluster: LiveCluster, extender: RunningExtender) -> LiveCluster:
    """Give a node of each kind, each with one GPU taken."""
    for kind in SAMPLE_MACHINES:
        topology = cluster.make_machine(kind, kind)
        cluster.make_pod(pod(f"on-{kind}").holding(kind, topology.spec.gpus[0].uuid))
    extender.wait_open(*SAMPLE_MACHINES)
    for kind, machine in SAMPLE_MACHINES.items():
        extender.wait_free(kind, machine.size - 1)
    return cluster


def asked(extender: RunningExtender, builder: PodBuilder) -> tuple[list[str], dict[str, str], dict[str, int]]:
    """Return what filter lets through, why not the others, and the scores."""
    item = builder.build()
    del item["metadata"]["uid"]  # nothing is held for a pod that nobody can bind
    call = {"Pod": item, "NodeNames": list(SAMPLE_MACHINES)}
    answer = verb(extender, "filter", call)
    scores = {each["Host"]: each["Score"] for each in verb(extender, "prioritize", call)}
    return answer["NodeNames"], answer["FailedAndUnresolvableNodes"], scores


def bind(cluster: LiveCluster, extender: RunningExtender, builder: PodBuilder, node: str) -> str:
    """Create the pod, bind it as kube-scheduler would, take it away again; returns the error."""
    created = cluster.make_pod(builder, scheduler="nobody")
    uid = created["metadata"]["uid"]
    verb(extender, "filter", {"Pod": created, "NodeNames": [node]})
    error = str(verb(extender, "bind", {"PodNamespace": "default", "PodName": builder.name, "PodUID": uid, "Node": node})["Error"])
    assert (cluster.node_of(builder.name) == node) is not bool(error)
    check_cluster(cluster.api)
    cluster.api.delete("Pod", builder.name, "default", grace_s=0)
    extender.wait_free(node, SAMPLE_MACHINES[node].size - 1)
    return error


def test_filter_prioritize_and_bind_cannot_disagree(machines: LiveCluster, extender: RunningExtender) -> None:
    for builder in ASKED:
        fitting, refused, scores = asked(extender, builder)
        assert sorted([*fitting, *refused]) == sorted(SAMPLE_MACHINES)
        assert all(scores[node] == 0 for node in refused)
        assert [score for score in scores.values() if score == 10] == ([10] if fitting else [])
        for node in SAMPLE_MACHINES:
            error = bind(machines, extender, builder, node)
            assert bool(error) is (node in refused), error


def test_the_same_state_and_call_give_the_same_answer_also_after_a_restart(machines: LiveCluster, extender: RunningExtender) -> None:
    extender.ask_for()
    extender.wait_priced()
    before = [asked(extender, builder) for builder in ASKED]
    assert [asked(extender, builder) for builder in reversed(ASKED)] == before[::-1]
    extender.stop()
    extender.start().wait_leads().ask_for()
    extender.wait_priced()
    extender.wait_open(*SAMPLE_MACHINES)  # figures before that are lower bounds
    assert [asked(extender, builder) for builder in ASKED] == before
    extender.count_for_itself()
