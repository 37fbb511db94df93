"""Who holds which GPU is what was given, not what kubelet's ids say, and ends with the containers."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.builders import pod
from tests.hand_off_node import NODE, HandOffNode, hand_off_node
from topology.agent.handoff.checkpoint import FILE_NAME
from topology.agent.handoff.observing import HeldGpus
from topology.agent.holders import Observation
from topology.api import GpuHolder, GpuStatus

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandOffNode]:
    with hand_off_node(tmp_path_factory.mktemp("n")) as node:
        yield node


@pytest.fixture
def gpus(node: HandOffNode) -> list[str]:
    return [gpu.uuid for gpu in node.topology.spec.gpus]


def held(node: HandOffNode) -> HeldGpus:
    assert node.plugin is not None
    return node.plugin.held


def seen(node: HandOffNode, now: datetime = NOW) -> Observation:
    """Ask once, with the cache of pods as the API server is."""
    node.catch_up()
    held(node).ask(now)
    return held(node).observation((gpu.uuid for gpu in node.topology.spec.gpus), {})


def names(observation: Observation) -> dict[str, list[str]]:
    return {uuid: [one.name for one in holders] for uuid, holders in observation.holders.items()}


def test_the_gpu_that_was_given_is_held_whatever_kubelet_s_id_was(node: HandOffNode, gpus: list[str]) -> None:
    """With pod, UID and container, and that it was planned."""
    node.start_agent()
    raw = node.bind(pod("p").holding(NODE, gpus[2]))
    assert names(seen(node)) == {}, "nothing has started"
    node.run(raw)
    observation = seen(node)
    uid = raw["metadata"]["uid"]
    assert observation.holders == {gpus[2]: (GpuHolder(namespace="default", name="p", container="main", uid=uid, planned=True),)}
    assert (observation.at, observation.condition.status, observation.condition.reason) == (NOW, "True", "HandOff")


def test_a_share_is_told_with_its_memory_and_one_from_around_as_not_planned(node: HandOffNode, gpus: list[str]) -> None:
    """In MiB, as it is charged."""
    node.start_agent()
    node.run(node.bind(pod("a").shared(2).sharing(NODE, {gpus[1]: 2048})))
    node.run(node.bind(pod("b").shared(3).bound_to(NODE)))
    found = {(one.name, one.memory_mib, one.planned) for holders in seen(node).holders.values() for one in holders}
    assert found == {("a", 2048, True), ("b", 3072, False)}


def test_a_container_that_is_gone_holds_nothing_at_the_next_look(node: HandOffNode, gpus: list[str]) -> None:
    """Without waiting for the garbage to be collected; its record goes."""
    node.start_agent()
    raw = node.bind(pod("p").holding(NODE, gpus[0]))
    node.run(raw)
    assert names(seen(node)) == {gpus[0]: ["p"]}
    assert not held(node).expects_change
    node.delete(raw)
    assert names(seen(node, LATER)) == {}
    assert node.records() == []


def test_containers_of_a_pod_that_was_deleted_by_force_hold_until_they_have_ended(node: HandOffNode, gpus: list[str]) -> None:
    """The kernel tells; and the next look should come soon."""
    node.start_agent()
    raw = node.bind(pod("p").holding(NODE, gpus[0]))
    node.run(raw)
    uid = raw["metadata"]["uid"]
    processes = node.settings.cgroup_root / "pids" / "kubepods" / f"pod{uid}" / "cgroup.procs"
    processes.parent.mkdir(parents=True)
    processes.write_text("4711\n")
    node.kubelet.force_delete(uid)
    node.door.pods.clear()
    assert names(seen(node)) == {gpus[0]: ["p"]}
    assert held(node).expects_change
    processes.write_text("")
    assert names(seen(node, LATER)) == {}
    assert not held(node).expects_change


def test_while_the_checkpoint_cannot_be_read_the_holders_are_those_last_seen(node: HandOffNode, gpus: list[str]) -> None:
    """And so is the time: nobody may conclude that anything is free since."""
    node.start_agent()
    node.run(node.bind(pod("p").holding(NODE, gpus[0])))
    before = seen(node)
    (node.settings.device_plugin_dir / FILE_NAME).write_text("{")
    after = seen(node, LATER)
    assert (after.holders, after.at) == (before.holders, NOW)
    assert (after.condition.status, after.condition.reason) == ("False", "RecordsUnknown")
    assert "the holders are those last seen" in after.condition.message


def test_an_agent_begins_with_what_the_last_one_published(node: HandOffNode, gpus: list[str]) -> None:
    """Until it has looked itself."""
    node.start_agent()
    assert held(node).observation(gpus, {}).condition.reason == "NotAsked"
    holder = GpuHolder(namespace="default", name="p", container="main", uid="uid-p")
    statuses = tuple(GpuStatus(uuid=uuid, holders=(holder,) if uuid == gpus[1] else ()) for uuid in gpus)
    status = node.topology.status.model_copy(update={"observed_at": NOW, "holders_observed": True, "gpus": statuses})
    held(node).remember(node.topology.model_copy(update={"status": status}))
    remembered = held(node).observation(gpus, {})
    assert (remembered.at, remembered.holders) == (NOW, {gpus[1]: (holder,)})
    assert names(seen(node, LATER)) == {}
