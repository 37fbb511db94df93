"""The state is what pods and topologies say, in whatever order and however often they say it; what cannot be read closes its node by name."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster import UNKNOWN, Cluster, Entry, EntryState, NodeFacts
from extender.cluster import state as state_module
from extender.reasons import Refusal
from extender.requests import Requests
from extender.sample_machines import sample
from tests.builders import Clock, ClusterBuilder, JsonObject, PodBuilder, allocation_of, changed, cluster, extender_on, kube_node, pod
from tests.strategies import json_objects, odd_pods
from topology.api import ANOTHER_PLUGIN, HAND_OFF_REGISTERED

GPU = "nvidia.com/gpu"
BUILT = cluster().dgx1v("a").mesh("b")
TOPOLOGY = {each["metadata"]["name"]: each for each in BUILT.topologies}
UUIDS = {name: BUILT.uuids(name) for name in TOPOLOGY}
ON_B = {"main": UUIDS["b"][:2]}


def state(built: ClusterBuilder = BUILT, clock: Callable[[], float] | None = None) -> Cluster:
    made = Cluster(GPU, clock or Clock())
    for topology in built.topologies:
        assert made.apply_topology(topology) is None
    for each in built.pods:
        made.apply_pod(each)
    return made


def closed(made: Cluster, node: str) -> tuple[Refusal, str]:
    view = made.view()
    row = view.row_of[node]
    return Refusal(int(view.closed[row])), view.closed_by[row]


def is_open(made: Cluster, node: str) -> bool:
    return closed(made, node)[0] is Refusal.FITS


def free(made: Cluster, node: str) -> list[int]:
    view = made.view()
    mask = int(view.free[view.row_of[node]])
    return [bit for bit in range(16) if mask >> bit & 1]


def holding(name: str, node: str, *gpus: int) -> PodBuilder:
    return pod(name).holding(node, *(UUIDS[node][gpu] for gpu in gpus))


def everything(made: Cluster) -> list[object]:
    """Return all that decides anything, by name: what does not depend on the order of events."""
    view = made.view()
    nodes = [
        (name, view.gpus[row].uuids, int(view.usable[row]), int(view.free[row]), Refusal(int(view.closed[row])), set(view.closed_by[row].split("; ")))
        for name, row in view.row_of.items()
    ]
    return [sorted(nodes, key=lambda node: node[0]), {(e.uid, e.node, e.uuids, e.state, e.allocation) for e in made.ledger}]


# --- pods that hold GPUs --------------------------------------------------------------------------------------------


def test_a_bound_pod_holds_what_its_allocation_says_and_frees_it_at_its_end():
    made = state()
    made.apply_pod(holding("p", "b", 0, 2).build())
    assert free(made, "b") == [1, 3]
    made.remove_pod(pod("p").uid)
    assert free(made, "b") == [0, 1, 2, 3]
    assert len(made.ledger) == 0


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_whose_containers_have_ended_frees_its_gpus_at_once(phase: str):
    """Kubernetes 120146: the device plugin restarts between decision and admission, and the pod is Failed."""
    made = state(BUILT.with_pods(holding("p", "b", 0, 2)))
    made.apply_pod(pod("p").holding("b", *UUIDS["b"][:1], phase=phase).build())
    assert free(made, "b") == [0, 1, 2, 3]


def test_a_terminating_pod_holds_its_gpus_until_its_containers_have_ended():
    """Kueue 10076: terminating pods were no longer counted."""
    made = state(BUILT.with_pods(holding("p", "b", 0)))
    made.apply_pod(holding("p", "b", 0).terminating().build())
    assert free(made, "b") == [1, 2, 3]
    made.remove_pod(pod("p").uid)
    assert free(made, "b") == [0, 1, 2, 3]


def test_a_namesake_is_another_pod():
    made = state(BUILT.with_pods(holding("p", "b", 0)))
    namesake = holding("p", "b", 1).build()
    namesake["metadata"]["uid"] = "another"
    made.apply_pod(namesake)
    made.remove_pod(pod("p").uid)
    assert free(made, "b") == [0, 2, 3]


def test_a_missed_deletion_is_repaired_by_what_is_true_now():
    """HAMi 2923: the delete event of an 8-GPU pod is missed; a resync names the pods that are there."""
    made = state(BUILT.with_pods(holding("big", "a", *range(8)), holding("small", "b", 0)))
    assert free(made, "a") == []
    for uid in set(made.pod_uids()) - {pod("small").uid}:
        made.remove_pod(uid)
    assert (free(made, "a"), free(made, "b")) == (list(range(8)), [1, 2, 3])


def test_news_from_before_the_binding_releases_nothing():
    """A lagging watch shows the pod unbound once more after its binding was confirmed."""
    made = state(BUILT.with_pods(holding("p", "b", 0)))
    made.apply_pod(pod("p").gpus(1).build())
    assert free(made, "b") == [1, 2, 3]


def test_a_pod_on_a_node_that_nobody_knows_closes_no_other():
    made = state()
    made.apply_pod(pod("p").holding("elsewhere", "GPU-1").build())
    assert closed(made, "elsewhere") == (Refusal.NO_TOPOLOGY, "")
    assert is_open(made, "a")
    assert is_open(made, "b")


# --- edits ----------------------------------------------------------------------------------------------------------

EDITS = [
    pytest.param(allocation_of("b", {"main": UUIDS["b"][2:]}), id="other GPUs"),
    pytest.param(allocation_of("b", {"main": UUIDS["b"]}), id="more GPUs"),
    pytest.param(allocation_of("a", {"main": UUIDS["a"][:2]}), id="another node"),
    pytest.param("garbage", id="garbage"),
    pytest.param(None, id="taken off"),
]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_on_a_bound_pod_is_not_believed_and_told_once(edit: str | None):
    """HAMi 3076, 3095, 3041: a user edits an allocation annotation by hand."""
    original = pod("p").gpus(2).bound_to("b", allocation_of("b", ON_B))
    made = state(BUILT.with_pods(original))
    before = everything(made)
    for _ in range(3):  # the event, a resync, another one
        made.apply_pod(pod("p").gpus(2).bound_to("b", edit).build())
        made.apply_topology(changed(TOPOLOGY["b"], unhealthy=[3]))
        made.apply_topology(TOPOLOGY["b"])
    assert everything(made) == before
    assert is_open(made, "b")
    assert made.allocation_edits == 1
    assert [edited.name for edited in made.take_edited()] == ["p"]
    assert made.take_edited() == []


def test_an_edit_that_is_seen_before_the_binding_itself_is_not_believed_either():
    """The answer of the API server confirmed the promise; the first event of the bound pod already shows another allocation."""
    made = state()
    value = allocation_of("b", ON_B)
    made.ledger.promise(Entry(pod("p").uid, "default", "p", "b", frozenset(UUIDS["b"][:2]), EntryState.PROMISED, value))
    made.ledger.confirm(pod("p").uid)
    made.apply_pod(pod("p").gpus(2).bound_to("b", allocation_of("b", {"main": UUIDS["b"][2:]})).build())
    made.remove_topology("b")
    made.apply_topology(TOPOLOGY["b"])
    assert free(made, "b") == [2, 3]
    assert made.allocation_edits == 1


def test_an_allocation_written_on_a_pod_that_linkwise_did_not_place_is_not_believed():
    made = state()
    made.apply_topology(changed(TOPOLOGY["b"], holders={0: "default/p"}))
    made.apply_pod(pod("p").gpus(1).bound_to("b").build())
    made.apply_pod(pod("p").gpus(1).bound_to("b", allocation_of("b", {"main": UUIDS["b"][3:]})).build())
    assert free(made, "b") == [1, 2, 3]
    assert made.allocation_edits == 1


def test_the_end_of_an_edited_pod_frees_what_it_held():
    made = state(BUILT.with_pods(pod("p").gpus(2).bound_to("b", allocation_of("b", ON_B))))
    made.apply_pod(pod("p").gpus(2).bound_to("b", "garbage").build())
    made.remove_pod(pod("p").uid)
    assert free(made, "b") == [0, 1, 2, 3]
    made.apply_pod(pod("p").gpus(2).bound_to("b", allocation_of("b", ON_B)).build())
    assert made.allocation_edits == 1


# --- what cannot be read closes its node ----------------------------------------------------------------------------


@pytest.mark.parametrize("annotation", ["garbage", "", '{"v":2}', allocation_of("a", ON_B), allocation_of("b", {"main": UUIDS["b"][:1]})])
def test_an_allocation_that_does_not_decode_closes_the_node_by_name_until_the_pod_ends(annotation: str):
    """HAMi 2958."""
    made = state(BUILT.with_pods(pod("p", "team").gpus(2).bound_to("b", annotation)))
    refusal, detail = closed(made, "b")
    assert refusal is Refusal.ALLOCATION_UNREADABLE
    assert detail.startswith("pod team/p: linkwise.dev/allocation")
    assert is_open(made, "a")
    made.apply_pod(pod("p", "team").gpus(2).bound_to("b", annotation).terminating().build())
    assert not is_open(made, "b")
    made.remove_pod(pod("p", "team").uid)
    assert is_open(made, "b")
    assert free(made, "b") == [0, 1, 2, 3]


def test_a_node_with_two_unreadable_pods_opens_after_both_have_ended_and_names_both():
    made = state(BUILT.with_pods(pod("p").gpus(1).bound_to("b", "x"), pod("q").gpus(1).bound_to("b", "y")))
    assert "pod default/p: " in closed(made, "b")[1]
    assert "pod default/q: " in closed(made, "b")[1]
    made.remove_pod(pod("p").uid)
    assert not is_open(made, "b")
    made.apply_pod(pod("q").gpus(1).bound_to("b", "y", "Failed").build())
    assert is_open(made, "b")


def test_a_pod_that_came_around_closes_its_node_until_the_agent_tells_what_it_holds():
    """gpushare-scheduler-extender 75, 228, 11: nodeName set by hand, or another scheduler."""
    made = state(BUILT.with_pods(pod("p").gpus(2).bound_to("b")))
    assert closed(made, "b") == (Refusal.UNKNOWN_HOLDER, "pod default/p uses 2 nvidia.com/gpu and carries no allocation")
    made.apply_topology(changed(TOPOLOGY["b"], holders={1: "default/p"}))
    assert not is_open(made, "b"), "one of two GPUs is not enough to know"
    made.apply_topology(changed(TOPOLOGY["b"], holders={1: "default/p", 2: "default/p"}))
    assert is_open(made, "b")
    assert free(made, "b") == [0, 3]
    assert [entry.state for entry in made.ledger.on_node("b")] == [EntryState.OBSERVED]
    made.remove_pod(pod("p").uid)
    assert free(made, "b") == [0, 1, 2, 3]


def test_the_agent_may_tell_before_the_pod_is_seen():
    made = Cluster(GPU, Clock())
    made.apply_topology(changed(TOPOLOGY["b"], holders={1: "default/p"}))
    made.apply_pod(pod("p").gpus(1).bound_to("b").build())
    assert is_open(made, "b")
    assert free(made, "b") == [0, 2, 3]


def test_another_pods_holder_tells_nothing():
    made = state(BUILT.with_pods(pod("p", "team").gpus(1).bound_to("b")))
    made.apply_topology(changed(TOPOLOGY["b"], holders={1: "default/p"}))
    assert closed(made, "b")[0] is Refusal.UNKNOWN_HOLDER


def test_an_allocation_of_a_gpu_that_is_gone_closes_the_node_until_it_is_resolved():
    """HAMi 2592: an allocation names a GPU that the node no longer has."""
    made = state(BUILT.with_pods(holding("p", "b", 1, 2)))
    made.apply_topology(changed(TOPOLOGY["b"], without=1))
    assert closed(made, "b") == (Refusal.GPU_MISSING, f"pod default/p holds {UUIDS['b'][1]}")
    assert free(made, "b") == [0, 2], "the GPU that it still holds is not free, wherever it stands now"
    made.remove_pod(pod("p").uid)
    assert is_open(made, "b")
    assert free(made, "b") == [0, 1, 2]


def test_the_gpu_that_was_gone_comes_back():
    made = state(BUILT.with_pods(holding("p", "b", 1)))
    made.apply_topology(changed(TOPOLOGY["b"], without=1))
    made.apply_topology(TOPOLOGY["b"])
    assert is_open(made, "b")
    assert free(made, "b") == [0, 2, 3]


# --- topologies -----------------------------------------------------------------------------------------------------


def test_one_gpu_falls_off_the_bus_and_the_others_keep_working():
    """k8s-device-plugin 1014, 2038; keys are UUIDs, so the holders of the others keep theirs under new positions."""
    made = state(BUILT.with_pods(holding("p", "a", 6, 7)))
    made.apply_topology(changed(TOPOLOGY["a"], without=0))
    assert is_open(made, "a")
    view = made.view()
    assert view.gpus[view.row_of["a"]].uuids == tuple(UUIDS["a"][1:])
    assert free(made, "a") == [0, 1, 2, 3, 4]


def test_an_unhealthy_gpu_is_out_of_the_pool_and_back():
    made = state(BUILT.with_pods(holding("p", "b", 0)))
    made.apply_topology(changed(TOPOLOGY["b"], unhealthy=[0, 1]))
    assert free(made, "b") == [2, 3]
    made.remove_pod(pod("p").uid)
    assert free(made, "b") == [2, 3], "free, but not healthy"
    made.apply_topology(TOPOLOGY["b"])
    assert free(made, "b") == [0, 1, 2, 3]


def test_the_topology_object_is_deleted_and_created_again_while_pods_run():
    """Kueue 11858: accounting unchanged."""
    made = state(BUILT.with_pods(holding("p", "b", 0), pod("q").gpus(1).bound_to("b", "garbage"), holding("r", "a", 3)))
    before = everything(made)
    made.remove_topology("b")
    made.remove_topology("b")
    assert not is_open(made, "b")
    assert free(made, "b") == []
    made.remove_pod(pod("gone").uid)
    made.apply_topology(TOPOLOGY["b"])
    assert everything(made) == before


def test_a_node_without_its_topology_takes_no_pods_and_what_runs_there_stays_counted():
    made = state(BUILT.with_pods(holding("p", "b", 0)))
    made.remove_topology("b")
    assert closed(made, "b") == (Refusal.NO_TOPOLOGY, "")
    made.apply_pod(holding("q", "b", 1).build())
    made.apply_topology(TOPOLOGY["b"])
    assert free(made, "b") == [2, 3]


def test_a_topology_that_cannot_be_read_closes_its_node_and_heals():
    made = state(BUILT.with_pods(holding("p", "b", 0)))
    broken = changed(TOPOLOGY["b"])
    broken["spec"]["links"]["gpus"][0][1] = "NVX"
    problem = made.apply_topology(broken)
    assert problem is not None
    assert problem.startswith("GPUTopology b: spec.links holds 'NVX'; accepted: ")
    assert closed(made, "b") == (Refusal.TOPOLOGY_UNREADABLE, problem)
    assert made.apply_topology(TOPOLOGY["b"]) is None
    assert is_open(made, "b")
    assert free(made, "b") == [1, 2, 3]


def test_removing_an_unreadable_topology_leaves_a_node_without_one():
    made = state()
    made.apply_topology({"metadata": {"name": "b"}, "spec": {}})
    made.remove_topology("b")
    assert closed(made, "b") == (Refusal.NO_TOPOLOGY, "")


@pytest.mark.parametrize("raw", [{}, {"metadata": []}, {"metadata": {"name": 7}}, {"metadata": {"name": ""}}])
def test_a_topology_without_a_name_is_told_and_closes_nothing(raw: JsonObject):
    made = state()
    assert made.apply_topology(raw) is not None
    assert made.view().rows == 2


def test_removing_what_was_never_there_changes_nothing():
    made = state()
    view = made.view()
    made.remove_topology("nowhere")
    made.remove_pod("nobody")
    assert made.view() is view


@pytest.mark.parametrize("zone", [UTC, None], ids=["with its time zone", "without one"])
def test_a_silent_agent_closes_its_node_and_a_heartbeat_opens_it_again(zone: Any):
    """HAMi 1839, 272."""
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    made = state()
    silent = changed(TOPOLOGY["b"])
    silent["status"]["observedAt"] = (now - timedelta(seconds=181)).replace(tzinfo=zone).isoformat()
    made.apply_topology(silent)
    made.close_stale(now, 180.0)
    assert closed(made, "b")[0] is Refusal.STALE
    assert is_open(made, "a")
    silent["status"]["observedAt"] = now.isoformat()
    made.apply_topology(silent)
    made.close_stale(now, 180.0)
    assert is_open(made, "b")


def test_a_node_whose_clock_is_ahead_is_closed_as_soon_as_any_other_after_its_agent_falls_silent():
    """What an agent said last is no later than when it was heard, and a list that tells it once more says nothing new."""
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    made = state()
    ahead = changed(TOPOLOGY["b"])
    ahead["status"]["observedAt"] = (now + timedelta(hours=2)).isoformat()
    made.apply_topology(ahead)
    made.close_stale(now, 180.0)
    assert is_open(made, "b")
    made.close_stale(now + timedelta(seconds=180), 180.0)
    assert is_open(made, "b")
    made.close_stale(now + timedelta(seconds=181), 180.0)
    assert closed(made, "b")[0] is Refusal.STALE
    made.apply_topology(ahead)
    made.close_stale(now + timedelta(seconds=182), 180.0)
    assert closed(made, "b")[0] is Refusal.STALE, "a list has shown the same once more"
    ahead["status"]["observedAt"] = (now + timedelta(hours=2, seconds=183)).isoformat()
    made.apply_topology(ahead)
    made.close_stale(now + timedelta(seconds=183), 180.0)
    assert is_open(made, "b")


def told_of_hand_off(status: str, reason: str) -> JsonObject:
    """Return the GPUTopology of b whose agent tells that of its registration with kubelet."""
    found = changed(TOPOLOGY["b"])
    found["status"]["conditions"] = [{"type": HAND_OFF_REGISTERED, "status": status, "reason": reason, "message": f"told {reason}"}]
    return found


@pytest.mark.parametrize(
    ("status", "reason", "takes_pods"),
    [
        pytest.param("True", "Registered", True, id="kubelet knows the agent"),
        pytest.param("False", "NotRegistered", False, id="it does not"),
        pytest.param("False", "AgentEnds", False, id="it will not in a moment"),
        pytest.param("Unknown", "Other", False, id="nobody knows"),
        pytest.param("False", ANOTHER_PLUGIN, True, id="another plugin hands out GPUs"),
    ],
)
def test_a_node_on_which_nobody_hands_gpus_over_takes_no_pods(status: str, reason: str, takes_pods: bool):
    """A pod would be rejected for good there; it opens with the word that kubelet knows the agent, and where the hand-off is turned off."""
    made = state(BUILT.with_pods(holding("p", "b", 0)))
    for healed in (told_of_hand_off("True", "Registered"), TOPOLOGY["b"]):
        made.apply_topology(told_of_hand_off(status, reason))
        assert closed(made, "b") == ((Refusal.FITS, "") if takes_pods else (Refusal.NO_HAND_OFF, f"told {reason}"))
        assert free(made, "b") == [1, 2, 3]
        made.apply_topology(healed)
        assert is_open(made, "b")


def test_a_topology_that_is_deleted_takes_its_word_about_the_hand_off_with_it():
    made = state()
    made.apply_topology(told_of_hand_off("False", "AgentEnds"))
    made.remove_topology("b")
    assert closed(made, "b") == (Refusal.NO_TOPOLOGY, "")
    made.apply_topology(TOPOLOGY["b"])
    assert is_open(made, "b")


# --- any order, any number of times ---------------------------------------------------------------------------------

EVENTS: list[tuple[str, JsonObject]] = [
    ("topology", changed(TOPOLOGY["a"], unhealthy=[5], holders={4: "default/around"})),
    ("topology", changed(TOPOLOGY["b"], without=3)),
    ("topology", {"metadata": {"name": "c"}, "spec": {}}),
    ("pod", holding("one", "a", 0, 1).build()),
    ("pod", holding("ending", "a", 2).terminating().build()),
    ("pod", pod("around").gpus(1).bound_to("a").build()),
    ("pod", pod("unknown").gpus(1).bound_to("b").build()),
    ("pod", holding("gone", "b", 3).build()),
    ("pod", pod("garbled").gpus(1).bound_to("b", "garbage").build()),
    ("pod", pod("waiting").gpus(2).build()),
    ("pod", pod("ended").holding("a", UUIDS["a"][7], phase="Succeeded").build()),
    ("pod", pod("early").holding("c", "GPU-1").build()),
]


def told(events: list[tuple[str, JsonObject]]) -> Cluster:
    made = Cluster(GPU, Clock())
    for kind, raw in events:
        if kind == "pod":
            made.apply_pod(raw)
        else:
            made.apply_topology(raw)
    return made


@settings(deadline=None, max_examples=60)
@given(st.permutations(EVENTS), st.lists(st.sampled_from(EVENTS), max_size=6))
def test_pods_before_topologies_or_after_once_or_often_give_the_same_state(order: list[tuple[str, JsonObject]], again: list[tuple[str, JsonObject]]):
    assert everything(told(order + again)) == everything(told(EVENTS))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_any_history_ends_in_what_a_fresh_rebuild_from_the_last_objects_gives(seed: int, steps: int):
    """Free capacity after any sequence equals what a rebuild would compute."""
    rng = random.Random(seed)
    made, pods, topologies = Cluster(GPU, Clock()), {}, {}
    for _ in range(steps):
        if rng.random() < 0.3:
            name = rng.choice("ab")
            topologies[name] = changed(TOPOLOGY[name], unhealthy=[rng.randrange(4)] if rng.random() < 0.5 else [])
            made.apply_topology(topologies[name])
        elif pods and rng.random() < 0.4:
            uid = rng.choice(sorted(pods))
            del pods[uid]
            made.remove_pod(uid)
        else:
            builder = (
                holding(f"p{rng.randrange(10)}", "a", rng.randrange(8)) if rng.random() < 0.8 else pod(f"q{rng.randrange(3)}").gpus(1).bound_to("b")
            )
            if builder.uid not in pods:
                pods[builder.uid] = builder.build()
                made.apply_pod(pods[builder.uid])
    rebuilt = told([("topology", raw) for raw in topologies.values()] + [("pod", raw) for raw in pods.values()])
    for name in set(rebuilt.view().row_of) & set(made.view().row_of):
        assert (free(made, name), closed(made, name)[0]) == (free(rebuilt, name), closed(rebuilt, name)[0])
    assert {entry.uid for entry in made.ledger} == {entry.uid for entry in rebuilt.ledger}


@settings(deadline=None, max_examples=60)
@given(st.lists(odd_pods, max_size=6))
def test_the_short_way_of_pods_without_gpus_leads_to_the_same_state(pods: list[JsonObject]):
    """Whatever they ask for, in whatever order, after other pods with the same UID."""
    events = [("topology", TOPOLOGY["a"]), *(("pod", raw) for raw in pods)]
    short = told(events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_module, "read_plain_pod", lambda _: None)
        long = told(events)
    assert everything(short) == everything(long)
    assert {uid: short.ledger.hosts.requests_of(uid) for uid in short.pod_uids()} == {
        uid: long.ledger.hosts.requests_of(uid) for uid in long.pod_uids()
    }


@settings(deadline=None, max_examples=100)
@given(st.lists(odd_pods | json_objects, max_size=4), st.lists(json_objects, max_size=3))
def test_no_object_at_all_crashes_the_state_or_opens_a_node(pods: list[JsonObject], topologies: list[JsonObject]):
    made = state(BUILT.with_pods(pod("garbled").gpus(1).bound_to("b", "garbage")))
    for raw in pods:
        made.apply_pod(raw)
    for raw in topologies:
        made.apply_topology(raw)
        made.apply_topology({**TOPOLOGY["a"], "spec": raw})
        made.apply_topology({**TOPOLOGY["a"], "status": raw})
    assert not is_open(made, "b")


# --- CPU and memory -------------------------------------------------------------------------------------------------

OFFERED = kube_node("b", cpu="64", memory="128Gi")


def left(made: Cluster, node: str = "b") -> tuple[int, int]:
    """Return cores and GiB left."""
    view = made.view()
    row = view.row_of[node]
    return int(view.cpu_left[row]) // 1000, int(view.memory_left[row]) // 1024


def requesting(name: str, cpu: str = "4", memory: str = "8Gi") -> PodBuilder:
    return pod(name).plain(cpu=cpu, memory=memory)


def with_node(made: Cluster | None = None) -> Cluster:
    made = made or state()
    made.apply_node(OFFERED)
    return made


def test_of_many_silent_agents_some_are_closed_at_a_time_until_all_are():
    """So that calls are answered in between; more nodes than the first arrays have room for."""
    names = [f"node-{number}" for number in range(100)]
    made, start = Cluster(GPU, Clock()), datetime(2026, 1, 1, tzinfo=UTC)
    for number, name in enumerate(names):
        made.apply_topology(sample("mesh", name, observed_at=start + timedelta(seconds=number)).to_object())
    now = start + timedelta(seconds=180 + 49)
    rounds = 0
    while made.close_stale(now, 180.0, most=10):
        rounds += 1
    assert rounds == 4, "49 are older, the fiftieth is just not"
    assert [closed(made, name)[0] is Refusal.STALE for name in names] == [True] * 49 + [False] * 51
    for name in names[:30]:
        made.apply_topology(sample("mesh", name, observed_at=now).to_object())
    assert made.close_stale(now, 180.0, closing=False, most=20)
    assert not made.close_stale(now, 180.0, closing=False, most=20)
    assert [closed(made, name)[0] is Refusal.STALE for name in names] == [False] * 30 + [True] * 19 + [False] * 51


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        pytest.param([], (64, 128), id="an idle node"),
        pytest.param([requesting("p").bound_to("b")], (60, 120), id="a pod without GPUs"),
        pytest.param([requesting("p").gpus(1).bound_to("b", "unreadable")], (60, 120), id="a pod that closes the node"),
        pytest.param([requesting("p").gpus(1, "gpu").holding("b", UUIDS["b"][0], container="gpu")], (60, 120), id="a pod with GPUs"),
        pytest.param([requesting("p").bound_to("b").terminating()], (60, 120), id="a terminating pod counts until it has ended"),
        pytest.param([requesting("p").bound_to("b", phase="Pending")], (60, 120), id="a pod whose containers have not started"),
        pytest.param([requesting("p").bound_to("b", phase="Failed")], (64, 128), id="a pod that has ended"),
        pytest.param([requesting("p")], (64, 128), id="a pod that is not bound"),
        pytest.param([requesting("p").bound_to("a"), requesting("q").bound_to("b")], (60, 120), id="a pod elsewhere"),
        pytest.param([requesting("p").bound_to("b"), requesting("p").bound_to("b")], (60, 120), id="a pod seen twice"),
        pytest.param([requesting("p").bound_to("b"), requesting("p").bound_to("b", phase="Succeeded")], (64, 128), id="a pod that ends"),
        pytest.param([requesting("p").bound_to("b"), requesting("p").bound_to("a")], (64, 128), id="another pod's place by the same UID"),
        pytest.param([requesting("p").bound_to("b"), requesting("p")], (60, 120), id="old news of a pod that is bound"),
    ],
)
def test_what_pods_request_is_counted_while_they_are_on_the_node(pods: list[PodBuilder], found: tuple[int, int]):
    made = with_node()
    for each in pods:
        made.apply_pod(each.build())
    assert left(made) == found


def test_a_pod_that_is_gone_requests_nothing_and_is_known_until_then():
    made = with_node()
    made.apply_pod(requesting("p").bound_to("b").build())
    assert set(made.pod_uids()) == {pod("p").uid}
    made.remove_pod(pod("p").uid, ended=False)
    assert left(made) == (64, 128)
    assert set(made.pod_uids()) == set()


def test_a_node_is_known_by_what_it_offers_until_it_is_gone():
    made = with_node()
    assert made.node_of("b") == NodeFacts(64_000, 131_072)
    assert made.node_names() == {"b"}
    made.apply_node(kube_node("b", cpu="32", memory="128Gi"))
    assert left(made) == (32, 128)
    made.remove_node("b")
    assert (made.node_of("b"), made.node_names()) == (None, set())
    assert made.view().cpu_left[1] == made.view().memory_left[1] == UNKNOWN
    assert is_open(made, "b"), "what fits is told by its GPUTopology"


@given(json_objects)
def test_no_node_is_too_odd(raw: JsonObject):
    made = state()
    made.apply_node(raw)
    assert made.view().rows == 2


def test_a_topology_may_come_after_node_and_pods():
    made = Cluster(GPU, Clock())
    made.apply_pod(requesting("p").bound_to("b").build())
    with_node(made)
    assert made.view().rows == 0, "a node without GPUs costs no row"
    made.apply_topology(TOPOLOGY["b"])
    assert left(made) == (60, 120)


def test_a_promise_counts_until_it_is_forgotten_and_a_binding_takes_its_place():
    made = with_node()
    entry = Entry(pod("p").uid, "default", "p", "b", frozenset(UUIDS["b"][:1]), EntryState.PROMISED)
    made.ledger.promise(entry, Requests(4000, 8192))
    assert left(made) == (60, 120)
    made.ledger.forget(entry.uid)
    assert left(made) == (64, 128)
    made.ledger.promise(entry, Requests(4000, 8192))
    made.apply_pod(requesting("p", cpu="8").gpus(1, "gpu").holding("b", UUIDS["b"][0], container="gpu").build())
    assert left(made) == (56, 120)
    made.ledger.forget(entry.uid)
    assert left(made) == (56, 120)


async def test_a_binding_of_a_pod_that_nobody_showed_keeps_the_parts_that_were_promised():
    """Without its containers nobody knows any more which of them run together."""
    extender = extender_on(cluster().bridges("a"))
    asked = pod("p").init_shared(50, "warm-up").sidecar_shared(5).shared(40, "serve")
    await extender.place(asked, "a")
    (stored,) = extender.binder.pods()
    assert "containers" not in stored.get("spec", {})
    assert extender.cluster.view().left[0, 0] == (80 - 50) * 1024
    extender.cluster.apply_topology(changed(cluster().bridges("a").topologies[0], unhealthy=[7]))
    assert extender.cluster.view().left[0, 0] == (80 - 50) * 1024, "looked at again after its node has changed"


def test_a_binding_of_a_pod_that_nobody_showed_keeps_what_was_promised():
    """In a snapshot's memory such a pod is a name, a node and an allocation."""
    made = with_node()
    made.ledger.promise(Entry(pod("p").uid, "default", "p", "b", frozenset(UUIDS["b"][:1]), EntryState.PROMISED), Requests(4000, 8192))
    stub = pod("p").bound_to("b", allocation_of("b", {"main": UUIDS["b"][:1]})).build()
    made.apply_pod({**stub, "spec": {"nodeName": "b"}})
    assert left(made) == (60, 120)


