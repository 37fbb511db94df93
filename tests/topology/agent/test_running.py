"""Round after round the cluster knows what the node is, whatever fails in between."""

import copy
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from extender.sample_machines import MESH, sample
from tests.api_door import TOPOLOGIES, ApiDoor, Call, Raw, api_door, refused
from tests.builders import Clock, JsonObject, pod
from tests.device_kubelet import RESOURCES, DeviceKubelet
from tests.kubelet_stand_in import KubeletStandIn, kubelet_at
from tests.stand_in import QUERY, QUERY_HEADER, Answer, query_rows, write_nvidia_smi, write_sysfs
from topology.agent import running
from topology.agent.api_server import ApiServer
from topology.agent.handoff.plugin import plugin_for
from topology.agent.metrics import Metrics
from topology.agent.probe import look
from topology.agent.prober import Look
from topology.agent.publish import Clocks
from topology.agent.running import Agent, run_agent
from topology.agent.settings import AgentSettings
from topology.agent.wanted import with_hand_off as with_hand_off_told
from topology.api import HAND_OFF_REGISTERED, Condition, GPUTopology, read_gputopology
from topology.errors import InputError, NvidiaSmiError, NvidiaSmiFailure
from topology.nvidia_smi import failure_in

GPUS = MESH.uuids("node-a")
DRIVER_GONE = Look(None, NvidiaSmiError(NvidiaSmiFailure.NO_DRIVER, "the driver is not loaded"), 0.1)
NO_GPUS = Look(None, NvidiaSmiError(NvidiaSmiFailure.NO_DEVICES, "no GPU is visible here"), 0.1)
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@dataclass
class Node:
    """A node with its stand-ins; time moves when a test says so."""

    door: ApiDoor
    kubelet: KubeletStandIn
    directory: Path
    settings: AgentSettings
    clock: Clock = field(default_factory=Clock)
    agents: list[ApiServer] = field(default_factory=list)

    def agent(self) -> Agent:
        """Start an agent; it has looked at nothing yet."""
        api = ApiServer.connect(self.door.kubeconfig(self.directory))
        self.agents.append(api)
        return Agent(self.settings, api, Metrics(), Clocks(self.clock, lambda: START + timedelta(seconds=self.clock.now)))

    def look(self) -> Look:
        """Look at what nvidia-smi shows now."""
        return Look(look(self.settings), None, 0.1)

    def pass_time(self, agent: Agent, seconds: int, step: int = 5) -> None:
        """Let an agent make its rounds for that long."""
        for _ in range(seconds // step):
            self.clock.now += step
            agent.round()

    def stored(self) -> GPUTopology:
        return read_gputopology(self.door.topologies["node-a"])


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("n")
    socket = directory / "kubelet.sock"
    write_sysfs(directory, MESH)
    settings = AgentSettings(
        node_name="node-a", nvidia_smi=str(write_nvidia_smi(directory, MESH)), sysfs_root=directory / "sys", pod_resources_socket=socket
    )
    with api_door() as door, kubelet_at(socket) as kubelet:
        door.nodes["node-a"] = "uid-1"
        node = Node(door, kubelet, directory, settings)
        yield node
        for api in node.agents:
            api.close()


def boot(directory: Path, name: str) -> None:
    """Let the kernel call this boot so."""
    path = directory / "proc" / "sys" / "kernel" / "random" / "boot_id"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{name}\n")


def published(node: Node) -> Agent:
    """Return an agent that has published the node."""
    agent = node.agent()
    agent.looked(node.look())
    agent.round()
    assert node.stored().spec == sample("mesh", "node-a").spec
    return agent


def without_gpu_3(node: Node) -> Look:
    """Return a look that finds GPU 3 gone without a word."""
    rows = query_rows(MESH)[:3]
    shown = {QUERY: Answer("\n".join([QUERY_HEADER, *rows]) + "\n"), "-L": Answer("".join(f"GPU {i}: X (UUID: {GPUS[i]})\n" for i in range(3)))}
    write_nvidia_smi(node.directory, MESH, replaced=shown)
    return node.look()


# --- the usual ---


def test_before_the_first_look_nothing_is_written(node: Node) -> None:
    agent = node.agent()
    agent.round()
    assert node.door.writes() == []


def test_a_look_is_published_with_who_holds_what(node: Node) -> None:
    node.kubelet.hold("ml/train", GPUS[1])
    agent = published(node)
    status = node.stored().status
    assert [[holder.name for holder in gpu.holders] for gpu in status.gpus] == [[], ["train"], [], []]
    assert (status.holders_observed, status.free_gpus) == (True, 3)
    assert node.door.writes() == ["spec", "status"]
    node.pass_time(agent, 55)
    assert node.door.writes() == ["spec", "status"]
    assert node.kubelet.calls == 12, "asked every five seconds"
    node.pass_time(agent, 10)
    assert node.door.writes() == ["spec", "status", "status"]
    assert node.stored().status.observed_at == START + timedelta(seconds=node.clock.now - 5)


def test_node_and_object_are_looked_up_every_seven_seconds(node: Node) -> None:
    agent = published(node)
    before = len(node.door.calls)
    node.pass_time(agent, 49, step=1)
    assert [call.method for call in node.door.calls[before:]] == ["GET", "GET"] * 7


def test_the_time_of_observation_is_not_later_than_what_kubelet_said(node: Node) -> None:
    """Who reads it concludes that a pod which came since holds nothing."""
    agent = published(node)
    asked_at = START + timedelta(seconds=node.clock.now)
    node.clock.now += 3
    agent.looked(DRIVER_GONE)
    agent.round()
    assert not node.stored().status.gpus[0].healthy
    assert node.stored().status.observed_at == asked_at


def test_the_time_of_observation_stands_still_while_kubelet_is_silent(node: Node) -> None:
    node.kubelet.hold("ml/train", GPUS[1])
    agent = published(node)
    node.pass_time(agent, 60)
    last = START + timedelta(seconds=node.clock.now)
    node.kubelet.broken = True
    node.pass_time(agent, 120)
    status = node.stored().status
    assert (status.observed_at, status.holders_observed, status.free_gpus) == (last, True, 3)
    node.kubelet.broken = False
    node.pass_time(agent, 5)
    assert node.stored().status.observed_at == START + timedelta(seconds=node.clock.now)


def test_a_mig_device_holds_its_gpu(node: Node) -> None:
    mig = "MIG-11111111-2222-3333-4444-555555555555"
    lines = [f"GPU {i}: X (UUID: {uuid})\n" for i, uuid in enumerate(GPUS)]
    lines[2] += f"  MIG 3g.20gb     Device  0: (UUID: {mig})\n"
    write_nvidia_smi(node.directory, MESH, replaced={"-L": Answer("".join(lines))})
    node.kubelet.hold("ml/slice", mig)
    agent = node.agent()
    agent.looked(node.look())
    agent.round()
    assert [len(gpu.holders) for gpu in node.stored().status.gpus] == [0, 0, 1, 0]
    agent.looked(DRIVER_GONE)
    agent.round()
    assert [len(gpu.holders) for gpu in node.stored().status.gpus] == [0, 0, 1, 0], "known from the last good look"


# --- what fails ---


def test_a_failing_driver_is_published_and_said_once(node: Node) -> None:
    with capture_logs() as lines:
        agent = published(node)
        for _ in range(3):
            agent.looked(DRIVER_GONE)
            node.pass_time(agent, 5)
        agent.looked(node.look())
        node.pass_time(agent, 5)
    said = [line["event"] for line in lines]
    assert said == ["all GPUs are published as unhealthy: the driver is not loaded", "the node can be described"]
    assert [event["reason"] for event in node.door.events] == ["DriverFailed", "DriverReady"]
    assert node.stored().status.health == "Healthy"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(DRIVER_GONE, "nothing is published yet, tried again until there is something: the driver is not loaded", id="a failing driver"),
        pytest.param(NO_GPUS, "this node has no NVIDIA GPU and gets no GPUTopology; looked again every 120 s: no GPU is visible here", id="no GPU"),
    ],
)
def test_a_node_that_was_never_described_is_told_of_once_and_asks_the_api_server_for_nothing_more(node: Node, found: Look, said: str) -> None:
    with capture_logs() as lines:
        agent = node.agent()
        agent.looked(found)
        agent.round()
        calls = len(node.door.calls)
        node.pass_time(agent, 60)
    assert [line["event"] for line in lines] == [said]
    assert (calls, len(node.door.calls)) == (1, 1)
    assert node.kubelet.calls == 0


