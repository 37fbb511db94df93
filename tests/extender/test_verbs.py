"""The walk of a pod as kube-scheduler drives it: bytes in, bytes out, and what is remembered in between."""

import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.explain import to_object
from extender.kube.sinks import PodSink
from extender.notices import Notice, NoticeReason
from extender.settings import Policy, Settings
from extender.verbs import Verbs
from tests.builders import NOW, ClusterBuilder, Extender, PodBuilder, allocation_of, changed, cluster, extender_on, pod
from tests.strategies import json_objects, json_values, odd_pods
from topology.errors import CallError

ONE, TWO, FOUR = pod("one").gpus(1), pod("two").gpus(2), pod("four").gpus(4)
MIXED = cluster().nvswitch("switched").dgx1v("cube").bridges("bridged").pcie("plain").mesh("mesh")


def with_uid(asked: PodBuilder, number: int) -> PodBuilder:
    """Return the same pod under another name, so with a UID of its own."""
    return pod(f"{asked.name}-{number}").gpus(int(asked.containers[0]["resources"]["limits"]["nvidia.com/gpu"]))


def counted(extender: Extender, series: str, **labels: str) -> float:
    return extender.metrics.registry.get_sample_value(series, labels) or 0.0


# --- filter ---------------------------------------------------------------------------------------------------------


