"""Why a pod went where it went, or nowhere: one decision as the API tells it, and as people read it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from extender.explain import Bound, Decision, Decisions, bound_of, bound_text, index_list, text, to_object
from extender.placement import Placement
from extender.settings import Settings
from tests.builders import NOW, ClusterBuilder, Extender, PodBuilder, cluster, extender_on, pod

TWO = pod("pair", "team").gpus(2).min_bandwidth(100)
BUILT = cluster().nvswitch("node-1").bridges("node-2", "node-3", "node-7").pcie("node-4").mesh("node-5", "node-6")


def held(built: ClusterBuilder, node: str, *gpus: int) -> PodBuilder:
    return pod(f"on-{node}").holding(node, *(built.uuids(node)[gpu] for gpu in gpus))


CROWDED = BUILT.with_pods(
    held(BUILT, "node-2", 0, 2, 4, 5, 6, 7),
    held(BUILT, "node-3", 0, 1, 4, 6),
    held(BUILT, "node-5", 0, 1, 2),
    pod("garbled", "team").gpus(1).bound_to("node-6", "garbage"),
    pod("around", "team").gpus(2).bound_to("node-7"),
)
NAMES = [f"node-{number}" for number in range(1, 9)]


def told(extender: Extender, asked: PodBuilder) -> dict[str, Any]:
    decision = extender.verbs.decisions.get(f"{asked.namespace}/{asked.name}")
    assert decision is not None
    answer: dict[str, Any] = json.loads(json.dumps(to_object(decision, extender.verbs.placement)))
    return answer


async def walked(built: ClusterBuilder, asked: PodBuilder, *steps: str, names: list[str] = NAMES) -> dict[str, Any]:
    """Take a pod through these verbs; bind it to its best node, or to the one named in the step."""
    extender = extender_on(built)
    scores: dict[str, int] = {}
    for step in steps:
        verb, _, node = step.partition(" ")
        if verb == "filter":
            extender.filter(asked, *names)
        elif verb == "prioritize":
            scores = extender.prioritize(asked, *extender.filter(asked, *names)["NodeNames"])
        else:
            await extender.bind(asked, node or max(scores, key=lambda name: scores[name]))
    return told(extender, asked)


# --- as people read it ----------------------------------------------------------------------------------------------


async def test_the_text_of_every_kind_of_decision_is_golden(golden: Callable[[str, str], None]):
    extender = extender_on(CROWDED)
    evaluated = to_object(extender.verbs.evaluate(TWO.build()), extender.verbs.placement) | {"evaluatedNow": True}
    decisions = {
        "bound": await walked(CROWDED, TWO, "filter", "prioritize", "bind"),
        "one GPU, bound": await walked(CROWDED, pod("one", "team").gpus(1), "filter", "prioritize", "bind"),
        "several containers, bound": await walked(CROWDED, pod("both", "team").gpus(4, "train").gpus(1, "serve"), "filter", "prioritize", "bind"),
        "scored, not bound yet": await walked(CROWDED, TWO, "filter", "prioritize"),
        "filtered, not scored yet": await walked(CROWDED, TWO.min_bandwidth(20), "filter"),
        "one node left": await walked(CROWDED, pod("eight", "team").gpus(8).min_bandwidth(100), "filter"),
        "fits on none": await walked(CROWDED, TWO.min_bandwidth(999), "filter", "prioritize"),
        "within one switch": await walked(CROWDED, pod("near", "team").gpus(4).max_distance("PXB"), "filter"),
        "of a model": await walked(CROWDED, pod("picky", "team").gpus(4).annotated(gpu_model="*A100*"), "filter"),
        "not understood": await walked(CROWDED, TWO.annotated(polcy="pack"), "filter"),
        "refused at bind": await walked(CROWDED, TWO, "filter", "prioritize", "bind node-4"),
        "evaluated now": evaluated,
        "bound before": evaluated | {"boundBefore": "node-2"},
    }
    golden("explain.txt", "\n\n".join(f"# {name}\n{text(decision)}" for name, decision in decisions.items()) + "\n")


SHARED = cluster().bridges("node-1", "node-2").mesh("node-3", "node-4", "node-5")


async def test_the_text_of_decisions_about_parts_is_golden(golden: Callable[[str, str], None]):
    """A part of one GPU, parts of two, both beside whole GPUs, and every reason against them; node-5's GPUs differ, and node-4 tells no sizes."""
    topologies = {each["metadata"]["name"]: each for each in SHARED.topologies}
    sizes = {"node-4": [None] * 4, "node-5": [40_960, 40_960, 24_576, 8_192]}
    for node, memory in sizes.items():
        for gpu, mib in zip(topologies[node]["spec"]["gpus"], memory, strict=True):
            gpu["memoryMiB"] = mib
    uuids = {node: SHARED.uuids(node) for node in topologies}
    built = ClusterBuilder(topologies=tuple(topologies.values())).with_pods(
        held(SHARED, "node-1", 4, 5, 6, 7),
        pod("small").shared(30).sharing("node-1", {uuids["node-1"][0]: 30 * 1024}),
        pod("large").shared(70).sharing("node-2", {uuids["node-2"][1]: 70 * 1024}),
        *(pod(f"on-3-{gpu}").shared(35).sharing("node-3", {uuid: 35 * 1024}) for gpu, uuid in enumerate(uuids["node-3"])),
    )
    names = list(topologies)
    whole_walk = ("filter", "prioritize", "bind")
    demands = {
        "a part of one GPU, bound": (pod("part", "team").shared(10), whole_walk),
        "parts of two GPUs, scored": (pod("parts", "team").shared(20).annotated(gpu_count="2", min_bandwidth="100"), ("filter", "prioritize")),
        "whole GPUs and a part, bound": (pod("both", "team").gpus(2, "train").shared(10, "serve").init_shared(20), whole_walk),
        "parts with NVIDIA's policy": (pod("policy", "team").shared(20).annotated(gpu_count="2", policy="gpuallocator"), ("filter",)),
        "more than most GPUs have": (pod("large", "team").shared(41), ("filter",)),
        "more than any GPU of a model has": (pod("picky", "team").shared(81).annotated(gpu_model="*A100*"), ("filter",)),
        "of more GPUs than are so large": (pod("wide", "team").shared(90).annotated(gpu_count="3"), ("filter",)),
        "of more GPUs than have as much left": (pod("wide", "team").shared(100).annotated(gpu_count="2"), ("filter",)),
        "too fast": (pod("fast", "team").shared(20).annotated(gpu_count="2", min_bandwidth="999"), ("filter",)),
        "no split": (pod("split", "team").shared(30, "a").shared(30, "b").shared(30, "c").shared(30, "d").gpus(1, "e"), ("filter",)),
    }
    told_of = {name: await walked(built, asked, *steps, names=names) for name, (asked, steps) in demands.items()}
    golden("explain_shares.txt", "\n\n".join(f"# {name}\n{text(decision)}" for name, decision in told_of.items()) + "\n")


