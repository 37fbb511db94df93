"""The real agent, as its own account, on a real API server: what nvidia-smi and kubelet say on the node is what the cluster knows, whatever fails meanwhile."""

import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from extender.sample_machines import DGX1V, MESH, NVSWITCH, PCIE, SAMPLE_MACHINES, SampleMachine, sample
from tests.e2e.api_server import JsonObject
from tests.e2e.conftest import MANIFESTS
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.program import Program, free_port, wait_until
from tests.kubelet_stand_in import KubeletStandIn, kubelet_at
from tests.stand_in import LIST, OLD_QUERY, P2P, QUERY, SENTENCES, Answer, losing, p2p, write_nvidia_smi, write_sysfs
from topology.api import GPUTopology, read_gputopology

LINKWISE = Path(__file__).parents[2] / ".venv" / "bin" / "linkwise"

# So that a test takes seconds; what a test is about keeps the pace that is shipped.
FAST = {
    "LINKWISE_AGENT_PROBE_EVERY_S": "0.5",
    "LINKWISE_AGENT_FAILING_EVERY_S": "0.5",
    "LINKWISE_AGENT_NO_GPU_EVERY_S": "0.3",
    "LINKWISE_AGENT_HOLDERS_EVERY_S": "0.5",
    "LINKWISE_AGENT_LOOK_UP_EVERY_S": "1",
}
NO_DEVICES = Answer("No devices were found\n", 6)


@dataclass
class AgentNode:
    """One node of the test: its stand-ins, and the agent on it."""

    live: LiveCluster
    name: str
    directory: Path
    versions: int = 0
    program: Program | None = None

    def install(self, machine: SampleMachine, **broken: Any) -> None:
        """Let nvidia-smi show a machine from now on, between two calls and never within one; ``broken`` as in `write_nvidia_smi`."""
        self.versions += 1
        script = write_nvidia_smi(self.directory / str(self.versions), machine, seed=self.name, **broken)
        link = self.directory / "new"
        link.symlink_to(script)
        link.replace(self.directory / "nvidia-smi")

    def start(self, environment: Mapping[str, str] = FAST, *options: str) -> Program:
        """Start the agent as its own account."""
        command = (
            *(LINKWISE, "agent", "--node-name", self.name, "--kubeconfig", self.live.plane.kubeconfig("linkwise-agent")),
            *("--nvidia-smi", self.directory / "nvidia-smi", "--sysfs-root", self.directory / "sys", *options),
        )
        socket = {"LINKWISE_AGENT_POD_RESOURCES_SOCKET": str(self.socket)}
        self.program = self.live.plane.run(f"agent-{self.name}", command, {**environment, **socket})
        return self.program

    @property
    def socket(self) -> Path:
        return self.directory / "kubelet.sock"

    @property
    def log(self) -> str:
        assert self.program is not None
        return self.program.text()

    def stored(self) -> JsonObject | None:
        return self.live.api.find("GPUTopology", self.name)

    def topology(self) -> GPUTopology | None:
        """Return what is published, None where nothing with a status is."""
        stored = self.stored()
        return read_gputopology(stored) if stored is not None and "status" in stored else None

    def wait(self, holds: Callable[[GPUTopology], bool], what: str, timeout: float = 30) -> GPUTopology:
        """Return the published topology once something holds for it."""

        def seen() -> GPUTopology | None:
            found = self.topology()
            return found if found is not None and holds(found) else None

        found = wait_until(seen, timeout, what)
        assert found is not None
        return found

    def wait_published(self) -> GPUTopology:
        return self.wait(lambda _: True, f"the topology of {self.name} is published")

    def events(self, reason: str) -> list[str]:
        """Return the messages of the events about the Node."""
        return [event["message"] for event in self.live.api.events(self.name, reason=reason)]

    def conditions(self) -> dict[str, tuple[str, str]]:
        found = self.topology()
        return {} if found is None else {condition.type: (condition.status, condition.reason) for condition in found.status.conditions}


MakeNode = Callable[..., AgentNode]


@pytest.fixture
def make_node(live: LiveCluster, tmp_path_factory: pytest.TempPathFactory) -> MakeNode:
    """Return a maker of nodes with a machine, a kernel and no agent yet."""
    live.api.apply_file(MANIFESTS / "rbac-agent.yaml")

    def make(machine: SampleMachine, name: str = "node-a", *, exists: bool = True, **broken: Any) -> AgentNode:
        node = AgentNode(live, name, tmp_path_factory.mktemp("n"))
        node.install(machine, **broken)
        write_sysfs(node.directory, machine)
        if exists:
            live.make_node(name, machine.size)
        return node

    return make


