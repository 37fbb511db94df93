"""Pods of gpushare's device plugin on the real control plane: `docs/gpushare.md` holds with a real kube-scheduler and API server.

Kubelet and the plugin are stand-ins (`tests.e2e.gpushare_nodes`). The admission policies of the manifests are in force in every test, and the plugin has
the rights that its own manifest grants.
"""

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.dynamic.exceptions import DynamicApiError, ForbiddenError

from tests.builders import PodBuilder, pod, unhealthy_gpus
from tests.e2e.api_server import ApiServer, refusal
from tests.e2e.calls import HTTP
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender, serve, shipped_configuration
from tests.e2e.gpushare_nodes import (
    ALLOCATION,
    KEYS,
    UNITS,
    GpushareNode,
    Kubelets,
    PodHistory,
    annotations_of,
    check_pods,
    holders,
    index_of,
    inspected,
    plugin_account,
    start,
    units_of,
)
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.objects import pod_object
from tests.e2e.program import wait_until
from tests.gpushare_stand_in import NO_GPU

JsonObject = dict[str, Any]

REPOSITORY = Path(__file__).parents[2]
PODS = 50
IDX, _, _, ASSIGNED, ASSUME_TIME = KEYS


@pytest.fixture(scope="module")
def extender(control_plane: ControlPlane, accounts: None) -> Iterator[RunningExtender]:
    """Run the extender with a lease that is soon over when it is killed, and kube-scheduler with the shipped configuration."""
    running = serve(control_plane, environment={"LINKWISE_LEASE_DURATION_S": "6"}).wait_leads()
    control_plane.start_scheduler(shipped_configuration(running.url))
    try:
        yield running
    finally:
        LiveCluster(control_plane).empty()


@pytest.fixture(scope="module")
def account(control_plane: ControlPlane) -> Iterator[ApiServer]:
    """Give the API server as the plugin sees it."""
    account = plugin_account(control_plane)
    yield account
    account.close()


@pytest.fixture(scope="module")
def kwok(control_plane: ControlPlane, extender: RunningExtender) -> None:
    """Keep the nodes of all tests alive; it ends with the extender."""
    control_plane.start_kwok()


@pytest.fixture
def policies(cluster: LiveCluster) -> None:
    """Put the admission policies in force; they come into force a moment after they are accepted, and go with the other objects of the test."""
    cluster.api.apply_file(REPOSITORY / "manifests" / "admission-policy.yaml")
    wait_until(lambda: not may_forge(cluster.api), what="the policies are in force")


def may_forge(api: ApiServer) -> bool:
    """Try, without leaving anything, to create a pod that brings an allocation."""
    try:
        api.create(pod_object(pod("probe").units(1).annotated(allocation="{}")), dry_run=True)
    except DynamicApiError as error:
        return ALLOCATION not in refusal(error)
    return True


class Nodes:
    """The gpushare nodes of one test."""

    def __init__(self, cluster: LiveCluster, account: ApiServer, extender: RunningExtender) -> None:
        self._cluster = cluster
        self._account = account
        self._extender = extender
        self.made: list[GpushareNode] = []

    def make(self, name: str, gpus: int, seed: int = 0) -> GpushareNode:
        """Create a node with its kubelet and its plugin."""
        node = GpushareNode(self._cluster, self._account, name, gpus, random.Random(f"{name}{seed}"))
        self.made.append(node)
        return node

    def wait_inspected(self, timeout: float = 10) -> JsonObject:
        """Wait until `inspect` says what the pods' annotations say, of all nodes and of each; returns it."""

        def expected() -> JsonObject:
            return inspected(self._cluster.api.items("Pod"), self.made)

        wait_until(lambda: inspect(self._extender) == expected(), timeout, f"inspect is {expected()}")
        for told in expected()["nodes"]:
            assert inspect(self._extender, told["name"]) == {"nodes": [told]}
        return expected()


def inspect(extender: RunningExtender, node: str = "") -> JsonObject:
    """Ask as kubectl-inspect-gpushare does; pods of a GPU in the order of their names."""
    answer = HTTP.get(f"{extender.url}/gpushare-scheduler/inspect{f'/{node}' if node else ''}")
    assert answer.status_code == 200, answer.text
    found: JsonObject = answer.json()
    for each in (device for told in found["nodes"] for device in told["devs"]):
        each["pods"].sort(key=lambda pod: str(pod["name"]))
    return found


