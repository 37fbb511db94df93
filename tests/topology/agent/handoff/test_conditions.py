"""What the hand-off tells in the node's conditions: whether kubelet knows it, and whether GPUs lie where kubelet aligns CPUs to."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.sample_machines import sample
from tests.builders import pod
from tests.hand_off_node import NODE, HandOffNode, hand_off_node
from topology.agent.handoff.conditions import numa_condition, registration_condition
from topology.agent.handoff.holding import Container, Holding, Kind, Part
from topology.agent.handoff.node_gpus import NodeGpus
from topology.agent.handoff.plugin import DevicePlugin, plugin_for
from topology.agent.handoff.records import Record
from topology.agent.pod_resources import list_aligned
from topology.agent.wanted import with_hand_off
from topology.api import HAND_OFF_REGISTERED, NUMA_ALIGNED

GPU, MEMORY = "nvidia.com/gpu", "linkwise.dev/gpu-memory"
TOPOLOGY = sample("dgx1v", "node-a")  # GPUs 0 to 3 on NUMA node 0, 4 to 7 on 1
UUIDS = [gpu.uuid for gpu in TOPOLOGY.spec.gpus]
GPUS = NodeGpus(TOPOLOGY, 0, {})


def record(name: str, ids: list[str], gpus: list[int] | None) -> Record:
    """Return the record of a pod's container with those ids, which holds those GPUs, None: it has not started."""
    holding = None if gpus is None else Holding(name, "default", name, Container("main", Kind.APP, 0), tuple(Part(UUIDS[gpu]) for gpu in gpus))
    return Record(f"t-{name}", GPU, frozenset(ids), 1, 0.0, holding)


@pytest.mark.parametrize(
    ("unheard", "other", "status", "reason", "words"),
    [
        pytest.param([], None, "True", "Registered", "linkwise.dev/gpu-memory and nvidia.com/gpu", id="kubelet listens to both"),
        pytest.param([GPU], None, "False", "NotRegistered", "does not know the agent's device plugin for nvidia.com/gpu", id="not to one"),
        pytest.param([GPU], Path("/p/nvidia-gpu.sock"), "False", "AnotherPlugin", "serves /p/nvidia-gpu.sock", id="NVIDIA's plugin is in the way"),
        pytest.param([], Path("/p/nvidia-gpu.sock"), "True", "Registered", "nvidia.com/gpu", id="NVIDIA's plugin has come later"),
    ],
)
def test_the_registration_is_told_with_what_is_in_its_way(unheard: list[str], other: Path | None, status: str, reason: str, words: str) -> None:
    """Until kubelet listens to every resource it is False, and the sentence says what to do or to look for."""
    found = registration_condition([GPU, MEMORY], unheard, other)
    assert (found.type, found.status, found.reason) == (HAND_OFF_REGISTERED, status, reason)
    assert words in found.message


@pytest.mark.parametrize(
    ("records", "words"),
    [
        pytest.param([], None, id="nobody"),
        pytest.param([record("a", UUIDS[:2], [2, 3])], None, id="other GPUs of the same NUMA node"),
        pytest.param([record("a", UUIDS[:2], None)], None, id="not started"),
        pytest.param([record("a", ["0", "1"], [4])], None, id="a part of a GPU: ids name no NUMA node"),
        pytest.param([record("a", UUIDS[:1], [4])], "main of pod default/a (GPUs on NUMA node 1, kubelet's ids on 0)", id="elsewhere"),
        pytest.param([record("a", UUIDS[:2], [1, 5])], "(GPUs on NUMA node 0, 1, kubelet's ids on 0)", id="partly elsewhere"),
        pytest.param(
            [record(name, UUIDS[:1], [4]) for name in "fedcba"], "pod default/d (GPUs on NUMA node 1, kubelet's ids on 0) and 2 more", id="six"
        ),
    ],
)
def test_gpus_on_other_numa_nodes_than_kubelets_ids_are_told_by_container(records: list[Record], words: str | None) -> None:
    """True with a plain sentence, or False with the first containers by name and how many more there are."""
    found = numa_condition(records, GPUS, lambda: [("default", name, "main") for name in "abcdef"])
    assert (found.type, found.status) == (NUMA_ALIGNED, "True" if words is None else "False")
    assert words is None or found.message.endswith(words)


def test_before_the_first_look_nothing_is_said_to_differ() -> None:
    """Which NUMA node a GPU is on is not known then."""
    assert numa_condition([record("a", UUIDS[:1], [4])], None, list).status == "True"


def test_where_kubelet_aligns_nothing_nothing_is_far_away() -> None:
    """Without static policies of CPU and memory no container is told to be misaligned, and the sentence says how things are."""
    found = numa_condition([record(name, UUIDS[:1], [4]) for name in "ab"], GPUS, lambda: [("default", "other", "main"), ("other", "a", "main")])
    assert (found.status, found.reason) == ("True", "NothingAligned")
    assert found.message.startswith("2 containers have GPUs on other NUMA nodes than kubelet's ids, and nothing is far away by that")