@pytest.fixture
def dgx(make_node: MakeNode) -> Iterator[tuple[AgentNode, KubeletStandIn]]:
    """Return a node with a DGX-1V and a kubelet, its topology published by a running agent."""
    node = make_node(DGX1V)
    with kubelet_at(node.socket) as kubelet:
        node.start()
        node.wait_published()
        yield node, kubelet


# --- what is published ----------------------------------------------------------------------------------------------


def test_five_kinds_of_machine_are_published_as_they_are(live: LiveCluster, make_node: MakeNode) -> None:
    nodes = [make_node(machine, f"node-{kind}") for kind, machine in SAMPLE_MACHINES.items()]
    for node in nodes:
        node.start()
    for node, kind in zip(nodes, SAMPLE_MACHINES, strict=True):
        topology = node.wait_published()
        assert topology.spec == sample(kind, node.name).spec
        assert [gpu.healthy for gpu in topology.status.gpus] == [True] * len(topology.spec.gpus)
        stored = node.stored()
        assert stored is not None
        uid = live.api.get("Node", node.name)["metadata"]["uid"]
        assert stored["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": uid}]
        assert {entry["manager"] for entry in stored["metadata"]["managedFields"]} == {"linkwise-agent"}
    table = live.plane.kubectl("get", "gputopo").splitlines()
    assert table[0].split() == ["NAME", "GPUS", "MODEL", "NVLINK", "FREE", "HEALTH", "AGE"]
    assert "NV18" in next(line for line in table if line.startswith("node-nvswitch"))


def test_nothing_is_written_while_nothing_changes(dgx: tuple[AgentNode, KubeletStandIn], live: LiveCluster) -> None:
    """With the heartbeat that is shipped; used memory, which changes all the time, travels with it."""
    node, _ = dgx
    before = live.api.get("GPUTopology", "node-a")["metadata"]["resourceVersion"]
    node.install(replace(DGX1V, idle_mib=4711))
    time.sleep(2)  # the claim is that nothing happens: four looks
    assert live.api.get("GPUTopology", "node-a")["metadata"]["resourceVersion"] == before


def test_a_heartbeat_tells_that_the_agent_lives(make_node: MakeNode, live: LiveCluster) -> None:
    node = make_node(MESH)
    node.start({**FAST, "LINKWISE_AGENT_HEARTBEAT_S": "1"})
    first = node.wait_published()
    later = node.wait(lambda found: found.status.observed_at != first.status.observed_at, "a heartbeat came")
    assert later.spec == first.spec
    assert later.status.conditions == first.status.conditions
    assert live.api.get("GPUTopology", "node-a")["metadata"]["generation"] == 1


def test_a_node_without_gpus_gets_no_object_and_is_told_so_once(make_node: MakeNode) -> None:
    node = make_node(MESH, replaced={QUERY: NO_DEVICES, OLD_QUERY: NO_DEVICES, LIST: NO_DEVICES})
    agent = node.start()
    agent.wait_log("this node has no NVIDIA GPU and gets no GPUTopology")
    time.sleep(2)  # the claim is that nothing happens: six looks
    assert agent.running()
    assert node.log.count("has no NVIDIA GPU") == 1
    assert node.stored() is None
    node.install(MESH)
    node.wait_published()


def test_an_agent_waits_for_its_node_and_says_so_once(make_node: MakeNode, live: LiveCluster) -> None:
    node = make_node(MESH, exists=False)
    node.start().wait_log("there is no Node of this name")
    time.sleep(1.5)  # another look-up and three rounds
    assert node.log.count("there is no Node of this name") == 1
    assert node.stored() is None
    live.make_node("node-a")
    node.wait_published()


# --- the Node and the object go and come ----------------------------------------------------------------------------