def test_gpus_that_were_published_once_are_not_deleted_when_there_are_none(node: Node) -> None:
    published(node)
    agent = node.agent()
    agent.looked(NO_GPUS)
    agent.round()
    assert node.stored().spec == sample("mesh", "node-a").spec
    assert node.stored().status.health == "none usable: NoDevices"


def test_a_missing_node_is_said_once_and_waited_for(node: Node) -> None:
    node.door.nodes.clear()
    agent = node.agent()
    with capture_logs() as lines:
        agent.looked(node.look())
        node.pass_time(agent, 30)
        assert node.door.topologies == {}
        node.door.nodes["node-a"] = "uid-1"
        node.pass_time(agent, 10)
    assert [line["event"] for line in lines] == ["there is no Node of this name: its GPUTopology is published once there is", "the Node exists now"]
    assert "node-a" in node.door.topologies


def test_an_api_server_that_is_away_is_said_once_and_asked_again_ever_more_slowly(node: Node) -> None:
    with capture_logs() as lines:
        agent = published(node)
        node.door.fault = lambda _: Raw(cut=True)
        before = len(node.door.calls)
        node.pass_time(agent, 120)
        tries = len(node.door.calls) - before
        node.door.fault = lambda _: None
        node.pass_time(agent, 15)
    assert len([line for line in lines if "does not take the GPUTopology" in line["event"]]) <= 2, "looking up, and the heartbeat"
    assert lines[-1]["event"] == "the API server answers again"
    assert 12 <= tries <= 24
    assert (node.stored().status.observed_at or START) >= START + timedelta(seconds=node.clock.now - 20)


