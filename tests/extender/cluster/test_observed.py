"""Holders that only an agent's word stands behind: pods deleted by force, and containers that nobody knows."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from extender.cluster import Cluster
from extender.cluster.observed import was_running
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
    assert cluster.pod_uids() == set(), "no list of pods can say anything about it"
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


@pytest.mark.parametrize(
    ("status", "running"),
    [
        pytest.param({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, True, id="a container that runs"),
        pytest.param({"containerStatuses": [{"state": {"terminated": {}}}, {"state": {"running": {}}}]}, True, id="one of two that runs"),
        pytest.param({"containerStatuses": [{"state": {"waiting": {}}}]}, False, id="one that waits"),
        pytest.param({"phase": "Failed", "containerStatuses": [{"state": {"running": {}}}]}, False, id="a pod that has failed"),
        pytest.param({"containerStatuses": None}, False, id="nothing told"),
        pytest.param({"containerStatuses": ["odd", {"state": None}]}, False, id="odd entries"),
        pytest.param(None, False, id="no status"),
    ],
)
def test_a_pod_was_running_if_one_of_its_containers_was(status: JsonObject | None, running: bool) -> None:
    assert was_running({"status": status}) is running