def test_filter_returns_every_node_that_fits_never_just_its_favourite():
    """HAMi 2264, 3062: soft node affinity must keep its say."""
    answer = extender_on(MIXED).filter(TWO)
    assert answer == {
        "Nodes": None,
        "NodeNames": ["switched", "cube", "bridged", "plain", "mesh"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def test_every_refusal_is_unresolvable_with_a_sentence_and_failed_nodes_stays_empty():
    answer = extender_on(MIXED).filter(pod().gpus(8).min_bandwidth(400), "mesh", "plain", "switched", "nowhere")
    assert answer["NodeNames"] == ["switched"]
    assert answer["FailedNodes"] == {}
    assert answer["FailedAndUnresolvableNodes"] == {
        "mesh": "linkwise: the node has fewer than 8 healthy GPUs",
        "plain": "linkwise: best set of 8 18 GB/s over SYS, min-bandwidth 400 asked",
        "nowhere": "linkwise: no GPUTopology is published for the node",
    }


def test_the_names_of_the_answer_are_those_of_the_call_in_their_order():
    names = ["plain", "bridged", "plain", "mesh"]
    assert extender_on(MIXED).filter(ONE, *names)["NodeNames"] == names


def test_whole_nodes_come_back_to_who_sent_whole_nodes():
    extender = extender_on(MIXED)
    nodes = [{"metadata": {"name": name, "labels": {"x": name}}} for name in ("mesh", "bridged")]
    body = json.dumps({"pod": pod().gpus(8).build(), "nodes": {"items": nodes}}).encode()
    answer = json.loads(extender.verbs.filter(body))
    assert answer["NodeNames"] is None
    assert answer["Nodes"]["items"] == nodes[1:]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["mesh"]


def test_a_thousand_refused_nodes_have_few_distinct_sentences():
    """The event groups equal sentences; a sentence a node would explode it."""
    names = [f"node-{number}" for number in range(1000)]
    extender = extender_on(cluster().bridges(*names[:30]).pcie(*names[30:60]))
    for number in range(30):
        extender.cluster.apply_pod(pod(f"p{number}").holding(names[number], *extender.gpus_of(names[number])[: number % 7]).build())
    refused = extender.filter(TWO.min_bandwidth(500), *names)["FailedAndUnresolvableNodes"]
    assert set(refused) == set(names)
    assert len(set(refused.values())) <= 4


def test_a_thousand_nodes_too_full_for_a_part_have_few_distinct_sentences():
    """How much is left differs from node to node, and is told by explain alone."""
    names = [f"node-{number}" for number in range(100)]
    built = cluster().pcie(*names[:50]).mesh(*names[50:])
    extender = extender_on(built)
    for number, name in enumerate(names):
        for gpu, uuid in enumerate(built.uuids(name)):
            mib = (number % 7 + gpu % 3 + 20) * 1024
            extender.cluster.apply_pod(pod(f"p{number}-{gpu}").shared(mib // 1024).sharing(name, {uuid: mib}).build())
    for asked in (pod().shared(39), pod().shared(44), pod().shared(70).annotated(gpu_count="2", min_bandwidth="500"), pod().shared(30).gpus(1, "b")):
        refused = extender.filter(asked)["FailedAndUnresolvableNodes"]
        assert set(refused) == set(names)
        assert len(set(refused.values())) <= 4


def test_nodes_that_offer_different_amounts_are_not_told_of_each_others():
    """One of two equal nodes has lost its GPU of 40 GB."""
    topology = cluster().mesh("whole").topologies[0]
    for gpu, memory in zip(topology["spec"]["gpus"], (40_960, 8_192, 8_192, 8_192), strict=True):
        gpu["memoryMiB"] = memory
    hurt = changed({**topology, "metadata": {"name": "hurt"}}, unhealthy=[0])
    extender = extender_on(ClusterBuilder(topologies=(topology, hurt)))
    refused = extender.filter(pod().shared(60))["FailedAndUnresolvableNodes"]
    assert [refused[name].rpartition(" gives ")[2] for name in ("whole", "hurt")] == ["40 GiB of its 40960 MiB", "8 GiB of its 8192 MiB"]


def test_nodes_with_equal_idle_gpus_and_other_shared_ones_are_not_told_of_each_others_sets():
    built = cluster().bridges("near", "far")
    pods = [
        pod(f"{node}-{gpu}").shared(20).sharing(node, {built.uuids(node)[gpu]: 20 * 1024})
        if gpu in open_ones
        else pod(f"{node}-{gpu}").holding(node, built.uuids(node)[gpu])
        for node, open_ones in (("near", (0, 2)), ("far", (0, 1)))
        for gpu in range(8)
    ]
    refused = extender_on(built.with_pods(*pods)).filter(pod().shared(8).annotated(gpu_count="2", min_bandwidth="400"))["FailedAndUnresolvableNodes"]
    assert refused == {
        "near": "linkwise: best pair 300 GB/s over NV12, min-bandwidth 400 asked",
        "far": "linkwise: best pair 18 GB/s over SYS, min-bandwidth 400 asked",
    }


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        pytest.param(
            TWO.annotated(policy="binpack"),
            "annotation linkwise.dev/policy=binpack cannot be read; accepted: pack, spread or gpuallocator",
            id="unparsable",
        ),
        pytest.param(TWO.annotated(polcy="pack"), "annotation linkwise.dev/polcy=pack is unknown; did you mean linkwise.dev/policy? ", id="misspelt"),
        pytest.param(
            TWO.annotated(gpu_count="2"),
            "annotation linkwise.dev/gpu-count=2 is set, but no container of the pod asks for linkwise.dev/gpu-memory",
            id="gpu-count",
        ),
        pytest.param(
            ONE.min_bandwidth(100), "annotation linkwise.dev/min-bandwidth=100 is set, but no container of the pod gets 2 ", id="contradictory"
        ),
        pytest.param(TWO.annotated(gpu_model="100%"), "", id="a percent sign that fits nothing"),
    ],
)
def test_a_pod_that_cannot_be_understood_is_refused_on_all_nodes_with_that_sentence(asked: PodBuilder, sentence: str):
    answer = extender_on(MIXED).filter(asked)
    assert (answer["NodeNames"], answer["Error"]) == ([], "")
    refused = answer["FailedAndUnresolvableNodes"]
    assert len(refused) == 5
    assert len(set(refused.values())) == 1
    told = refused["mesh"]
    assert told.startswith(f"linkwise: {sentence}")
    assert "%" not in told


def test_a_pod_without_gpus_is_none_of_our_business():
    extender = extender_on(MIXED)
    assert extender.filter(pod().plain(), "mesh", "nowhere")["NodeNames"] == ["mesh", "nowhere"]
    assert extender.prioritize(pod().plain(), "mesh", "nowhere") == {"mesh": 0, "nowhere": 0}


def test_no_names_are_no_nodes():
    verbs = extender_on(MIXED).verbs
    body = json.dumps({"Pod": TWO.build(), "NodeNames": []}).encode()
    assert json.loads(verbs.filter(body))["NodeNames"] == []
    assert json.loads(verbs.prioritize(body)) == []


def test_feasibility_is_per_node_and_never_a_sum():
    """Kueue 4329: admitted by the sum of free GPUs, cannot run because they are scattered."""
    built = cluster().mesh("a", "b")
    extender = extender_on(built.with_pods(*(pod(f"on-{node}").holding(node, *built.uuids(node)[:3]) for node in ("a", "b"))))
    assert extender.filter(TWO)["NodeNames"] == []
    assert extender.filter(ONE)["NodeNames"] == ["a", "b"]


# --- prioritize -----------------------------------------------------------------------------------------------------


def test_exactly_one_node_gets_ten_the_others_fall_by_their_loss():
    scores = extender_on(MIXED).prioritize(TWO)
    assert scores == {"switched": 10, "cube": 0, "bridged": 5, "plain": 0, "mesh": 1}


def test_a_node_that_cannot_take_the_pod_scores_nothing():
    scores = extender_on(MIXED).prioritize(pod().gpus(8), "mesh", "switched", "nowhere")
    assert scores == {"mesh": 0, "switched": 10, "nowhere": 0}


@pytest.mark.parametrize("asked", [ONE, TWO, TWO.min_bandwidth(9000), TWO.annotated(policy="x")], ids=["one", "two", "a floor", "nonsense"])
def test_where_no_node_is_left_no_node_scores(asked: PodBuilder):
    """Between filter and prioritize the last GPU may go."""
    built = cluster().mesh("a")
    extender = extender_on(built.with_pods(pod("big").holding("a", *built.uuids("a"))))
    assert extender.prioritize(asked) == {"a": 0}


def test_the_configured_policy_holds_unless_the_pod_says_otherwise():
    built = cluster().bridges("a", "b")
    built = built.with_pods(pod("x").holding("a", *built.uuids("a")[6:]), pod("y").holding("b", *built.uuids("b")[7:]))
    for configured in Policy:
        extender = extender_on(built, Settings(policy=configured))
        winner = "b" if configured is Policy.SPREAD else "a"
        assert extender.prioritize(TWO)[winner] == 10
        for asked in Policy:
            extender.clock.now += 10  # past the hold of the one before
            scores = extender.prioritize(pod("picky").gpus(2).annotated(policy=asked.value))
            assert scores["b" if asked is Policy.SPREAD else "a"] == 10


# --- tentative holds ------------------------------------------------------------------------------------------------


def test_the_next_pod_is_not_scored_on_gpus_that_are_as_good_as_gone():
    built = cluster().bridges("a", "b")
    extender = extender_on(built.with_pods(*(pod(f"on-{node}").holding(node, *built.uuids(node)[3:]) for node in ("a", "b"))))
    first, second = with_uid(TWO, 1), with_uid(TWO, 2)
    extender.filter(first)
    assert extender.prioritize(first) == {"a": 10, "b": 9}
    extender.filter(second)
    assert extender.prioritize(second) == {"a": 0, "b": 10}


def test_a_hold_refuses_nobody_and_ends_after_two_seconds():
    extender = extender_on(cluster().mesh("a", "b"))
    extender.prioritize(with_uid(FOUR, 1))
    assert extender.filter(with_uid(FOUR, 2))["NodeNames"] == ["a", "b"]
    assert extender.prioritize(with_uid(FOUR, 2)) == {"a": 0, "b": 10}
    extender.clock.now += 2.1
    assert extender.prioritize(with_uid(FOUR, 3))["a"] == 10


def test_a_pod_that_is_scored_again_does_not_stand_in_its_own_way():
    extender = extender_on(cluster().mesh("a", "b"))
    assert [extender.prioritize(FOUR) for _ in range(3)] == [{"a": 10, "b": 9}] * 3


def test_with_one_node_left_filter_itself_holds_the_set():
    """kube-scheduler asks for no scores then."""
    extender = extender_on(cluster().mesh("a").pcie("b"))
    assert extender.filter(FOUR.min_bandwidth(150))["NodeNames"] == ["a"]
    (hold,) = extender.cluster.view().holds
    assert (hold.uid, hold.mask) == (FOUR.uid, 0b1111)


def test_a_caller_that_names_no_uid_is_answered_and_not_remembered():
    extender = extender_on(cluster().mesh("a", "b"))
    raw = FOUR.build()
    del raw["metadata"]["uid"]
    body = json.dumps({"Pod": raw, "NodeNames": ["a", "b"]}).encode()
    assert json.loads(extender.verbs.prioritize(body))[0] == {"Host": "a", "Score": 10}
    assert extender.cluster.view().holds == ()


async def test_forty_pods_filtered_first_and_bound_afterwards_hold_no_gpu_twice_and_waste_none():
    extender = extender_on(cluster().bridges("a").mesh("b").pcie("c"))
    pods = [pod(f"p{number}").gpus(1) for number in range(40)]
    chosen = {}
    for each in pods:
        extender.filter(each)
        scores = extender.prioritize(each)
        chosen[each.name] = max(scores, key=lambda name: scores[name])
        extender.clock.now += 0.01
    bound = [each for each in pods if await extender.bind(each, chosen[each.name]) == ""]
    for each in (each for each in pods if each not in bound):  # kube-scheduler tries again
        for name in extender.filter(each)["NodeNames"][:1]:
            assert await extender.bind(each, name) == ""
            bound.append(each)
    assert len(bound) == 20
    assert [extender.free(name) for name in ("a", "b", "c")] == [[], [], []]


# --- bind -----------------------------------------------------------------------------------------------------------


async def test_filter_prioritize_bind():
    extender = extender_on(MIXED.with_pods(TWO))
    assert "bridged" in extender.filter(TWO)["NodeNames"]
    assert extender.prioritize(TWO)["switched"] == 10
    assert await extender.place(TWO, "bridged") == [0, 2]
    stored = await extender.binder.read_pod("default", "two")
    assert stored is not None
    allocation = json.loads(stored["metadata"]["annotations"]["linkwise.dev/allocation"])
    assert (stored["spec"]["nodeName"], allocation["node"], allocation["bandwidthGBps"]) == ("bridged", "bridged", 300.0)


async def test_single_gpus_leave_pairs_and_quads_whole():
    extender = extender_on(cluster().bridges("a"))
    taken = [gpu for number in range(4) for gpu in await extender.place(with_uid(ONE, number), "a")]
    pairs = [{0, 2}, {1, 3}, {4, 5}, {6, 7}]
    assert sum(pair <= set(taken) for pair in pairs) == 2, "two pairs are used up, two are whole"


async def test_bind_twice_succeeds_once_and_elsewhere_is_refused_by_name():
    extender = extender_on(MIXED)
    extender.filter(TWO)
    assert [await extender.bind(TWO, "mesh"), await extender.bind(TWO, "mesh")] == ["", ""]
    assert await extender.bind(TWO, "plain") == "pod default/two is bound to node mesh already, not to plain"
    assert len(extender.free("mesh")) == 2


async def test_a_pod_that_this_process_has_not_filtered_is_read_where_it_is_stored():
    """The call after a restart."""
    extender = extender_on(MIXED.with_pods(TWO))
    assert await extender.bind(TWO, "mesh") == ""
    assert len(extender.free("mesh")) == 2


async def test_a_pod_that_nobody_knows_is_not_bound():
    extender = extender_on(MIXED)
    error = await extender.bind(TWO, "mesh")
    assert error == "pod default/two: it was not filtered by this process and is not stored, so it cannot be bound to mesh"


async def test_a_stored_pod_that_cannot_be_understood_is_not_bound():
    extender = extender_on(MIXED.with_pods(TWO.annotated(policy="x")))
    assert (await extender.bind(TWO, "mesh")).startswith("pod default/two: annotation linkwise.dev/policy=x cannot be read; ")


@dataclass
class Notices:
    """A recorder that keeps what it is told."""

    told: list[Notice] = field(default_factory=list)

    def record(self, notice: Notice) -> None:
        self.told.append(notice)


async def test_an_allocation_that_a_user_wrote_on_an_unbound_pod_is_ignored_reported_and_overwritten():
    """HAMi 3076, 3095, 3041."""
    forged = pod("two").gpus(2).bound_to("", allocation_of("mesh", {"main": ["GPU-forged"]}), "Pending")
    raw = forged.build()
    del raw["spec"]["nodeName"]
    notices = Notices()
    extender = extender_on(replace(MIXED, pods=(raw,)), recorder=notices)
    extender.verbs.filter(json.dumps({"Pod": raw, "NodeNames": ["mesh"]}).encode())
    assert [notice.reason for notice in notices.told] == [NoticeReason.ALLOCATION_IGNORED]
    assert len(extender.free("mesh")) == 4
    assert await extender.bind(TWO, "mesh") == ""
    stored = await extender.binder.read_pod("default", "two")
    assert stored is not None
    assert "GPU-forged" not in stored["metadata"]["annotations"]["linkwise.dev/allocation"]


async def test_the_owner_of_a_pod_that_holds_what_it_was_not_promised_is_told_once():
    """With the GPU that it holds, and what follows from it."""
    notices = Notices()
    extender = extender_on(MIXED, recorder=notices)
    extender.filter(TWO)
    assert await extender.bind(TWO, "mesh") == ""
    topology = extender.verbs.cluster.topology_of("mesh")
    entry = extender.verbs.cluster.ledger.get(TWO.uid)
    assert topology is not None
    assert entry is not None
    other = next(gpu.uuid for gpu in topology.spec.gpus if gpu.uuid not in entry.uuids)
    raw = topology.to_object()
    raw["status"] |= {"holdersObserved": True, "observedAt": "2026-01-01T00:00:00Z"}
    raw["status"]["gpus"] = [{"uuid": other, "holders": [{"namespace": "default", "name": "two", "uid": TWO.uid}]}]
    notices.told.clear()
    for _ in range(2):
        assert extender.verbs.cluster.apply_topology(raw) is None
        extender.verbs.report_differences()
    (notice,) = notices.told
    assert (notice.uid, notice.reason) == (TWO.uid, NoticeReason.HOLDS_OTHER)
    assert f"it holds GPU {other} on node mesh, which it was not promised: those GPUs are given to no other pod" in notice.message


# --- what is remembered ---------------------------------------------------------------------------------------------


async def test_what_a_pod_asks_for_is_remembered_until_its_bind_and_no_longer():
    """So that pods that are bound take no room from those that wait; a call that comes once more finds the pod bound."""
    extender = extender_on(MIXED, Settings(demands_kept=2))
    waits, *others = (with_uid(ONE, number) for number in range(4))
    extender.filter(waits)
    for each in others:
        await extender.place(each, "switched")
    assert await extender.bind(waits, "switched") == ""
    assert [await extender.bind(each, "switched") for each in others] == ["", "", ""]


def rejected(asked: PodBuilder, node: str, started: datetime = NOW) -> dict[str, Any]:
    """Return a pod as kubelet's topology manager leaves it."""
    status = {"phase": "Failed", "reason": "TopologyAffinityError", "startTime": started.isoformat()}
    return {**asked.bound_to(node).build(), "status": status}


async def test_a_pod_that_kubelet_refused_keeps_those_like_it_from_the_node_and_explain_says_until_when():
    """Placed and bound, refused by kubelet, and made anew by its controller; a pod that asks for less is not concerned."""
    extender = extender_on(cluster().dgx1v("cube", "other"))
    sink = PodSink(extender.cluster, refused=extender.verbs.note_refused)
    first, second, smaller = pod("first").gpus(6), pod("second").gpus(6), pod("smaller").gpus(2)
    await extender.place(first, "cube")
    sink.apply(rejected(first, "cube", NOW - timedelta(hours=1)))  # it was there a moment ago: the clock of its node is wrong
    answer = extender.filter(second)
    sentence = "linkwise: kubelet's topology manager refused such a pod on the node; not tried there again before 00:05 UTC"
    assert (answer["NodeNames"], answer["FailedAndUnresolvableNodes"]) == (["other"], {"cube": sentence})
    assert extender.filter(smaller)["NodeNames"] == ["cube", "other"]
    assert counted(extender, "linkwise_refused_nodes_total", reason="KUBELET_REFUSED") == 1
    assert "refused pod default/first, which asks for the same (TopologyAffinityError)" in await extender.bind(second, "cube")
    told = explain_object(extender, second)["nodes"]
    (refusal,) = (node for node in told if node["node"] == "cube")
    assert refusal["code"] == "KUBELET_REFUSED"
    assert refusal["reason"].startswith("8 of 8 GPUs free, but kubelet's topology manager refused pod default/first")
    assert "not tried there again before 00:05:00 UTC" in refusal["reason"]
    sink.apply(rejected(first, "cube"))
    extender.clock.now += 300
    assert extender.filter(second)["NodeNames"] == ["cube", "other"]


def explain_object(extender: Extender, asked: PodBuilder) -> dict[str, Any]:
    decision = extender.verbs.decisions.get(f"{asked.namespace}/{asked.name}")
    assert decision is not None
    return to_object(decision, extender.verbs.placement)


@pytest.mark.parametrize(
    ("minutes_ago", "nodes"), [pytest.param(4, ["other"], id="four minutes ago"), pytest.param(5, ["cube", "other"], id="five minutes ago")]
)
def test_a_process_that_starts_goes_by_the_time_at_which_kubelet_refused_a_pod(minutes_ago: int, nodes: list[str]):
    """The list of pods shows it as failed, whenever that was."""
    extender = extender_on(cluster().dgx1v("cube", "other"))
    sink = PodSink(extender.cluster, refused=extender.verbs.note_refused)
    for _ in range(2):
        sink.apply(rejected(pod("first").gpus(6), "cube", NOW - timedelta(minutes=minutes_ago)))
    assert extender.filter(pod("second").gpus(6))["NodeNames"] == nodes


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(pod("first").plain(), id="a pod without GPUs"),
        pytest.param(pod("first").gpus(6).annotated(colour="red"), id="a demand that nobody understands"),
    ],
)
def test_a_refused_pod_that_is_none_of_our_business_is_not_noted(asked: PodBuilder):
    extender = extender_on(cluster().dgx1v("cube"))
    PodSink(extender.cluster, refused=extender.verbs.note_refused).apply(rejected(asked, "cube"))
    assert len(extender.cluster.kubelet_refusals) == 0