def test_trouble_at_the_first_look_up_is_not_taken_for_a_missing_node(node: Node) -> None:
    node.door.fault = lambda call: Raw(cut=True) if call.path.startswith("/api/v1/nodes") else None
    agent = node.agent()
    with capture_logs() as lines:
        agent.looked(node.look())
        node.pass_time(agent, 30)
        node.door.fault = lambda _: None
        node.pass_time(agent, 15)
    assert not [line for line in lines if "no Node of this name" in line["event"]]
    assert "node-a" in node.door.topologies


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        pytest.param(Raw(404, "404 page not found"), r"(is manifests/crd.yaml applied?)", id="no CRD"),
        pytest.param(refused(403, "Forbidden", "no"), "(does the account have the rights of manifests/rbac-agent.yaml?)", id="no rights"),
        pytest.param(refused(500, "InternalError", "no"), "answered 500: no", id="its own trouble"),
    ],
)
def test_a_refusal_says_what_to_look_at(node: Node, answer: Raw, hint: str) -> None:
    node.door.fault = lambda call: answer if call.path.startswith(TOPOLOGIES) else None
    agent = node.agent()
    with capture_logs() as lines:
        agent.looked(node.look())
        agent.round()
    assert [line["event"].endswith(hint) for line in lines] == [True]


