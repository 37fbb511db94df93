"""What went wrong in the accounting of systems that do this job, as the public reports tell it, and what holds here."""

import json
from copy import deepcopy

import pytest

from extender import explain
from extender.snapshot_file import Snapshot
from tests.builders import ClusterBuilder, Extender, PodBuilder, changed, cluster, extender_on, pod

BUILT = cluster().dgx1v("a")
UUIDS = BUILT.uuids("a")


def restarted(pods: list[dict[str, object]], built: ClusterBuilder = BUILT) -> dict[str, list[int]]:
    """Free GPUs of every node as a new process counts them from the stored pods."""
    again = extender_on(ClusterBuilder(topologies=built.topologies, pods=tuple(pods)))
    return {name: again.free(name) for name in again.names()}


async def test_the_same_pod_is_created_and_deleted_a_thousand_times():
    """gpushare-scheduler-extender 201: free memory is exactly what it was."""
    extender = extender_on(BUILT)
    stays = pod("stays").gpus(1)
    await extender.place(stays, "a")
    before = extender.free("a")
    for number in range(1000):
        comes = pod("comes-and-goes").gpus(1 + number % 4)
        assert len(await extender.place(comes, "a")) == 1 + number % 4
        extender.binder.delete_pod("default", "comes-and-goes")
        assert extender.free("a") == before
    assert len(extender.cluster.ledger) == 1
    assert restarted(extender.binder.pods()) == {"a": before}


def test_the_same_pod_is_seen_twice():
    """Volcano 4809: an event and a resync show the same pod; it is counted once, by its UID."""
    holder = pod("holder").holding("a", UUIDS[0], UUIDS[3])
    extender = extender_on(BUILT.with_pods(holder))
    for _ in range(3):
        extender.cluster.apply_pod(holder.build())
    assert extender.free("a") == [1, 2, 4, 5, 6, 7]
    extender.cluster.remove_pod(holder.uid)
    assert extender.free("a") == list(range(8))


def test_the_delete_event_of_an_eight_gpu_pod_is_missed_and_the_next_list_repairs_it():
    """HAMi 2923: whoever lists all pods finds those that are gone, and the node is usable again."""
    extender = extender_on(BUILT.with_pods(pod("large").holding("a", *UUIDS)))
    asked = pod("next").gpus(8)
    assert extender.filter(asked)["NodeNames"] == []
    listed: list[dict[str, object]] = []
    for uid in set(extender.cluster.pod_uids()) - {str(each["uid"]) for each in listed}:
        extender.cluster.remove_pod(uid)
    assert extender.filter(asked)["NodeNames"] == ["a"]


async def test_an_allocation_names_a_gpu_that_the_node_no_longer_has():
    """HAMi 2592: the node is closed for new pods until that is resolved, explain says so, and nothing is given twice."""
    extender = extender_on(BUILT.with_pods(pod("holder").holding("a", UUIDS[2])))
    extender.cluster.apply_topology(changed(BUILT.topologies[0], without=2))
    asked = pod("next").gpus(1)
    refused = extender.filter(asked)["FailedAndUnresolvableNodes"]
    assert refused == {"a": "linkwise: closed: a pod on the node holds a GPU that the node no longer has"}
    error = await extender.bind(asked, "a")
    assert "default/holder" in error
    assert UUIDS[2] in error
    extender.cluster.apply_topology(BUILT.topologies[0])
    assert 2 not in await extender.place(asked, "a")


@pytest.mark.parametrize("end", ["the pod is deleted", "the pod has failed"])
def test_the_pod_that_held_the_missing_gpu_ends_and_the_others_are_usable(end: str):
    """k8s-device-plugin 2038: one GPU falls off the bus; the other seven keep working."""
    holder = pod("holder").holding("a", UUIDS[2])
    extender = extender_on(BUILT.with_pods(holder))
    extender.cluster.apply_topology(changed(BUILT.topologies[0], without=2))
    if end == "the pod is deleted":
        extender.cluster.remove_pod(holder.uid)
    else:
        extender.cluster.apply_pod(holder.bound_to("a", holder.annotations["linkwise.dev/allocation"], phase="Failed").build())
    assert extender.filter(pod("next").gpus(7))["NodeNames"] == ["a"]


