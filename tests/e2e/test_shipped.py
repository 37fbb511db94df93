"""What users run: the pods of the shipped Deployment and DaemonSet, on a real kubelet and containerd.

What they may do there is what the manifests give them: their accounts' rights, their users, the paths of the node, no capability, no write to their root, namespaces of their own. All other tests run extender and
agent as processes of root, which may do anything; what the two promise is their business.
"""

from collections.abc import Iterator

import pytest

from tests.builders import pod
from tests.e2e.control_plane import ControlPlane
from tests.e2e.daemon_set import DaemonSetAgent
from tests.e2e.extender import ExtenderAt, shipped_configuration
from tests.e2e.hand_off_checks import HandOffs
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.node import RealNode
from tests.e2e.program import wait_until
from tests.e2e.shipped import Shipped
from tests.e2e.workload import Workload

# Told to end, it says that it is alive until kubelet kills it: two seconds later, where its pod was deleted by force.
LINGERS = "trap 'while true; do touch $record.alive; sleep 0.1; done' TERM; sleep 2147483647 & wait"


@pytest.fixture(scope="module")
def deployment(control_plane: ControlPlane, accounts: None, node: RealNode) -> Iterator[tuple[Shipped, ExtenderAt]]:
    """Run the Deployment, one replica of it since both would listen on this machine's ports, and kube-scheduler with the shipped configuration."""
    shipped = Shipped(node, "Deployment", "linkwise-extender")
    url = f"http://127.0.0.1:{shipped.fit({})['extender']}"
    shipped.item["spec"]["replicas"] = 1
    control_plane.start_scheduler(shipped_configuration(url))
    shipped.run()
    running = ExtenderAt(url)
    wait_until(running.leads, 30, "the extender leads")
    yield shipped, running
    shipped.stop()
    LiveCluster(control_plane).empty()


@pytest.fixture(scope="module")
def agent(node: RealNode, deployment: tuple[Shipped, ExtenderAt]) -> Iterator[DaemonSetAgent]:
    """Run the DaemonSet on the same node, for which the extender takes pods when the test begins."""
    agent = DaemonSetAgent(node).wait_allocatable()
    deployment[1].wait_open(node.name, timeout=60)
    yield agent
    agent.shipped.stop()


@pytest.fixture
def workload(agent: DaemonSetAgent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workload]:
    """Give the node to one test, without pods but ours at the beginning and at the end."""
    workload = Workload(agent, HandOffs(tmp_path_factory.mktemp("records")))
    yield workload
    names = [each["metadata"]["name"] for each in workload.api.items("Pod", "default")]
    workload.delete(*names)
    workload.wait_gone(*names)


def test_what_the_manifest_gives_the_extender_is_enough(control_plane: ControlPlane, deployment: tuple[Shipped, ExtenderAt]) -> None:
    """It leads under its label, works out prices in a process of its own, binds a pod, and complains of nothing."""
    shipped, running = deployment
    (own,) = shipped.pods()
    assert own["metadata"]["labels"]["linkwise.dev/leader"] == "true"
    cluster = LiveCluster(control_plane)
    cluster.make_machine("dgx1v", "beside")
    running.wait_open("beside", timeout=60)
    running.wait_priced()
    cluster.make_pod(pod("pair").gpus(2))
    assert cluster.wait_bound("pair")["spec"]["nodeName"] == "beside"
    assert shipped.complaints() == []
    for kind, name in (("Pod", "pair"), ("Node", "beside"), ("GPUTopology", "beside")):
        cluster.api.delete(kind, name, "default" if kind == "Pod" else None, grace_s=0)


def test_what_the_manifest_gives_the_agent_is_enough(agent: DaemonSetAgent) -> None:
    """The topology is published and whole, kubelet takes the agent's resources, and the agent complains of nothing."""
    wait_until(lambda: agent.node.allocatable("linkwise.dev/gpu-memory") > 0, 20, "GPU memory is allocatable")
    assert len(agent.topology()["spec"]["gpus"]) == agent.machine.size
    agent.wait_registered()
    assert agent.shipped.complaints() == []


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
    """As an update of the DaemonSet does it; a pod that comes meanwhile waits, since kubelet would reject it."""
    workload.run(pod("before").gpus(4))
    wait_until(lambda: workload.states()["before"][0] == "Running", 20, "it is said to run")
    states = workload.states()["before"]
    (old,) = agent.shipped.pods()
    agent.shipped.delete_pods()
    workload.run(pod("meanwhile").gpus(4))
    wait_until(
        lambda: [each["metadata"]["uid"] for each in agent.shipped.pods()] not in ([], [old["metadata"]["uid"]]),
        60,
        "another pod of the agent is there",
    )
    agent.wait_registered()
    assert workload.states()["before"] == states
    workload.check()