def test_a_bug_in_a_round_is_logged_and_the_next_round_comes(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = published(node)

    def broken(*_: object) -> None:
        raise ZeroDivisionError("nobody thought of it")

    monkeypatch.setattr(running, "wanted", broken)
    with capture_logs() as lines:
        node.clock.now += 5
        agent._round_or_say_why_not()
    assert [line["event"] for line in lines] == ["a round failed, which is a bug in Linkwise"]
    monkeypatch.undo()
    agent.looked(DRIVER_GONE)
    node.pass_time(agent, 5)
    assert not node.stored().status.gpus[0].healthy


# --- what an earlier agent, or an earlier look, knew ---


def test_a_published_topology_that_cannot_be_read_is_replaced(node: Node) -> None:
    published(node)
    node.door.topologies["node-a"]["spec"] = {"gpus": "damaged"}
    with capture_logs() as lines:
        agent = node.agent()
        agent.looked(node.look())
        agent.round()
    assert "cannot be read and is replaced" in lines[0]["event"]
    assert node.stored().spec == sample("mesh", "node-a").spec


def test_a_gpu_that_vanished_is_remembered_across_agents_of_one_boot(node: Node) -> None:
    boot(node.directory, "boot-1")
    published(node)
    agent = node.agent()
    agent.looked(without_gpu_3(node))
    agent.round()
    assert [gpu.healthy for gpu in node.stored().status.gpus] == [True, True, True, False]
    assert [event["reason"] for event in node.door.events] == ["GPULost"]


def test_a_gpu_that_is_missing_after_a_boot_is_no_longer_in_the_node(node: Node) -> None:
    boot(node.directory, "boot-1")
    published(node)
    boot(node.directory, "boot-2")
    agent = node.agent()
    agent.looked(without_gpu_3(node))
    agent.round()
    assert [gpu.uuid for gpu in node.stored().spec.gpus] == list(GPUS[:3])
    assert "GPURemoved" in [event["reason"] for event in node.door.events]


def test_deleting_the_object_makes_the_agent_forget_gpus_that_are_gone(node: Node) -> None:
    agent = published(node)
    agent.looked(without_gpu_3(node))
    node.pass_time(agent, 5)
    assert node.stored().spec.gpu_count == 4
    node.door.topologies.clear()
    node.pass_time(agent, 10)
    assert node.stored().spec.gpu_count == 3


# --- the device plugin ---


def with_hand_off(node: Node) -> AgentSettings:
    """Return the settings of an agent that hands over; kubelet is not there yet."""
    (node.directory / "p").mkdir()
    paths = {"device_plugin_dir": node.directory / "p", "cdi_dir": node.directory / "cdi", "state_dir": node.directory / "s"}
    return node.settings.model_copy(update={"hand_off": "cdi", **paths})


def test_the_device_plugin_hears_of_the_hardware_although_the_api_server_is_away(node: Node) -> None:
    """And of its failing."""
    api = ApiServer.connect(node.door.kubeconfig(node.directory))
    node.agents.append(api)
    metrics = Metrics()
    plugin = plugin_for(with_hand_off(node), api, metrics)
    assert plugin is not None
    agent = Agent(node.settings, api, metrics, Clocks(node.clock, lambda: START), plugin)
    node.door.fault = lambda _: Raw(cut=True)
    try:
        agent.looked(node.look())
        agent.round()
        assert plugin.hand_off.gpus is not None
        assert (set(plugin.hand_off.gpus.specs), plugin.hand_off.gpus.ill) == (set(GPUS), {})
        agent.looked(without_gpu_3(node))
        agent.round()
        assert set(plugin.hand_off.gpus.specs) <= set(GPUS)
    finally:
        plugin.stop()


def test_a_pod_that_was_deleted_before_anybody_saw_it_start_is_followed_by_a_later_look(node: Node) -> None:
    """Nothing has changed, and yet it is published: the extender keeps the pod's GPUs until then."""
    api, metrics = ApiServer.connect(node.door.kubeconfig(node.directory)), Metrics()
    node.agents.append(api)
    plugin = plugin_for(with_hand_off(node), api, metrics)
    assert plugin is not None
    began = START + timedelta(seconds=node.clock.now)
    agent = Agent(node.settings, api, metrics, Clocks(node.clock, lambda: START + timedelta(seconds=node.clock.now)), plugin)
    try:
        agent.looked(node.look())
        agent.round()
        plugin.pods.replace([pod("p").holding("node-a", GPUS[0]).build()])
        plugin.news.changed()
        node.pass_time(agent, 3, step=1)
        assert node.stored().status.observed_at == began
        plugin.pods.replace([])
        plugin.news.changed()
        node.pass_time(agent, 3, step=1)
        assert node.stored().status.observed_at == began + timedelta(seconds=5), "a second after the deletion was heard of"
        node.pass_time(agent, 20, step=1)
        assert node.stored().status.observed_at == began + timedelta(seconds=19), "and for clocks that differ, 15 s after it"
    finally:
        plugin.stop()


def test_a_signal_ends_the_agent_with_its_device_plugin(node: Node) -> None:
    """Sockets and threads go with it."""

    def end(call: Call) -> Raw | None:
        if call.path.endswith("/status"):
            os.kill(os.getpid(), signal.SIGTERM)
        return None

    node.door.fault = end
    settings = with_hand_off(node)
    others = set(threading.enumerate())  # of tests before this one, just ending
    run_agent(settings.model_copy(update={"kubeconfig": node.door.kubeconfig(node.directory)}))
    ours = ("pod-watch", "pod-events", "registration", "plugin-")
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith(ours) and thread not in others] == []
    assert list(settings.device_plugin_dir.glob("*.sock")) == []


