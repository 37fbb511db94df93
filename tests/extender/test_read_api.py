"""What people and tools read from a running extender: nodes, one node, the decision about a pod."""

from dataclasses import replace
from typing import Any

import pytest

from extender import read_api
from tests.builders import Extender, changed, cluster, extender_on, pod
from topology.api import AllocatedGpu, Allocation
from topology.errors import ApiServerError

BUILT = cluster().bridges("pairs").mesh("mesh").pcie("silent")
UUIDS = BUILT.uuids("pairs")
TWO = pod("two").gpus(2)


def extender() -> Extender:
    made = extender_on(BUILT.with_pods(pod("p").holding("pairs", UUIDS[0], UUIDS[4]), pod("around").gpus(1).bound_to("silent")))
    made.cluster.apply_topology(changed(BUILT.topologies[1], unhealthy=[3]))
    return made


def node(name: str) -> dict[str, Any]:
    found = read_api.node(extender().cluster, name)
    assert found is not None
    return found


def test_every_node_has_one_short_object():
    listed = {each["name"]: each for each in read_api.nodes(extender().cluster)}
    assert list(listed) == ["pairs", "mesh", "silent"]
    assert {name: (each["total"], each["healthy"], each["free"]) for name, each in listed.items()} == {
        "pairs": (8, 8, 6),
        "mesh": (4, 3, 3),
        "silent": (8, 8, 8),
    }
    assert listed["pairs"]["models"] == ["NVIDIA A100 80GB PCIe"]
    assert listed["pairs"]["closed"] is None
    assert listed["silent"]["closed"] == {
        "code": "UNKNOWN_HOLDER",
        "reason": "closed: a pod that Linkwise did not place holds unknown GPUs of the node: "
        "pod default/around uses 1 nvidia.com/gpu and carries no allocation",
    }


def test_equal_nodes_show_the_same_class():
    classes = [each["class"] for each in read_api.nodes(extender_on(cluster().mesh("a", "b").pcie("c")).cluster)]
    assert classes[0] == classes[1] != classes[2]


def test_one_node_tells_who_holds_what_and_what_is_healthy():
    gpus = node("pairs")["gpus"]
    assert [gpu["uuid"] for gpu in gpus] == UUIDS
    assert {gpu["index"]: gpu["heldBy"] for gpu in gpus if gpu["heldBy"]} == {0: "default/p", 4: "default/p"}
    assert gpus[0] == {
        "index": 0,
        "uuid": UUIDS[0],
        "model": "NVIDIA A100 80GB PCIe",
        "memoryMiB": 81920,
        "offeredMiB": 81920,
        "leftMiB": 0,
        "healthy": True,
        "heldBy": "default/p",
    }
    assert [gpu["healthy"] for gpu in node("mesh")["gpus"]] == [True, True, True, False]


def test_one_node_tells_of_every_pod_that_shares_a_gpu_and_what_is_left_of_it():
    """Not only of the last one that came."""
    made = extender_on(BUILT.with_pods(*(pod(name).shared(gib).sharing("pairs", {UUIDS[2]: gib * 1024}) for name, gib in (("a", 10), ("b", 20)))))
    found = read_api.node(made.cluster, "pairs")
    assert found is not None
    shared, idle = found["gpus"][2], found["gpus"][3]
    assert (shared["offeredMiB"], shared["leftMiB"]) == (81_920, 51_200)
    assert shared["heldBy"] == [{"pod": "default/a", "memoryMiB": 10_240}, {"pod": "default/b", "memoryMiB": 20_480}]
    assert (idle["heldBy"], idle["leftMiB"]) == (None, 81_920)


def test_one_node_tells_its_links_and_the_best_sets_of_what_is_free():
    found = node("pairs")
    assert found["links"][0] == ["X", "SYS", "NV12", "SYS", "SYS", "SYS", "SYS", "SYS"]
    assert found["bestSets"][0] == {"size": 2, "gpus": [1, 3], "bandwidthGBps": 300.0, "worstLink": "NV12"}
    assert [each["size"] for each in found["bestSets"]] == [2, 3, 4, 5, 6]


def test_one_node_tells_which_gpus_the_driver_keeps_apart():
    """Beside what was assumed; the links stay those that were printed."""
    made = extender_on(BUILT)
    made.cluster.apply_topology(changed(BUILT.topologies[0], kept_apart=[(1, 3)]))
    found = read_api.node(made.cluster, "pairs")
    assert found is not None
    assert "no peer access between GPU1 and GPU3 (CNS): they exchange data through host memory, counted as SYS" in found["assumed"]
    assert found["links"][1][3] == "NV12"
    assert found["bestSets"][0]["gpus"] == [0, 2]


