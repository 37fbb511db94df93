"""A failure takes GPUs out of use and leaves the hardware as it was; conditions change their time only with their status."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from extender.sample_machines import MESH, sample
from tests.stand_in import write_nvidia_smi, write_sysfs
from topology.agent.holders import HOLDERS_OBSERVED, Observation
from topology.agent.probe import look
from topology.agent.prober import Look
from topology.agent.publication import Facts
from topology.agent.recall import Earlier
from topology.agent.settings import AgentSettings
from topology.agent.wanted import wanted, with_holders, with_transitions
from topology.api import Condition, GpuHolder, GPUTopology
from topology.errors import InternalError, LinkwiseError, NvidiaSmiError, NvidiaSmiFailure, TopologyError
from topology.inventory import Inventory

NOW = datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC)
LATER = NOW + timedelta(seconds=30)
GPUS = MESH.uuids("node-a")
HOLDER = GpuHolder(namespace="ml", name="train", container="main")
ANSWERS = Condition(type=HOLDERS_OBSERVED, status="True", reason="KubeletAnswers")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    directory = tmp_path_factory.mktemp("mesh")
    settings = AgentSettings(node_name="node-a", nvidia_smi=str(write_nvidia_smi(directory, MESH)), sysfs_root=write_sysfs(directory, MESH))
    return look(settings)


def good(facts: Facts) -> Look:
    return Look(facts, None, 1.0)


def failed(error: LinkwiseError) -> Look:
    return Look(None, error, 1.0)


def described(facts: Facts) -> GPUTopology:
    topology, error = wanted("node-a", good(facts), None, NOW)
    assert topology is not None
    assert error is None
    return topology


def condition(topology: GPUTopology, kind: str) -> Condition:
    return next(found for found in topology.status.conditions if found.type == kind)


def test_a_good_look_is_published_as_it_is(facts: Facts) -> None:
    assert described(facts).spec == sample("mesh", "node-a").spec


def test_a_node_that_was_never_described_gets_nothing_from_a_failure() -> None:
    error = NvidiaSmiError(NvidiaSmiFailure.NO_DRIVER, "the driver is not loaded")
    assert wanted("node-a", failed(error), None, NOW) == (None, error)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        *(pytest.param(NvidiaSmiError(kind, "it fails"), None, id=kind.value) for kind in NvidiaSmiFailure),
        pytest.param(NvidiaSmiError(NvidiaSmiFailure.DRIVER_MISMATCH, "it fails"), "DriverMismatch", id="a driver of another version"),
        pytest.param(NvidiaSmiError(NvidiaSmiFailure.NO_DEVICES, "it fails"), "NoDevices", id="no GPUs any more"),
        pytest.param(TopologyError("it fails"), "NotPublishable", id="GPUs that nobody could be given"),
        pytest.param(InternalError("it fails"), "ProbeFailed", id="a bug of ours"),
    ],
)
def test_a_failure_closes_the_node_and_keeps_its_hardware(facts: Facts, error: LinkwiseError, reason: str | None) -> None:
    before = described(facts)
    topology, told = wanted("node-a", failed(error), Earlier(before, same_boot=True), LATER)
    assert topology is not None
    assert told is error
    assert topology.spec == before.spec
    assert [(gpu.uuid, gpu.healthy, gpu.reason) for gpu in topology.status.gpus] == [(uuid, False, "it fails") for uuid in GPUS]
    ready = condition(topology, "DriverReady")
    assert (ready.status, ready.message) == ("False", "it fails")
    assert ready.reason == reason or reason is None
    assert ready.reason.isalnum()
    assert ready.reason[0].isupper()
    assert condition(topology, "GPUsHealthy").status == "False"
    assert condition(topology, "LinksKnown") == condition(before, "LinksKnown"), "the links are what they were"
    assert len({found.type for found in topology.status.conditions}) == len(topology.status.conditions)


def test_a_look_that_describes_no_node_is_a_failure_too(facts: Facts) -> None:
    nameless = replace(facts, inventory=Inventory(tuple(replace(gpu, uuid=None) for gpu in facts.inventory.gpus)))
    topology, error = wanted("node-a", good(nameless), Earlier(described(facts), same_boot=False), LATER)
    assert topology is not None
    assert condition(topology, "DriverReady").reason == "NotPublishable"
    assert "nvidia-smi shows no UUID" in str(error)


def test_after_a_failure_a_good_look_is_as_if_nothing_had_been(facts: Facts) -> None:
    before = described(facts)
    broken, _ = wanted("node-a", failed(InternalError("it fails")), Earlier(before, same_boot=True), LATER)
    assert broken is not None
    again, error = wanted("node-a", good(facts), Earlier(broken, same_boot=True), NOW)
    assert (again, error) == (before, None)


def test_a_gpu_is_free_when_it_is_healthy_and_nobody_holds_it(facts: Facts) -> None:
    topology = with_holders(described(facts), Observation(True, {GPUS[1]: (HOLDER,)}, ANSWERS), LATER)
    assert [gpu.holders for gpu in topology.status.gpus] == [(), (HOLDER,), (), ()]
    assert (topology.status.holders_observed, topology.status.free_gpus) == (True, 3)
    assert topology.status.observed_at == LATER.replace(microsecond=0)
    assert condition(topology, HOLDERS_OBSERVED).reason == "KubeletAnswers"
    again = with_holders(topology, Observation(True, {}, ANSWERS), LATER)
    assert (again.status.free_gpus, len(again.status.conditions)) == (4, len(topology.status.conditions))


def test_nobody_says_how_many_are_free_when_nobody_knows_the_holders(facts: Facts) -> None:
    absent = Condition(type=HOLDERS_OBSERVED, status="False", reason="SocketAbsent")
    topology = with_holders(described(facts), Observation(False, {}, absent), NOW)
    assert (topology.status.holders_observed, topology.status.free_gpus) == (False, None)


def test_unhealthy_gpus_are_not_free(facts: Facts) -> None:
    broken, _ = wanted("node-a", failed(InternalError("it fails")), Earlier(described(facts), same_boot=True), NOW)
    assert broken is not None
    assert with_holders(broken, Observation(True, {}, ANSWERS), NOW).status.free_gpus == 0


def test_a_condition_keeps_its_time_until_its_status_changes(facts: Facts) -> None:
    first = with_transitions(with_holders(described(facts), Observation(True, {}, ANSWERS), NOW), None)
    second = with_transitions(with_holders(described(facts), Observation(True, {}, ANSWERS), LATER), first)
    assert {found.last_transition_time for found in second.status.conditions} == {NOW.replace(microsecond=0)}
    silent = Condition(type=HOLDERS_OBSERVED, status="False", reason="ListFailed")
    third = with_transitions(with_holders(described(facts), Observation(True, {}, silent), LATER), second)
    times = {found.type: found.last_transition_time for found in third.status.conditions}
    assert times.pop(HOLDERS_OBSERVED) == LATER.replace(microsecond=0)
    assert set(times.values()) == {NOW.replace(microsecond=0)}
