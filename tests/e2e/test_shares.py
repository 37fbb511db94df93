"""Parts of GPUs through a real kube-scheduler with the shipped profile: a pool of 20 nodes fills and empties, pairs keep to their NVLinks, a restart remembers.

The judge is `tests.e2e.share_checks`, which reads the annotations of the pods after every single event and shares no code with the extender. KWOK plays the nodes, and
they count `linkwise.dev/gpu-memory` as docs/on-a-cluster.md tells administrators to let them.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from extender.sample_machines import SAMPLE_MACHINES, sample
from tests.builders import PodBuilder, pod
from tests.console import blocks
from tests.e2e.api_server import JsonObject
from tests.e2e.calls import HTTP
from tests.e2e.checks import indices_of
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender, serve, shipped_configuration
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.objects import pod_object
from tests.e2e.program import Program, wait_until
from tests.e2e.share_checks import MEMORY, StepByStep, advertised_gib, left, would_fit
from topology.api import GPUTopology

DOCS = Path(__file__).parents[2] / "docs"
POOL = [f"{kind}-{number}" for kind in SAMPLE_MACHINES for number in range(4)]
SETTINGS = {"LINKWISE_LEASE_DURATION_S": "6", "LINKWISE_STALE_AFTER_S": "3600"}  # it is killed here; nobody observes the topologies again
# GiB and over how many GPUs. A thousand of them are more than the pool has, so that some must wait.
SIZES = ((2, 1), (10, 1), (4, 1), (8, 2), (9, 1), (3, 1), (20, 4), (5, 1), (6, 1), (1, 1), (24, 2))


@pytest.fixture(scope="module")
def extender(control_plane: ControlPlane, accounts: None) -> Iterator[RunningExtender]:
    """Run the extender; kube-scheduler is `scheduler`, so that a test can stop it while it makes its pods."""
    running = serve(control_plane, environment=SETTINGS).wait_leads()
    try:
        yield running
    finally:
        LiveCluster(control_plane).empty()


@pytest.fixture(scope="module")
def scheduler(control_plane: ControlPlane, extender: RunningExtender) -> Program:
    """Run kube-scheduler with the shipped configuration, and KWOK."""
    control_plane.start_kwok()
    return control_plane.start_scheduler(shipped_configuration(extender.url))


def make_machine(cluster: LiveCluster, kind: str, name: str, memory_mib: int | None = None) -> GPUTopology:
    """Create a Node that counts the memory of its GPUs, and publish its topology; ``memory_mib`` replaces the size of its GPUs."""
    topology = sample(kind, name, observed_at=datetime.now(UTC))
    if memory_mib is not None:
        gpus = tuple(gpu.model_copy(update={"memory_mib": memory_mib}) for gpu in topology.spec.gpus)
        topology = topology.model_copy(update={"spec": topology.spec.model_copy(update={"gpus": gpus})})
    resources = {MEMORY: str(advertised_gib(topology.to_object())), "pods": "1000"}
    cluster.make_node(name, len(topology.spec.gpus), resources=resources)
    cluster.publish(topology)
    return topology


@pytest.fixture
def pool(cluster: LiveCluster, extender: RunningExtender) -> list[JsonObject]:
    """Make the 20 nodes, and return their topologies."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: make_machine(cluster, name.partition("-")[0], name), POOL))
    extender.wait_open(*POOL)
    return cluster.api.items("GPUTopology")


def wanted(number: int) -> PodBuilder:
    """Return the pod of that number: every ninth has two containers, every eleventh an init container that needs more than what runs later."""
    gib, gpus = SIZES[number % len(SIZES)]
    name = f"part-{number:04}"
    made = pod(name).shared(gib)
    if number % 9 == 4:
        made = made.shared(gpus + number % 3, "second")
    if number % 11 == 5:
        made = made.init_shared(gib + 2)
    return made if gpus == 1 else made.annotated(gpu_count=str(gpus))


