"""A real kubelet whose topology manager refuses what it cannot align, and which registers its node with the startup taint: what Linkwise makes of both.

kubelet knows the NUMA nodes of this machine, of which there may be one only, and those of the GPUs by the agent's device plugin: GPUs 0 to 3 are on NUMA node 0, the others on 1. With
policy `single-numa-node` a pod that asks for more GPUs than NUMA node 0 has is refused at admission, whatever was planned: six of eight always are.
"""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import pod
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender
from tests.e2e.node import RealNode, real_node
from tests.e2e.node_agent import NodeAgent
from tests.e2e.program import wait_until
from tests.e2e.workload import Workload

STARTUP = {"key": "linkwise.dev/agent-not-ready", "effect": "NoSchedule"}
SENTENCE = "linkwise: kubelet's topology manager refused such a pod on the node; not tried there again before "


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane, node_programs: dict[str, Path]) -> Iterator[RealNode]:
    """Run a real node whose kubelet aligns all of a pod's containers to one NUMA node each, or refuses them."""
    fields = {"topologyManagerPolicy": "single-numa-node", "registerWithTaints": [STARTUP]}
    with real_node(control_plane, node_programs, fields) as node:
        yield node


@pytest.fixture(scope="module")
def node_agent(node: RealNode, extender: RunningExtender) -> Iterator[NodeAgent]:
    """Run the agent; kubelet may not know it yet."""
    agent = NodeAgent(node)
    yield agent
    agent.program.stop()


def test_a_node_that_registers_with_the_startup_taint_keeps_it_until_kubelet_knows_the_agent(
    node: RealNode, extender: RunningExtender, request: pytest.FixtureRequest
) -> None:
    """NVIDIA's device plugin is in the way at first; the agent runs, has published the topology, and says so."""
    assert node.taints() == [STARTUP]
    path = node.kubelet.device_plugins / "nvidia-gpu.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        agent: NodeAgent = request.getfixturevalue("node_agent")
        wait_until(lambda: extender.metric("linkwise_startup_taints", awaited="hand-off") == 1, 20, "the node waits for the hand-off")
        condition = agent.condition("HandOffRegistered")
        assert (condition["status"], condition["reason"]) == ("False", "AnotherPlugin")
        assert node.taints() == [STARTUP]
    path.unlink()
    wait_until(lambda: node.taints() == [], 20, "the taint is taken off")
    condition = agent.condition("HandOffRegistered")
    assert (condition["status"], condition["reason"]) == ("True", "Registered")


def test_what_kubelet_cannot_align_is_not_sent_there_again_and_everybody_is_told(workload: Workload, extender: RunningExtender) -> None:
    """The pod that failed, one like it that waits, one that asks for less, which is placed; and an extender that starts anew knows as much."""
    workload.create(pod("spans").gpus(6))
    failed = workload.node.wait_phase("spans", "Failed")
    assert failed["status"]["reason"] == "TopologyAffinityError"
    assert failed["status"]["startTime"], "a process that starts goes by it"
    workload.create(pod("again").gpus(6))
    assert SENTENCE in wait_refused(workload, "again")
    (told,) = extender.decision("again")["nodes"]
    assert told["code"] == "KUBELET_REFUSED"
    assert told["reason"].startswith("8 of 8 GPUs free, but kubelet's topology manager refused pod default/spans")
    assert extender.metric("linkwise_kubelet_refusals") == 1
    workload.run(pod("smaller").gpus(2))
    extender.stop()
    extender.start().wait_leads()
    workload.create(pod("later").gpus(6))
    assert SENTENCE in wait_refused(workload, "later")


def wait_refused(workload: Workload, name: str) -> str:
    """Return what kube-scheduler says of a pod that fits nowhere."""
    return workload.wait_event(name, "FailedScheduling")
