"""How five kinds of machine fill up under a real kube-scheduler, and that every step can be justified.

Each Node counts more GPUs than it has, as a device plugin that offers replicas makes it: so it is the extender that says no, for every node, and never
kube-scheduler's own count.

The judge is `tests.oracles` on the printed codes of the machines, and the free GPUs as the API server's objects tell them: it shares no code with the tables
that decide. What explain tells of each step must agree with it.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from operator import itemgetter
from random import Random

import pytest

from extender.sample_machines import SAMPLE_MACHINES
from tests.builders import PodBuilder, pod
from tests.e2e.agents import start_agent
from tests.e2e.api_server import JsonObject
from tests.e2e.checks import check_cluster, check_extender, indices_of
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.objects import GPU
from tests.e2e.program import wait_until
from tests.oracles import MachineOracle

Free = dict[str, frozenset[int]]  # node -> indices of its free GPUs
COUNTED = {GPU: "64"}
WEIGHTS = {1: 0.1, 2: 0.4, 4: 0.3, 8: 0.2}  # of demand, held still so that the oracle can weigh with them

# GB/s of an NVLink and direction, NVLinks of a GPU, PCIe generation: of the products that the sample machines are made of.
RATES = {"nvswitch": (25.0, 18, 5), "dgx1v": (25.0, 6, 3), "bridges": (25.0, 12, 4), "mesh": (25.0, 12, 4), "pcie": (0.0, 0, 4)}
ORACLES = {
    kind: MachineOracle([row.split() for row in machine.gpu_rows], tuple(map(str, machine.numa_nodes)), *RATES[kind])
    for kind, machine in SAMPLE_MACHINES.items()
}
EMPTY: Free = {kind: oracle.everything for kind, oracle in ORACLES.items()}


@pytest.fixture(scope="module")
def machines(control_plane: ControlPlane, extender: RunningExtender, tmp_path_factory: pytest.TempPathFactory) -> LiveCluster:
    """Return a cluster of one node of each kind, named as its kind, published by the real agents."""
    cluster = LiveCluster(control_plane)
    for kind, machine in SAMPLE_MACHINES.items():
        cluster.make_node(kind, machine.size, resources=COUNTED)
        start_agent(control_plane, tmp_path_factory.mktemp(kind), kind, kind)
    extender.wait_open(*SAMPLE_MACHINES)
    return cluster


@pytest.fixture
def cluster(machines: LiveCluster, extender: RunningExtender) -> Iterator[LiveCluster]:
    """Give the machines without pods."""
    yield machines
    machines.clear(("Pod", "Event"))
    check_extender(extender, machines.api)


@cache
def bandwidth(kind: str, gpus: frozenset[int]) -> float:
    return ORACLES[kind].bandwidth(gpus)


@cache
def best(kind: str, free: frozenset[int], size: int) -> float:
    """GB/s of the best set of that size among the free GPUs of a machine, -1 where there are too few."""
    return max((bandwidth(kind, gpus) for gpus in ORACLES[kind].subsets(free, size)), default=-1.0)


def free_now(cluster: LiveCluster) -> Free:
    """Read from the pods of the cluster who holds what."""
    held: dict[str, set[int]] = {kind: set() for kind in EMPTY}
    for item in cluster.api.items("Pod", "default"):
        if item["spec"].get("nodeName"):
            held[item["spec"]["nodeName"]] |= set(indices_of(item))
    return {kind: EMPTY[kind] - gpus for kind, gpus in held.items()}


@pytest.fixture
def steady_weights(extender: RunningExtender) -> Iterator[None]:
    """Fix the shares of demand at `WEIGHTS` for one test."""
    extender.ask_for(WEIGHTS)
    yield
    extender.count_for_itself()


@pytest.mark.usefixtures("steady_weights")
def test_a_mixed_cluster_fills_in_an_order_that_explain_can_justify(cluster: LiveCluster, extender: RunningExtender) -> None:
    """Until no GPU is left: each pod that cares gets the best bandwidth that was there, the others cost the remainders least, and explain says so."""
    random, number, free = Random(5), 0, EMPTY
    speeds: dict[int, list[float]] = {}
    while any(free.values()):
        size = random.choice([size for size in (1, 2, 2, 4, 4, 8) if any(len(gpus) >= size for gpus in free.values())])
        cares = size > 1 and random.random() < 0.7
        asked = pod(f"pod-{number:02}").gpus(size)
        cluster.make_pod(asked if cares or size == 1 else asked.annotated(topology="none"))
        bound = cluster.wait_bound(asked.name)
        node, gpus = bound["spec"]["nodeName"], frozenset(indices_of(bound))
        assert gpus <= free[node], "taken are free GPUs"
        if cares:
            most = max(best(kind, free[kind], size) for kind in free)
            assert bandwidth(node, gpus) >= 0.99 * most, f"{asked.name}: {size} GPUs of {node} {sorted(gpus)}, free were {free}"
            speeds.setdefault(size, []).append(bandwidth(node, gpus))
        check_cheapest(node, gpus, free, cares=cares)
        check_explained(wait_decided(extender, asked.name), node, gpus, free, cares=cares)
        free = {**free, node: free[node] - gpus}
        assert free == free_now(cluster)
        number += 1
    check_cluster(cluster.api)
    assert all(each == sorted(each, reverse=True) for each in speeds.values()), f"the best sets went first: {speeds}"

    cluster.make_pod(pod("late").gpus(1))
    cluster.wait_event("0/5 nodes are available: 5 linkwise: fewer than 1 GPUs are free", "late", reason="FailedScheduling")
    reasons = {node["node"]: node["reason"] for node in extender.decision("late")["nodes"]}
    assert reasons == {kind: f"0 of {machine.size} GPUs free, 1 asked" for kind, machine in SAMPLE_MACHINES.items()}


def wait_decided(extender: RunningExtender, name: str) -> JsonObject:
    """Return the decision with its end: others see that a pod is bound a moment before the extender hears so."""
    wait_until(lambda: extender.decision(name)["bound"], what=f"the decision about {name} has its end")
    return extender.decision(name)


def check_cheapest(node: str, gpus: frozenset[int], free: Free, *, cares: bool) -> None:
    """Check by the codes alone that no other free set, of those as fast where the pod cares, would have cost its node less."""
    size = len(gpus)
    needed = 0.99 * max(best(kind, free[kind], size) for kind in free) if cares else 0.0
    others = [(kind, found) for kind in free for found in ORACLES[kind].subsets(free[kind], size) if bandwidth(kind, found) >= needed]
    least, (kind, found) = min(((cost(kind, free[kind], found, cares=cares), (kind, found)) for kind, found in others), key=itemgetter(0))
    assert cost(node, free[node], gpus, cares=cares) <= least, (
        f"{sorted(gpus)} of {node} taken, {sorted(found)} of {kind} would have cost less; free were {free}"
    )


def cost(kind: str, free: frozenset[int], gpus: frozenset[int], *, cares: bool) -> tuple[float, ...]:
    """Return what is lost where these GPUs are taken, the weightiest first: islands and cores for a pod that does not care, then worth."""
    oracle = ORACLES[kind]
    worth = round(oracle.worth(free, WEIGHTS) - oracle.worth(free - gpus, WEIGHTS), 2)
    return (worth,) if cares else (*oracle.islands_broken(free, gpus), worth)


def check_explained(told: JsonObject, node: str, gpus: frozenset[int], free: Free, *, cares: bool) -> None:
    """Check that explain tells the place that was taken, what was free, and why none of the other nodes was better."""
    chosen, fitting = told["chosen"], [found for found in told["nodes"] if found["fits"]]
    assert (chosen["node"], frozenset(chosen["gpus"])) == (node, gpus)
    assert chosen["score"] == (10 if len(fitting) > 1 else None), "kube-scheduler asks for no scores where one node is left"
    assert (told["bound"]["node"], frozenset(told["bound"]["gpus"])) == (node, gpus)
    size = len(gpus)
    assert {found["node"] for found in fitting} == {kind for kind in free if len(free[kind]) >= size}
    for refused in (found for found in told["nodes"] if not found["fits"]):
        has, total = len(free[refused["node"]]), len(EMPTY[refused["node"]])
        assert refused["reason"] == f"{has} of {total} GPUs free, {size} asked" or (refused["code"] == "TOO_SMALL" and total < size)
    assert all(found["free"] == len(free[found["node"]]) for found in fitting)
    assert all(frozenset(found["gpus"]) | frozenset(found["leaves"]) == free[found["node"]] for found in fitting)
    if cares:
        assert all(found["bandwidthGBps"] == pytest.approx(bandwidth(found["node"], frozenset(found["gpus"])), abs=0.01) for found in fitting)
        equals = [found for found in fitting if found["bandwidthGBps"] >= 0.99 * max(each["bandwidthGBps"] for each in fitting)]
        assert chosen["worthLost"] == min(found["worthLost"] for found in equals)
    else:
        least = min((found["islandsBroken"], found["coresBroken"], found["worthLost"]) for found in fitting)
        assert (chosen["islandsBroken"], chosen["coresBroken"], chosen["worthLost"]) == least
    assert all(found["score"] < 10 for found in fitting if found["node"] != node), "exactly one node is told to be best"


# --- islands --------------------------------------------------------------------------------------------------------


def islands(kind: str) -> set[frozenset[int]]:
    """Return the groups of GPUs that NVLinks join, over others too: whole machines behind NVSwitch and meshes, the pairs of bridged cards."""
    oracle = ORACLES[kind]
    groups = {gpu: frozenset({gpu}) for gpu in oracle.everything}
    for a, b in combinations(sorted(oracle.everything), 2):
        if oracle.links(a, b):
            joined = groups[a] | groups[b]
            groups |= dict.fromkeys(joined, joined)
    return {group for group in groups.values() if len(group) > 1}


def quads(kind: str) -> set[frozenset[int]]:
    """Return the same with the two quads of a cube mesh in the place of the whole machine: there all GPUs are joined to all."""
    return set(ORACLES[kind].islands)


def room_without_breaking(groups: set[frozenset[int]], free: frozenset[int]) -> frozenset[int]:
    """Return the free GPUs of a node that are in no group, or in one that is broken already."""
    return free - frozenset().union(*(group for group in groups if group <= free))


def broken_by(groups: set[frozenset[int]], free: frozenset[int], gpus: frozenset[int]) -> list[list[int]]:
    """Return the groups that were whole before and are not afterwards."""
    return [sorted(group) for group in groups if group <= free and group & gpus]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda name, _: pod(name).gpus(1).annotated(topology="none"), id="single GPUs"),
        pytest.param(lambda name, random: pod(name).gpus(random.choice([1, 2])).annotated(topology="none"), id="one or two GPUs"),
    ],
)
def test_pods_that_need_no_bandwidth_break_no_island_while_a_broken_one_has_room(
    cluster: LiveCluster, extender: RunningExtender, make: Callable[[str, Random], PodBuilder]
) -> None:
    """Room is as many free GPUs on one node, outside of whole islands, as the pod asks for. Some pods go again, so that holes open everywhere."""
    random, free, number = Random(11), EMPTY, 0
    running: dict[str, tuple[str, frozenset[int]]] = {}
    while True:
        asked = make(f"pod-{number:02}", random)
        size = int(asked.containers[0]["resources"]["limits"]["nvidia.com/gpu"])
        if all(len(gpus) < size for gpus in free.values()):
            break
        cluster.make_pod(asked)
        bound = cluster.wait_bound(asked.name)
        node, gpus = bound["spec"]["nodeName"], frozenset(indices_of(bound))
        for groups in (islands, quads):
            if any(len(room_without_breaking(groups(kind), free[kind])) >= size for kind in free):
                assert broken_by(groups(node), free[node], gpus) == [], f"{asked.name} on {node} {sorted(gpus)}, free were {free}"
        free = {**free, node: free[node] - gpus}
        running[asked.name] = (node, gpus)
        number += 1
        if number % 4 == 0:
            free = end_one(cluster, random.choice(sorted(running)), running, free)
            check_extender(extender, cluster.api)  # it has heard of the end, too
    check_cluster(cluster.api)


def end_one(cluster: LiveCluster, name: str, running: dict[str, tuple[str, frozenset[int]]], free: Free) -> Free:
    """End a pod and delete it; returns what is free then."""
    node, gpus = running.pop(name)
    cluster.end_pod(name)
    cluster.api.delete("Pod", name, grace_s=0)
    return {**free, node: free[node] | gpus}