async def test_the_object_tells_the_memory_that_a_pod_takes():
    decision = await walked(SHARED, pod("part").gpus(1, "train").shared(10, "serve").init_shared(12), "filter", names=["node-1"])
    (node,) = decision["nodes"]
    assert decision["demand"]["shares"] == {"serve": 10_240, "init": 12_288}
    assert decision["demand"]["containers"] == {"init": 1, "train": 1, "serve": 1}
    assert [gpu["takenMiB"] for gpu in node["memory"]] == [12_288]
    assert {gpu["leftMiB"] for gpu in node["memory"]} == {80 * 1024}
    assert len(node["gpus"]) == 2


async def test_a_long_list_is_cut_and_says_how_much_is_left_out():
    lines = text(await walked(CROWDED, TWO, "filter"), most=1).splitlines()
    assert len(lines) == 5
    assert (lines[2], lines[4]) == ("  … and 1 more that fit", "  … and 5 more that do not")


async def test_pods_that_were_scored_just_before_are_told_of():
    extender = extender_on(cluster().mesh("a", "b"))
    for name in ("first", "second"):
        extender.filter(pod(name).gpus(4))
        extender.prioritize(pod(name).gpus(4))
    assert (
        "  a: score 0, its free GPUs are about to be taken by pods that were scored just before" in text(told(extender, pod("second"))).splitlines()
    )


@pytest.mark.parametrize(
    ("indices", "written"),
    [([], ""), ([3], "3"), ([0, 1, 2, 3], "0-3"), ([0, 2, 4], "0,2,4"), ([0, 1, 4, 6, 7], "0-1,4,6-7")],
)
def test_indices_are_written_with_ranges(indices: list[int], written: str):
    assert index_list(indices) == written


# --- as the API tells it --------------------------------------------------------------------------------------------


async def test_the_object_of_a_bound_pod_is_golden(golden: Callable[[str, str], None]):
    decision = await walked(CROWDED, TWO, "filter", "prioritize", "bind")
    decision["generation"] = "of the view"
    golden("explain.json", json.dumps(decision, indent=2) + "\n")


async def test_every_node_of_the_call_has_its_entry_in_the_order_of_the_call():
    names = ["node-4", "node-1", "nowhere", "node-2"]
    decision = await walked(CROWDED, TWO, "filter", names=names)
    assert [node["node"] for node in decision["nodes"]] == names
    assert [node["fits"] for node in decision["nodes"]] == [False, True, False, True]


async def test_chosen_is_the_top_and_runner_up_the_next():
    decision = await walked(CROWDED, TWO, "filter", "prioritize")
    assert (decision["chosen"]["node"], decision["chosen"]["score"]) == ("node-1", 10)
    assert decision["runnerUp"]["node"] == "node-2"


async def test_where_nothing_fits_nothing_is_chosen():
    decision = await walked(CROWDED, TWO.min_bandwidth(999), "filter", "prioritize")
    assert (decision["chosen"], decision["runnerUp"], decision["bound"]) == (None, None, None)