@pytest.fixture
def nodes(cluster: LiveCluster, account: ApiServer, extender: RunningExtender, kwok: None, policies: None) -> Nodes:
    """Give a cluster in which the test makes gpushare nodes."""
    return Nodes(cluster, account, extender)


# --- each pod its own GPU --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("totals", "killed_at"),
    [
        pytest.param((8, 8, 4, 4, 2), None, id="all fit"),
        pytest.param((10, 10, 8, 8, 4), None, id="more than fit"),
        pytest.param((8, 8, 4, 4, 2), 15, id="the extender is killed in the middle"),
    ],
)
def test_fifty_concurrent_pods_each_get_their_own_gpu(
    cluster: LiveCluster, nodes: Nodes, extender: RunningExtender, totals: tuple[int, ...], killed_at: int | None
) -> None:
    """Bound by kube-scheduler while kubelets admit them in any order: every container sees the GPU that its own pod's annotation names."""
    kubelets = Kubelets([nodes.make(name, 4, seed=len(totals)) for name in ("a", "b", "c", "d")])
    extender.wait_open(*kubelets.nodes)
    history = PodHistory(cluster.plane, check_pods)
    asked = [pod(f"pod-{number}").units(totals[number % len(totals)]) for number in range(PODS)]
    with kubelets, ThreadPoolExecutor(1) as pool:
        making = pool.submit(cluster.make_pods, asked)
        if killed_at is not None:
            wait_until(lambda: bound(history.follow()) >= killed_at, 60, f"{killed_at} pods are bound")
            extender.program.kill()
            extender.start()
        making.result()
        wait_until(lambda: all_that_fit_run(history.follow(), kubelets), 120, "all that fit run")
    pods = history.current()
    running = [each for each in pods if each["status"]["phase"] == "Running"]
    assert history.states >= 3 * len(running), "bound, assigned and started, at least"
    assert kubelets.seen() == {each["metadata"]["uid"]: index_of(each) for each in running}
    assert {annotations_of(each)[ASSIGNED] for each in running} == {"true"}
    assert (len(running) == PODS) is (sum(map(units_of, pods)) <= 4 * 4 * UNITS)
    nodes.wait_inspected()


def bound(pods: list[JsonObject]) -> int:
    return sum(1 for each in pods if each["spec"].get("nodeName"))


def all_that_fit_run(pods: list[JsonObject], kubelets: Kubelets) -> bool:
    """Whether every pod has been created, and runs or fits on no GPU any more, told from the pods alone."""
    held = holders(pods)
    room = max(UNITS - sum(map(units_of, held[name][str(index)])) for name, node in kubelets.nodes.items() for index in range(node.gpus))
    waiting = [each for each in pods if each["status"]["phase"] != "Running"]
    assert NO_GPU not in kubelets.seen().values(), "the plugin has found nothing for a pod"
    return len(pods) == PODS and all(not each["spec"].get("nodeName") and units_of(each) > room for each in waiting)


# --- the swap --------------------------------------------------------------------------------------------------------


def make_original(cluster: LiveCluster, builder: PodBuilder) -> None:
    """Create a pod as the original extender leaves it: bound, with its annotations alone."""
    created = cluster.make_pod(builder)
    if builder.phase == "Running":
        start(cluster.api, created)


def test_pods_of_the_original_extender_count_from_our_start_on_and_those_that_wait_hold_others_back(
    cluster: LiveCluster, nodes: Nodes, extender: RunningExtender
) -> None:
    """Running ones and one that the plugin has not seen yet: the next pod of its total gets its own GPU, once the plugin has handed out the first."""
    node = nodes.make("a", 3)
    assert extender.stop() == 0
    make_original(cluster, pod("runs").placed_by_gpushare("a", 0, 20, UNITS))
    make_original(cluster, pod("waits").placed_by_gpushare("a", 1, 20, UNITS, assigned=False))
    extender.start().wait_leads()
    assert [device["usedGPU"] for device in nodes.wait_inspected()["nodes"][0]["devs"]] == [20, 20, 0]

    cluster.make_pod(pod("small").units(3))
    cluster.make_pod(pod("next").units(20))
    cluster.wait_event("pod default/waits waits on node a for 20 units of GPU 1, and this one would for as many of GPU 2", "next")
    assert cluster.node_of("next") is None
    node.take_in()
    assert node.seen(cluster.pod("waits")) == "1"
    for name in ("small", "next"):
        cluster.wait_bound(name, timeout=30)
    node.take_in()
    assert {name: node.seen(cluster.pod(name)) for name in ("small", "next")} == {name: index_of(cluster.pod(name)) for name in ("small", "next")}
    assert index_of(cluster.pod("next")) == "2"
    nodes.wait_inspected()