async def test_everything_counted_survives_write_restart_and_read():
    """HAMi 2876, 1330: a counted field is missing in what is written, so a restart undercounts."""
    built = cluster().dgx1v("a").bridges("b").mesh("c")
    extender = extender_on(built)
    shapes: dict[str, PodBuilder] = {
        "a": pod("several").gpus(2, "train").gpus(1, "serve").init(4).sidecar(1),
        "b": pod("floor").gpus(2).min_bandwidth(300).plain(),
        "c": pod("init").init(3).gpus(1),
    }
    for node, asked in shapes.items():
        await extender.place(asked, node)
    free = {node: extender.free(node) for node in shapes}
    assert [len(gpus) for gpus in free.values()] == [4, 6, 1]
    assert restarted(extender.binder.pods(), built) == free


def test_a_terminating_pod_is_counted_until_its_containers_have_ended():
    """Kueue 10076."""
    holder = pod("holder").holding("a", *UUIDS[:4])
    extender = extender_on(BUILT.with_pods(holder.terminating()))
    assert extender.free("a") == [4, 5, 6, 7]
    ended = holder.terminating().bound_to("a", holder.annotations["linkwise.dev/allocation"], phase="Succeeded")
    extender.cluster.apply_pod(ended.build())
    assert extender.free("a") == list(range(8))


def test_the_topology_is_deleted_and_created_again_while_pods_run():
    """Kueue 11858: accounting unchanged."""
    extender = extender_on(BUILT.with_pods(pod("holder").holding("a", UUIDS[5])))
    extender.cluster.remove_topology("a")
    assert extender.filter(pod("next").gpus(1))["NodeNames"] == []
    extender.cluster.apply_topology(BUILT.topologies[0])
    assert extender.free("a") == [0, 1, 2, 3, 4, 6, 7]


def test_a_pod_came_around_the_extender():
    """gpushare-scheduler-extender 75, 228, 11: it uses GPUs that nobody knows, so its node takes nobody until that is known."""
    extender = extender_on(BUILT.with_pods(pod("stranger").gpus(2).bound_to("a")))
    asked = pod("next").gpus(1)
    assert extender.filter(asked)["NodeNames"] == []
    extender.cluster.apply_topology(changed(BUILT.topologies[0], holders={0: "default/stranger", 1: "default/stranger"}))
    assert extender.filter(pod("next").gpus(6))["NodeNames"] == ["a"]
    assert extender.free("a") == [2, 3, 4, 5, 6, 7]


# --- parts of GPUs --------------------------------------------------------------------------------------------------

GIB = 1024


def cards(*memory_mib: int | None, name: str = "a") -> ClusterBuilder:
    """One node of four GPUs of these sizes, all linked alike."""
    (topology,) = cluster().mesh(name).topologies
    for gpu, mib in zip(topology["spec"]["gpus"], memory_mib, strict=True):
        gpu["memoryMiB"] = mib
    return ClusterBuilder(topologies=(topology,))


