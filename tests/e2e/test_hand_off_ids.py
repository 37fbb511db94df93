"""kubelet's ids are no identity, on a real node: the same ids for one pod after the other, namesakes while the agent's watch lags, ids that are not the plan.

The plan is written by hand here, and kubelet is left with too few ids to follow it: a pod that was admitted, and whose containers wait for an init container
that never ends, has ids and holds no GPU. The agent reaches the API server through a fault injector.
"""

import math
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.builders import pod
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender
from tests.e2e.fault_proxy import FaultProxy
from tests.e2e.hand_off_checks import Start
from tests.e2e.node import RealNode
from tests.e2e.node_agent import NodeAgent
from tests.e2e.node_pods import END, on_node, wait_printed
from tests.e2e.objects import GPU
from tests.e2e.program import wait_until
from tests.e2e.workload import Workload
from topology.agent.handoff.pods import PODS

# Starts, most of a second each; 500 by hand: LINKWISE_E2E_TURNS=500. The agent's own code goes through 500 in its unit tests.
TURNS = int(os.environ.get("LINKWISE_E2E_TURNS", "48"))
AGREED_WITHIN_S = 15


@pytest.fixture(scope="module")
def watched(control_plane: ControlPlane) -> Iterator[FaultProxy]:
    """Open the agent's way to the API server."""
    with FaultProxy(control_plane.url, control_plane.certificate_authority) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def node_agent(node: RealNode, extender: RunningExtender, watched: FaultProxy) -> Iterator[NodeAgent]:
    """Run the agent on that way, with the shipped pace of looks at the hardware."""
    agent = NodeAgent(node, environment={"LINKWISE_AGENT_PROBE_EVERY_S": "30", "LINKWISE_AGENT_FAILING_EVERY_S": "10"}, server=watched.url)
    agent.wait_allocatable()
    extender.wait_open(node.name)
    yield agent
    agent.program.stop()


def take_ids(workload: Workload, name: str, count: int) -> frozenset[str]:
    """Let a pod have so many of kubelet's ids for ever, and no GPU; returns the ids that are left to others."""
    item = on_node(pod(name).gpus(count).init(0).bound_to(workload.node.name))
    (waits,) = item["spec"]["initContainers"]
    waits.pop("resources")
    waits["command"] = ["sh", "-c", "trap 'exit 0' TERM; sleep 2147483647 & wait"]
    uid = workload.api.create(item)["metadata"]["uid"]
    kubelet = workload.node.kubelet
    wait_until(lambda: len(kubelet.ids_of(uid).get("main", ())) == count, 20, f"kubelet has admitted {name}")
    return frozenset(workload.agent.uuids) - kubelet.ids_of(uid)["main"]


def ids_until_they_end(workload: Workload, *names: str) -> frozenset[str]:
    """Wait until these pods have succeeded, and return all ids that kubelet gave them meanwhile; it forgets them as they end."""
    uids = {name: str(workload.api.get("Pod", name)["metadata"]["uid"]) for name in names}
    found: set[str] = set()

    def all_ended() -> bool:
        found.update(one for uid in uids.values() for ids in workload.node.kubelet.ids_of(uid).values() for one in ids)
        states = workload.states()
        return all(states[name][0] == "Succeeded" for name in names)

    wait_until(all_ended, 60, f"{', '.join(names)} have succeeded")
    return frozenset(found)


