"""The agent as users run it: the pod of the shipped DaemonSet, with the hand-off, on a real kubelet and containerd.

What it may do there is what its manifest gives it: its account's rights, the paths of the node, no capability, no write to its root, namespaces of its own. All other tests of the
hand-off run it as a process of the node, which may do anything; what the hand-off itself promises is theirs.
"""

from collections.abc import Iterator

import pytest

from tests.builders import pod
from tests.e2e.daemon_set import DaemonSetAgent
from tests.e2e.extender import RunningExtender
from tests.e2e.hand_off_checks import HandOffs
from tests.e2e.node import RealNode
from tests.e2e.program import wait_until
from tests.e2e.workload import Workload

# Told to end, it says that it is alive until kubelet kills it: two seconds later, where its pod was deleted by force.
LINGERS = "trap 'while true; do touch $record.alive; sleep 0.1; done' TERM; sleep 2147483647 & wait"


@pytest.fixture(scope="module")
def agent(node: RealNode, extender: RunningExtender) -> Iterator[DaemonSetAgent]:
    """Run the DaemonSet, with kube-scheduler and an extender that takes pods for its node."""
    agent = DaemonSetAgent(node).start().wait_allocatable()
    extender.wait_open(node.name, timeout=60)
    yield agent
    agent.stop()


@pytest.fixture
def workload(agent: DaemonSetAgent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workload]:
    """Give the node to one test, without pods but the agent's at the beginning and at the end."""
    workload = Workload(agent, HandOffs(tmp_path_factory.mktemp("records")))
    yield workload
    names = [each["metadata"]["name"] for each in workload.api.items("Pod", "default")]
    workload.delete(*names)
    workload.wait_gone(*names)


def test_what_the_manifest_gives_is_enough(agent: DaemonSetAgent) -> None:
    """The topology is published and whole, kubelet takes the agent's resources, and the agent complains of nothing."""
    wait_until(lambda: agent.node.allocatable("linkwise.dev/gpu-memory") > 0, 20, "GPU memory is allocatable")
    topology = agent.topology()
    assert len(topology["spec"]["gpus"]) == agent.machine.size
    conditions = {each["type"]: each["status"] for each in topology["status"]["conditions"]}
    assert conditions["HandOffRegistered"] == "True"
    assert not [line for line in agent.log() if '"level":"warning"' in line or '"level":"error"' in line]


def test_containers_have_the_gpus_of_their_pods_allocations(workload: Workload) -> None:
    """Whole GPUs, parts of one, an init container and a sidecar."""
    workload.run(pod("pair").gpus(2), pod("part").shared(4), pod("both").init(1).sidecar(1).gpus(2))
    assert len(workload.check()) == 5
    workload.check_told()


def test_a_pod_deleted_by_force_keeps_its_gpus_until_its_processes_have_ended(workload: Workload) -> None:
    """The kernel tells the agent, whose own namespace shows it no process of another pod."""
    workload.run(pod("forced").gpus(8), then=LINGERS)
    workload.api.delete("Pod", "forced", "default", grace_s=0)
    workload.run(pod("next").gpus(8).bound_to(workload.node.name))  # kubelet has forgotten the first one, and admits it at once
    first, second = workload.hand_offs.starts()
    (alive,) = workload.hand_offs.records.glob("*.alive")
    assert first.gpus == second.gpus
    assert alive.stat().st_mtime < second.begin


def test_pods_run_on_when_the_agent_s_pod_is_replaced_and_the_next_get_their_own(workload: Workload, agent: DaemonSetAgent) -> None:
    """As an update of the DaemonSet does it."""
    workload.run(pod("before").gpus(4))
    states = workload.states()["before"]
    (old,) = agent.pods()
    agent.delete_pod()
    wait_until(
        lambda: [each["metadata"]["uid"] for each in agent.pods()] not in ([], [old["metadata"]["uid"]]), 60, "another pod of the agent is there"
    )
    workload.run(pod("after").gpus(4))
    assert workload.states()["before"] == states
    workload.check()
