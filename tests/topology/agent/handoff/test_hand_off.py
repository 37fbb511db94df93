"""A container gets exactly the GPUs of its pod's allocation, or does not start."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api_door import Raw
from tests.builders import pod
from tests.device_kubelet import AdmissionError, Given, JsonObject, StartError
from tests.hand_off_node import GPU, MEMORY, NODE, HandOffNode, hand_off_node
from topology.agent.handoff import faults
from topology.api import AllocatedGpu, Allocation


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandOffNode]:
    with hand_off_node(tmp_path_factory.mktemp("n")) as node:
        node.start_agent()
        yield node


@pytest.fixture
def gpus(node: HandOffNode) -> list[str]:
    return [gpu.uuid for gpu in node.topology.spec.gpus]


def allocation(node_name: str = NODE, **containers: list[str]) -> str:
    """Return an allocation of whole GPUs by container."""
    return Allocation(
        node=node_name, containers={name: tuple(AllocatedGpu(uuid=uuid) for uuid in uuids) for name, uuids in containers.items()}
    ).encode()


def lose(node: HandOffNode, *lost: str) -> None:
    """Let the agent see GPUs lost, and kubelet hear of it."""
    status = node.topology.status
    gpus = tuple(gpu.model_copy(update={"healthy": gpu.uuid not in lost, "reason": "it fell off the bus"}) for gpu in status.gpus)
    node.see(node.topology.model_copy(update={"status": status.model_copy(update={"gpus": gpus})}))
    node.wait_for_devices()


# --- what it gets ---


def test_a_container_sees_the_gpus_of_its_plan_whatever_kubelet_took(node: HandOffNode, gpus: list[str]) -> None:
    """And the difference is counted."""
    node.kubelet.stubborn = True
    raw = node.bind(pod("train").holding(NODE, gpus[1], gpus[2]))
    node.catch_up()
    assert node.run(raw) == {"main": {gpus[1], gpus[2]}}
    assert node.kubelet.given[raw["metadata"]["uid"], "main", GPU].ids == {gpus[0], gpus[3]}
    assert node.count("container_starts", ids="corrected") == 1


def test_a_container_finds_its_gpus_in_environment_and_file(node: HandOffNode, gpus: list[str]) -> None:
    """With links, NUMA nodes and the ring."""
    raw = node.bind(pod("train").holding(NODE, gpus[3], gpus[1]))
    node.run(raw)
    uid = raw["metadata"]["uid"]
    env = node.kubelet.environment(uid, "main")
    assert env == {"NVIDIA_VISIBLE_DEVICES": f"{gpus[1]},{gpus[3]}", "LINKWISE_RING": f"{gpus[1]},{gpus[3]}"}
    edits = node.kubelet.spec_of(node.kubelet.given[uid, "main", GPU].answer.cdi_devices[0].name)
    assert edits is not None
    (mount,) = edits["mounts"]
    told = json.loads((Path(mount["hostPath"]) / "allocation.json").read_text())
    assert mount["containerPath"] == "/run/linkwise"
    assert [one["uuid"] for one in told["gpus"]] == [gpus[1], gpus[3]]
    assert told["links"] == [["X", node.topology.spec.links.gpus[1][3]], [node.topology.spec.links.gpus[3][1], "X"]]
    assert (told["pod"], told["container"], told["planned"], told["numaNode"]) == ("train", "main", True, None)


def test_a_share_comes_with_its_limits(node: HandOffNode, gpus: list[str]) -> None:
    """For MPS, for HAMi-core, and for the program."""
    raw = node.bind(pod("part").shared(9).annotated(gpu_count="2").sharing(NODE, {gpus[2]: 4608, gpus[0]: 4608}))
    assert node.run(raw) == {"main": {gpus[0], gpus[2]}}
    env = node.kubelet.environment(raw["metadata"]["uid"], "main", MEMORY)
    assert env["LINKWISE_GPU_MEMORY_MIB"] == "4608"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4608M,1=4608M"
    assert (env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["CUDA_DEVICE_MEMORY_LIMIT_1"]) == ("4608m", "4608m")


def test_containers_of_one_pod_get_their_own_parts(node: HandOffNode, gpus: list[str]) -> None:
    """Init container, sidecar and two apps, though ids are handed on within the pod."""
    plan = allocation(init=[gpus[3]], sidecar=[gpus[2]], a=[gpus[1]], b=[gpus[3]])
    raw = node.bind(pod("mixed").init(1).sidecar(1).gpus(1, "a").gpus(1, "b").bound_to(NODE, plan))
    assert node.run(raw) == {"init": {gpus[3]}, "sidecar": {gpus[2]}, "a": {gpus[1]}, "b": {gpus[3]}}


def test_a_pod_whose_init_container_alone_asks_for_gpus(node: HandOffNode, gpus: list[str]) -> None:
    """PodResources does not list it."""
    raw = node.bind(pod("only-init").init(1).plain().bound_to(NODE, allocation(init=[gpus[2]])))
    assert node.run(raw) == {"init": {gpus[2]}}


def test_a_pod_that_came_back_under_its_name_gets_its_new_plan_while_the_cache_lags(node: HandOffNode, gpus: list[str]) -> None:
    """A StatefulSet's: the cache still has the one of before."""
    before = node.bind(pod("db-0").holding(NODE, gpus[0]), "uid-1")
    node.catch_up()
    node.run(before)
    node.kubelet.end("uid-1")
    raw = node.bind(pod("db-0").holding(NODE, gpus[3]), "uid-2")
    assert node.run(raw) == {"main": {gpus[3]}}


