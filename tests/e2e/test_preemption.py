"""Preemption on a full cluster: kube-scheduler counts GPUs and chooses victims by count, and Linkwise lets it evict only where that makes the pod fit.

There is no kubelet here: a victim terminates until the test ends it, so it can be seen that its GPUs are not given away before.
"""

import pytest

from tests.builders import PodBuilder, pod
from tests.e2e.checks import check_cluster
from tests.e2e.extender import RunningExtender
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.program import wait_until


@pytest.fixture
def full(cluster: LiveCluster, extender: RunningExtender) -> LiveCluster:
    """Give a cluster of four machines, every GPU of them held by a pod of low priority: one pod a GPU on `bridges`, two pods a node elsewhere."""
    for name, value in (("low", -10), ("high", 1000)):
        cluster.api.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    for kind, node in (("pcie", "pcie-a"), ("pcie", "pcie-b"), ("dgx1v", "dgx1v"), ("bridges", "bridges")):
        cluster.make_machine(kind, node)
        extender.wait_open(node)
        for number in range(8 if kind == "bridges" else 2):
            builder = pod(f"{node}-{number}").gpus(1 if kind == "bridges" else 4)
            cluster.make_pod(builder, priorityClassName="low", nodeSelector={"kubernetes.io/hostname": node})
            cluster.wait_bound(builder.name)
    return cluster


def ask(cluster: LiveCluster, builder: PodBuilder) -> None:
    """Create a pod of high priority."""
    cluster.make_pod(builder, priorityClassName="high")


def victims(cluster: LiveCluster) -> dict[str, str]:
    """Return the pods that are being deleted, each with its node."""
    return {item["metadata"]["name"]: item["spec"]["nodeName"] for item in cluster.api.items("Pod") if item["metadata"].get("deletionTimestamp")}


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(pod("asks").gpus(2).min_bandwidth(400), id="a floor that no node meets"),
        pytest.param(pod("asks").gpus(4).max_distance("NVLINK").min_bandwidth(300), id="four GPUs that no bridge connects"),
        pytest.param(pod("asks").gpus(8).max_distance("PIX"), id="eight GPUs behind one PCIe switch"),
        pytest.param(pod("asks").gpus(2).annotated(gpu_model="*H100*"), id="a model that nobody has"),
        pytest.param(pod("asks").gpus(2).annotated(min_bandwidth="fast"), id="a wish that cannot be read"),
    ],
)
def test_a_pod_that_no_eviction_can_satisfy_evicts_nobody(full: LiveCluster, extender: RunningExtender, builder: PodBuilder) -> None:
    before = {item["metadata"]["uid"] for item in full.api.items("Pod")}
    asked = extender.metric("linkwise_calls_total", verb="preempt")
    ask(full, builder)
    # kube-scheduler had candidates on every node and was refused all of them; only then it says so.
    wait_until(lambda: extender.metric("linkwise_calls_total", verb="preempt") > asked, what="kube-scheduler asks whether it may preempt")
    full.wait_event("0/4 nodes are available", "asks", reason="FailedScheduling")
    assert victims(full) == {}
    assert before < {item["metadata"]["uid"] for item in full.api.items("Pod")}
    assert "nominatedNodeName" not in full.pod("asks")["status"]


@pytest.mark.parametrize(
    ("builder", "node", "evicted"),
    [
        pytest.param(pod("asks").gpus(2).min_bandwidth(50).annotated(gpu_model="*V100*"), "dgx1v", 1, id="a pair of the cube mesh"),
        pytest.param(pod("asks").gpus(8).annotated(gpu_model="*A100*"), "bridges", 8, id="all GPUs of a node"),
    ],
)
def test_a_pod_that_an_eviction_can_satisfy_evicts_on_exactly_one_node_and_waits_until_the_victims_have_ended(
    full: LiveCluster, extender: RunningExtender, builder: PodBuilder, node: str, evicted: int
) -> None:
    ask(full, builder)
    wait_until(lambda: len(victims(full)) >= evicted, what=f"{evicted} pods are evicted")
    full.wait_event("nodes are available", "asks", reason="FailedScheduling")
    assert full.node_of("asks") is None
    assert set(victims(full).values()) == {node}
    check_cluster(full.api)
    for name in victims(full):
        full.api.delete("Pod", name, grace_s=0)
    assert full.wait_bound("asks")["spec"]["nodeName"] == node
    assert len(victims(full)) == 0
    check_cluster(full.api)