events = st.tuples(
    st.sampled_from(["p", "q", "r"]),
    st.sampled_from(["a", "b", None]),
    st.sampled_from(["1", "2"]),
    st.sampled_from(["Running", "Running", "Succeeded", "gone"]),
    st.booleans(),
)


@given(st.lists(events, max_size=12))
def test_after_any_events_the_sums_are_those_of_a_fresh_count(happened: list[tuple[str, str | None, str, str, bool]]):
    """The last word about each pod decides; a pod without a node is news from before its binding."""
    made, last = with_node(), {}
    for name, node, cpu, what, whole_gpu in happened:
        if what == "gone":
            made.remove_pod(pod(name).uid)
            last.pop(name, None)
            continue
        asked = requesting(name, cpu=cpu).gpus(1, "gpu") if whole_gpu else requesting(name, cpu=cpu)
        made.apply_pod((asked if node is None else asked.bound_to(node, phase=what)).build())
        if node is not None:
            last[name] = (node, int(cpu)) if what == "Running" else (None, 0)
    assert left(made)[0] == 64 - sum(cpu for node, cpu in last.values() if node == "b")
    assert set(made.pod_uids()) == {pod(name).uid for name, (node, _) in last.items() if node}


# --- generations and tentative holds --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(lambda made: made.apply_pod(requesting("p").bound_to("b").build()), id="a pod without GPUs"),
        pytest.param(lambda made: made.apply_node(kube_node("b", cpu="1", memory="1Gi")), id="a node offers less"),
        pytest.param(lambda made: made.remove_node("b"), id="the node is gone"),
    ],
)
def test_a_change_of_cpu_and_memory_is_seen_and_costs_no_answer_about_gpus(event: Callable[[Cluster], object]):
    made = with_node()
    before = made.view()
    event(made)
    after = made.view()
    assert after.row_generation.tolist() == before.row_generation.tolist()
    assert after.host_generation[1] > before.generation
    assert after.host_generation[0] == before.host_generation[0]
    again = made.view()
    event(made)
    assert made.view() is again, "the same once more changes nothing"


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(lambda made: made.apply_pod(holding("p", "b", 0).build()), id="a pod that holds GPUs"),
        pytest.param(lambda made: made.apply_pod(pod("p").gpus(1).bound_to("b", "x").build()), id="a pod that closes the node"),
        pytest.param(lambda made: made.apply_topology(changed(TOPOLOGY["b"], unhealthy=[0])), id="a GPU breaks"),
        pytest.param(lambda made: made.apply_topology(changed(TOPOLOGY["b"], without=0)), id="a GPU is gone"),
        pytest.param(lambda made: made.remove_topology("b"), id="the topology is gone"),
        pytest.param(lambda made: made.apply_topology({**TOPOLOGY["b"], "spec": {}}), id="the topology cannot be read"),
    ],
)
def test_every_change_stamps_its_row_and_no_other(event: Callable[[Cluster], object]):
    made = state()
    before = made.view()
    event(made)
    after = made.view()
    assert after.row_generation[1] > before.generation
    assert after.host_generation[1] >= after.row_generation[1]
    assert after.row_generation[0] == before.row_generation[0]


