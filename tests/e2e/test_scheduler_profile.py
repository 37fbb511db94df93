"""What our scores weigh beside kube-scheduler's own in the shipped configuration: near ties are left to it, half the bandwidth is not.

Two nodes, four GPUs in a full mesh each; how many NVLinks, the tests say. A preference that must lose is at its maximum, and a pod without GPUs, which never
meets the extender, shows that it pulls at all.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from extender.sample_machines import sample
from tests.builders import pod
from tests.e2e.api_server import JsonObject
from tests.e2e.checks import allocation_of
from tests.e2e.extender import RunningExtender
from tests.e2e.live_cluster import LiveCluster

# Among equals Linkwise takes the first by name.
FAST, SLOW = "a-fast", "b-slow"
IMAGE = "registry.example/none"  # the image of every pod here

A100 = "NVIDIA A100-SXM4-40GB"  # 25 GB/s a link
A6000 = "NVIDIA RTX A6000"  # 14.0625 GB/s a link


@dataclass(frozen=True)
class Preference:
    """What makes kube-scheduler prefer `SLOW`: something in the cluster, something in the pod; ``scheduler`` is a profile that scores by it."""

    prepare: Callable[[LiveCluster], None] = lambda _: None
    spec: JsonObject = field(default_factory=dict)
    scheduler: str = "linkwise"


def publish(cluster: LiveCluster, name: str, code: str, model: str = A100) -> None:
    """Make a node with four GPUs of a model and so many NVLinks between any two."""
    found = sample("mesh", name, observed_at=datetime.now(UTC))
    rows = tuple(tuple(cell if cell == "X" else code for cell in row) for row in found.spec.links.gpus)
    gpus = tuple(gpu.model_copy(update={"model": model}) for gpu in found.spec.gpus)
    spec = found.spec.model_copy(update={"gpus": gpus, "links": found.spec.links.model_copy(update={"gpus": rows})})
    cluster.make_node(name, len(gpus))
    cluster.publish(found.model_copy(update={"spec": spec}))


def affinity(node: str) -> JsonObject:
    """Prefer a node, as strongly as a pod can."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    term = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}