def test_every_node_tells_the_cpu_and_memory_left_and_null_where_no_node_tells():
    made = extender_on(BUILT.node("mesh", cpu="8", memory="16Gi").with_pods(pod("web").plain(cpu="9500m", memory="1Gi").bound_to("mesh")))
    listed = {each["name"]: (each["cpuLeftMilli"], each["hostMemoryLeftMiB"]) for each in read_api.nodes(made.cluster)}
    assert listed == {"pairs": (None, None), "mesh": (-1500, 15_360), "silent": (None, None)}
    found = read_api.node(made.cluster, "mesh")
    assert found is not None
    assert (found["cpuLeftMilli"], found["hostMemoryLeftMiB"]) == (-1500, 15_360)


async def test_of_a_gpu_that_is_shared_all_holders_are_told_and_what_is_left():
    """A second container of a pod on the same GPU adds to its pod's share."""
    made = extender_on(BUILT)
    two = pod("two").shared(10, "first").shared(5, "second")
    for asked in (pod("one").shared(20), two):
        await made.place(asked, "pairs")
    found = read_api.node(made.cluster, "pairs")
    assert found is not None
    first, *others = sorted(found["gpus"], key=lambda gpu: gpu["leftMiB"])
    assert (first["offeredMiB"], first["leftMiB"]) == (81_920, 81_920 - 35 * 1024)
    assert first["heldBy"] == [{"pod": "default/one", "memoryMiB": 20 * 1024}, {"pod": "default/two", "memoryMiB": 15 * 1024}]
    assert {(gpu["leftMiB"], gpu["heldBy"]) for gpu in others} == {(81_920, None)}
    assert (found["memoryOfferedMiB"], found["memoryLeftMiB"], found["free"]) == (8 * 81_920, 8 * 81_920 - 35 * 1024, 7)


def test_a_gpu_that_is_shared_and_held_whole_shows_both_pods_and_nothing_left():
    """Nobody places pods like that; where they are found on a node, none of them is hidden."""
    made = extender_on(BUILT.with_pods(pod("whole").holding("pairs", UUIDS[0])))
    share = Allocation(node="pairs", containers={"main": (AllocatedGpu(uuid=UUIDS[0], memory_mib=1024, shared=True),)})
    made.cluster.apply_pod(pod("part").shared(1).bound_to("pairs", share.encode()).build())
    found = read_api.node(made.cluster, "pairs")
    assert found is not None
    assert found["gpus"][0]["heldBy"] == [{"pod": "default/part", "memoryMiB": 1024}, {"pod": "default/whole", "memoryMiB": None}]
    assert found["gpus"][0]["leftMiB"] == 0


def test_gpus_that_are_not_healthy_offer_nothing():
    """The sums of a node are those of its GPUs: an A100 has 80 GiB, one of four is ill."""
    mesh = node("mesh")
    assert [gpu["offeredMiB"] for gpu in mesh["gpus"]] == [gpu["leftMiB"] for gpu in mesh["gpus"]] == [40_960, 40_960, 40_960, 0]
    listed = {each["name"]: (each["memoryOfferedMiB"], each["memoryLeftMiB"]) for each in read_api.nodes(extender().cluster)}
    assert listed["mesh"] == (3 * 40_960, 3 * 40_960)
    assert listed["pairs"] == (8 * 81_920, 6 * 81_920)


def test_a_node_without_a_readable_topology_is_known_all_the_same():
    made = extender()
    made.cluster.apply_topology({"metadata": {"name": "broken"}, "spec": {}})
    made.cluster.remove_topology("mesh")
    for name, code in (("broken", "TOPOLOGY_UNREADABLE"), ("mesh", "NO_TOPOLOGY")):
        found = read_api.node(made.cluster, name)
        assert found is not None
        assert (found["closed"]["code"], found["total"], found["class"], "gpus" in found) == (code, 0, None, False)
        assert (found["memoryOfferedMiB"], found["memoryLeftMiB"]) == (0, 0)


def test_a_node_that_nobody_knows_is_none():
    assert read_api.node(extender().cluster, "nowhere") is None


async def test_a_kept_decision_is_told():
    made = extender()
    made.filter(TWO)
    found = await read_api.decision(made.verbs, made.binder, "default", "two")
    assert found is not None
    assert (found["pod"], found["evaluatedNow"]) == ("default/two", False)


