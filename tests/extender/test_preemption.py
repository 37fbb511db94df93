"""The veto, called as kube-scheduler calls it; DGX-1V nodes whose GPUs other pods hold."""

import json
from typing import Any

import pytest

from tests.builders import Extender, PodBuilder, cluster, extender_on, pod
from topology.errors import CallError

JsonObject = dict[str, Any]

BASE = cluster().dgx1v("node-a", "node-b")
QUADS = {node: (BASE.uuids(node)[:4], BASE.uuids(node)[4:]) for node in ("node-a", "node-b")}


def low(node: str, quad: int) -> PodBuilder:
    """The pod that holds a quad of a node."""
    return pod(f"low-{node}-{quad}").holding(node, *QUADS[node][quad])


@pytest.fixture
def extender() -> Extender:
    return extender_on(BASE.with_pods(*(low(node, quad) for node in QUADS for quad in (0, 1))))


def preempt(extender: Extender, asked: PodBuilder, victims: dict[str, list[PodBuilder]], *, whole: bool = False) -> dict[str, JsonObject]:
    if whole:
        candidates = {node: {"Pods": [each.build() for each in pods], "NumPDBViolations": 1} for node, pods in victims.items()}
        call = {"Pod": asked.build(), "NodeNameToVictims": candidates, "NodeNameToMetaVictims": None}
    else:
        candidates = {node: {"Pods": [{"UID": each.uid} for each in pods], "NumPDBViolations": 1} for node, pods in victims.items()}
        call = {"Pod": asked.build(), "NodeNameToVictims": None, "NodeNameToMetaVictims": candidates}
    answer: dict[str, JsonObject] = json.loads(extender.verbs.preempt(json.dumps(call).encode()))["NodeNameToMetaVictims"]
    return answer


@pytest.mark.parametrize("whole", [False, True], ids=["victims by UID", "victims as whole pods"])
def test_a_node_where_the_pod_fits_without_the_victims_is_kept_with_the_victims_as_they_came(extender: Extender, whole: bool) -> None:
    answer = preempt(extender, pod("high").gpus(4), {"node-a": [low("node-a", 0)], "node-b": [low("node-b", 1)]}, whole=whole)
    assert answer == {
        "node-a": {"Pods": [{"UID": low("node-a", 0).uid}], "NumPDBViolations": 1},
        "node-b": {"Pods": [{"UID": low("node-b", 1).uid}], "NumPDBViolations": 1},
    }


def test_a_floor_that_no_eviction_meets_leaves_no_candidate(extender: Extender) -> None:
    every = {node: [low(node, 0), low(node, 1)] for node in QUADS}
    assert preempt(extender, pod("high").gpus(2).min_bandwidth(400), every) == {}


def test_victims_whose_gpus_are_not_enough_together_are_not_evicted(extender: Extender) -> None:
    assert preempt(extender, pod("high").gpus(8), {"node-a": [low("node-a", 0)], "node-b": [low("node-b", 0), low("node-b", 1)]}).keys() == {"node-b"}


def test_a_node_that_stays_closed_without_the_victims_is_no_candidate() -> None:
    stranger = pod("stranger").gpus(1).bound_to("node-a")
    extender = extender_on(BASE.with_pods(low("node-a", 0), stranger))
    assert preempt(extender, pod("high").gpus(8), {"node-a": [low("node-a", 0)]}) == {}
    assert preempt(extender, pod("high").gpus(8), {"node-a": [low("node-a", 0), stranger]}).keys() == {"node-a"}


def test_an_entry_without_victims_would_fail_the_whole_cycle_and_is_left_out() -> None:
    assert preempt(extender_on(BASE), pod("high").gpus(1), {"node-a": []}) == {}


def test_an_unknown_node_is_no_candidate(extender: Extender) -> None:
    assert preempt(extender, pod("high").gpus(1), {"node-z": [low("node-a", 0)]}) == {}


def test_a_pod_without_gpus_is_none_of_our_business(extender: Extender) -> None:
    assert preempt(extender, pod("high").plain(), {"node-a": [low("node-a", 0)]}).keys() == {"node-a"}


def test_no_eviction_helps_a_pod_whose_wish_cannot_be_read(extender: Extender) -> None:
    assert preempt(extender, pod("high").gpus(2).annotated(min_bandwidth="fast"), {"node-a": [low("node-a", 0)]}) == {}


# --- parts of GPUs --------------------------------------------------------------------------------------------------

CARDS = cluster().mesh("mesh")
HOLDERS = {gib: pod(f"part-{gib}").shared(gib).sharing("mesh", {CARDS.uuids("mesh")[0]: gib * 1024}) for gib in (10, 25)}


@pytest.fixture
def shared() -> Extender:
    """A node with one GPU of 40 GiB that two pods share; the others are held whole."""
    return extender_on(CARDS.with_pods(*HOLDERS.values(), pod("others").holding("mesh", *CARDS.uuids("mesh")[1:])))


@pytest.mark.parametrize(
    ("asked", "victims", "kept"),
    [
        pytest.param(pod("high").shared(15), [10], True, id="5 left and 10 freed"),
        pytest.param(pod("high").shared(16), [10], False, id="a GiB too little"),
        pytest.param(pod("high").shared(30), [25], True, id="the larger one"),
        pytest.param(pod("high").shared(40), [25], False, id="not all of it is freed"),
        pytest.param(pod("high").shared(40), [10, 25], True, id="all of it"),
        pytest.param(pod("high").gpus(1), [10], False, id="a GPU that is still shared is not whole"),
        pytest.param(pod("high").gpus(1), [10, 25], True, id="nobody is left on it"),
    ],
)
def test_a_node_is_kept_where_its_victims_leave_enough_of_a_gpu(shared: Extender, asked: PodBuilder, victims: list[int], kept: bool) -> None:
    answer = preempt(shared, asked, {"mesh": [HOLDERS[gib] for gib in victims]})
    assert list(answer) == (["mesh"] if kept else [])
    assert shared.cluster.view().left[0, 0] == 5 * 1024, "and nothing has changed"


def test_the_veto_changes_nothing(extender: Extender) -> None:
    before = extender.cluster.view()
    preempt(extender, pod("high").gpus(4), {"node-a": [low("node-a", 0)]})
    assert extender.cluster.view() is before


def test_a_body_that_is_no_call_is_told_apart_from_one_without_candidates(extender: Extender) -> None:
    assert preempt(extender, pod("high").gpus(4), {}) == {}
    with pytest.raises(CallError, match="holds no Pod"):
        extender.verbs.preempt(b"{}")