# --- MIG ---


def test_a_gpu_in_mig_mode_is_given_to_nobody(node: HandOffNode, gpus: list[str]) -> None:
    """Kubelet hears that it cannot be used, no pod from around the extender gets it, and a plan that names it says why it does not start."""
    spec = node.topology.spec
    sliced = tuple(gpu.model_copy(update={"mig_mode": "Enabled"}) if gpu.uuid == gpus[0] else gpu for gpu in spec.gpus)
    node.see(node.topology.model_copy(update={"spec": spec.model_copy(update={"gpus": sliced})}))
    node.wait_for_devices()
    assert [uuid for uuid, is_healthy in node.kubelet.devices[GPU].items() if not is_healthy] == [gpus[0]]
    assert not all(node.kubelet.devices[MEMORY].values())
    raw = node.bind(pod("around").gpus(3).bound_to(NODE))
    assert node.run(raw) == {"main": set(gpus[1:])}
    node.delete(raw)
    raw = node.bind(pod("planned").holding(NODE, gpus[0]))
    node.kubelet.admit(raw)
    with pytest.raises(StartError, match=f"GPU {gpus[0]} cannot be used: it is in MIG mode"):
        node.start(raw)


# --- one container, two tokens ---


def test_a_container_that_was_admitted_anew_counts_once(node: HandOffNode, gpus: list[str]) -> None:
    """Kubelet asks for a second token where its checkpoint was lost: people remove it to get a kubelet going again, and the pod lives on."""
    raw = node.bind(pod("a").shared(20).sharing(NODE, {gpus[0]: 20_480}))
    node.run(raw)
    node.kubelet.given.clear()
    node.kubelet._write_checkpoint()
    assert node.run(raw) == {"main": {gpus[0]}}
    beside = node.bind(pod("b").shared(15).sharing(NODE, {gpus[0]: 15_360}))
    assert node.run(beside) == {"main": {gpus[0]}}
    assert node.plugin is not None
    assert sorted((one.pod, one.uuids) for one in node.plugin.hand_off.held()) == [("a", {gpus[0]}), ("b", {gpus[0]})]


def test_a_pod_from_around_that_was_admitted_anew_has_the_gpus_that_it_had(node: HandOffNode, gpus: list[str]) -> None:
    """No plan tells them, and other ones would keep both from everybody for as long as the pod lives."""
    raw = node.bind(pod("a").gpus(2).bound_to(NODE))
    node.catch_up()
    before = node.run(raw)
    node.kubelet.given.clear()
    node.kubelet._write_checkpoint()
    node.kubelet.admit(raw)
    assert node.start(raw) == before
    rest = node.bind(pod("b").gpus(2).bound_to(NODE))
    assert node.run(rest) == {"main": set(gpus) - before["main"]}


# --- what is in the way on the node ---