async def test_what_was_decided_about_a_namesake_is_not_told():
    """A StatefulSet's pod that was deleted and is back, and that nobody has asked about yet."""
    made = extender_on(BUILT.with_pods(TWO))
    made.filter(TWO)
    kept = made.verbs.decisions.get("default/two")
    assert kept is not None
    made.verbs.decisions.put(replace(kept, uid="of the one before"))
    found = await read_api.decision(made.verbs, made.binder, "default", "two")
    assert found is not None
    assert found["evaluatedNow"] is True


async def test_a_kept_decision_is_told_while_the_api_server_is_away(monkeypatch: pytest.MonkeyPatch):
    made = extender()
    made.filter(TWO)
    monkeypatch.setattr(type(made.binder), "read_pod", nobody_answers)
    found = await read_api.decision(made.verbs, made.binder, "default", "two")
    assert found is not None
    assert found["evaluatedNow"] is False
    with pytest.raises(ApiServerError):
        await read_api.decision(made.verbs, made.binder, "default", "nobody")


async def nobody_answers(*_: object) -> None:
    raise ApiServerError("nobody answers")


async def test_a_stored_pod_without_a_decision_is_evaluated_now():
    made = extender_on(BUILT.with_pods(TWO))
    found = await read_api.decision(made.verbs, made.binder, "default", "two")
    assert found is not None
    assert (found["evaluatedNow"], [each["node"] for each in found["nodes"]]) == (True, ["pairs", "mesh", "silent"])
    assert "boundBefore" not in found


async def test_a_bound_pod_without_a_decision_says_where_it_is():
    made = extender()
    found = await read_api.decision(made.verbs, made.binder, "default", "p")
    assert found is not None
    assert found["boundBefore"] == "pairs"


async def test_a_pod_that_nobody_knows_has_no_decision():
    made = extender()
    assert await read_api.decision(made.verbs, made.binder, "default", "two") is None


@pytest.mark.parametrize("asked", [pod("x").plain(), pod("x").gpus(2).annotated(policy="?")], ids=["no GPUs", "not understood"])
async def test_a_pod_that_is_none_of_our_business_or_not_understood_says_so(asked: Any):
    made = extender_on(BUILT.with_pods(asked))
    found = await read_api.decision(made.verbs, made.binder, "default", "x")
    assert found is not None
    assert found["error"]
    assert found["nodes"] == []


# --- as gpushare's extender answers it ------------------------------------------------------------------------------


def gpushare_extender() -> Extender:
    """Two nodes of gpushare's plugin, one with a pod of its own extender, and one that has nothing to do with it."""
    return extender_on(BUILT.gpushare("b", gpus=2, units=23).gpushare("a", gpus=1).with_pods(pod("old").placed_by_gpushare("b", 1, 10, 23)))


def test_inspection_tells_every_node_of_gpushares_plugin_in_its_units_and_form():
    """What kubectl-inspect-gpushare and dashboards read."""
    assert read_api.gpushare_nodes(gpushare_extender().cluster) == {
        "nodes": [
            {"name": "a", "totalGPU": 23, "usedGPU": 0, "devs": [{"id": 0, "totalGPU": 23, "usedGPU": 0, "pods": []}]},
            {
                "name": "b",
                "totalGPU": 46,
                "usedGPU": 10,
                "devs": [
                    {"id": 0, "totalGPU": 23, "usedGPU": 0, "pods": []},
                    {"id": 1, "totalGPU": 23, "usedGPU": 10, "pods": [{"name": "old", "namespace": "default", "usedGPU": 10}]},
                ],
            },
        ]
    }


async def test_inspection_counts_a_pod_from_the_moment_in_which_it_is_placed():
    """Before the plugin has seen it."""
    made = gpushare_extender()
    await made.place(pod("new").units(7), "a")
    (node_a,) = read_api.gpushare_node(made.cluster, "a")["nodes"]
    assert (node_a["usedGPU"], node_a["devs"][0]["pods"]) == (7, [{"name": "new", "namespace": "default", "usedGPU": 7}])


@pytest.mark.parametrize("name", ["pairs", "nowhere"])
def test_inspection_of_another_node_is_a_sentence(name: str):
    """Gpushare's own ends the process there."""
    assert read_api.gpushare_node(gpushare_extender().cluster, name) == {
        "nodes": [],
        "error": f"node {name} is not served by gpushare's device plugin",
    }


def test_inspection_of_a_closed_node_tells_no_gpus_that_nobody_can_name():
    """Its sum is the plugin's."""
    made = extender_on(cluster().pcie("a").gpushare("a", gpus=4, units=10))
    assert read_api.gpushare_node(made.cluster, "a") == {"nodes": [{"name": "a", "totalGPU": 40, "usedGPU": 0, "devs": []}]}
