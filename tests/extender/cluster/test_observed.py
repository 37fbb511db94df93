"""Holders that only an agent's word stands behind: pods deleted by force, and containers that nobody knows."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from extender.cluster import Cluster
from extender.cluster.observed import DIFFERENCES, may_run
from extender.reasons import Refusal
from extender.sample_machines import sample
from tests.builders import Clock, changed, pod

JsonObject = dict[str, Any]
NODE = "node-a"
START = datetime(2026, 1, 1, tzinfo=UTC)
UUIDS = [gpu.uuid for gpu in sample("dgx1v", NODE).spec.gpus]


def observation(seconds: float, holders: Mapping[int, str] | None = None, *, looks: bool = True) -> JsonObject:
    """The topology as its agent saw it so many seconds after the start; ``holders`` by position as NAMESPACE/NAME."""
    seen = changed(sample("dgx1v", NODE, observed_at=START + timedelta(seconds=seconds)).to_object(), holders=holders or {})
    seen["status"]["holdersObserved"] = looks
    return seen


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster("nvidia.com/gpu", Clock())
    made.apply_topology(observation(0))
    return made


def free(cluster: Cluster) -> list[int]:
    view = cluster.view()
    row = view.row_of[NODE]
    assert view.closed[row] == Refusal.FITS
    return [bit for bit in range(8) if int(view.free[row]) >> bit & 1]


def deleted_by_force(cluster: Cluster) -> None:
    """A pod is bound to GPUs 0 and 1, seen there, and deleted without a grace period while it runs."""
    cluster.apply_pod(pod("a").holding(NODE, *UUIDS[:2]).build())
    cluster.apply_topology(observation(5, {0: "default/a", 1: "default/a"}))
    cluster.remove_pod(pod("a").uid, ended=False)


def test_a_pod_deleted_by_force_holds_its_gpus_until_a_later_observation_leaves_it_out(cluster: Cluster) -> None:
    deleted_by_force(cluster)
    assert free(cluster) == [2, 3, 4, 5, 6, 7]
    cluster.apply_topology(observation(5, {0: "default/a", 1: "default/a"}))
    assert free(cluster) == [2, 3, 4, 5, 6, 7], "the same observation once more"
    cluster.apply_topology(observation(65, {0: "default/a", 1: "default/a"}))
    assert free(cluster) == [2, 3, 4, 5, 6, 7], "it still runs"
    cluster.apply_topology(observation(70))
    assert free(cluster) == list(range(8))


def test_a_pod_with_a_part_that_is_deleted_by_force_keeps_its_part_and_no_more_until_a_later_observation(cluster: Cluster) -> None:
    cluster.apply_pod(pod("part").shared(10).sharing(NODE, {UUIDS[0]: 10_240}).build())
    cluster.apply_pod(pod("other").shared(4).sharing(NODE, {UUIDS[0]: 4_096}).build())
    cluster.remove_pod(pod("part").uid, ended=False)
    left = [int(cluster.view().left[0, 0])]
    for seconds, holders in ((5, {0: "default/part"}), (10, {})):
        cluster.apply_topology(observation(seconds, holders))
        left.append(int(cluster.view().left[0, 0]))
    assert left == [18_432, 18_432, 28_672]


def test_a_gpu_that_the_agent_sees_somebody_hold_gives_no_parts(cluster: Cluster) -> None:
    """Of a holder that nobody knows it cannot be told how much it takes."""
    cluster.apply_pod(pod("part").shared(10).sharing(NODE, {UUIDS[0]: 10_240}).build())
    for holders, left in (({0: "default/unknown"}, 0), ({0: "default/part"}, 22_528), ({}, 22_528)):
        cluster.apply_topology(observation(5 + left, holders))
        assert int(cluster.view().left[0, 0]) == left


def test_an_observation_from_before_the_deletion_releases_nothing_although_it_never_showed_the_pod(cluster: Cluster) -> None:
    cluster.apply_pod(pod("a").holding(NODE, *UUIDS[:2]).build())
    cluster.remove_pod(pod("a").uid, ended=False)
    cluster.apply_topology(observation(0))
    assert free(cluster) == [2, 3, 4, 5, 6, 7]
    cluster.apply_topology(observation(60))
    assert free(cluster) == list(range(8))


def test_a_pod_that_had_ended_is_gone_with_its_object_whatever_an_older_observation_says(cluster: Cluster) -> None:
    cluster.apply_pod(pod("a").holding(NODE, *UUIDS[:2]).build())
    cluster.apply_topology(observation(5, {0: "default/a", 1: "default/a"}))
    cluster.remove_pod(pod("a").uid, ended=True)
    assert free(cluster) == list(range(8))
    cluster.apply_topology(observation(5, {0: "default/a", 1: "default/a"}))
    assert free(cluster) == list(range(8))


def test_where_the_agent_does_not_ask_kubelet_a_deleted_pod_is_gone() -> None:
    cluster = Cluster("nvidia.com/gpu", Clock())
    cluster.apply_topology(observation(0, looks=False))
    cluster.apply_pod(pod("a").holding(NODE, *UUIDS[:2]).build())
    cluster.remove_pod(pod("a").uid, ended=False)
    assert free(cluster) == list(range(8))


def test_a_pod_created_again_under_the_same_name_does_not_keep_the_gpus_of_the_one_before(cluster: Cluster) -> None:
    deleted_by_force(cluster)
    again = pod("a").holding(NODE, *UUIDS[4:6]).build()
    again["metadata"]["uid"] = "uid of the second"
    cluster.apply_pod(again)
    assert free(cluster) == [2, 3, 6, 7]
    cluster.apply_topology(observation(65, {0: "default/a", 1: "default/a", 4: "default/a", 5: "default/a"}))
    assert free(cluster) == [2, 3, 6, 7], "both run"
    cluster.apply_topology(observation(70, {4: "default/a", 5: "default/a"}))
    assert free(cluster) == [0, 1, 2, 3, 6, 7]


def test_a_restarted_extender_knows_such_a_pod_from_the_topology_alone() -> None:
    cluster = Cluster("nvidia.com/gpu", Clock())
    cluster.apply_topology(observation(5, {0: "default/a", 1: "default/a"}))
    assert free(cluster) == [2, 3, 4, 5, 6, 7]
    assert set(cluster.pod_uids()) == set(), "no list of pods can say anything about it"
    cluster.apply_topology(observation(70))
    assert free(cluster) == list(range(8))


def test_a_holder_that_turns_out_to_be_a_pod_of_ours_is_counted_once(cluster: Cluster) -> None:
    cluster.apply_topology(observation(5, {0: "default/a", 1: "default/a"}))
    cluster.apply_pod(pod("a").holding(NODE, *UUIDS[:2]).build())
    assert len(cluster.ledger) == 1
    assert free(cluster) == [2, 3, 4, 5, 6, 7]
    cluster.remove_pod(pod("a").uid)
    assert free(cluster) == list(range(8))


def test_nothing_is_left_of_a_ghost_whose_node_loses_its_topology(cluster: Cluster) -> None:
    deleted_by_force(cluster)
    cluster.remove_topology(NODE)
    cluster.apply_topology(observation(70))
    assert free(cluster) == list(range(8))


def stranger(uid: str, created_s: float) -> JsonObject:
    """A pod of two GPUs that came around Linkwise, created so many seconds after the start; the API server writes whole seconds."""
    item = pod("web-0").gpus(2).bound_to(NODE).build()
    item["metadata"] |= {"uid": uid, "creationTimestamp": (START + timedelta(seconds=created_s)).replace(microsecond=0).isoformat()}
    return item


@pytest.mark.parametrize("holds", [pytest.param((2, 3), id="other GPUs than the earlier one"), pytest.param((0, 1), id="the same GPUs")])
def test_what_was_observed_of_a_pod_says_nothing_of_the_next_one_of_that_name(cluster: Cluster, holds: tuple[int, int]) -> None:
    cluster.apply_pod(stranger("first", 1))
    cluster.apply_topology(observation(1.1, dict.fromkeys((0, 1), "default/web-0")))
    assert free(cluster) == [2, 3, 4, 5, 6, 7], "nobody of that name was there before"
    cluster.remove_pod("first")
    cluster.apply_pod(stranger("second", 10.9))
    for seconds in (1.1, 10.5):  # looked at before the second pod was there, however late it is heard of
        cluster.apply_topology(observation(seconds, dict.fromkeys((0, 1), "default/web-0")))
        view = cluster.view()
        assert view.closed[view.row_of[NODE]] == Refusal.UNKNOWN_HOLDER
    cluster.apply_topology(observation(11, dict.fromkeys(holds, "default/web-0")))
    assert free(cluster) == [bit for bit in range(8) if bit not in holds]


@pytest.mark.parametrize(
    ("status", "running"),
    [
        pytest.param({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, True, id="a container that runs"),
        pytest.param({"containerStatuses": [{"state": {"terminated": {}}}, {"state": {"running": {}}}]}, True, id="one of two that runs"),
        pytest.param({"containerStatuses": [{"state": {"waiting": {}}}]}, True, id="one that may start at any moment"),
        pytest.param({"phase": "Failed", "containerStatuses": [{"state": {"running": {}}}]}, False, id="a pod that has failed"),
        pytest.param({"containerStatuses": None}, True, id="nothing told"),
        pytest.param({"containerStatuses": ["odd", {"state": None}]}, True, id="odd entries"),
        pytest.param(None, True, id="no status"),
        pytest.param({"containerStatuses": [{"state": {"terminated": {}}}]}, False, id="all of them ended"),
    ],
)
def test_a_pod_may_run_unless_all_its_containers_have_ended(status: JsonObject | None, running: bool) -> None:
    assert may_run({"status": status}) is running


def test_a_pod_deleted_by_force_while_its_container_was_being_created_holds_on_for_as_long_as_the_agent_lists_it() -> None:
    cluster = Cluster("nvidia.com/gpu", Clock())
    cluster.apply_topology(observation(0, {0: "default/a"}))
    cluster.apply_pod(pod("a").holding(NODE, UUIDS[0]).build())
    cluster.remove_pod(pod("a").uid, ended=False, deleted=START + timedelta(seconds=20))
    for seconds in (10, 25, 35):
        cluster.apply_topology(observation(seconds, {0: "default/a"}))
        assert 0 not in free(cluster)
    cluster.apply_topology(observation(40, {}))
    assert 0 in free(cluster)


def test_an_observation_from_before_a_pod_was_deleted_frees_nothing() -> None:
    cluster = Cluster("nvidia.com/gpu", Clock())
    cluster.apply_topology(observation(5, {}))
    cluster.apply_pod(pod("a").holding(NODE, UUIDS[0]).build())
    cluster.remove_pod(pod("a").uid, ended=False, deleted=START + timedelta(seconds=20))
    cluster.apply_topology(observation(10, {}))  # taken before there was the pod, heard of after it was gone
    assert 0 not in free(cluster)
    cluster.apply_topology(observation(21, {}))
    assert 0 in free(cluster)


def test_a_topology_in_which_nobody_looked_frees_nothing() -> None:
    cluster = Cluster("nvidia.com/gpu", Clock())
    cluster.apply_topology(observation(0, {0: "default/a", 1: "default/unknown"}))
    cluster.apply_pod(pod("a").holding(NODE, UUIDS[0]).build())
    cluster.remove_pod(pod("a").uid, ended=False)
    cluster.remove_topology(NODE)
    cluster.apply_topology({**observation(60, {}), "status": {}})  # a new object, of which the agent has written the spec alone
    assert not {0, 1} & set(free(cluster))


@pytest.mark.parametrize("looked", [pytest.param(True, id="it has looked who holds what"), pytest.param(False, id="all is well, and it cannot look")])
def test_a_node_takes_no_pods_before_its_agent_has_said_in_what_state_it_is(looked: bool) -> None:
    told = observation(1, {}) if looked else sample("dgx1v", NODE, observed_at=START + timedelta(seconds=1)).to_object()
    cluster = Cluster("nvidia.com/gpu", Clock(), needs_observation=True)
    cluster.apply_topology({**told, "status": {}})
    assert cluster.view().closed[0] == Refusal.STALE
    cluster.apply_topology(told)
    cluster.close_stale(START + timedelta(seconds=2), 180)
    assert cluster.view().closed[0] == Refusal.FITS


def test_a_node_is_open_once_its_agent_has_said_that_all_is_well() -> None:
    """Every GPU healthy and nobody seen on any: of what decides where pods fit nothing has changed but that it was looked at."""
    topology = sample("dgx1v", NODE, observed_at=START).to_object()
    cluster = Cluster("nvidia.com/gpu", Clock(), needs_observation=True)
    for status, closed in (({}, Refusal.STALE), (topology["status"], Refusal.FITS), ({}, Refusal.STALE), (topology["status"], Refusal.FITS)):
        cluster.apply_topology({**topology, "status": status})
        assert cluster.view().closed[0] == closed


def test_a_gpu_in_mig_mode_is_nobodys_whole_gpu() -> None:
    raw = sample("dgx1v", NODE).to_object()
    raw["spec"]["gpus"][3]["migMode"] = "Enabled"
    cluster = Cluster("nvidia.com/gpu", Clock())
    cluster.apply_topology(raw)
    assert free(cluster) == [0, 1, 2, 4, 5, 6, 7]


def test_a_pod_with_shares_of_gpus_that_somebody_else_handed_out_closes_its_node() -> None:
    cluster = Cluster("nvidia.com/gpu", Clock())
    cluster.apply_topology(sample("dgx1v", NODE).to_object())
    cluster.apply_pod(pod("share").gpus(2, resource="aliyun.com/gpu-mem").bound_to(NODE).build())
    assert cluster.view().closed[0] == Refusal.UNKNOWN_HOLDER


# --- agents that tell UIDs and MiB: the hand-off is on ---


def told(seconds: float, *holders: tuple[int, str, str, int | None]) -> JsonObject:
    """The topology as an agent with the hand-off saw it: position, pod, UID, and MiB or None; the container is `main`."""
    seen = observation(seconds)
    for position, name, uid, mib in holders:
        one = {"namespace": "default", "name": name, "uid": uid, "container": "main", "planned": True, **({"memoryMiB": mib} if mib else {})}
        seen["status"]["gpus"][position].setdefault("holders", []).append(one)
    return seen


def none_but(**kinds: int) -> dict[str, int]:
    return dict.fromkeys(DIFFERENCES, 0) | {kind.replace("_", "-"): count for kind, count in kinds.items()}


def test_a_pod_that_holds_what_it_was_promised_is_no_difference(cluster: Cluster) -> None:
    """Whole, in part, or less than all while its containers start."""
    cluster.apply_pod(pod("a").holding(NODE, *UUIDS[:2]).build())
    cluster.apply_pod(pod("part").shared(4).sharing(NODE, {UUIDS[2]: 4096}).build())
    cluster.apply_topology(told(5, (0, "a", pod("a").uid, None), (2, "part", pod("part").uid, 4096)))
    assert free(cluster) == [3, 4, 5, 6, 7]
    assert cluster.hand_off_differences() == none_but()
    assert cluster.take_different() == []


def test_a_pod_that_holds_another_gpu_than_promised_keeps_both_until_it_does_no_more(cluster: Cluster) -> None:
    """Its owner is told once, whatever is observed how often."""
    cluster.apply_pod(pod("a").holding(NODE, UUIDS[0]).build())
    for seconds in (5, 10):
        cluster.apply_topology(told(seconds, (3, "a", pod("a").uid, None)))
        assert free(cluster) == [1, 2, 4, 5, 6, 7]
        assert cluster.hand_off_differences() == none_but(other_gpus=1)
    (difference,) = cluster.take_different()
    assert (difference.entry.uid, difference.sentence) == (pod("a").uid, f"it holds GPU {UUIDS[3]} on node {NODE}, which it was not promised")
    cluster.apply_topology(told(15, (0, "a", pod("a").uid, None)))
    assert free(cluster) == [1, 2, 3, 4, 5, 6, 7]
    assert cluster.hand_off_differences() == none_but()


@pytest.mark.parametrize("mib", [pytest.param(8192, id="a larger part"), pytest.param(None, id="the whole GPU")])
def test_a_pod_that_holds_more_of_a_gpu_than_promised_is_told(cluster: Cluster, mib: int | None) -> None:
    cluster.apply_pod(pod("part").shared(4).sharing(NODE, {UUIDS[2]: 4096}).build())
    cluster.apply_topology(told(5, (2, "part", pod("part").uid, mib)))
    assert cluster.hand_off_differences() == none_but(more_memory=1)
    assert "holds more of GPU" in cluster.take_different()[0].sentence


def test_a_pod_with_a_share_from_around_closes_its_node_until_it_is_observed_and_is_charged_what_it_has(cluster: Cluster) -> None:
    """MiB by MiB, so that the rest of the GPU is given away."""
    around = pod("around").shared(4).bound_to(NODE)
    cluster.apply_pod(around.build())
    cluster.apply_topology(told(5))
    assert cluster.view().closed[0] == Refusal.UNKNOWN_HOLDER
    before = int(cluster.view().left[0, 6])
    cluster.apply_topology(told(10, (6, "around", around.uid, 4096)))
    view = cluster.view()
    assert (view.closed[0], int(view.left[0, 6])) == (Refusal.FITS, before - 4096)
    assert cluster.hand_off_differences() == none_but(around=1)
    cluster.remove_pod(around.uid, ended=True)
    cluster.apply_topology(told(15))
    assert int(cluster.view().left[0, 6]) == before


def test_a_pod_with_two_shares_from_around_is_known_when_both_containers_are_observed(cluster: Cluster) -> None:
    """One that has started says nothing of the other."""
    around = pod("around").shared(4).shared(2, "second").bound_to(NODE)
    cluster.apply_pod(around.build())
    cluster.apply_topology(told(5, (6, "around", around.uid, 4096)))
    assert cluster.view().closed[0] == Refusal.UNKNOWN_HOLDER


def test_a_holder_that_nobody_knows_takes_its_part_and_no_more(cluster: Cluster) -> None:
    """Where the agent tells how much that is."""
    before = int(cluster.view().left[0, 1])
    cluster.apply_topology(told(5, (1, "unknown", "uid-9", 2048)))
    assert int(cluster.view().left[0, 1]) == before - 2048
    assert cluster.hand_off_differences() == none_but(unknown=1)


def test_a_namesake_is_told_apart_by_its_uid(cluster: Cluster) -> None:
    """The pod deleted by force runs on under the name of its successor, on the GPU that the successor has not got."""
    cluster.apply_pod(pod("a").holding(NODE, UUIDS[0]).build())
    cluster.remove_pod(pod("a").uid, ended=False)
    again = pod("a").holding(NODE, UUIDS[1]).build()
    again["metadata"]["uid"] = "second"
    cluster.apply_pod(again)
    cluster.apply_topology(told(5, (0, "a", pod("a").uid, None), (1, "a", "second", None)))
    assert free(cluster) == [2, 3, 4, 5, 6, 7]
    assert cluster.hand_off_differences() == none_but(left=1)
    cluster.apply_topology(told(10, (1, "a", "second", None)))
    assert free(cluster) == [0, 2, 3, 4, 5, 6, 7]