def test_a_directory_that_cannot_be_written_is_named_and_no_bug(node: HandOffNode, gpus: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of a container that is gone has to go before the next one has its GPU; an administrator reads which file is in the way."""
    before = node.bind(pod("before").holding(NODE, gpus[0]))
    node.run(before)
    node.delete(before)
    after = node.bind(pod("after").holding(NODE, gpus[0]))
    node.kubelet.admit(after)
    node.catch_up()

    def refused(path: Path, *, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(StartError, match=r"what is left of a container that is gone cannot be removed: .*Read-only file system"):
        node.start(after)
    assert node.count("container_refusals", reason="bug") == 0


# --- identity ---


def test_a_checkpoint_that_lacks_the_newest_token_is_written_anew(node: HandOffNode, gpus: list[str]) -> None:
    """Two writes may overtake each other in kubelet; news of devices makes it write again."""
    node.kubelet.writes = False
    raw = node.bind(pod("late").holding(NODE, gpus[1]))
    node.kubelet.admit(raw)
    node.kubelet.writes = True
    assert node.start(raw) == {"main": {gpus[1]}}


def test_without_a_checkpoint_that_names_the_container_it_does_not_start(node: HandOffNode, gpus: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Size and time are no identity."""
    monkeypatch.setattr("topology.agent.handoff.kubelet._REWRITTEN_WITHIN_S", 0.05)
    node.kubelet.writes = False
    raw = node.bind(pod("late").holding(NODE, gpus[1]))
    node.kubelet.admit(raw)
    with pytest.raises(StartError, match="does not write it anew"):
        node.start(raw)
    assert node.count("container_refusals", reason="identity") == 1


def given_twice(node: HandOffNode, first: JsonObject, second: JsonObject) -> None:
    """Let kubelet give the ids of one pod to another as well, and as many more as that one wants, as it does where PodResources is listed in the moment of an Allocate."""
    node.kubelet.admit(first)
    ids = node.kubelet.given[first["metadata"]["uid"], "main", GPU].ids
    wanted = int(second["spec"]["containers"][0]["resources"]["limits"][GPU])
    ids |= frozenset(sorted(node.kubelet.devices[GPU].keys() - ids)[: wanted - len(ids)])
    answer = node.kubelet._plugins[GPU].call("Allocate", container_requests=[{"devices_ids": sorted(ids)}]).container_responses[0]
    node.kubelet.pods[second["metadata"]["uid"]] = second
    node.kubelet.given[second["metadata"]["uid"], "main", GPU] = Given(ids, answer)
    node.kubelet._write_checkpoint()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["the first one starts first", "the second one starts first"])
def test_two_pods_that_kubelet_gave_the_same_ids_have_their_own_gpus(node: HandOffNode, gpus: list[str], order: tuple[int, int]) -> None:
    """Each by its token; neither waits for the other, and a restart changes nothing."""
    raws = [node.bind(pod("one").holding(NODE, gpus[1])), node.bind(pod("two").holding(NODE, gpus[2]))]
    given_twice(node, *raws)
    for _ in range(2):
        assert {at: node.start(raws[at])["main"] for at in order} == {0: {gpus[1]}, 1: {gpus[2]}}
    node.delete(raws[0])
    assert node.start(raws[1]) == {"main": {gpus[2]}}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["the one with one id starts first", "the one with two starts first"])
def test_two_pods_of_which_one_has_the_others_id_among_its_own_have_their_own_gpus(
    node: HandOffNode, gpus: list[str], order: tuple[int, int]
) -> None:
    """PodResources names both for that id, and kubelet's checkpoint says so, too."""
    raws = [node.bind(pod("one").holding(NODE, gpus[1])), node.bind(pod("two").holding(NODE, gpus[2], gpus[3]))]
    given_twice(node, *raws)
    for _ in range(2):
        assert {at: node.start(raws[at])["main"] for at in order} == {0: {gpus[1]}, 1: {gpus[2], gpus[3]}}
    node.delete(raws[0])
    assert node.start(raws[1]) == {"main": {gpus[2], gpus[3]}}


def test_an_id_that_podresources_alone_gives_to_another_pod_is_a_contradiction(node: HandOffNode, gpus: list[str]) -> None:
    """Kubelet's checkpoint does not know of the other one: one of the two is old, and nothing starts on it."""
    raws = [node.bind(pod("one").holding(NODE, gpus[1])), node.bind(pod("two").holding(NODE, gpus[2], gpus[3]))]
    node.kubelet.admit(raws[0])
    node.kubelet.writes = False
    given_twice(node, *raws)
    with pytest.raises(StartError, match="PodResources names pod default/two"):
        node.start(raws[0])


