"""Pods of `aliyun.com/gpu-mem` on nodes that gpushare's device plugin serves, as the public reports tell what went wrong there, and what holds here."""

import asyncio
import json
import random
from copy import deepcopy

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.handoff import gpushare
from extender.sample_machines import sample
from tests.builders import ClusterBuilder, Extender, JsonObject, PodBuilder, changed, cluster, extender_on, gpushare_node, pod, unhealthy_gpus
from tests.gpushare_stand_in import NO_GPU, PluginStandIn
from topology.api import AllocatedGpu, Allocation

GIB = 1024


def left(extender: Extender, node: str) -> list[int]:
    """GiB that shares may still take of each GPU, in the order of the node's minor numbers."""
    served, view = extender.cluster.gpushare.of(node), extender.cluster.view()
    row = view.row_of[node]
    return [int(view.left[row, view.gpus[row].bit_of[uuid]]) // GIB for _, uuid in sorted(served.uuid_of.items())]


def stored(extender: Extender, asked: PodBuilder) -> JsonObject:
    """Return the pod as it is stored."""
    found: JsonObject = orjson.loads(extender.binder._pods[asked.namespace, asked.name])
    return found


async def place(extender: Extender, asked: PodBuilder, node: str) -> list[int]:
    """Create a pod, filter and bind it; return the indices of its GPUs."""
    _create(extender, asked)
    return await extender.place(asked, node)


async def bind(extender: Extender, asked: PodBuilder, node: str) -> str:
    """Create a pod and bind it; return the error."""
    _create(extender, asked)
    return await extender.bind(asked, node)


def _create(extender: Extender, asked: PodBuilder) -> None:
    extender.binder._pods.setdefault((asked.namespace, asked.name), orjson.dumps(asked.build()))


def carried(extender: Extender, asked: PodBuilder) -> gpushare.Share:
    """Return what the stored pod's annotations tell gpushare's plugin."""
    return gpushare.decode(stored(extender, asked)["metadata"]["annotations"])


def assign(extender: Extender, asked: PodBuilder) -> None:
    """Let the plugin hand the pod its GPU: kubelet has admitted it."""
    _patch(extender, stored(extender, asked), {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"})


def _patch(extender: Extender, raw: JsonObject, annotations: dict[str, str]) -> None:
    patched = deepcopy(raw)
    patched["metadata"]["annotations"].update(annotations)
    extender.binder._pods[raw["metadata"]["namespace"], raw["metadata"]["name"]] = orjson.dumps(patched)
    extender.cluster.apply_pod(patched)


def restarted(extender: Extender, built: ClusterBuilder) -> Extender:
    """Return a new process over what is stored."""
    return extender_on(ClusterBuilder(built.topologies, tuple(extender.binder.pods()), built.nodes, built.config_maps))


def closed(extender: Extender, node: str) -> str:
    """Return what closes a node, empty where it is open."""
    view = extender.cluster.view()
    return view.closed_by[view.row_of[node]]


def allocation(node: str, uuid: str, gib: int) -> str:
    """Return the value of our annotation for a share of one GPU."""
    return Allocation(node=node, containers={"main": (AllocatedGpu(uuid=uuid, memory_mib=gib * GIB, shared=True),)}).encode()


# --- accounting -----------------------------------------------------------------------------------------------------


async def test_five_pods_of_10_gib_on_four_gpus_of_23_gib_all_run_and_three_more_after_them():
    """gpushare-scheduler-extender 188."""
    extender = extender_on(cluster().gpushare("a", gpus=4, units=23))
    for number in range(8):
        asked = pod(f"p{number}").units(10)
        await place(extender, asked, "a")
        assign(extender, asked)
    assert left(extender, "a") == [3, 3, 3, 3]
    assert extender.filter(pod("ninth").units(10))["NodeNames"] == []


async def test_the_same_pod_is_created_and_deleted_a_thousand_times():
    """gpushare-scheduler-extender 201: free memory is exactly what it was."""
    built = cluster().gpushare("a", gpus=2, units=23)
    extender = extender_on(built)
    await place(extender, pod("stays").units(7), "a")
    before = left(extender, "a")
    for number in range(1000):
        comes = pod("comes-and-goes").units(1 + number % 15)
        await place(extender, comes, "a")
        assert sum(left(extender, "a")) == sum(before) - (1 + number % 15)
        extender.binder.delete_pod("default", "comes-and-goes")
        assert left(extender, "a") == before
    assert left(restarted(extender, built), "a") == before


@pytest.mark.parametrize(("first", "offered"), [(16, [8, 8, 16, 16]), (8, [8, 8, 8, 8])])
async def test_cards_of_8_and_16_gb_in_one_node(first: int, offered: list[int]):
    """gpushare-scheduler-extender 40, 219: each GPU has its own size, never the average, and never more than the plugin gives.

    The plugin takes the size of the first for all; the topology tells the real ones.
    """
    topology = sample("mesh", "a").to_object()
    for gpu, gib in zip(sorted(topology["spec"]["gpus"], key=lambda gpu: gpu["minor"]), [8, 8, 16, 16], strict=True):
        gpu["memoryMiB"] = gib * GIB
    extender = extender_on(ClusterBuilder((topology,), nodes=(gpushare_node("a", 4, first),)))
    assert left(extender, "a") == offered
    large = pod("large").units(9)
    assert extender.filter(large)["NodeNames"] == (["a"] if first == 16 else [])
    if first == 16:
        await place(extender, large, "a")
        assert carried(extender, large).index in (2, 3)


async def test_two_kube_schedulers_or_two_profiles_call_the_same_extender():
    """gpushare-scheduler-extender 232: no double promise, however binds overlap."""
    extender = extender_on(cluster().gpushare("a", gpus=1, units=23))
    asked = [pod(f"p{number}").units(10) for number in range(6)]
    assert all(extender.filter(each)["NodeNames"] == ["a"] for each in asked)
    errors = await asyncio.gather(*(bind(extender, each, "a") for each in asked for _ in range(2)))
    assert sum(error == "" for error in errors) == 4, "each of two pods twice"
    assert left(extender, "a") == [3]


async def test_a_terminating_pod_is_counted_until_its_containers_have_ended():
    """A deletion timestamp says that somebody asked, no more."""
    extender = extender_on(cluster().gpushare("a", gpus=1))
    asked = pod("p").units(20)
    await place(extender, asked, "a")
    raw = stored(extender, asked)
    extender.cluster.apply_pod({**raw, "metadata": {**raw["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert left(extender, "a") == [3]
    extender.cluster.apply_pod({**raw, "status": {"phase": "Succeeded"}})
    assert left(extender, "a") == [23]


# --- several containers ---------------------------------------------------------------------------------------------

TWO = pod("two").units(4, "train").units(3, "serve")


@pytest.mark.parametrize(
    "asked", [pytest.param(TWO, id="two containers"), pytest.param(pod().units(4).init_units(4), id="an init container"), pod().init_units(4)]
)
def test_a_pod_that_the_plugin_cannot_find_by_its_total_is_refused_where_there_are_several_gpus(asked: PodBuilder):
    """gpushare-scheduler-extender 143, 219, 48: there the container would fail at its start."""
    extender = extender_on(cluster().gpushare("one", gpus=1).gpushare("four", gpus=4))
    answer = extender.filter(asked)
    assert answer["NodeNames"] == ["one"]
    assert answer["FailedAndUnresolvableNodes"]["four"].startswith("linkwise: gpushare's device plugin finds a pod by its total")


async def test_two_gpu_containers_in_one_pod_get_each_its_own_part():
    """gpushare-scheduler-extender 143, 219, 48, on a node with one GPU: the plugin hands that one out without looking."""
    extender = extender_on(cluster().gpushare("one", gpus=1, units=8))
    await place(extender, TWO, "one")
    written = json.loads(stored(extender, TWO)["metadata"]["annotations"]["linkwise.dev/allocation"])["containers"]
    assert {name: [gpu["memoryMiB"] for gpu in gpus] for name, gpus in written.items()} == {"train": [4 * GIB], "serve": [3 * GIB]}
    assert left(extender, "one") == [1]
    assert "split" in extender.filter(pod("next").units(1, "a").units(1, "b"))["FailedAndUnresolvableNodes"]["one"]


# --- which GPU is which ---------------------------------------------------------------------------------------------


async def test_the_index_in_the_annotation_differs_from_the_index_in_the_container():
    """gpushare-scheduler-extender 220: the plugin's index is the minor number; keys are UUIDs. The minor numbers of this machine run against its indices."""
    extender = extender_on(ClusterBuilder((sample("mesh", "a").to_object(),), nodes=(gpushare_node("a", 4, 40),)))
    asked = pod("p").units(10)
    (index,) = await place(extender, asked, "a")
    (gpu,) = json.loads(stored(extender, asked)["metadata"]["annotations"]["linkwise.dev/allocation"])["containers"]["main"]
    assert (gpu["uuid"], gpu["index"]) == (extender.gpus_of("a")[index], index)
    assert carried(extender, asked).index == 3 - index


async def test_an_agent_comes_and_goes_while_pods_run():
    """What they hold stays theirs: by minor number first, by UUID once one is told, by the pod's annotation when it is told no more."""
    built = cluster().gpushare("a", gpus=4, units=40)
    extender = extender_on(built)
    first, second = pod("first").units(10), pod("second").units(31)
    await place(extender, first, "a")
    before = carried(extender, first).index
    extender.cluster.apply_topology(sample("mesh", "a").to_object())
    assert left(extender, "a") == [30 if minor == before else 40 for minor in range(4)]
    await place(extender, second, "a")
    assert carried(extender, second).index != before
    now = left(extender, "a")
    again = restarted(extender, ClusterBuilder((sample("mesh", "a").to_object(),), nodes=built.nodes))
    assert left(again, "a") == now
    extender.cluster.remove_topology("a")
    assert left(extender, "a") == left(restarted(extender, built), "a") == now


def test_a_topology_that_does_not_match_the_plugin_closes_the_node_by_name():
    """A number that may mean another GPU is worse than none."""
    lost = changed(sample("mesh", "a").to_object(), without=3)
    extender = extender_on(ClusterBuilder((lost,), nodes=(gpushare_node("a", 4, 40),)))
    assert closed(extender, "a") == "the GPUTopology has 3 GPUs, but aliyun.com/gpu-count of the Node is 4"
    refused = extender.filter(pod().units(1))["FailedAndUnresolvableNodes"]
    assert refused == {"a": "linkwise: closed: what gpushare's device plugin tells of the node cannot be used"}
    extender.cluster.apply_topology(sample("mesh", "a").to_object())
    assert extender.filter(pod().units(1))["NodeNames"] == ["a"]


# --- pods that wait for the plugin ----------------------------------------------------------------------------------


async def test_equal_pods_are_bound_at_once_to_the_gpu_for_which_the_first_one_waits():
    """There it does not matter which of them the plugin finds first."""
    extender = extender_on(cluster().gpushare("a", gpus=4, units=24))
    asked = [pod(f"p{number}").units(8) for number in range(4)]
    for each in asked[:3]:
        await place(extender, each, "a")
    assert len({carried(extender, each).index for each in asked[:3]}) == 1
    times = [carried(extender, each).assume_time for each in asked[:3]]
    assert times == sorted(set(times))
    error = await bind(extender, asked[3], "a")
    assert error.startswith("pod default/p3 is not bound to node a yet: pod default/p0 waits on node a for 8 units of GPU ")
    assert extender.cluster.ledger.get(asked[3].uid) is None
    for each in asked[:3]:
        assign(extender, each)
    assert await bind(extender, asked[3], "a") == ""


async def test_a_pod_that_the_plugin_never_asks_for_holds_others_back_for_ten_seconds():
    """Then it is kubelet's trouble, and others go on."""
    extender = extender_on(cluster().gpushare("a", gpus=2, units=8))
    await place(extender, pod("stuck").units(8), "a")
    assert "or in 10 s" in await bind(extender, pod("next").units(8), "a")
    extender.clock.now += 10
    assert await place(extender, pod("next").units(8), "a")


async def test_a_pod_that_runs_on_the_annotation_of_another_leaves_that_one_at_the_door():
    """Kubelet admits the second pod first, which gets the first one's annotation, and starts it: the first has still to ask, and would get the third one's GPU."""
    extender = extender_on(cluster().gpushare("a", gpus=2, units=16))
    plugin = PluginStandIn("a", 2, extender.binder.pods, lambda raw, annotations: _patch(extender, raw, annotations))
    first, second, third = (pod(name).units(8) for name in ("first", "second", "third"))
    for asked in (first, second):
        await place(extender, asked, "a")
    plugin.admit(stored(extender, second))
    _run(extender, second)
    assert "pod default/first waits" in await bind(extender, third, "a")
    _run(extender, first)
    assert await bind(extender, third, "a") == ""


def _run(extender: Extender, asked: PodBuilder) -> None:
    """Let the pod's containers start."""
    started = {**stored(extender, asked), "status": {"phase": "Running"}}
    extender.binder._pods[asked.namespace, asked.name] = orjson.dumps(started)
    extender.cluster.apply_pod(started)


async def test_a_restarted_extender_holds_pods_back_for_those_that_wait():
    """The pods themselves tell that they wait."""
    built = cluster().gpushare("a", gpus=2, units=8)
    extender = extender_on(built)
    await place(extender, pod("first").units(8), "a")
    again = restarted(extender, built)
    asked = pod("second").units(8)
    assert again.filter(asked)["NodeNames"] == ["a"]
    assert "pod default/first waits" in await bind(again, asked, "a")


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_fifty_concurrent_pods_each_get_their_own_gpu_from_the_plugin(seed: int):
    """Binds and admissions in any order: the GPU that the container sees is the one that was chosen and counted, and no GPU is over its memory."""
    asyncio.run(_fifty_pods(random.Random(seed)))


async def _fifty_pods(chance: random.Random) -> None:
    built = cluster().gpushare("a", gpus=8, units=40)
    extender = extender_on(built)
    plugin = PluginStandIn("a", 8, extender.binder.pods, lambda raw, annotations: _patch(extender, raw, annotations))
    await _bind_and_admit_fifty(chance, extender, plugin)
    shares = {raw["metadata"]["uid"]: gpushare.decode(raw["metadata"]["annotations"]) for raw in extender.binder.pods()}
    assert plugin.visible == {uid: str(share.index) for uid, share in shares.items()}
    used = [sum(share.units for share in shares.values() if share.index == index) for index in range(8)]
    assert max(used) <= 40
    assert left(extender, "a") == left(restarted(extender, built), "a") == [40 - each for each in used]


async def _bind_and_admit_fifty(chance: random.Random, extender: Extender, plugin: PluginStandIn, *, starts: bool = False) -> None:
    """Bind and admit in any order; ``starts``: and start whatever is admitted at any time, also before pods that were bound earlier are admitted."""
    waiting = {number: pod(f"p{number}").units(chance.choice([4, 5, 6])) for number in range(50)}
    everybody = dict(waiting)
    while waiting or plugin.to_admit():
        if waiting and chance.random() < 0.6:
            number = chance.choice(sorted(waiting))
            assert extender.filter(waiting[number])["NodeNames"] == ["a"]
            if not await bind(extender, waiting[number], "a"):
                del waiting[number]
        elif admissible := plugin.to_admit():
            plugin.admit(chance.choice(admissible))
        else:
            extender.clock.now += 1
        if starts and chance.random() < 0.5:
            admitted = [asked for asked in everybody.values() if plugin.visible.get(asked.uid, NO_GPU) != NO_GPU]
            for asked in admitted[:1] and [chance.choice(admitted)]:
                _run(extender, asked)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_however_early_containers_start_none_of_them_sees_the_gpu_of_another_pod(seed: int):
    """A container that starts before an equal pod is admitted may leave nothing for that one to find: it fails at its start, as the plugin has it, and no GPU is shared unseen."""
    extender = extender_on(cluster().gpushare("a", gpus=8, units=40))
    plugin = PluginStandIn("a", 8, extender.binder.pods, lambda raw, annotations: _patch(extender, raw, annotations))
    asyncio.run(_bind_and_admit_fifty(random.Random(seed), extender, plugin, starts=True))
    own = {raw["metadata"]["uid"]: str(gpushare.decode(raw["metadata"]["annotations"]).index) for raw in extender.binder.pods()}
    assert {uid: seen for uid, seen in plugin.visible.items() if seen not in (own[uid], NO_GPU)} == {}


# --- the swap: pods and nodes as gpushare left them -----------------------------------------------------------------


@pytest.mark.parametrize("assigned", [True, False])
async def test_pods_of_the_original_extender_are_counted_by_their_annotations(assigned: bool):
    """Running ones, and Pending ones that the plugin has not seen yet; their node takes more pods at once."""
    old = pod("old").placed_by_gpushare("a", index=2, units=20, gpu_units=23, assigned=assigned)
    extender = extender_on(cluster().gpushare("a").with_pods(old))
    assert left(extender, "a") == [23, 23, 3, 23]
    asked = pod("new").units(20)
    error = await bind(extender, asked, "a") if extender.filter(asked)["NodeNames"] else "refused"
    assert ("pod default/old waits" in error) is not assigned
    if assigned:
        assert carried(extender, asked).index != 2


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        pytest.param({"idx": "x"}, "ALIYUN_COM_GPU_MEM_IDX=x cannot be read", id="no index"),
        pytest.param({"pod": "19"}, "ALIYUN_COM_GPU_MEM_POD=19, but the containers of the pod ask for 20 aliyun.com/gpu-mem", id="less than it asks"),
        pytest.param({"assigned": "maybe"}, "ALIYUN_COM_GPU_MEM_ASSIGNED=maybe cannot be read", id="assigned, or not"),
    ],
)
def test_a_pod_whose_annotations_do_not_decode_closes_its_node_by_name_until_it_ends(annotations: dict[str, str], said: str):
    """What it holds is not known, so nothing is given there."""
    old = pod("old").placed_by_gpushare("a", 0, 20, 23).carrying(**annotations)
    extender = extender_on(cluster().gpushare("a").gpushare("b").with_pods(old))
    assert extender.filter(pod("new").units(1))["NodeNames"] == ["b"]
    assert closed(extender, "a").startswith(f"pod default/old: {said}")
    extender.cluster.remove_pod(old.uid)
    assert extender.filter(pod("new").units(1))["NodeNames"] == ["a", "b"]


def test_a_pod_that_came_around_every_extender_closes_its_node():
    """gpushare-scheduler-extender 75, 228, 11: the plugin may have given it any GPU."""
    extender = extender_on(cluster().gpushare("a").with_pods(pod("stranger").units(4).bound_to("a")))
    assert "pod default/stranger" in closed(extender, "a")
    assert extender.filter(pod().units(1))["NodeNames"] == []


def test_a_pod_on_a_gpu_that_the_node_does_not_have_closes_it():
    """Its index is beyond what the plugin counts now."""
    extender = extender_on(cluster().gpushare("a", gpus=2).with_pods(pod("old").placed_by_gpushare("a", 3, 4, 23)))
    assert closed(extender, "a") == "pod default/old holds gpushare:a:3"


async def test_annotations_that_a_template_has_copied_mean_nothing_on_an_unbound_pod():
    """Somebody exported a running pod and created it again."""
    extender = extender_on(cluster().gpushare("a", gpus=1))
    asked = pod("copy").units(5).carrying(idx="7", pod="99", dev="1", assigned="true", assume_time="1")
    await place(extender, asked, "a")
    share = carried(extender, asked)
    assert (share.index, share.units, share.gpu_units, share.assigned) == (0, 5, 23, False)


async def test_the_original_extender_finds_its_annotations_on_our_pods():
    """The way back: whatever Linkwise has bound counts there too, and here without our allocation."""
    built = cluster().gpushare("a", gpus=4)
    extender = extender_on(built)
    for number, units in enumerate((10, 7, 13, 5)):
        await place(extender, pod(f"p{number}").units(units), "a")
    theirs = deepcopy(extender.binder.pods())
    for raw in theirs:
        del raw["metadata"]["annotations"]["linkwise.dev/allocation"]
    assert left(extender_on(ClusterBuilder(pods=tuple(theirs), nodes=built.nodes)), "a") == left(extender, "a")


# --- nodes ----------------------------------------------------------------------------------------------------------


def test_a_pod_of_gpushare_goes_to_no_node_that_its_plugin_does_not_serve():
    """And says why."""
    extender = extender_on(cluster().bridges("a"))
    refused = extender.filter(pod().units(1))["FailedAndUnresolvableNodes"]
    assert refused == {"a": "linkwise: gpushare's device plugin does not serve the node, and it alone hands out aliyun.com/gpu-mem"}


async def test_unhealthy_gpus_of_the_config_map_are_skipped_and_their_pods_stay_counted():
    """kube-system/unhealthy-gpu-NODE, "0,2"."""
    built = cluster().gpushare("a", gpus=3, units=8).unhealthy("a", "0,2")
    extender = extender_on(built)
    await place(extender, pod("first").units(8), "a")
    assert left(extender, "a") == [0, 0, 0]
    extender.cluster.remove_config_map("unhealthy-gpu-a")
    assert left(extender, "a") == [8, 0, 8]
    extender.cluster.apply_config_map(unhealthy_gpus("a", "first"))
    assert closed(extender, "a").startswith("ConfigMap kube-system/unhealthy-gpu-a has gpus=first")
    extender.cluster.apply_config_map(unhealthy_gpus("a", "1"))
    assert left(extender, "a") == [8, 0, 8]


async def test_the_plugin_restarts_and_pods_stay_counted():
    """Kubelet sets its amount to 0 in between."""
    extender = extender_on(cluster().gpushare("a", gpus=2))
    await place(extender, pod("first").units(20), "a")
    extender.cluster.apply_node(gpushare_node("a", 2, 0))
    assert extender.filter(pod("next").units(1))["NodeNames"] == []
    extender.cluster.apply_node(gpushare_node("a", 2, 23))
    assert sorted(left(extender, "a")) == [3, 23]
    extender.cluster.remove_node("a")
    assert extender.filter(pod("next").units(1))["NodeNames"] == []
    extender.cluster.apply_node(gpushare_node("a", 2, 23))
    assert sorted(left(extender, "a")) == [3, 23]


async def test_units_are_mib_where_the_plugin_counts_so():
    """What is asked, written and left is in the node's own unit."""
    extender = extender_on(cluster().gpushare("a", gpus=2, units=23028))
    asked = pod("p").units(10_000)
    await place(extender, asked, "a")
    assert (carried(extender, asked).units, carried(extender, asked).gpu_units) == (10_000, 23_028)
    view = extender.cluster.view()
    assert sorted(view.left[view.row_of["a"], :2].tolist()) == [13_028, 23_028]


async def test_a_pod_that_was_filtered_before_the_unit_changed_is_not_bound_by_the_old_one():
    """8 of what was asked then is not 8 of what is counted now."""
    extender = extender_on(cluster().gpushare("a", gpus=2, units=23))
    asked = pod("p").units(8)
    assert extender.filter(asked)["NodeNames"] == ["a"]
    extender.cluster.apply_node(gpushare_node("a", 2, 23028))
    assert await bind(extender, asked, "a") == (
        "pod default/p is not bound to node a yet: node a has begun to count aliyun.com/gpu-mem in another unit since pod default/p was filtered"
    )
    await place(extender, asked, "a")


def test_a_node_that_counts_in_another_unit_than_most_is_closed():
    """A pod's number cannot mean both."""
    extender = extender_on(cluster().gpushare("a").gpushare("b").gpushare("c", units=23028))
    assert extender.filter(pod().units(8))["NodeNames"] == ["a", "b"]
    assert "most others in GiB" in closed(extender, "c")


# --- whatever comes first -------------------------------------------------------------------------------------------

NODES = [
    gpushare_node("a", 4, 23),
    gpushare_node("a", 3, 23),
    gpushare_node("a", 4, 0),
    gpushare_node("a", 4, 23, label="no"),
    gpushare_node("a", 4, 9216),
]
TOPOLOGIES = [sample("mesh", "a").to_object(), changed(sample("mesh", "a").to_object(), without=1), {"metadata": {"name": "a"}, "spec": "broken"}]
CONFIG_MAPS = [unhealthy_gpus("a", "0,2"), unhealthy_gpus("a", "9"), unhealthy_gpus("a", "?")]
UUIDS = cluster().mesh("a").uuids("a")
PODS = [
    pod("old").placed_by_gpushare("a", 2, 10, 23),
    pod("odd").placed_by_gpushare("a", 1, 4, 23).carrying(idx="x"),
    pod("stand-in").units(4).bound_to("a", allocation("a", "gpushare:a:3", 4)).carrying(idx="3", pod="4", dev="23", assigned="true", assume_time="1"),
    pod("real").units(6).bound_to("a", allocation("a", UUIDS[1], 6)).carrying(idx="2", pod="6", dev="23", assigned="true", assume_time="1"),
    pod("stranger").units(1).bound_to("a"),
]
Event = tuple[str, int]  # what, and which of its kind; -1: it goes
EVENTS = st.lists(
    st.sampled_from(
        [("node", n) for n in range(-1, len(NODES))]
        + [("topology", n) for n in range(-1, len(TOPOLOGIES))]
        + [("config map", n) for n in range(-1, len(CONFIG_MAPS))]
        + [(f"pod {each}", n) for each in range(len(PODS)) for n in (-1, 0)]
    ),
    max_size=20,
)


@settings(max_examples=300, deadline=None)
@given(EVENTS)
def test_the_state_is_what_the_last_word_on_everything_says_in_whatever_order_it_came(events: list[Event]):
    """Free capacity after any sequence equals what a fresh process would compute."""
    lived, last = extender_on(cluster()), dict[str, int]()
    _tell(lived, "topology", 0)
    _tell(lived, "topology", -1)
    for what, which in events:
        _tell(lived, what, which)
        last[what] = which
    fresh = extender_on(cluster())
    fresh.cluster.apply_topology(TOPOLOGIES[0])  # a node that was known once keeps its row
    fresh.cluster.remove_topology("a")
    for what, which in sorted(last.items()):
        if which >= 0:
            _tell(fresh, what, which)
    assert _state(lived) == _state(fresh)


def _tell(extender: Extender, what: str, which: int) -> None:
    state = extender.cluster
    if what == "node":
        state.apply_node(NODES[which]) if which >= 0 else state.remove_node("a")
    elif what == "topology":
        state.apply_topology(TOPOLOGIES[which]) if which >= 0 else state.remove_topology("a")
    elif what == "config map":
        state.apply_config_map(CONFIG_MAPS[which]) if which >= 0 else state.remove_config_map("unhealthy-gpu-a")
    else:
        told = PODS[int(what.removeprefix("pod "))]
        state.apply_pod(told.build()) if which >= 0 else state.remove_pod(told.uid)


def _state(extender: Extender) -> JsonObject:
    view = extender.cluster.view()
    row = view.row_of["a"]
    gpus = view.gpus[row]
    return {
        "gpus": (gpus.uuids, gpus.offered_mib, gpus.plugin_gpus),
        "usable": int(view.usable[row]),
        "free": int(view.free[row]),
        "left": view.left[row].tolist(),
        "closed": (int(view.closed[row]), sorted(view.closed_by[row].split("; "))),
        "holders": sorted((entry.name, sorted(entry.uuids), sorted(entry.shares.items())) for entry in extender.cluster.ledger),
        "unit": extender.cluster.gpushare.mib_of_unit,
    }