def test_a_refused_pod_of_the_default_policy_closes_the_node_to_those_of_that_policy():
    """The demand is what filter reads, the settings of this cluster among it."""
    extender = extender_on(cluster().dgx1v("cube"), Settings(policy=Policy.GPUALLOCATOR))
    PodSink(extender.cluster, refused=extender.verbs.note_refused).apply(rejected(pod("first").gpus(6), "cube"))
    assert extender.filter(pod("second").gpus(6))["NodeNames"] == []


async def test_the_last_decision_of_a_pod_stays_with_its_scores_and_its_end():
    """HAMi 2286: the reason for a refusal is gone after an hour."""
    extender = extender_on(MIXED)
    extender.filter(FOUR)
    extender.prioritize(FOUR, "plain", "mesh", "bridged", "cube", "switched")
    await extender.bind(FOUR, "switched")
    decision = extender.verbs.decisions.get("default/four")
    assert decision is not None
    assert decision.scores is not None
    assert decision.bound is not None
    assert (decision.bound.node, decision.bound.error, decision.bound.bandwidth) == ("switched", "", 450.0)


def test_as_many_decisions_are_kept_as_configured():
    extender = extender_on(cluster().mesh("a"), Settings(decisions_kept=3))
    for number in range(5):
        extender.filter(with_uid(ONE, number))
    assert [extender.verbs.decisions.get(f"default/one-{number}") is not None for number in range(5)] == [False, False, True, True, True]