@dataclass
class Parting:
    """An agent that ends while kubelet listens to it: what was told of its registration with each status, and what kubelet knew while it waited."""

    told: list[str] = field(default_factory=list)
    waited: list[tuple[float, set[str]]] = field(default_factory=list)  # seconds, and the resources that kubelet had then


def registration(node: Node) -> Condition | None:
    """Return what the stored topology tells of the registration."""
    stored = read_gputopology(node.door.topologies["node-a"]) if "node-a" in node.door.topologies else None
    return next((each for each in stored.status.conditions if each.type == HAND_OFF_REGISTERED), None) if stored is not None else None


def part(node: Node, meanwhile: Callable[[], None] = lambda: None) -> Parting:
    """Run an agent until the cluster knows that kubelet listens to it, then send it a signal; ``meanwhile`` happens while it waits for pods on their way."""
    settings, metrics = with_hand_off(node), Metrics()
    kubelet = DeviceKubelet(settings.device_plugin_dir, node.kubelet, settings.cdi_dir)
    api = ApiServer.connect(node.door.kubeconfig(node.directory))
    node.agents.append(api)
    plugin = plugin_for(settings, api, metrics)
    assert plugin is not None
    found = Parting()

    def wait(seconds: float) -> None:
        found.waited.append((seconds, set(kubelet._plugins)))
        meanwhile()

    def end() -> None:
        while (told := registration(node)) is None or told.status != "True":
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    kubelet.start()
    threading.Thread(target=end, daemon=True).start()
    try:
        Agent(settings, api, metrics, Clocks(sleep=wait), plugin).run()
    finally:
        plugin.stop()
        kubelet.stop()
    statuses = (call.body["status"] for call in node.door.calls if call.method == "PATCH" and call.path.endswith("/status"))
    found.told = [each["reason"] for status in statuses for each in status["conditions"] if each["type"] == HAND_OFF_REGISTERED]
    return found


def test_an_agent_says_that_it_ends_and_serves_on_for_a_second(node: Node) -> None:
    """Afterwards kubelet rejects for good whatever is bound here: the extender closes the node in time, and kubelet admits what was bound before."""
    found = part(node)
    assert found.told[-2:] == ["Registered", "AgentEnds"]
    assert found.waited == [(1.0, set(RESOURCES))]
    told = registration(node)
    assert told is not None
    assert (told.status, told.reason) == ("False", "AgentEnds")
    assert told.message.endswith("nobody who offers linkwise.dev/gpu-memory and nvidia.com/gpu until the next one has begun")


def test_what_the_signal_cut_off_may_land_and_is_not_the_last_word(node: Node) -> None:
    """A status without an answer takes effect while the agent waits: as the object of before, under another resourceVersion."""
    before: list[JsonObject] = []

    def keep(call: Call) -> None:
        if "AgentEnds" in str(call.body) and not before:
            before.append(copy.deepcopy(node.door.topologies["node-a"]))

    def land() -> None:
        node.door.topologies["node-a"] = {**before[0], "metadata": {**before[0]["metadata"], "resourceVersion": "99"}}

    node.door.fault = keep
    assert part(node, land).told[-3:] == ["Registered", "AgentEnds", "AgentEnds"]
    told = registration(node)
    assert told is not None
    assert told.reason == "AgentEnds"


def test_an_agent_ends_although_the_api_server_does_not_hear_of_it(node: Node) -> None:
    """It says so, and goes."""
    node.door.fault = lambda call: Raw(cut=True) if "AgentEnds" in str(call.body) else None
    with capture_logs() as lines:
        assert part(node).waited == []
    (line,) = (line for line in lines if line["event"] == "the API server did not take it that the agent ends")
    assert "/status" in line["why"]


def test_an_agent_that_the_cluster_does_not_take_for_registered_ends_without_a_word(node: Node) -> None:
    """Kubelet is not there: the node is closed already."""
    ended: list[Call] = []

    def end(call: Call) -> None:
        if call.path.endswith("/status"):
            ended.append(call)
            if len(ended) == 1:
                os.kill(os.getpid(), signal.SIGTERM)

    node.door.fault = end
    run_agent(with_hand_off(node).model_copy(update={"kubeconfig": node.door.kubeconfig(node.directory)}))
    assert len(ended) == 1