def test_a_tentative_hold_counts_until_its_time_has_passed():
    clock = Clock()
    made = state(clock=clock)
    made.hold("u", 1, 0b0011, seconds=2.0)
    view = made.view()
    assert {row: room.idle for row, room in view.rooms_beside("other").items()} == {1: int(view.free[1]) & ~0b0011}
    assert free(made, "b") == [0, 1, 2, 3], "a hold lowers scores, it never refuses"
    clock.now += 1.9
    assert made.view().holds
    clock.now += 0.2
    assert not made.view().holds


def test_a_tentative_hold_ends_with_the_binding():
    made = state()
    made.hold(pod("p").uid, 1, 0b0011, seconds=2.0)
    made.apply_pod(holding("p", "b", 0).build())
    assert not made.view().holds
    made.hold(pod("p").uid, 1, 0b0011, seconds=2.0)
    assert not made.view().holds, "who holds GPUs needs no hold"


def test_taking_a_hold_back_tells_whether_it_still_counted():
    clock = Clock()
    made = state(clock=clock)
    made.hold("u", 1, 0b0011, seconds=2.0)
    hold = made.unhold("u")
    assert hold is not None
    assert (hold.row, hold.mask) == (1, 0b0011)
    made.hold("u", 1, 0b0011, seconds=2.0)
    clock.now += 3
    assert made.unhold("u") is None


def test_the_state_without_some_pods_leaves_the_real_one_alone():
    made = state(BUILT.with_pods(holding("p", "b", 0, 1), holding("q", "b", 2), pod("r").gpus(1).bound_to("b", "garbage")))
    view = made.view_without("b", {pod("p").uid, pod("r").uid})
    row = view.row_of["b"]
    assert (int(view.free[row]), Refusal(int(view.closed[row]))) == (0b1011, Refusal.FITS)
    assert free(made, "b") == [3]
    assert not is_open(made, "b")
    assert made.view_without("nowhere", set()) is made.view()