def waiting_in_vain(cluster: LiveCluster) -> list[str]:
    """Return the pods that are not bound although there is room, told from the pods alone."""
    pods = cluster.api.items("Pod", "default")
    amounts, idle = left(pods, cluster.api.items("GPUTopology"))
    waiting = [item for item in pods if not item["spec"].get("nodeName")]
    return [item["metadata"]["name"] for item in waiting if any(would_fit(item, amounts[node], idle[node]) for node in amounts)]


def wait_all_that_fit(cluster: LiveCluster, timeout: float = 120) -> None:
    wait_until(lambda: not waiting_in_vain(cluster), timeout, "no pod waits for which there is room")


def bound(cluster: LiveCluster) -> list[str]:
    return sorted(item["metadata"]["name"] for item in cluster.api.items("Pod", "default") if item["spec"].get("nodeName"))


def check_read_api(cluster: LiveCluster, extender: RunningExtender) -> None:
    """Wait until the extender tells of every GPU the memory that the pods leave."""

    def equal() -> bool:
        amounts, _ = left(cluster.api.items("Pod"), cluster.api.items("GPUTopology"))
        shown = {name: {gpu["uuid"]: gpu["leftMiB"] for gpu in extender.get(f"nodes/{name}")["gpus"]} for name in amounts}
        return shown == amounts

    wait_until(equal, what="the extender tells what the pods leave")


def make_waiting(cluster: LiveCluster, scheduler: Program, builders: Iterable[PodBuilder]) -> None:
    """Create pods while kube-scheduler stands still, so that its pace is not that of their creation."""
    scheduler.pause()
    try:
        cluster.make_pods(builders)
    finally:
        scheduler.resume()


def plain_rate(cluster: LiveCluster, count: int, clients: int) -> float:
    """Return how many bindings a second the API server takes from clients with nothing to decide, each of which posts one after the other."""
    # Names of its own for every run: pods of a node that is gone are collected, and so would be namesakes on its namesake.
    node, names = f"beside-{clients}", [f"plain-{clients}-{number:03}" for number in range(count)]
    cluster.make_node(node, gpus=0, resources={"pods": "1000"})
    cluster.make_pods((pod(name).plain() for name in names), scheduler="nobody")
    with ThreadPoolExecutor(clients) as threads:
        started = time.monotonic()
        list(threads.map(lambda name: cluster.api.bind(name, node), names))
        took = time.monotonic() - started
    cluster.api.delete_all("Pod")
    cluster.api.delete("Node", node)
    return count / took


def mean_ms(extender: RunningExtender, verb: str) -> float:
    """Return how long the extender takes for a call, the mean since it was started."""
    return 1000 * extender.metric("linkwise_call_seconds_sum", verb=verb) / extender.metric("linkwise_call_seconds_count", verb=verb)


