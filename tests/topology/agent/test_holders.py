"""A GPU counts as held until kubelet has left its holder out twice in a row; nothing else frees one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.sample_machines import MESH, sample
from topology.agent.holders import Holders, Observation, gpu_of, mig_parents
from topology.agent.pod_resources import Claim, PodResourcesError
from topology.api import GpuHolder, GPUTopology
from topology.inventory import Gpu, Inventory, MigInstance

SOCKET = Path("/run/kubelet.sock")
GPUS = MESH.uuids("node-a")
MIG = "MIG-11111111-2222-3333-4444-555555555555"
SILENT = PodResourcesError("kubelet does not answer")
ABSENT = PodResourcesError("kubelet's socket does not exist", absent=True)

Answer = frozenset[Claim] | PodResourcesError


def claim(device: str, pod: str = "train", resource: str = "nvidia.com/gpu", container: str = "main") -> Claim:
    return Claim("ml", pod, container, resource, device)


def held(observation: Observation) -> dict[str, list[str]]:
    return {uuid: [holder.name for holder in found] for uuid, found in observation.holders.items()}


def after(*answers: Answer, published: GPUTopology | None = None) -> Observation:
    """Return what is known after kubelet gave these answers."""
    waiting = list(answers)

    def ask(_: Path) -> frozenset[Claim]:
        answer = waiting.pop(0)
        if isinstance(answer, PodResourcesError):
            raise answer
        return answer

    holders = Holders(SOCKET, "nvidia.com/gpu", ask)
    if published is not None:
        holders.remember(published)
    for _ in answers:
        holders.ask()
    return holders.observation(GPUS, {MIG: GPUS[3]})


def listed(*claims: Claim) -> frozenset[Claim]:
    return frozenset(claims)


@pytest.mark.parametrize(
    ("device", "gpu"),
    [
        pytest.param(GPUS[0], 0, id="a whole GPU"),
        pytest.param(f"{GPUS[1]}::3", 1, id="a time slice of NVIDIA's plugin"),
        pytest.param(f"{GPUS[1]}-7", 1, id="a replica of HAMi"),
        pytest.param(MIG, 3, id="a MIG device"),
        pytest.param(f"{MIG}::0", 3, id="a time slice of a MIG device"),
        pytest.param(f"MIG-{GPUS[2]}/1/0", 2, id="a MIG device of drivers before 470"),
        pytest.param("MIG-99999999-2222-3333-4444-555555555555", None, id="a MIG device that is not listed"),
        pytest.param("GPU-99999999-2222-3333-4444-555555555555", None, id="a GPU of another node"),
        pytest.param(f"{GPUS[0]}0", None, id="a UUID with a digit too many"),
        pytest.param("0", None, id="an index"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_device_ids_stand_for_gpus(device: str, gpu: int | None) -> None:
    assert gpu_of(device, frozenset(GPUS), {MIG: GPUS[3]}) == (None if gpu is None else GPUS[gpu])


@given(st.text())
def test_no_device_id_is_more_than_unknown(device: str) -> None:
    assert gpu_of(device, frozenset(GPUS), {}) is None


def test_mig_devices_belong_to_the_gpu_that_lists_them() -> None:
    gpus = (
        Gpu(index=0, uuid=GPUS[0], mig_instances=(MigInstance(0, "3g.20gb", MIG), MigInstance(1, "3g.20gb", None))),
        Gpu(mig_instances=(MigInstance(0, "1g", "x"),)),
    )
    assert mig_parents(Inventory(gpus)) == {MIG: GPUS[0]}


def test_every_holder_of_a_gpu_is_named_once_and_in_order() -> None:
    claims = listed(claim(f"{GPUS[0]}::1", "b"), claim(f"{GPUS[0]}::0", "a"), claim(f"{GPUS[0]}::2", "a"), claim(GPUS[0], "a", container="side"))
    observation = after(claims)
    assert observation.holders[GPUS[0]] == (
        GpuHolder(namespace="ml", name="a", container="main"),
        GpuHolder(namespace="ml", name="a", container="side"),
        GpuHolder(namespace="ml", name="b", container="main"),
    )
    assert (observation.observed, observation.condition.status, observation.condition.reason) == (True, "True", "KubeletAnswers")


def test_gpus_held_through_another_resource_count_and_other_devices_do_not() -> None:
    observation = after(
        listed(claim(MIG, "a", "nvidia.com/mig-3g.20gb"), claim("mlx5_0", "b", "vendor.com/nic"), claim("7", "c", "linkwise.dev/gpu-memory"))
    )
    assert held(observation) == {GPUS[3]: ["a"]}
    assert observation.condition.status == "True"


def test_devices_that_are_no_gpus_of_this_node_are_named() -> None:
    strange = [claim(f"gpu-{n}", f"pod-{n}") for n in range(6)]
    observation = after(listed(claim(GPUS[0]), *strange, claim("GPU-of-elsewhere", "z", "example.com/gpu")))
    assert held(observation) == {GPUS[0]: ["train"]}
    assert (observation.observed, observation.condition.status, observation.condition.reason) == (True, "False", "UnknownDevices")
    assert "nvidia.com/gpu gpu-0 of pod ml/pod-0" in observation.condition.message
    assert observation.condition.message.endswith("and 3 more")


def test_before_the_first_answer_nobody_knows_anything() -> None:
    assert (after().observed, after().condition.reason) == (False, "NotAsked")
    for error, reason in ((ABSENT, "SocketAbsent"), (SILENT, "ListFailed")):
        observation = after(error)
        assert (observation.observed, held(observation), observation.condition.reason) == (False, {}, reason)
        assert observation.condition.message == f"{error}; nobody knows who holds which GPU"


@pytest.mark.parametrize("error", [SILENT, ABSENT], ids=["it fails", "its socket is gone"])
def test_while_kubelet_is_silent_the_holders_are_those_last_seen(error: PodResourcesError) -> None:
    observation = after(listed(claim(GPUS[0])), error, error, error)
    assert (observation.observed, held(observation)) == (True, {GPUS[0]: ["train"]})
    assert observation.condition.status == "False"
    assert observation.condition.message.endswith("; the holders are those last seen")


def test_one_answer_without_a_holder_frees_nothing() -> None:
    """A kubelet that has just started may list no pods, though their containers run."""
    assert held(after(listed(claim(GPUS[0])), listed())) == {GPUS[0]: ["train"]}
    assert held(after(listed(claim(GPUS[0])), listed(), listed(claim(GPUS[0])), listed())) == {GPUS[0]: ["train"]}
    assert held(after(listed(claim(GPUS[0])), listed(), listed())) == {}


def test_silence_between_two_answers_is_no_answer() -> None:
    assert held(after(listed(claim(GPUS[0])), listed(), SILENT, SILENT)) == {GPUS[0]: ["train"]}
    assert held(after(listed(claim(GPUS[0])), SILENT, listed(), SILENT, listed())) == {}


def test_what_an_earlier_agent_published_counts_like_an_answer() -> None:
    before = sample("mesh", "node-a")
    holder = GpuHolder(namespace="ml", name="train", container="main")
    gpus = tuple(gpu.model_copy(update={"holders": (holder,)}) if i == 1 else gpu for i, gpu in enumerate(before.status.gpus))
    published = before.model_copy(update={"status": before.status.model_copy(update={"gpus": gpus, "holders_observed": True})})
    assert after(SILENT, published=published).holders == {GPUS[1]: (holder,)}
    assert held(after(listed(), published=published)) == {GPUS[1]: ["train"]}
    assert held(after(listed(), listed(), published=published)) == {}
    unobserved = before.model_copy(update={"status": before.status.model_copy(update={"gpus": gpus, "holders_observed": False})})
    assert (after(SILENT, published=unobserved).observed, held(after(listed(), published=unobserved))) == (False, {})


answers = st.one_of(st.just(SILENT), st.frozensets(st.sampled_from([claim(uuid, pod) for uuid in GPUS for pod in ("a", "b")])))


@given(st.lists(answers, max_size=8))
def test_what_is_held_is_what_the_last_two_answers_name(given_answers: list[Answer]) -> None:
    observation = after(*given_answers)
    told = [answer for answer in given_answers if not isinstance(answer, PodResourcesError)][-2:]
    expected = {(one.device, one.pod) for answer in told for one in answer}
    assert {(uuid, name) for uuid, names in held(observation).items() for name in names} == expected
    assert observation.observed == bool(told)
    assert (observation.condition.status == "True") == (bool(given_answers) and given_answers[-1] is not SILENT)