def test_without_cdi_two_pods_for_one_id_set_are_a_contradiction(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The ids are all that each would get."""
    with hand_off_node(tmp_path_factory.mktemp("n"), hand_off="ids") as node:
        node.start_agent()
        gpus = [gpu.uuid for gpu in node.topology.spec.gpus]
        raws = [node.bind(pod(name).holding(NODE, gpus[1])) for name in ("one", "two")]
        given_twice(node, *raws)
        with pytest.raises(StartError, match="names several pods"):
            node.start(raws[0])


def test_two_pods_with_one_token_are_a_contradiction(node: HandOffNode, gpus: list[str]) -> None:
    """And nothing starts on it."""
    raw = node.bind(pod("one").holding(NODE, gpus[1]))
    node.kubelet.admit(raw)
    uid = raw["metadata"]["uid"]
    node.kubelet.pods["ghost"] = raw
    node.kubelet.given["ghost", "main", GPU] = node.kubelet.given[uid, "main", GPU]
    node.kubelet._write_checkpoint()
    with pytest.raises(StartError, match="names several pods"):
        node.start(raw)


def test_pod_resources_that_names_another_pod_is_a_contradiction(node: HandOffNode, gpus: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Names do not prove who it is, but they may disprove it."""
    raw = node.bind(pod("one").holding(NODE, gpus[1]))
    node.kubelet.admit(raw)
    (taken,) = node.kubelet.given[raw["metadata"]["uid"], "main", GPU].ids
    node.kubelet.pod_resources.hold("default/other", taken)
    monkeypatch.setattr(node.kubelet, "list_pods", lambda: None)
    with pytest.raises(StartError, match="PodResources names pod default/other"):
        node.start(raw)


def test_a_silent_pod_resources_is_not_needed(node: HandOffNode, gpus: list[str]) -> None:
    """The token names the container already."""
    node.kubelet.pod_resources.broken = True
    assert node.run(node.bind(pod("one").holding(NODE, gpus[1]))) == {"main": {gpus[1]}}


def test_a_pod_that_the_api_server_does_not_know_does_not_start(node: HandOffNode, gpus: list[str]) -> None:
    """And a pod that cannot be looked up neither."""
    raw = node.bind(pod("one").holding(NODE, gpus[1]))
    node.door.pods.clear()
    node.kubelet.admit(raw)
    with pytest.raises(StartError, match="knows no pod of UID"):
        node.start(raw)
    node.door.fault = lambda _: Raw(cut=True)
    with pytest.raises(StartError, match="cannot be looked up"):
        node.start(raw)


def test_a_static_pod_is_known_by_kubelets_own_uid(node: HandOffNode) -> None:
    """The API server shows it in an annotation."""
    raw = node.bind(pod("static").gpus(1).bound_to(NODE), "mirror-uid")
    raw["metadata"]["annotations"]["kubernetes.io/config.hash"] = "static-uid"
    admitted = {**raw, "metadata": {**raw["metadata"], "uid": "static-uid"}}
    assert len(node.run(admitted)["main"]) == 1


# --- the arbiter ---


def test_a_gpu_of_a_living_container_is_not_given_to_another(node: HandOffNode, gpus: list[str]) -> None:
    """Though both allocations name it; once it is free it is."""
    first = node.bind(pod("first").holding(NODE, gpus[1]))
    node.run(first)
    second = node.bind(pod("second").holding(NODE, gpus[1]))
    node.kubelet.admit(second)
    with pytest.raises(StartError, match=f"GPU {gpus[1]} is not free: container main of pod default/first holds it"):
        node.start(second)
    assert len(node.specs()) == 1
    assert node.count("container_refusals", reason="held") == 1
    assert [reason for reason, _ in node.events() if reason == "GPUHeld"] == ["GPUHeld"]
    node.delete(first)
    assert node.start(second) == {"main": {gpus[1]}}


def test_more_memory_than_a_gpu_has_is_not_given(node: HandOffNode, gpus: list[str]) -> None:
    """Shares add up over pods."""
    offered = (node.topology.spec.gpus[1].memory_mib or 0) // 1024
    node.run(node.bind(pod("most").shared(offered - 1).sharing(NODE, {gpus[1]: (offered - 1) * 1024})))
    assert node.run(node.bind(pod("last").shared(1).sharing(NODE, {gpus[1]: 1024}))) == {"main": {gpus[1]}}
    raw = node.bind(pod("more").shared(1).sharing(NODE, {gpus[1]: 1024}))
    node.kubelet.admit(raw)
    with pytest.raises(StartError, match="would be taken"):
        node.start(raw)
    assert node.count("container_refusals", reason="memory") == 1


def test_a_gpu_of_a_pod_deleted_by_force_is_free_when_its_processes_have_ended(node: HandOffNode, gpus: list[str]) -> None:
    """Both kubelet and API server have forgotten it, the kernel has not."""
    first = node.bind(pod("first").holding(NODE, gpus[1]))
    node.run(first)
    uid = first["metadata"]["uid"]
    procs = node.settings.cgroup_root / "pids" / "kubepods" / "burstable" / f"pod{uid}" / "c" / "cgroup.procs"
    procs.parent.mkdir(parents=True)
    procs.write_text("4711\n")
    node.kubelet.force_delete(uid)
    node.door.pods.clear()
    second = node.bind(pod("second").holding(NODE, gpus[1]))
    node.kubelet.admit(second)
    with pytest.raises(StartError, match="is not free"):
        node.start(second)
    procs.write_text("")
    assert node.start(second) == {"main": {gpus[1]}}


def two_for_one_gpu(node: HandOffNode) -> tuple[JsonObject, JsonObject]:
    """Return a pod that runs on the second GPU, and one that is about to start there."""
    uuid = node.topology.spec.gpus[1].uuid
    first, second = node.bind(pod("first").holding(NODE, uuid)), node.bind(pod("second").holding(NODE, uuid))
    node.run(first)
    node.kubelet.admit(second)
    return first, second


def test_a_gpu_that_becomes_free_within_the_patience_is_waited_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The start comes back when the other has ended."""
    with hand_off_node(tmp_path_factory.mktemp("n"), start_patience_s=20.0) as node:
        plugin = node.start_agent()
        first, second = two_for_one_gpu(node)

        def ends(_seconds: float) -> None:
            node.delete(first)

        plugin.hand_off._pause = ends
        assert node.start(second) == {"main": {node.topology.spec.gpus[1].uuid}}


def test_a_start_that_waits_is_refused_at_once_when_the_agent_ends(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The event that lets pauses end is set for good then: the start would go round without a pause until its patience is over, and keep the process."""
    with hand_off_node(tmp_path_factory.mktemp("n"), start_patience_s=20.0) as node:
        plugin = node.start_agent()
        _, second = two_for_one_gpu(node)
        pauses: list[float] = []

        def ends(seconds: float) -> bool:
            pauses.append(seconds)
            assert len(pauses) == 1, "it goes on as if nobody had said anything"
            plugin._stopping.set()
            return plugin._stopping.wait(seconds)

        plugin.hand_off._pause = ends
        with pytest.raises(StartError, match="is not free"):
            node.start(second)


def test_containers_of_another_device_plugin_are_respected(node: HandOffNode, gpus: list[str]) -> None:
    """From before the migration: they hold the GPUs of their ids, and start again on them alone."""
    raw = node.bind(pod("old").gpus(1).bound_to(NODE))
    node.kubelet.admit(raw)
    given = node.kubelet.given[raw["metadata"]["uid"], "main", GPU]
    (theirs,) = given.ids
    given.answer = type(given.answer)(envs={"NVIDIA_VISIBLE_DEVICES": theirs})
    node.kubelet._write_checkpoint()
    assert node.start(raw) == {"main": {theirs}}
    other = node.bind(pod("new").holding(NODE, theirs))
    node.kubelet.admit(other)
    with pytest.raises(StartError, match="container main of pod default/old holds it"):
        node.start(other)


# --- pods from around, and allocations that are not ours ---


def test_a_pod_from_around_gets_what_is_neither_held_nor_promised(node: HandOffNode, gpus: list[str]) -> None:
    """And keeps it over restarts of container and agent."""
    node.run(node.bind(pod("held").holding(NODE, gpus[0])))
    node.bind(pod("waits").holding(NODE, gpus[1]))
    raw = node.bind(pod("around").gpus(1).bound_to(NODE))
    seen = node.run(raw)["main"]
    assert seen <= {gpus[2], gpus[3]}
    assert [reason for reason, _ in node.events() if reason == "CameAround"] == ["CameAround"]
    node.restart_agent()
    assert node.start(raw) == {"main": seen}
    assert node.count("container_starts", ids="restarted") == 1
    assert node.plugin is not None
    assert seen in [one.uuids for one in node.plugin.holders()]


def test_a_share_from_around_goes_where_least_is_left(node: HandOffNode, gpus: list[str]) -> None:
    """Never onto a GPU that is somebody's own."""
    node.run(node.bind(pod("whole").holding(NODE, gpus[0])))
    node.run(node.bind(pod("shared").shared(2).sharing(NODE, {gpus[2]: 2048})))
    assert node.run(node.bind(pod("around").shared(4).bound_to(NODE))) == {"main": {gpus[2]}}


def test_where_nothing_is_free_a_pod_from_around_waits(node: HandOffNode, gpus: list[str]) -> None:
    """For what was promised to others, too."""
    node.bind(pod("waits").holding(NODE, *gpus))
    raw = node.bind(pod("around").gpus(1).bound_to(NODE))
    node.kubelet.admit(raw)
    with pytest.raises(StartError, match="came around Linkwise, and too little is free"):
        node.start(raw)


def test_policy_refuse_lets_no_pod_from_around_start(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With a sentence."""
    with hand_off_node(tmp_path_factory.mktemp("n"), around="refuse") as node:
        node.start_agent()
        raw = node.bind(pod("around").gpus(1).bound_to(NODE))
        node.kubelet.admit(raw)
        with pytest.raises(StartError, match="takes pods from Linkwise alone"):
            node.start(raw)


def test_an_allocation_that_the_cache_does_not_show_yet_is_read_from_the_api_server(node: HandOffNode, gpus: list[str]) -> None:
    """Before a pod counts as one from around."""
    node.bind(pod("p").gpus(1).bound_to(NODE))
    node.catch_up()
    raw = node.bind(pod("p").holding(NODE, gpus[3]))
    assert node.run(raw) == {"main": {gpus[3]}}


@pytest.mark.parametrize(
    ("written", "starts", "why"),
    [
        pytest.param("not JSON", True, "CameAround", id="damaged: as one from around"),
        pytest.param(allocation("node-b", main=["GPU-x"]), True, "CameAround", id="for another node: as one from around"),
        pytest.param(allocation(main=["GPU-x"]), False, "GPUGone", id="a GPU that is not here: never another one"),
        pytest.param(allocation(main=["GPU-x", "GPU-y"]), False, "AllocationUnkept", id="more GPUs than asked"),
        pytest.param(allocation(other=["GPU-x"]), False, "AllocationUnkept", id="for another container"),
    ],
)
def test_an_allocation_that_is_not_ours(node: HandOffNode, written: str, starts: bool, why: str) -> None:
    """Forged, stale or damaged: an event that one can understand."""
    raw = node.bind(pod("p").gpus(1).bound_to(NODE, written))
    node.kubelet.admit(raw)
    if starts:
        assert len(node.start(raw)["main"]) == 1
    else:
        with pytest.raises(StartError, match="allocation"):
            node.start(raw)
        assert node.specs() == []
    assert [reason for reason, _ in node.events() if reason == why] == [why]


def test_an_allocation_that_is_edited_later_changes_nothing(node: HandOffNode, gpus: list[str]) -> None:
    """The container starts again on what it had."""
    raw = node.bind(pod("p").holding(NODE, gpus[0]))
    node.run(raw)
    raw["metadata"]["annotations"]["linkwise.dev/allocation"] = allocation(main=[gpus[1]])
    node.catch_up()
    assert node.start(raw) == {"main": {gpus[0]}}
    assert "AllocationEdited" in [reason for reason, _ in node.events()]


# --- GPUs that fail ---


def test_a_lost_gpu_is_told_by_its_holder_and_the_others_go_on(node: HandOffNode, gpus: list[str]) -> None:
    """Allocatable goes down by one and up again, and pods on other GPUs start again meanwhile."""
    node.kubelet.stubborn = True
    first, second = (node.bind(pod(name).holding(NODE, uuid)) for name, uuid in (("first", gpus[0]), ("second", gpus[1])))
    node.catch_up()
    node.run(first)
    node.run(second)
    ids = {raw["metadata"]["name"]: node.kubelet.given[raw["metadata"]["uid"], "main", GPU].ids for raw in (first, second)}
    assert ids["first"] != {gpus[0]}, "kubelet took another one"
    lose(node, gpus[0])
    assert {one for one, healthy in node.kubelet.devices[GPU].items() if not healthy} == ids["first"]
    assert node.start(second) == {"main": {gpus[1]}}
    with pytest.raises(StartError, match="cannot be used: it fell off the bus"):
        node.start(first)
    lose(node)
    assert all(node.kubelet.devices[GPU].values())
    assert node.start(first) == {"main": {gpus[0]}}


def test_a_lost_gpu_of_an_init_container_that_has_ended_does_not_stop_its_successor(node: HandOffNode, gpus: list[str]) -> None:
    """They share ids, not GPUs."""
    raw = node.bind(pod("p").init(1).gpus(1).bound_to(NODE, allocation(init=[gpus[0]], main=[gpus[1]])))
    node.run(raw)
    lose(node, gpus[0])
    uid = raw["metadata"]["uid"]
    assert node.kubelet.start_container(uid, "main") == {gpus[1]}
    with pytest.raises(StartError, match="unresolvable CDI devices"):
        node.kubelet.start_container(uid, "init")


# --- restarts ---


@pytest.mark.parametrize("point", [point for point in faults.POINTS if not point.startswith("retire")])
def test_an_agent_that_dies_anywhere_leaves_nothing_wrong(node: HandOffNode, gpus: list[str], point: str) -> None:
    """The container starts with the next agent, on its plan; a pod that kubelet rejects holds nothing."""
    node.fault_at = point
    raw = node.bind(pod("p").holding(NODE, gpus[2]))
    try:
        node.kubelet.admit(raw)
    except AdmissionError:
        node.restart_agent()
        node.kubelet.admit(raw)
    try:
        assert node.start(raw) == {"main": {gpus[2]}}
    except StartError:
        node.restart_agent()
        assert node.start(raw) == {"main": {gpus[2]}}
    assert node.fault_at is None, "it died on the way"
    node.restart_agent()
    assert node.start(raw) == {"main": {gpus[2]}}
    assert len(node.specs()) == 1


@pytest.mark.parametrize(
    "lost", [pytest.param([], id="its records are there"), pytest.param(["tokens", "containers"], id="its records are gone too")]
)
def test_a_node_that_boots_gives_every_pod_its_gpus_again(node: HandOffNode, gpus: list[str], lost: list[str]) -> None:
    """CDI specs lie in memory and are gone, and so may be all that the agent wrote."""
    pods = [node.bind(pod(f"p{at}").holding(NODE, uuid)) for at, uuid in enumerate(gpus[:3])]
    for raw in pods:
        node.run(raw)
    node.stop_agent()
    node.kubelet.stop()
    for path in node.settings.cdi_dir.iterdir():
        path.unlink()
    for name in lost:
        shutil.rmtree(node.settings.state_dir / name)
    node.kubelet.running.clear()
    node.kubelet.start()
    node.start_agent()
    for raw, uuid in zip(pods, gpus, strict=False):
        node.kubelet.admit(raw)
        assert node.start(raw) == {"main": {uuid}}


def test_containers_start_again_while_the_api_server_is_away(node: HandOffNode, gpus: list[str]) -> None:
    """What they hold is on the node."""
    raw = node.bind(pod("p").holding(NODE, gpus[2]))
    node.run(raw)
    node.door.fault = lambda _: Raw(cut=True)
    assert node.start(raw) == {"main": {gpus[2]}}


# --- without CDI ---


def test_without_cdi_kubelets_ids_have_to_be_the_plan(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Steering makes them so; where it could not, the container does not start."""
    with hand_off_node(tmp_path_factory.mktemp("n"), hand_off="ids") as node:
        node.start_agent()
        gpus = [gpu.uuid for gpu in node.topology.spec.gpus]
        assert set(node.kubelet.devices) == {GPU}, "shares need CDI"
        raw = node.bind(pod("steered").holding(NODE, gpus[2]))
        node.catch_up()
        assert node.run(raw) == {"main": {gpus[2]}}
        answer = node.kubelet.given[raw["metadata"]["uid"], "main", GPU].answer
        assert (Path(answer.mounts[0].host_path) / "allocation.json").exists()
        node.kubelet.stubborn = True
        other = node.bind(pod("stubborn").holding(NODE, gpus[1]))
        node.catch_up()
        node.kubelet.admit(other)
        with pytest.raises(StartError, match="delete the pod"):
            node.start(other)
        assert node.count("container_refusals", reason="other-ids") == 1
        assert node.specs() == []