def test_a_recreated_node_gets_its_topology_again_within_15_s(make_node: MakeNode, live: LiveCluster) -> None:
    """At the pace that is shipped, with the garbage collector at work."""
    live.plane.start_controller_manager()
    node = make_node(MESH)
    node.start({})
    node.wait_published()
    live.api.delete("Node", "node-a")
    uid = live.make_node("node-a")["metadata"]["uid"]

    def owned_by_the_new_one() -> bool:
        stored = node.stored()
        return stored is not None and [owner["uid"] for owner in stored["metadata"]["ownerReferences"]] == [uid] and "status" in stored

    wait_until(owned_by_the_new_one, 15, "the new Node owns a topology")


def test_a_topology_goes_with_its_node(make_node: MakeNode, live: LiveCluster) -> None:
    live.plane.start_controller_manager()
    node = make_node(MESH)
    node.start()
    node.wait_published()
    live.api.delete("Node", "node-a")
    wait_until(lambda: node.stored() is None, 30, "the topology is collected")
    time.sleep(1.5)  # the claim is that it stays away: another look-up
    assert node.stored() is None


def test_a_deleted_or_changed_topology_is_written_again(dgx: tuple[AgentNode, KubeletStandIn], live: LiveCluster) -> None:
    node, _ = dgx
    before = node.wait_published()
    live.api.delete("GPUTopology", "node-a")
    assert node.wait(lambda found: bool(found.status.gpus), "it is published again").spec == before.spec
    live.api.patch("GPUTopology", "node-a", {"spec": {"model": "somebody else's"}})
    node.wait(lambda found: found.spec.model == before.spec.model, "the spec is the agent's again")


def test_an_api_server_that_is_gone_for_a_while_misses_nothing_that_lasts(dgx: tuple[AgentNode, KubeletStandIn], live: LiveCluster) -> None:
    node, _ = dgx
    live.plane.kube_apiserver.kill()
    node.install(replace(DGX1V, driver_version="560.35.03"))
    wait_until(lambda: "the API server does not take the GPUTopology" in node.log, 20)
    live.plane.start_api_server()
    node.wait(lambda found: found.spec.driver_version == "560.35.03", "what changed meanwhile is published", 20)
    wait_until(lambda: node.events("DriverChanged") == ["NVIDIA driver: 550.127.08 before, 560.35.03 now"], what="the change is told once")
    assert node.program is not None
    node.program.wait_log("the API server answers again")


# --- hardware changes -----------------------------------------------------------------------------------------------


def without_nvlink(machine: SampleMachine) -> SampleMachine:
    """Return the machine as it is after a boot without NVLink (azhpc-images 443): every NVLink is the PCIe path below it."""
    rows = tuple(" ".join("SYS" if cell.startswith("NV") else cell for cell in row.split()) for row in machine.gpu_rows)
    return replace(machine, gpu_rows=rows, nvlinks=0)


def test_nvlink_that_is_gone_after_a_boot_is_published_and_told_and_so_is_its_return(make_node: MakeNode) -> None:
    node = make_node(DGX1V)
    agent = node.start()
    before = node.wait_published()
    agent.stop()
    node.install(without_nvlink(DGX1V))
    node.start()
    gone = node.wait(lambda found: found.spec.nvlink == "none", "the loss is published")
    assert gone.spec.links.gpus[0][3] == "SYS"
    wait_until(lambda: len(node.events("NVLinkGone")) == 2, what="one event for NV1, one for NV2")
    assert any(message.startswith("NVLink GPU0-GPU3, ") and message.endswith(": NV2 before, SYS now") for message in node.events("NVLinkGone"))
    node.install(DGX1V)
    assert node.wait(lambda found: found.spec.nvlink == "NV1,NV2", "the return is published").spec == before.spec
    wait_until(lambda: len(node.events("NVLinkBack")) == 2, what="the return is told")


def test_peer_access_that_the_driver_takes_away_is_published_and_told_and_so_is_its_return(make_node: MakeNode) -> None:
    node = make_node(DGX1V, replaced={P2P: Answer("Invalid combination of input arguments.\n", 2)})
    node.start()
    before = node.wait_published()
    assert before.spec.links.no_peer_access is None
    node.install(DGX1V, replaced={P2P: Answer(p2p(8, {(0, 3): "CNS", (3, 0): "CNS"}))})
    apart = node.wait(lambda found: found.refused() == {(0, 3): "CNS"}, "the refusal is published")
    assert (apart.spec.links.gpus, apart.spec.source) == (before.spec.links.gpus, before.spec.source)
    wait_until(lambda: node.events("PeerAccessGone"), what="the refusal is told")
    assert node.events("PeerAccessGone") == ["no peer access GPU0-GPU3 (CNS): their data goes through host memory"]
    node.install(DGX1V)
    node.wait(lambda found: found.spec == before.spec, "the field is gone again")
    wait_until(lambda: node.events("PeerAccessBack"), what="the return is told")
    assert node.events("NVLinkGone") == node.events("LinksChanged") == []


