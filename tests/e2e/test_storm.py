"""A storm: 1,000 pods of mixed sizes on 200 nodes, while the extender is killed, its watches are cut, and pods are deleted and created again.

After every hundred pods, and at the end, everything is checked from the API server's pods alone (`tests.e2e.checks`): no GPU with two holders, every bound
pod with a valid allocation, no unbound one with any. At the end all that fit are bound, and what the extender believes free is what a rebuild finds.
"""

import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from extender.sample_machines import SAMPLE_MACHINES, sample
from tests.builders import PodBuilder, pod
from tests.e2e.checks import check_cluster, check_extender, free_gpus
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender, serve, shipped_configuration
from tests.e2e.fault_proxy import FaultProxy
from tests.e2e.fault_rules import Rule
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.program import wait_until

NODES = {f"{kind}-{number}": kind for kind in SAMPLE_MACHINES for number in range(40)}
PODS = 1000
WAVE = 100
# More than there is, so that at the end the cluster is full and some must wait: 1,440 GPUs, about 1,700 asked for.
SIZES = (1, 1, 1, 1, 1, 2, 2, 2, 4, 1)
FLOOR = 400.0  # GB/s: only the machines behind NVSwitch
BINDING = "/binding$"
# It is killed three times: 12 s each time would be half of the test.
LEASE_S = 6


@pytest.fixture
def cluster(live: LiveCluster, accounts: None) -> LiveCluster:
    """Give 200 nodes that KWOK keeps alive, with their topologies."""
    live.plane.start_kwok()
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda name: live.make_node(name, SAMPLE_MACHINES[NODES[name]].size), NODES):
            pass
        for _ in pool.map(lambda name: live.publish(sample(NODES[name], name, observed_at=datetime.now(UTC))), NODES):
            pass
    return live


@pytest.fixture
def extender(cluster: LiveCluster, control_plane: ControlPlane, fault_proxy: FaultProxy) -> Iterator[RunningExtender]:
    """Run an extender behind the fault injector, and kube-scheduler."""
    settings = {"LINKWISE_LEASE_DURATION_S": str(LEASE_S), "LINKWISE_STALE_AFTER_S": "3600"}
    running = serve(control_plane, server=fault_proxy.url, environment=settings).wait_leads()
    control_plane.start_scheduler(shipped_configuration(running.url))
    yield running
    fault_proxy.clear()


def wanted(number: int) -> PodBuilder:
    """Return the pod of that number: every tenth has a floor, every seventh two containers."""
    size = SIZES[number % len(SIZES)]
    if number % 7 == 3:
        return pod(f"pod-{number}").gpus(size, container="first").gpus(1, container="second")
    made = pod(f"pod-{number}").gpus(size)
    return made.min_bandwidth(FLOOR) if number % 10 == 6 else made


def bound(cluster: LiveCluster) -> set[str]:
    return {item["metadata"]["name"] for item in cluster.api.items("Pod", "default") if item["spec"].get("nodeName")}


def create_again(cluster: LiveCluster, names: list[str]) -> None:
    """Delete pods, some with grace and some at once, and create namesakes as soon as they are gone."""
    for position, name in enumerate(names):
        cluster.api.delete("Pod", name, "default", grace_s=0 if position % 2 else None)
    wait_until(lambda: not any(cluster.api.find("Pod", name, "default") for name in names), 20, "they are gone")
    cluster.make_pods(wanted(int(name.removeprefix("pod-"))) for name in names)


def kill(extender: RunningExtender, held: Rule) -> None:
    """Kill the extender between sending a Binding and its answer, and start it again; what was held goes on a moment after its death."""
    held.wait_hit(30)
    extender.program.kill()
    held.release()
    extender.start()


def roomy(name: str, free: Mapping[str, set[str]]) -> list[str]:
    """Return the nodes that have the GPUs for a pod of this file: whatever is free behind NVSwitch meets the floor, and nothing elsewhere does."""
    builder = wanted(int(name.removeprefix("pod-")))
    gpus = sum(int(container["resources"]["limits"]["nvidia.com/gpu"]) for container in builder.containers)
    return [node for node, uuids in free.items() if len(uuids) >= gpus and (not builder.annotations or NODES[node] == "nvswitch")]


def wait_all_that_fit(cluster: LiveCluster, timeout: float = 120) -> None:
    """Wait until no pod waits that would fit on some node, told from the pods alone."""
    topologies = cluster.api.items("GPUTopology")
    in_vain: dict[str, list[str]] = {}

    def none_waits_in_vain() -> bool:
        pods = cluster.api.items("Pod", "default")
        free = free_gpus(pods, topologies)
        unbound = [item["metadata"]["name"] for item in pods if not item["spec"].get("nodeName")]
        in_vain.clear()
        in_vain.update({name: nodes for name in unbound if (nodes := roomy(name, free))})
        return not in_vain

    try:
        wait_until(none_waits_in_vain, timeout)
    except AssertionError as error:
        examples = [f"{name} on {nodes[:3]}" for name, nodes in list(in_vain.items())[:5]]
        raise AssertionError(f"not within {timeout:g} s: {len(in_vain)} pods would fit and are not bound, for example {examples}") from error


def test_whatever_happens_all_that_fit_are_bound_and_no_gpu_is_promised_twice(
    cluster: LiveCluster, extender: RunningExtender, fault_proxy: FaultProxy
) -> None:
    chance = random.Random(7)
    killing = {
        200: lambda: fault_proxy.hold_answer("POST", BINDING, times=1),  # the API server has taken it, and nobody is left to hear of it
        400: lambda: fault_proxy.delay(0.2, "POST", BINDING, times=20),  # some have been taken, some have not
        600: lambda: fault_proxy.hold("POST", BINDING, times=1),  # it arrives a moment after its sender's death
    }
    with ThreadPoolExecutor(1) as pool:
        for first in range(0, PODS, WAVE):
            held = killing[first]() if first in killing else None
            names = sorted(bound(cluster))
            making = pool.submit(cluster.make_pods, [wanted(number) for number in range(first, first + WAVE)])
            if held is not None:
                kill(extender, held)
            if names:
                create_again(cluster, chance.sample(names, 10))
            fault_proxy.cut_watches()
            making.result()
            wait_all_that_fit(cluster)
            check_cluster(cluster.api)
    wait_all_that_fit(cluster)
    assert len(bound(cluster)) < PODS, "the cluster is full, and some wait"
    check_cluster(cluster.api)
    check_extender(extender, cluster.api)
    assert extender.metric("linkwise_promises") == 0
    assert "Traceback" not in extender.program.text()