async def test_the_decision_speaks_of_the_cluster_as_it_was():
    """However much later the explanation is asked for."""
    extender = extender_on(CROWDED)
    extender.filter(TWO, *NAMES)
    before = told(extender, TWO)
    for node in ("node-1", "node-2"):
        extender.cluster.apply_pod(pod(f"later-{node}").holding(node, *CROWDED.uuids(node)).build())
    extender.cluster.remove_topology("node-4")
    assert told(extender, TWO) == before


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(pod().gpus(1), {"gpus": 1, "topology": None, "minBandwidthGBps": None, "maxDistance": "SYS", "policy": "pack"}, id="one GPU"),
        pytest.param(
            TWO.annotated(topology="none", policy="spread", gpu_model="*A*", max_distance="PIX"),
            {"gpus": 2, "topology": "none", "minBandwidthGBps": 100.0, "maxDistance": "PIX", "policy": "spread", "gpuModel": "*A*"},
            id="everything that can be asked",
        ),
        pytest.param(
            pod().gpus(4, "a").gpus(1, "b").init(2), {"gpus": 5, "containers": {"init": 2, "a": 4, "b": 1}, "topology": "best"}, id="three containers"
        ),
    ],
)
async def test_the_demand_is_told_as_it_was_understood(asked: PodBuilder, expected: dict[str, Any]):
    demand = (await walked(CROWDED, asked, "filter"))["demand"]
    assert {key: demand[key] for key in expected} == expected


def test_who_chose_the_set_is_told_where_it_was_not_us():
    """A set that NVIDIA's rule takes may be slower than the best; nobody should wonder."""
    extender = extender_on(CROWDED)
    picky = pod("picky").annotated(policy="gpuallocator")
    for asked, expected in ((TWO, False), (picky.gpus(2), True), (picky.shared(8), False)):
        extender.filter(asked, *NAMES)
        assert ("that NVIDIA's device plugin would take" in text(told(extender, asked))) is expected


# --- what is kept ---------------------------------------------------------------------------------------------------


def decision_of(name: str, uid: str = "u-1") -> Decision:
    return Decision(name, uid, NOW, None, "")


def test_the_last_decision_of_a_pod_replaces_the_one_before():
    decisions = Decisions(10, 64)
    decisions.put(decision_of("team/a", "u-1"))
    decisions.put(decision_of("team/a", "u-2"))
    found = decisions.get("team/a")
    assert found is not None
    assert found.uid == "u-2"
    assert decisions.get("team/b") is None


def test_the_end_of_a_namesakes_story_is_not_this_pods():
    decisions = Decisions(10, 64)
    decisions.put(decision_of("team/a", "u-1"))
    decisions.bind("team/a", "u-2", Bound("node", ""))
    decisions.bind("team/b", "u-1", Bound("node", ""))
    found = decisions.get("team/a")
    assert found is not None
    assert found.bound is None
    assert decisions.get("team/b") is None


def test_a_repeated_bind_call_does_not_wipe_out_what_the_first_one_told():
    decisions = Decisions(10, 64)
    decisions.put(decision_of("team/a"))
    first = Bound("node", "", [0, 2], 300.0, "NV12")
    decisions.bind("team/a", "u-1", first)
    decisions.bind("team/a", "u-1", Bound("node", ""))
    found = decisions.get("team/a")
    assert found is not None
    assert found.bound == first


def test_a_bind_that_failed_and_then_succeeded_ends_well():
    decisions = Decisions(10, 64)
    decisions.put(decision_of("team/a"))
    for bound in (Bound("node", "refused"), Bound("node", "", [1])):
        decisions.bind("team/a", "u-1", bound)
    found = decisions.get("team/a")
    assert found is not None
    assert found.bound == Bound("node", "", [1])


def test_the_oldest_decisions_make_room():
    decisions = Decisions(1000, 64)
    for number in range(1001):
        decisions.put(decision_of(f"team/p{number}"))
    assert decisions.get("team/p0") is None
    assert decisions.get("team/p1") is not None
    assert Settings().decisions_kept == 1000


def test_where_a_pod_is_bound_is_one_sentence():
    view = extender_on(BUILT).cluster.view()
    plan = Placement().place(extender_on(BUILT).verbs.evaluate(TWO.build()).demand.shape, view, view.row_of["node-2"])  # type: ignore[union-attr]
    assert bound_text(bound_of("node-2", "", plan, view)) == "bound to node-2, GPUs 0,2, 300 GB/s over NV12"
    assert bound_text(bound_of("node-2", "", None, view)) == "bound to node-2"
    assert bound_text(bound_of("nowhere", "", plan, view)) == "bound to nowhere"


async def test_a_part_of_gpus_that_are_shared_already_breaks_no_island():
    """Only what is taken of the idle GPUs can break one: here none, as the second pod lies on the pair of the first."""
    built = cluster().bridges("node-2")
    extender = extender_on(built)
    breaks = []
    for name in ("first", "second"):
        part = pod(name).shared(40).annotated(gpu_count="2")
        await extender.place(part, "node-2")
        (node,) = told(extender, part)["nodes"]
        assert node["gpus"] == [0, 2]
        breaks.append((node["islandsBroken"], node["coresBroken"], node["worthLost"] > 0))
    assert breaks == [(1, 0, True), (0, 0, False)]