def test_a_lost_gpu_goes_out_of_the_pool_and_comes_back_while_the_others_work(make_node: MakeNode) -> None:
    """Even where it takes the whole of `topo -m` with it: the other seven keep their NVLinks."""
    node = make_node(NVSWITCH)
    node.start()
    before = node.wait_published()
    node.install(NVSWITCH, replaced=losing(NVSWITCH, 5, "node-a", topo_too=True))
    lost = node.wait(lambda found: found.status.health == "1 of 8 lost", "the loss is published")
    assert [gpu.healthy for gpu in lost.status.gpus] == [True] * 5 + [False] + [True] * 2
    assert [gpu.uuid for gpu in lost.status.gpus] == [gpu.uuid for gpu in before.spec.gpus]
    kept = node.wait(lambda found: found.spec.source.quality == "partial", "the kept links are published")
    assert kept.spec.links == before.spec.links
    assert "The links are those that it printed before" in kept.spec.source.notes[0]
    assert node.conditions()["LinksKnown"] == ("False", "MatrixKept")
    wait_until(lambda: node.events("GPULost"), what="the loss is told")
    assert node.events("GPULost")[0].startswith(f"GPU5 ({NVSWITCH.uuids('node-a')[5]}): ")
    node.install(NVSWITCH)
    back = node.wait(lambda found: found.status.health == "Healthy" and found.spec == before.spec, "it is back")
    assert all(gpu.healthy for gpu in back.status.gpus)
    wait_until(lambda: node.events("GPUBack"), what="the return is told")
    assert node.events("NVLinkGone") == node.events("GPURemoved") == []


# --- the driver fails -----------------------------------------------------------------------------------------------


def test_a_failing_driver_closes_the_node_and_keeps_its_hardware(dgx: tuple[AgentNode, KubeletStandIn]) -> None:
    node, _ = dgx
    before = node.wait_published()
    node.install(DGX1V, exit_code=18)
    failed = node.wait(lambda found: not any(gpu.healthy for gpu in found.status.gpus), "all GPUs are unhealthy")
    assert failed.spec == before.spec
    assert node.conditions()["DriverReady"] == ("False", "DriverMismatch")
    assert (failed.status.free_gpus, failed.status.health) == (0, "none usable: DriverMismatch")
    assert "Driver/library version mismatch" in (failed.status.gpus[0].reason or "")
    wait_until(lambda: node.events("DriverFailed"), what="the failure is told")
    assert node.events("GPULost") == []
    node.install(DGX1V)
    node.wait(lambda found: all(gpu.healthy for gpu in found.status.gpus), "all GPUs are healthy again")
    assert node.conditions()["DriverReady"] == ("True", "NvidiaSmiAnswers")
    wait_until(lambda: node.events("DriverReady"), what="the recovery is told")


def test_a_driver_that_fails_from_the_start_is_told_and_nothing_is_published(make_node: MakeNode) -> None:
    node = make_node(MESH, exit_code=9)
    node.start().wait_log("nothing is published yet")
    assert SENTENCES[9][:40] in node.log
    time.sleep(1.5)  # the claim is that nothing happens: three looks
    assert node.log.count("nothing is published yet") == 1
    assert node.stored() is None
    node.install(MESH)
    node.wait_published()


def test_gpus_that_an_earlier_agent_published_are_not_forgotten_when_none_are_found(make_node: MakeNode) -> None:
    node = make_node(MESH)
    node.start()
    before = node.wait_published()
    assert node.program is not None
    node.program.stop()
    node.install(MESH, replaced={QUERY: NO_DEVICES, OLD_QUERY: NO_DEVICES, LIST: NO_DEVICES})
    node.start()
    gone = node.wait(lambda found: not any(gpu.healthy for gpu in found.status.gpus), "all GPUs are unhealthy")
    assert gone.spec == before.spec
    assert node.conditions()["DriverReady"] == ("False", "NoDevices")


# --- who holds what -------------------------------------------------------------------------------------------------