def left(extender: Extender, node: str = "a") -> list[int]:
    """GiB that are left of each GPU."""
    view = extender.cluster.view()
    row = view.row_of[node]
    return [mib // GIB for mib in view.left[row].tolist()[: len(view.gpus[row].uuids)]]


async def test_five_pods_of_10_gib_on_four_gpus_of_23_gib_all_run_and_three_more_after_them():
    """gpushare-scheduler-extender 188: two a GPU, and the ninth is refused with the numbers."""
    extender = extender_on(cards(*[23_552] * 4))
    for number in range(8):
        await extender.place(pod(f"p{number}").shared(10), "a")
    assert left(extender) == [3, 3, 3, 3]
    ninth = pod("p8").shared(10)
    assert extender.filter(ninth)["FailedAndUnresolvableNodes"] == {"a": "linkwise: none of the GPUs has 10 GiB left"}
    assert (await extender.bind(ninth, "a")).endswith("0 of 4 GPUs free, at most 3 GiB left on one GPU, 10 asked")


async def test_the_same_pod_with_a_part_is_created_and_deleted_a_thousand_times():
    """gpushare-scheduler-extender 201: free memory is exactly what it was."""
    extender = extender_on(cards(40_960, 24_576, 16_384, 8_192))
    await extender.place(pod("stays").shared(3), "a")
    before = left(extender)
    for number in range(1000):
        comes = pod("comes-and-goes").shared(1 + number % 7).init_shared(1 + number % 5)
        await extender.place(comes.annotated(gpu_count="1") if number % 2 else comes.shared(2, "other"), "a")
        extender.binder.delete_pod("default", "comes-and-goes")
        assert left(extender) == before
    assert len(extender.cluster.ledger) == 1


@pytest.mark.parametrize("cards_of", [(8_192, 16_384, 8_192, 16_384), (16_384, 16_384, 8_192, 8_192)], ids=["mixed", "side by side"])
async def test_cards_of_8_and_16_gb_in_one_node(cards_of: tuple[int, ...]):
    """gpushare-scheduler-extender 40, 219: each GPU has its own size, never the average of 12."""
    extender = extender_on(cards(*cards_of))
    large = [gpu for gpu, mib in enumerate(cards_of) if mib == 16_384]
    for number in range(2):
        assert (await extender.place(pod(f"twelve-{number}").shared(12), "a"))[0] in large
    assert extender.filter(pod("third").shared(12))["NodeNames"] == []
    for number in range(2):
        assert (await extender.place(pod(f"eight-{number}").shared(8), "a"))[0] not in large
    assert sorted(left(extender)) == [0, 0, 4, 4]


def test_a_pod_with_a_part_is_seen_twice():
    """Volcano 4809: counted once, by its UID."""
    holder = pod("holder").shared(10).sharing("a", {UUIDS[0]: 10 * GIB})
    extender = extender_on(BUILT.with_pods(holder))
    for _ in range(3):
        extender.cluster.apply_pod(holder.build())
    assert left(extender)[0] == 22


def test_the_allocation_of_a_part_names_a_gpu_that_the_node_no_longer_has():
    """HAMi 2592: closed by name, and the part counts again when the GPU is back."""
    holder = pod("holder").shared(10).sharing("a", {UUIDS[2]: 10 * GIB})
    extender = extender_on(BUILT.with_pods(holder))
    extender.cluster.apply_topology(changed(BUILT.topologies[0], without=2))
    refused = extender.filter(pod("next").shared(1))["FailedAndUnresolvableNodes"]
    assert refused == {"a": "linkwise: closed: a pod on the node holds a GPU that the node no longer has"}
    assert left(extender) == [32] * 7, "it counts on no other GPU meanwhile"
    extender.cluster.apply_topology(BUILT.topologies[0])
    assert left(extender)[2] == 22


@pytest.mark.parametrize(
    "gpus",
    [
        pytest.param('[{"uuid":"GPU","shared":true}]', id="no size"),
        pytest.param('[{"uuid":"GPU","shared":true,"memoryMiB":0}]', id="nothing"),
        pytest.param('[{"uuid":"GPU","shared":true,"memoryMiB":4096}]', id="less than the pod asks for"),
        pytest.param("[]", id="no GPU"),
    ],
)
def test_the_allocation_of_a_live_pod_with_a_part_does_not_decode(gpus: str):
    """HAMi 2958: fail closed, by name, until the pod has ended."""
    odd = pod("odd").shared(10).bound_to("a", f'{{"v":1,"node":"a","containers":{{"main":{gpus.replace("GPU", UUIDS[0])}}}}}')
    extender = extender_on(BUILT.with_pods(odd))
    assert "default/odd" in explain_reason(extender, pod("next").gpus(1))
    extender.cluster.remove_pod(odd.uid)
    assert extender.filter(pod("next").gpus(8))["NodeNames"] == ["a"]


def explain_reason(extender: Extender, asked: PodBuilder) -> str:
    decision = explain.to_object(extender.verbs.evaluate(asked.build()), extender.verbs.placement)
    return str(decision["nodes"][0]["reason"])


async def test_everything_counted_of_parts_survives_write_restart_and_read():
    """HAMi 2876, 1330: memory, whole GPUs beside it, init containers and sidecars, several containers, several GPUs."""
    built = cluster().dgx1v("a").bridges("b").mesh("c")
    shapes = {
        "a": [pod("several").shared(9, "serve").shared(5, "watch").gpus(2, "train").init_shared(20).sidecar_shared(3), pod("wide").shared(41)],
        "b": [pod("pair").shared(41).min_bandwidth(300).annotated(gpu_cores="30")],
        "c": [pod("init").init_shared(30).shared(4), pod("whole").gpus(1), pod("beside").shared(10)],
    }
    wide = {"wide": "4", "pair": "2"}
    shapes = {node: [each.annotated(gpu_count=wide[each.name]) if each.name in wide else each for each in pods] for node, pods in shapes.items()}
    extender = extender_on(built.with_pods(*(each for pods in shapes.values() for each in pods)))
    for node, pods in shapes.items():
        for each in pods:
            await extender.place(each, node)
    counted = {node: (extender.free(node), left(extender, node)) for node in shapes}
    again = extender_on(ClusterBuilder(topologies=built.topologies, pods=tuple(extender.binder.pods())))
    assert {node: (again.free(node), left(again, node)) for node in shapes} == counted
    assert {entry.uid: entry.shares for entry in again.cluster.ledger} == {entry.uid: entry.shares for entry in extender.cluster.ledger}
    cores = [gpu["coresPercent"] for gpu in written(extender, "pair")["main"]]
    assert cores == [30, 30], "accounted only, and written all the same"


def written(extender: Extender, name: str) -> dict[str, list[dict[str, object]]]:
    """The containers of a pod's allocation as it is stored."""
    (stored,) = [each for each in extender.binder.pods() if each["metadata"]["name"] == name]
    containers: dict[str, list[dict[str, object]]] = json.loads(stored["metadata"]["annotations"]["linkwise.dev/allocation"])["containers"]
    return containers


def test_memory_used_by_processes_outside_kubernetes_is_visible_and_takes_nothing_from_what_is_left():
    """HAMi 1292: in the status of the GPUTopology, GPU by GPU; a heartbeat that tells of it costs no cached answer."""
    extender = extender_on(BUILT)
    before = extender.cluster.view()
    later = deepcopy(BUILT.topologies[0])
    later["status"]["gpus"][3]["memoryUsedMiB"] = 20_000
    extender.cluster.apply_topology(later)
    shown = extender.cluster.topology_of("a")
    assert shown is not None
    assert shown.to_object()["status"]["gpus"][3]["memoryUsedMiB"] == 20_000
    assert extender.cluster.view() is before
    assert left(extender) == [32] * 8


def test_a_terminating_pod_with_a_part_is_counted_until_its_containers_have_ended():
    """Kueue 10076."""
    holder = pod("holder").shared(10).sharing("a", {UUIDS[1]: 10 * GIB})
    extender = extender_on(BUILT.with_pods(holder.terminating()))
    assert left(extender)[1] == 22
    ended = holder.terminating().bound_to("a", holder.annotations["linkwise.dev/allocation"], phase="Succeeded")
    extender.cluster.apply_pod(ended.build())
    assert left(extender)[1] == 32


async def test_several_pods_with_parts_wait_for_one_gpu_and_each_is_placed_on_its_own_merit():
    """KAI 464, 65: a large one that does not fit holds up no small one, and none waits for ever."""
    extender = extender_on(cards(40_960, None, None, None))
    await extender.place(pod("first").shared(30), "a")
    waiting = {gib: pod(f"waits-{gib}").shared(gib) for gib in (40, 12, 8, 20)}
    fitting = {gib for gib, asked in waiting.items() if extender.filter(asked)["NodeNames"]}
    assert fitting == {8}
    await extender.place(waiting[8], "a")
    for name, gibs in (("first", (20, 12)), ("waits-8", ()), ("waits-20", ()), ("waits-12", (40,))):
        extender.binder.delete_pod("default", name)
        assert extender.verbs.waiting.node_that_may_help(extender.cluster.view()) == ("a" if gibs else None)
        for gib in gibs:
            await extender.place(waiting[gib], "a")
    assert left(extender)[0] == 0


def test_a_pod_with_a_part_came_around_the_extender():
    """gpushare-scheduler-extender 75, 228, 11: nobody tells which GPU it shares, so its node takes nobody."""
    extender = extender_on(BUILT.with_pods(pod("stranger").shared(10).bound_to("a")))
    assert explain_reason(extender, pod("next").shared(1)).endswith("pod default/stranger uses parts of GPUs and carries no allocation")
    assert explain_reason(extender, pod("next").gpus(1)) == explain_reason(extender, pod("next").shared(1))


def test_what_the_agent_sees_of_a_mixed_pod_that_came_around_is_not_all_of_it():
    """Its whole GPUs are seen, the one that it shares is not."""
    stranger = pod("stranger").gpus(2, "train").shared(10, "serve").bound_to("a")
    extender = extender_on(BUILT.with_pods(stranger))
    extender.cluster.apply_topology(changed(BUILT.topologies[0], holders={0: "default/stranger", 1: "default/stranger"}))
    assert extender.filter(pod("next").shared(1))["NodeNames"] == []


def test_a_snapshot_of_a_snapshot_is_the_same_cluster():
    holder = pod("holder").holding("a", UUIDS[0])
    extender = extender_on(BUILT.with_pods(holder, pod("waits").gpus(2)))
    again = Snapshot(topologies=BUILT.topologies, pods=tuple(extender.binder.pods()))
    assert again.to_list() == BUILT.with_pods(holder, pod("waits").gpus(2)).snapshot().to_list()