def test_scores_of_a_call_that_filter_did_not_see_are_kept_as_their_own():
    extender = extender_on(MIXED)
    extender.filter(TWO, "mesh")
    extender.prioritize(TWO, "plain", "cube")
    decision = extender.verbs.decisions.get("default/two")
    assert decision is not None
    assert [name for name, _, _ in decision.nodes()] == ["plain", "cube"]


def test_evaluating_for_people_holds_and_remembers_nothing():
    extender = extender_on(MIXED)
    decision = extender.verbs.evaluate(TWO.build())
    assert [name for name, _, _ in decision.nodes()] == ["switched", "cube", "bridged", "plain", "mesh"]
    assert extender.cluster.view().holds == ()
    assert extender.verbs.decisions.get("default/two") is None
    assert extender.verbs.evaluate(pod().plain().build()).error == "no container of the pod asks for nvidia.com/gpu or linkwise.dev/gpu-memory"
    assert extender.verbs.evaluate(TWO.annotated(policy="x").build()).error.startswith("annotation linkwise.dev/policy=x ")


async def test_refusals_and_bindings_are_counted_by_reason():
    extender = extender_on(MIXED)
    extender.filter(pod("big").gpus(8), "mesh", "plain", "nowhere")
    extender.filter(TWO.annotated(policy="x"), "mesh", "plain")
    extender.filter(TWO, "mesh")
    await extender.bind(TWO, "mesh")
    assert counted(extender, "linkwise_refused_nodes_total", reason="TOO_SMALL") == 1
    assert counted(extender, "linkwise_refused_nodes_total", reason="NO_TOPOLOGY") == 1
    assert counted(extender, "linkwise_refused_nodes_total", reason="DEMAND") == 2
    assert counted(extender, "linkwise_bindings_total", verdict="bound") == 1