def test_kubelet_tells_who_holds_which_gpu(dgx: tuple[AgentNode, KubeletStandIn]) -> None:
    node, kubelet = dgx
    uuids = DGX1V.uuids("node-a")
    assert node.wait_published().status.free_gpus == 8
    kubelet.hold("ml/train", uuids[0], uuids[3])
    kubelet.hold("ml/shared-1", f"{uuids[6]}::0")
    kubelet.hold("ml/shared-2", f"{uuids[6]}::1", container="side")
    held = node.wait(lambda found: found.status.free_gpus == 5, "three GPUs are held")
    names = {at: [(one.namespace, one.name, one.container) for one in gpu.holders] for at, gpu in enumerate(held.status.gpus) if gpu.holders}
    assert names == {
        0: [("ml", "train", "main")],
        3: [("ml", "train", "main")],
        6: [("ml", "shared-1", "main"), ("ml", "shared-2", "side")],
    }
    assert held.status.holders_observed
    assert node.conditions()["HoldersObserved"] == ("True", "KubeletAnswers")
    kubelet.release("ml/train")
    node.wait(lambda found: found.status.free_gpus == 7, "two GPUs are free again")


def test_a_silent_kubelet_frees_nothing_not_even_across_a_restart_of_the_agent(dgx: tuple[AgentNode, KubeletStandIn]) -> None:
    node, kubelet = dgx
    kubelet.hold("ml/train", *DGX1V.uuids("node-a")[:2])
    held = node.wait(lambda found: found.status.free_gpus == 6, "two GPUs are held")
    kubelet.broken = True
    wait_until(lambda: node.conditions()["HoldersObserved"] == ("False", "ListFailed"), what="the silence is told")
    assert node.program is not None
    node.program.stop()
    node.start()
    node.program.wait_log("who holds which GPU is not observed")
    time.sleep(1.5)  # the claim is that nothing is freed: three rounds
    kept = node.wait_published()
    assert [gpu.holders for gpu in kept.status.gpus] == [gpu.holders for gpu in held.status.gpus]
    assert (kept.status.holders_observed, kept.status.free_gpus) == (True, 6)


def test_without_kubelets_socket_nobody_claims_to_know(make_node: MakeNode) -> None:
    node = make_node(MESH)
    node.start().wait_log(r"kubelet\.sock does not exist; is its directory mounted here")
    topology = node.wait_published()
    assert (topology.status.holders_observed, topology.status.free_gpus) == (False, None)
    assert node.conditions()["HoldersObserved"] == ("False", "SocketAbsent")
    time.sleep(1.5)  # three more rounds
    assert node.log.count("does not exist") == 1


# --- the process ----------------------------------------------------------------------------------------------------


def test_a_signal_ends_the_agent_at_once_and_the_nvidia_smi_that_it_waits_for(make_node: MakeNode) -> None:
    node = make_node(PCIE, hang=True)
    agent = node.start()
    hanging = node.directory / "1" / "hanging"
    wait_until(hanging.exists, 30, "nvidia-smi hangs")
    started = time.monotonic()
    assert agent.stop() == 0
    assert time.monotonic() - started < 3
    pid = int(hanging.read_text())
    wait_until(lambda: not running(pid), what="what nvidia-smi had started has ended")


def running(pid: int) -> bool:
    """Tell whether a process runs; one that has ended may wait for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_health_and_metrics_are_served(make_node: MakeNode) -> None:
    node = make_node(MESH)
    port = free_port()
    node.start(FAST, "--metrics-port", str(port))
    node.wait_published()
    assert get(f"http://127.0.0.1:{port}/healthz") == "ok\n"
    text = get(f"http://127.0.0.1:{port}/metrics")
    assert 'linkwise_agent_publishes_total{what="spec"} 1.0' in text
    assert 'linkwise_agent_failures_total{what="publish"} 0.0' in text


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as response:
        body: bytes = response.read()
    return body.decode()


def test_an_account_without_rights_is_told_what_to_look_at(make_node: MakeNode, live: LiveCluster) -> None:
    node = make_node(MESH)
    live.api.delete("ClusterRoleBinding", "linkwise-agent")
    agent = node.start()
    agent.wait_log(r"does the account have the rights of manifests/rbac-agent\.yaml\?")
    live.api.apply_file(MANIFESTS / "rbac-agent.yaml")
    node.wait_published()
    assert agent.running()
