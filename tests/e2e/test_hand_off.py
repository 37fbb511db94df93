"""The whole path on a real node: kube-scheduler, the extender, the agent's device plugin, kubelet, containerd: every container has exactly its pod's GPUs.

GPUs are stood in for by nvidia-smi; what a container got is what it says itself, its environment. `tests.e2e.hand_off_checks` compares that with the
allocation of its own pod, and looks whether a GPU was ever in two containers at once.
"""

import random
from collections.abc import Iterator

import pytest

from tests.builders import PodBuilder, pod
from tests.e2e.checks import check_cluster
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender
from tests.e2e.hand_off_checks import HandOffs, Start
from tests.e2e.node import RealNode
from tests.e2e.node_agent import NodeAgent
from tests.e2e.node_pods import on_node, wait_printed
from tests.e2e.program import wait_until


@pytest.fixture(scope="module")
def agent(node: RealNode, extender: RunningExtender) -> Iterator[NodeAgent]:
    """Run the agent on the node, and wait until kubelet offers its GPUs and the extender takes pods for it."""
    agent = NodeAgent(node, user="admin").wait_allocatable()
    extender.wait_open(node.name, timeout=20)
    yield agent
    agent.program.stop()


@pytest.fixture
def hand_offs(agent: NodeAgent) -> Iterator[HandOffs]:
    """Give the node to one test: with no pod at the beginning, and none at the end."""
    records = agent.node.directory / f"records-{random.randrange(10**9)}"
    yield HandOffs(records)
    agent.node.clear()


class Workload:
    """Pods that kube-scheduler places, and what becomes of them."""

    def __init__(self, agent: NodeAgent, hand_offs: HandOffs) -> None:
        self.agent = agent
        self.api = agent.node.plane.api()
        self.hand_offs = hand_offs

    def create(self, *builders: PodBuilder) -> None:
        """Create pods one after the other, as fast as the API server takes them."""
        for builder in builders:
            self.api.create(on_node(builder, scheduler="linkwise", records=self.hand_offs.records))

    def wait_running(self, *names: str, timeout: float = 60) -> None:
        """Wait until pods run, and note what they were promised."""
        for name in names:
            self.agent.node.wait_phase(name, "Running", timeout=timeout)
        self.hand_offs.note(self.api.items("Pod"))

    def delete(self, *names: str) -> None:
        """Delete pods with their grace period, without waiting."""
        self.hand_offs.note(self.api.items("Pod"))
        for name in names:
            self.api.delete("Pod", name, "default")

    def check(self) -> list[Start]:
        """Check every start so far, and the allocations."""
        check_cluster(self.api)
        self.hand_offs.note(self.api.items("Pod"))
        return self.hand_offs.check()


@pytest.fixture
def workload(agent: NodeAgent, hand_offs: HandOffs) -> Workload:
    return Workload(agent, hand_offs)


@pytest.mark.parametrize(
    ("builder", "containers"),
    [
        pytest.param(pod("p").gpus(1), {"main": 1}, id="one GPU"),
        pytest.param(pod("p").gpus(2), {"main": 2}, id="two GPUs"),
        pytest.param(pod("p").gpus(4), {"main": 4}, id="four GPUs"),
        pytest.param(pod("p").gpus(2, "a").gpus(1, "b"), {"a": 2, "b": 1}, id="two containers"),
        pytest.param(pod("p").shared(5), {"main": 1}, id="a part of a GPU"),
        pytest.param(pod("p").gpus(2).init(1), {"init": 1, "main": 2}, id="an init container that asks less"),
        pytest.param(pod("p").gpus(1).init(3), {"init": 3, "main": 1}, id="an init container that asks more"),
        pytest.param(pod("p").plain("main").init(2), {"init": 2, "main": 0}, id="an init container alone"),
        pytest.param(pod("p").gpus(2).sidecar(1), {"sidecar": 1, "main": 2}, id="a sidecar"),
    ],
)
def test_a_container_has_the_gpus_of_its_pod_s_allocation(workload: Workload, builder: PodBuilder, containers: dict[str, int]) -> None:
    """Each container of a pod finds as many GPUs as it asked for, and those of the annotation."""
    workload.create(builder)
    workload.wait_running("p")
    for name in containers:
        wait_printed(workload.agent.node, "p", name)
    starts = workload.check()
    assert {start.container: len(start.gpus) for start in starts} == containers


def test_pods_created_together_have_their_own_gpus_each(workload: Workload) -> None:
    """Four pods of two GPUs at once fill the node; none has another's."""
    workload.create(*(pod(name).gpus(2) for name in "abcd"))
    workload.wait_running(*"abcd")
    for name in "abcd":
        wait_printed(workload.agent.node, name)
    starts = workload.check()
    assert len(set().union(*(start.gpus for start in starts))) == 8


def test_pods_that_come_and_go_at_random_always_have_their_own_gpus(workload: Workload, agent: NodeAgent, control_plane: ControlPlane) -> None:
    """Bursts of mixed pods up to what the node can hold, half of them deleted at random each time: no start is wrong, and no GPU is in two containers."""
    chosen = random.Random(8)
    living: dict[str, None] = {}
    number = 0
    for _ in range(6):
        burst = []
        while len(burst) < 6:
            burst.append(mixed(f"p{number}", chosen))
            number += 1
        workload.create(*burst)
        living.update(dict.fromkeys(builder.name for builder in burst))
        wait_settled(workload, living)
        workload.check()
        leaving = chosen.sample(sorted(living), len(living) // 2)
        workload.delete(*leaving)
        for name in leaving:
            del living[name]
    wait_settled(workload, living)
    assert len(workload.check()) >= 15


def mixed(name: str, chosen: random.Random) -> PodBuilder:
    """Return a pod of a random kind."""
    kinds = (
        pod(name).gpus(1),
        pod(name).gpus(2),
        pod(name).gpus(4),
        pod(name).shared(4),
        pod(name).shared(8),
        pod(name).gpus(1, "a").gpus(1, "b"),
        pod(name).gpus(1).init(2),
        pod(name).gpus(1).sidecar(1),
    )
    return chosen.choice(kinds)


def wait_settled(workload: Workload, living: dict[str, None]) -> None:
    """Wait until every pod that is bound runs; those that find no room wait, and are created by nobody else."""

    def settled() -> bool:
        pods = {each["metadata"]["name"]: each for each in workload.api.items("Pod")}
        workload.hand_offs.note(pods.values())
        bound = [each for name, each in pods.items() if name in living and each["spec"].get("nodeName")]
        leaving = [name for name in pods if name not in living]
        failed = {name: each["status"] for name, each in pods.items() if each["status"]["phase"] == "Failed"}
        assert not failed, failed
        unscheduled = [each for each in pods.values() if not each["spec"].get("nodeName")]
        refused = all(
            any(
                condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
                for condition in each["status"].get("conditions", ())
            )
            for each in unscheduled
        )
        return not leaving and refused and all(each["status"]["phase"] == "Running" for each in bound)

    wait_until(settled, 90, "every bound pod runs")