def test_an_agent_closes_the_node_before_its_first_look_where_the_one_before_was_killed(node: Node) -> None:
    """What is stored says that kubelet knows it; all else of that is left as it was."""
    published(node)
    stored = node.door.topologies["node-a"]
    stored["status"]["conditions"].append({"type": HAND_OFF_REGISTERED, "status": "True", "reason": "Registered", "message": "by the one before"})
    before = node.stored()
    api = ApiServer.connect(node.door.kubeconfig(node.directory))
    node.agents.append(api)
    plugin = plugin_for(with_hand_off(node), api, Metrics())
    assert plugin is not None
    writes = len(node.door.writes())
    try:
        Agent(node.settings, api, Metrics(), Clocks(node.clock, lambda: START), plugin).round()
    finally:
        plugin.stop()
    told = registration(node)
    assert told is not None
    assert told.reason == "NotRegistered"
    assert node.door.writes()[writes:] == ["status"]
    assert with_hand_off_told(node.stored(), ()).status == with_hand_off_told(before, ()).status


# --- the process ---


def test_health_tells_a_hanging_agent_from_a_working_one(node: Node) -> None:
    agent = published(node)
    assert agent.ill() == "nobody looks at the hardware: its thread has ended"
    node.clock.now += 61
    assert agent.ill() == "the agent hangs: its last round began 61 s ago"


CUT_OFF = "Failed to initialize NVML: Unknown Error"  # as in a container whose device files systemd took away


def failing(said: str) -> Look:
    """Return a look at which nvidia-smi said nothing but this."""
    return Look(None, failure_in(said, 255), 0.1)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(CUT_OFF, id="device files are gone"),
        pytest.param("Failed to initialize NVML: Driver/library version mismatch", id="the node has another driver now"),
    ],
)
def test_an_agent_whose_container_has_lost_the_driver_calls_itself_ill(node: Node, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """On the node nvidia-smi works: all GPUs would be unhealthy until somebody thought of making a new container."""
    agent = published(node)
    monkeypatch.setattr(agent._prober, "alive", lambda: True)
    agent.looked(failing(said))
    node.pass_time(agent, 60, step=30)
    agent.looked(failing(said))
    assert agent.ill() == "", "a driver that is being replaced looks the same for some seconds"
    node.pass_time(agent, 5)
    assert "nvidia-smi worked in this container and reaches the driver no more" in agent.ill()
    agent.looked(node.look())
    assert agent.ill() == ""


@pytest.mark.parametrize(
    ("has_seen", "said"),
    [
        pytest.param(False, CUT_OFF, id="nvidia-smi never worked here, so a restart would be one of many"),
        pytest.param(True, "Failed to initialize NVML: Driver Not Loaded", id="the node has no driver"),
        pytest.param(True, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", id="the driver does not answer"),
        pytest.param(True, "No devices were found", id="all GPUs are lost"),
    ],
)
def test_a_driver_that_fails_on_the_node_makes_no_agent_ill(node: Node, monkeypatch: pytest.MonkeyPatch, has_seen: bool, said: str) -> None:
    """It is told in the topology, and mended by no restart."""
    agent = published(node) if has_seen else node.agent()
    monkeypatch.setattr(agent._prober, "alive", lambda: True)
    agent.looked(failing(said))
    node.pass_time(agent, 120, step=30)
    assert agent.ill() == ""


def test_a_signal_ends_the_agent_in_the_middle_of_a_call(node: Node) -> None:
    """As kubelet sends it; the handlers of before are in place again afterwards."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    def end(call: Call) -> Raw | None:
        if call.path.endswith("/status"):
            os.kill(os.getpid(), signal.SIGTERM)
        return None

    node.door.fault = end
    run_agent(node.settings.model_copy(update={"kubeconfig": node.door.kubeconfig(node.directory)}))
    assert node.stored().spec == sample("mesh", "node-a").spec
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_kubeconfig_that_leads_nowhere_is_told_before_anything_starts(node: Node) -> None:
    with pytest.raises(InputError, match="kubeconfig /does/not/exist cannot be used"):
        run_agent(node.settings.model_copy(update={"kubeconfig": Path("/does/not/exist")}))