def test_of_several_that_differ_those_are_told_that_have_something_to_lose() -> None:
    """The other one runs wherever the kernel lets it."""
    found = numa_condition([record(name, UUIDS[:1], [4]) for name in "ab"], GPUS, lambda: [("default", "b", "main")])
    assert (found.status, found.reason) == ("False", "GPUsElsewhere")
    assert "pod default/b" in found.message
    assert "pod default/a" not in found.message


def test_a_kubelet_that_does_not_answer_leaves_it_open(tmp_path: Path) -> None:
    """Neither good nor bad is said, but why it is not known."""
    found = numa_condition([record("a", UUIDS[:1], [4])], GPUS, lambda: list_aligned(tmp_path / "none.sock", [GPU]))
    assert (found.status, found.reason) == ("Unknown", "KubeletSilent")
    assert "1 container has GPUs on other NUMA nodes" in found.message
    assert f"kubelet's socket {tmp_path / 'none.sock'} does not exist" in found.message


def test_a_topology_tells_of_the_hand_off_only_while_it_is_on() -> None:
    """Also where the driver fails and the rest of the conditions is that of the last good look."""
    conditions = (registration_condition([GPU], [GPU], None), numa_condition([], GPUS, list))
    on = with_hand_off(with_hand_off(TOPOLOGY, conditions), conditions)
    assert [one.type for one in on.status.conditions if one.type in (HAND_OFF_REGISTERED, NUMA_ALIGNED)] == [HAND_OFF_REGISTERED, NUMA_ALIGNED]
    assert with_hand_off(on, ()) == with_hand_off(TOPOLOGY, ())


# --- as the agent tells them ----------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandOffNode]:
    """Have a node on which each GPU is on a NUMA node of its own."""
    with hand_off_node(tmp_path_factory.mktemp("n")) as node:
        yield node


def begun(node: HandOffNode) -> DevicePlugin:
    """Return the plugin of an agent that has not looked at the hardware yet."""
    plugin = plugin_for(node.settings, node.api, node.metrics)
    assert plugin is not None
    node.plugin = plugin
    return plugin


def wait_told(plugin: DevicePlugin, status: str, reason: str) -> None:
    """Let other threads come to it that the agent would publish that of its registration."""

    def told() -> tuple[str, str]:
        registered, _ = plugin.conditions()
        return registered.status, registered.reason

    deadline, pause = time.monotonic() + 10, threading.Event()
    while told() != (status, reason):
        assert time.monotonic() < deadline, told()
        pause.wait(0.005)


def test_whether_kubelet_listens_is_told_as_it_changes(node: HandOffNode) -> None:
    """By a round at once, without waiting for the next heartbeat: the extender waits for it with the startup taint."""
    plugin = begun(node)
    wait_told(plugin, "False", "NotRegistered")
    heard = threading.Event()
    plugin.news.heard = heard.set
    plugin.node_is(node.topology, {})
    wait_told(plugin, "True", "Registered")
    assert heard.wait(5)
    node.kubelet.stop()
    wait_told(plugin, "False", "NotRegistered")
    node.kubelet.start()
    wait_told(plugin, "True", "Registered")


def test_another_device_plugin_is_told_while_it_is_in_the_way(node: HandOffNode) -> None:
    """And not once it is gone, although its socket's file is left."""
    plugin = begun(node)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(node.settings.device_plugin_dir / "nvidia-gpu.sock"))
        other.listen()
        plugin.node_is(node.topology, {})
        wait_told(plugin, "False", "AnotherPlugin")
    wait_told(plugin, "True", "Registered")


def test_a_container_whose_gpus_are_elsewhere_is_told_while_it_is_there(node: HandOffNode) -> None:
    """This kubelet takes other ids than it was asked to; the event on the pod says the same."""
    gpus = [gpu.uuid for gpu in node.topology.spec.gpus]
    plugin = node.start_agent()
    node.kubelet.stubborn = True
    raw = node.bind(pod("train").holding(NODE, gpus[1], gpus[2]))
    node.catch_up()
    node.run(raw)
    _, aligned = plugin.conditions()
    assert (aligned.status, aligned.reason) == ("False", "GPUsElsewhere")
    assert "container main of pod default/train (GPUs on NUMA node 1, 2, kubelet's ids on 0, 3)" in aligned.message
    ((reason, message),) = node.events()
    assert reason == "NUMANodeDiffers"
    assert message.startswith("container main has its GPUs on NUMA node 1, 2, kubelet's ids on 0, 3: ")
    node.delete(raw)
    node.catch_up()
    plugin.held.holdings()
    assert plugin.conditions()[1].status == "True"