def test_the_same_ids_go_to_and_fro_between_pods_and_never_bring_the_predecessor_s_gpus(workload: Workload) -> None:
    """Two times four names take turns on the four ids that kubelet has left, one half of the GPUs planned for the ones, the other half for the others."""
    lanes = len(workload.agent.uuids) // 2
    halves = {"left": workload.agent.uuids[:lanes], "right": workload.agent.uuids[lanes:]}
    left_over = take_ids(workload, "waits", lanes)
    for turn in range(TURNS // lanes):
        side = ("left", "right")[turn % 2]
        names = [f"{side}-{lane}" for lane in range(lanes)]
        workload.wait_gone(*names)
        workload.create(*(pod(name).holding(workload.node.name, uuid) for name, uuid in zip(names, halves[side], strict=True)), then=END)
        assert ids_until_they_end(workload, *names) == left_over
        workload.delete(*names)
    starts = workload.hand_offs.check()
    assert len(starts) == TURNS // lanes * lanes
    # Whichever of the ids a container had, the one before on it saw a GPU of the other half.
    assert all(start.gpus <= frozenset(halves[start.environment["HOSTNAME"].partition("-")[0]]) for start in starts)


def test_a_pod_that_comes_back_under_its_name_gets_its_new_plan_while_the_agent_s_watch_lags(workload: Workload, watched: FaultProxy) -> None:
    """As a StatefulSet's does: the agent still sees the one of before, and what it hears later does no harm."""
    workload.run(pod("db-0").gpus(2))
    held_back = watched.hold_watch_events(math.inf, PODS)
    workload.delete("db-0")
    workload.wait_gone("db-0")
    workload.run(pod("between").gpus(2))  # it gets what db-0 had, so that db-0 is planned anew
    workload.run(pod("db-0").gpus(2))
    before, between, again = workload.check()
    assert (before.gpus, before.uid) != (again.gpus, again.uid)
    assert before.gpus == between.gpus
    held_back.remove()

    def told() -> set[tuple[str, str]]:
        return {(gpu["uuid"], one["uid"]) for gpu in workload.agent.topology()["status"]["gpus"] for one in gpu.get("holders", ())}

    expected = {(uuid, start.uid) for start in (between, again) for uuid in start.gpus}
    wait_until(lambda: told() == expected, 10, "the holders are those that run")
    workload.check_nothing_is_kept()


@pytest.mark.parametrize("crossed", [pytest.param(False, id="ids as planned"), pytest.param(True, id="ids not as planned")])
def test_a_gpu_that_fails_and_returns_is_agreed_upon_and_pods_beside_it_never_notice(
    workload: Workload, extender: RunningExtender, crossed: bool
) -> None:
    """Extender, agent, kubelet and explain, within 15 s each time; kubelet tells the pod that is really on it."""
    hit, beside, _ = run_three(workload, crossed=crossed)
    assert (workload.node.kubelet.ids_of(hit.uid) != {"main": hit.gpus}) is crossed
    workload.api.create(on_node(pod("wants-all").gpus(8), scheduler="nobody"))  # explain judges it anew each time
    wait_until(
        lambda: all(state[0] == "Running" for name, state in workload.states().items() if name != "wants-all"),
        20,
        "kubelet has told that all three run",
    )
    before = workload.states()
    (lost,) = hit.gpus

    workload.agent.lose(workload.agent.uuids.index(lost))
    wait_agreed(workload, extender, lost)
    wait_until(lambda: unhealthy_of(workload, "hit") == workload.node.kubelet.ids_of(hit.uid)["main"], 10, "kubelet tells the pod that is on it")
    assert not unhealthy_of(workload, "beside") | unhealthy_of(workload, "share")
    workload.crash("beside")  # a pod beside it can even start again
    assert set(wait_printed(workload.node, "beside", attempt=1).environment["NVIDIA_VISIBLE_DEVICES"].split(",")) == beside.gpus

    workload.agent.repair()
    wait_agreed(workload, extender)
    wait_until(lambda: not unhealthy_of(workload, "hit"), 10, "kubelet tells the pod that it is back")
    after = workload.states()
    assert {name: after[name] for name in ("hit", "share")} == {name: before[name] for name in ("hit", "share")}
    workload.check()


def run_three(workload: Workload, *, crossed: bool) -> tuple[Start, Start, Start]:
    """Run a pod that will be hit, one beside it, and one with a part of a GPU; ``crossed``: the first has the id of the second one's GPU."""
    node, uuids = workload.node.name, workload.agent.uuids
    beside, hit, part = uuids[:3]
    if crossed:
        (beside,) = take_ids(workload, "waits", len(uuids) - 1)
        hit, part, *_ = (uuid for uuid in uuids if uuid != beside)
    workload.run(pod("hit").holding(node, hit), restartPolicy="Always")
    if crossed:
        workload.delete("waits")
        workload.wait_gone("waits")
    workload.run(pod("beside").holding(node, beside), pod("share").shared(4).sharing(node, {part: 4096}), restartPolicy="Always")
    by_pod = {start.environment["HOSTNAME"]: start for start in workload.hand_offs.check()}
    return by_pod["hit"], by_pod["beside"], by_pod["share"]


def wait_agreed(workload: Workload, extender: RunningExtender, *lost: str) -> None:
    """Wait until agent, extender, kubelet and `linkwise explain` say that exactly these GPUs do not work."""
    whole = len(workload.agent.uuids)
    expected = {"agent": set(lost), "extender": set(lost), "kubelet": whole - len(lost)}
    try:
        wait_until(lambda: told(workload, extender) == expected, AGREED_WITHIN_S)
    except AssertionError:
        raise AssertionError(f"expected {expected} within {AGREED_WITHIN_S} s, told {told(workload, extender)}") from None
    explained = explain(extender)
    assert ("the node has fewer than 8 healthy GPUs" in explained) is bool(lost), explained


def told(workload: Workload, extender: RunningExtender) -> dict[str, object]:
    """Return what each says: the GPUs that do not work, and how many kubelet offers."""
    return {
        "agent": {gpu["uuid"] for gpu in workload.agent.topology()["status"]["gpus"] if not gpu["healthy"]},
        "extender": {gpu["uuid"] for gpu in extender.get(f"nodes/{workload.node.name}")["gpus"] if not gpu["healthy"]},
        "kubelet": workload.node.allocatable(GPU),
    }


def explain(extender: RunningExtender) -> str:
    """Return what `linkwise explain` says of a pod that wants all GPUs."""
    command = (sys.executable, "-m", "extender", "explain", "pod", "default/wants-all", "--server", extender.url)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout


def unhealthy_of(workload: Workload, name: str) -> frozenset[str]:
    """Return the ids of a pod that kubelet calls unhealthy in the pod's status."""
    (status,) = workload.api.get("Pod", name)["status"]["containerStatuses"]
    resources = [one for each in status.get("allocatedResourcesStatus", ()) for one in each["resources"]]
    return frozenset(one["resourceID"] for one in resources if one["health"] == "Unhealthy")