def test_the_configuration_of_the_original_extender_needs_another_address_and_nothing_else(
    cluster: LiveCluster, nodes: Nodes, extender: RunningExtender
) -> None:
    """The lines of docs/gpushare.md: filter and bind under /gpushare-scheduler, node names, no scores."""
    node = nodes.make("a", 2)
    extender.wait_open("a")
    scheduler = cluster.plane.start_scheduler(configuration_of_the_guide(extender.url))
    for number in range(4):
        cluster.make_pod(pod(f"pod-{number}").units(11), "as-before")
    for number in range(4):
        cluster.wait_bound(f"pod-{number}", timeout=30)
        node.take_in()
    scheduler.stop()
    pods = cluster.api.items("Pod")
    check_pods(pods)
    assert Counter(map(index_of, pods)) == {"0": 2, "1": 2}
    assert {each["metadata"]["name"]: node.seen(each) for each in pods} == {each["metadata"]["name"]: index_of(each) for each in pods}
    nodes.wait_inspected()


def configuration_of_the_guide(url: str) -> JsonObject:
    """Return a KubeSchedulerConfiguration with the extender of docs/gpushare.md, for our address."""
    (block,) = [part for part in (REPOSITORY / "docs" / "gpushare.md").read_text(encoding="utf-8").split("```") if part.startswith("yaml\n")]
    shown = yaml.safe_load(block.removeprefix("yaml"))
    (entry,) = shown["extenders"]
    assert entry["urlPrefix"].endswith("/gpushare-scheduler")
    extenders = [{**entry, "urlPrefix": f"{url}/gpushare-scheduler"}]
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return {**kind, "profiles": [{"schedulerName": "as-before"}], "extenders": extenders}


# --- unhealthy GPUs --------------------------------------------------------------------------------------------------


@pytest.fixture
def config_map(cluster: LiveCluster) -> Iterator[str]:
    """Name the ConfigMap of node a, and delete it afterwards: kube-system is not emptied after a test."""
    name = "unhealthy-gpu-a"
    yield name
    cluster.api.delete("ConfigMap", name, "kube-system")


def test_a_config_map_takes_gpus_out_and_gives_them_back(cluster: LiveCluster, nodes: Nodes, extender: RunningExtender, config_map: str) -> None:
    """kube-system/unhealthy-gpu-NODE; a pod that waits is tried again when it goes, and one that cannot be read closes the node by name."""
    nodes.make("a", 3)
    cluster.api.create(unhealthy_gpus("a", "0,2"))
    wait_until(lambda: extender.nodes().get("a", {}).get("healthy") == 1, what="one GPU is left")
    cluster.make_pod(pod("first").units(20))
    assert index_of(cluster.wait_bound("first")) == "1"
    cluster.make_pod(pod("second").units(20))
    cluster.wait_event("linkwise: ", "second", reason="FailedScheduling")

    cluster.api.patch("ConfigMap", config_map, {"data": {"gpus": "first"}}, "kube-system")
    assert f"ConfigMap kube-system/{config_map} has gpus=first" in extender.wait_closed("a", "gpushare")
    cluster.api.delete("ConfigMap", config_map, "kube-system")
    nodes.made[0].take_in()
    assert index_of(cluster.wait_bound("second", timeout=20)) in {"0", "2"}
    nodes.wait_inspected()


# --- the admission policies ------------------------------------------------------------------------------------------


def test_the_policies_let_the_plugin_assign_and_nobody_touch_the_allocation(cluster: LiveCluster, nodes: Nodes, account: ApiServer) -> None:
    """The plugin patches ASSIGNED and the time, through the pod; the same account cannot change what we wrote."""
    node = nodes.make("a", 2)
    cluster.make_pod(pod("train").units(5))
    before = annotations_of(cluster.wait_bound("train"))
    with pytest.raises(ForbiddenError) as refused:
        account.patch("Pod", "train", {"metadata": {"annotations": {ALLOCATION: "{}"}}}, "default")
    assert "says which GPUs the pod holds" in refusal(refused.value)
    node.take_in()
    after = annotations_of(cluster.pod("train"))
    assert {key for key in before | after if before.get(key) != after.get(key)} == {ASSIGNED, ASSUME_TIME}
    assert (before[ASSIGNED], after[ASSIGNED], node.seen(cluster.pod("train"))) == ("false", "true", before[IDX])
    check_pods(cluster.api.items("Pod"))