async def test_a_set_that_became_worse_between_scoring_and_bind_is_counted():
    built = cluster().bridges("a")
    extender = extender_on(built.with_pods(pod("x").holding("a", *built.uuids("a")[4:])))
    extender.filter(TWO)
    extender.cluster.apply_pod(pod("y").holding("a", *(built.uuids("a")[gpu] for gpu in (0, 1))).build())
    assert await extender.bind(TWO, "a") == ""
    assert counted(extender, "linkwise_worse_sets_total") == 1


# --- nothing crashes ------------------------------------------------------------------------------------------------

VERBS = extender_on(MIXED).verbs
odd_bodies = st.fixed_dictionaries(
    {},
    optional={
        "Pod": odd_pods | json_objects | json_values,
        "NodeNames": st.lists(st.sampled_from(["mesh", "plain", "nowhere", ""]), max_size=3) | json_values,
        "Nodes": st.just({"items": [{"metadata": {"name": "mesh"}}]}) | json_values,
    },
)


@settings(deadline=None, max_examples=250)
@given(odd_bodies)
def test_any_body_is_answered_or_no_call(body: dict[str, Any]):
    raw = json.dumps(body).encode()
    assert_answered_or_no_call(VERBS, raw)


def assert_answered_or_no_call(verbs: Verbs, raw: bytes) -> None:
    try:
        filtered, scored = json.loads(verbs.filter(raw)), json.loads(verbs.prioritize(raw))
    except CallError:
        return
    names = filtered["NodeNames"] if filtered["Nodes"] is None else [node["metadata"]["name"] for node in filtered["Nodes"]["items"]]
    asked = [entry["Host"] for entry in scored]
    assert set(names) | set(filtered["FailedAndUnresolvableNodes"]) == set(asked), "every node is either kept or refused with a reason"
    assert all(sentence.startswith("linkwise: ") for sentence in filtered["FailedAndUnresolvableNodes"].values())
    assert [entry["Score"] for entry in scored].count(10) <= 1