@pytest.mark.parametrize("count", [40, 1000])
def test_all_that_fit_are_bound_and_no_gpu_is_over_its_memory_after_any_step(
    cluster: LiveCluster,
    extender: RunningExtender,
    scheduler: Program,
    pool: list[JsonObject],
    count: int,
    record_property: Callable[[str, object], None],
) -> None:
    """Then a third goes at random, some at once and some with grace, others come, whole GPUs among them, and again. No limit but patience; the pace is recorded, beside whatever else runs (`bench.end_to_end` has the machine for itself)."""
    plain = [plain_rate(cluster, 200, clients) for clients in (1, 8)]
    chance = random.Random(count)
    with StepByStep(cluster.plane, pool).watching() as steps:
        make_waiting(cluster, scheduler, [wanted(number) for number in range(count)])
        wait_all_that_fit(cluster)
        placed = bound(cluster)
        assert len(placed) == count if count == 40 else 800 < len(placed) < count, f"{len(placed)} of {count} are bound"
        calls = ", ".join(f"{verb} {mean_ms(extender, verb):.1f} ms" for verb in ("filter", "prioritize", "bind"))
        rates = f"{len(placed)} of {count} pods, {steps.rate():.0f} a second ({calls}); one client that decides nothing {plain[0]:.0f}, eight {plain[1]:.0f}"
        check_read_api(cluster, extender)
        for turn in range(2):
            for position, name in enumerate(chance.sample(bound(cluster), count // 3)):
                cluster.api.delete("Pod", name, "default", grace_s=0 if position % 2 else None)
            fresh = [wanted(number) for number in range(count * (turn + 1), count * (turn + 1) + count // 3)]
            whole = [pod(f"whole-{turn}-{number}").gpus(1 + number % 2) for number in range(count // 20)]
            cluster.make_pods(chance.sample([*fresh, *whole], len(fresh) + len(whole)))
            wait_all_that_fit(cluster)
        check_read_api(cluster, extender)
    assert extender.metric("linkwise_promises") == 0
    record_property("bindings", f"{rates}; {steps.steps} steps looked at")


# --- links ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked_for_links(extender: RunningExtender) -> Iterator[None]:
    """Let the cluster be asked for what every extender takes for granted at first: after a thousand parts of GPUs, islands may be worth nothing to it."""
    extender.ask_for()
    yield
    extender.count_for_itself()


@pytest.mark.usefixtures("asked_for_links")
@pytest.mark.parametrize(
    ("kind", "memory_mib", "first", "second", "speed", "rest"),
    [
        pytest.param(
            "bridges", None, [0, 2], [0, 2], "300 GB/s over NV12", "1,3-7, of them 1,3-5 whole", id="bridged cards of 80 GiB: the same bridge"
        ),
        pytest.param(
            "dgx1v", 81920, [0, 3], [0, 3], "50 GB/s over NV2", "1-2,4-7, of them 4-7 whole", id="a cube mesh of 80 GiB: the same double link"
        ),
        pytest.param(
            "dgx1v", None, [0, 3], [1, 2], "50 GB/s over NV2", "4-7 whole", id="a cube mesh of 32 GiB: the same quad, as a pair has room for one"
        ),
    ],
)
def test_two_pods_of_two_halves_share_an_nvlink_pair_and_open_no_island(
    cluster: LiveCluster,
    extender: RunningExtender,
    scheduler: Program,
    kind: str,
    memory_mib: int | None,
    first: list[int],
    second: list[int],
    speed: str,
    rest: str,
) -> None:
    """An equal node and one without NVLinks stay idle; explain says what the choice saves."""
    del scheduler
    for name in ("one", "other"):
        make_machine(cluster, kind, name, memory_mib)
    make_machine(cluster, "pcie", "idle")
    extender.wait_open("one", "other", "idle")
    extender.wait_priced()
    places = []
    for name in ("first", "second"):
        cluster.make_pod(pod(name).shared(40).annotated(gpu_count="2"))
        item = cluster.wait_bound(name)
        wait_until(lambda name=name: extender.decision(name)["bound"], what="the decision has its end")
        places.append((item["spec"]["nodeName"], indices_of(item)))
    node = places[0][0]
    assert places == [(node, first), (node, second)]
    assert node in ("one", "other")
    left_of_gpu = (memory_mib or SAMPLE_MACHINES[kind].memory_mib) // 1024 - (20 if first == second else 0)
    shares = ", ".join(f"20 of {left_of_gpu} GiB left of {index}" for index in second)
    lines = explain(extender, "second")
    assert lines[0] == f"default/second: bound to {node}, GPUs {written(second)}, {speed}"
    assert lines[1] == f"  {node}: score 10, GPUs {written(second)} ({shares}), pair of {speed}, leaves GPUs {rest}"
    told = {each["node"]: each for each in extender.decision("second")["nodes"]}
    other = told["other" if node == "one" else "one"]
    assert (told[node]["islandsBroken"], told[node]["coresBroken"]) == (0, 0)
    assert other["islandsBroken"] + other["coresBroken"] > 0
    assert (other["bandwidthGBps"], other["score"]) == (told[node]["bandwidthGBps"], 9)
    assert told["idle"]["bandwidthGBps"] < other["bandwidthGBps"]


def explain(extender: RunningExtender, name: str) -> list[str]:
    """Run `linkwise explain pod`, and return its lines."""
    command = [sys.executable, "-m", "extender", "explain", "pod", f"default/{name}", "--server", extender.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


def written(indices: list[int]) -> str:
    """Write two indices as explain does."""
    return f"{indices[0]}-{indices[1]}" if indices[1] - indices[0] == 1 else f"{indices[0]},{indices[1]}"


# --- restart --------------------------------------------------------------------------------------------------------


def test_a_killed_extender_is_followed_by_one_that_tells_the_same_memory_left(
    cluster: LiveCluster, extender: RunningExtender, scheduler: Program, pool: list[JsonObject]
) -> None:
    """Killed in the middle of a hundred bindings, and again when all is quiet."""
    with StepByStep(cluster.plane, pool).watching() as steps:
        make_waiting(cluster, scheduler, [wanted(number) for number in range(100)])
        wait_until(lambda: len(steps.bound_at) > 20, what="some are bound")
        extender.program.kill()
        assert len(steps.bound_at) < 100
        extender.start().wait_leads()
        wait_all_that_fit(cluster)
        assert len(bound(cluster)) == 100
        check_read_api(cluster, extender)
        before = {name: extender.get(f"nodes/{name}") for name in POOL}
        extender.program.kill()
        extender.start().wait_leads()
        extender.wait_open(*POOL)
        assert {name: extender.get(f"nodes/{name}") for name in POOL} == before
    assert any(gpu["heldBy"] and 0 < gpu["leftMiB"] < gpu["offeredMiB"] for node in before.values() for gpu in node["gpus"])
    assert sum(node["memoryOfferedMiB"] - node["memoryLeftMiB"] for node in before.values()) > 0


def test_a_reserve_is_taken_off_every_gpu_and_told_in_the_refusal(control_plane: ControlPlane, cluster: LiveCluster) -> None:
    """Asked of a second extender that nobody but this test calls."""
    make_machine(cluster, "nvswitch", "h100")
    environment = {**SETTINGS, "LINKWISE_LEASE_NAME": "reserving", "LINKWISE_GPU_RESERVE_MIB": "2048"}
    second = serve(control_plane, user="admin", environment=environment).wait_leads()
    second.wait_open("h100")
    node = second.get("nodes/h100")
    assert {gpu["offeredMiB"] for gpu in node["gpus"]} == {77 * 1024}
    call = {"Pod": pod_object(pod("large").shared(78)), "NodeNames": ["h100"], "Nodes": None}
    answer = HTTP.post(f"{second.url}/filter", json=call).json()
    assert "gives 77 GiB of its 81559 MiB, 2048 MiB kept in reserve" in answer["FailedAndUnresolvableNodes"]["h100"]
    assert second.stop() == 0


# --- the guide ------------------------------------------------------------------------------------------------------


def test_a_node_that_counts_its_memory_as_the_guide_says_takes_parts(
    control_plane: ControlPlane, cluster: LiveCluster, extender: RunningExtender, scheduler: Program
) -> None:
    """The guide's commands, run as they stand; taking the new capacity over into allocatable is what kubelet does on a real node."""
    del scheduler
    cluster.make_machine("nvswitch", "h100")
    extender.wait_open("h100")
    guide = (DOCS / "on-a-cluster.md").read_text(encoding="utf-8")
    commands = next(block for block in blocks(guide, "sh") if "subresource=status" in block).replace("NODE", "h100")
    environment = {"PATH": f"{control_plane.programs['kubectl'].parent}:{os.environ['PATH']}", "KUBECONFIG": str(control_plane.kubeconfig())}
    subprocess.run(["sh", "-e", "-c", commands], env={**os.environ, **environment}, check=True, capture_output=True, timeout=60)
    capacity = cluster.api.get("Node", "h100")["status"]["capacity"]
    assert capacity[MEMORY] == "632", "eight times 79"
    cluster.api.patch("Node", "h100", {"status": {"allocatable": capacity}}, subresource="status")
    cluster.make_pod(pod("part").shared(79))
    cluster.wait_bound("part")
    (gpu,) = (gpu for gpu in extender.get("nodes/h100")["gpus"] if gpu["heldBy"])
    assert (gpu["leftMiB"], gpu["heldBy"]) == (0, [{"pod": "default/part", "memoryMiB": 79 * 1024}])