def near_friends() -> JsonObject:
    """Prefer the node of the pod that is labelled `app: friend`."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "friend"}}}
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}}}


def away_from_crowds() -> JsonObject:
    """Prefer the node with fewer pods that are labelled `app: crowd`."""
    selector = {"matchLabels": {"app": "crowd"}}
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}
    return {"topologySpreadConstraints": [spread]}


def neighbour(cluster: LiveCluster, name: str, node: str, app: str, cpu: str = "0") -> None:
    """Bind a pod without GPUs to a node."""
    container = {"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": cpu}}}
    spec = {"nodeName": node, "containers": [container]}
    cluster.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": {"app": app}}, "spec": spec})


def a_friend_on_the_slow_node(cluster: LiveCluster) -> None:
    neighbour(cluster, "friend", SLOW, "friend")


def a_crowd_on_the_fast_node(cluster: LiveCluster) -> None:
    for number in range(8):
        neighbour(cluster, f"crowd-{number}", FAST, "crowd")


def a_taint_on_the_fast_node(cluster: LiveCluster) -> None:
    cluster.api.patch("Node", FAST, {"spec": {"taints": [{"key": "avoid", "value": "it", "effect": "PreferNoSchedule"}]}})


def a_busy_fast_node(cluster: LiveCluster) -> None:
    neighbour(cluster, "busy", FAST, "busy", cpu="120")


def the_image_on_the_slow_node(cluster: LiveCluster) -> None:
    image = {"names": [f"{IMAGE}:latest"], "sizeBytes": 4_000_000_000}
    cluster.api.patch("Node", SLOW, {"status": {"images": [image]}}, subresource="status")


@pytest.mark.parametrize(
    ("code", "model"),
    [pytest.param("NV4", A100, id="equal bandwidth"), pytest.param("NV7", A6000, id="98.4 of 100 GB/s")],
)
def test_a_preferred_node_affinity_decides_between_nodes_of_nearly_equal_bandwidth(
    cluster: LiveCluster, extender: RunningExtender, code: str, model: str
) -> None:
    publish(cluster, FAST, "NV4")
    publish(cluster, SLOW, code, model)
    extender.wait_open(FAST, SLOW)
    cluster.make_pod(pod("indifferent").gpus(2))
    assert cluster.wait_bound("indifferent")["spec"]["nodeName"] == FAST
    cluster.api.delete("Pod", "indifferent", grace_s=0)
    extender.wait_free(FAST, 4)
    cluster.make_pod(pod("prefers").gpus(2), **affinity(SLOW))
    assert cluster.wait_bound("prefers")["spec"]["nodeName"] == SLOW
    scores = {node["node"]: node["score"] for node in extender.decision("prefers")["nodes"]}
    assert scores == {FAST: 10, SLOW: 9}


@pytest.mark.parametrize(
    "preference",
    [
        pytest.param(Preference(spec=affinity(SLOW)), id="NodeAffinity"),
        pytest.param(Preference(a_friend_on_the_slow_node, near_friends()), id="InterPodAffinity"),
        pytest.param(Preference(a_crowd_on_the_fast_node, away_from_crowds()), id="PodTopologySpread"),
        pytest.param(Preference(a_taint_on_the_fast_node), id="TaintToleration"),
        pytest.param(
            Preference(a_busy_fast_node, scheduler="default-scheduler"), id="NodeResourcesFit and BalancedAllocation, in the default profile"
        ),
        pytest.param(Preference(the_image_on_the_slow_node, scheduler="default-scheduler"), id="ImageLocality, in the default profile"),
    ],
)
def test_half_the_bandwidth_loses_against_every_in_tree_score(cluster: LiveCluster, extender: RunningExtender, preference: Preference) -> None:
    publish(cluster, FAST, "NV4")
    publish(cluster, SLOW, "NV2")
    extender.wait_open(FAST, SLOW)
    preference.prepare(cluster)
    cluster.make_pod(pod("without").plain(), preference.scheduler, **preference.spec)
    assert cluster.wait_bound("without")["spec"]["nodeName"] == SLOW

    cluster.make_pod(pod("pair").gpus(2), preference.scheduler, **preference.spec)
    bound = cluster.wait_bound("pair")
    assert (bound["spec"]["nodeName"], allocation_of(bound)["bandwidthGBps"]) == (FAST, 100)


def test_a_pod_that_does_not_care_for_bandwidth_follows_its_affinity_to_the_slower_node(cluster: LiveCluster, extender: RunningExtender) -> None:
    publish(cluster, FAST, "NV4")
    publish(cluster, SLOW, "NV2")
    extender.wait_open(FAST, SLOW)
    cluster.make_pod(pod("careless").gpus(2).annotated(topology="none"), **affinity(SLOW))
    assert cluster.wait_bound("careless")["spec"]["nodeName"] == SLOW


def test_a_pod_that_asks_for_no_gpu_in_so_many_words_is_bound_by_linkwise_and_holds_none(cluster: LiveCluster, extender: RunningExtender) -> None:
    """kube-scheduler looks for the name of a managed resource, whatever the amount; a pod that does not name one never meets the extender."""
    cluster.make_machine("mesh", FAST)
    extender.wait_open(FAST)
    before = extender.metric("linkwise_bindings_total")
    cluster.make_pod(pod("silent").plain(cpu="1"))
    cluster.wait_bound("silent")
    assert extender.metric("linkwise_bindings_total") == before
    cluster.make_pod(pod("asks").gpus("0"))
    cluster.wait_bound("asks")
    assert extender.metric("linkwise_bindings_total") == before + 1
    cluster.make_pod(pod("all").gpus(4))
    cluster.wait_bound("all")
