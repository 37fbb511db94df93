"""What lists and events do to the state: nothing is freed by old news, nothing is held by what is gone."""

from typing import Any

import pytest
import structlog

from extender.cluster import Cluster, Entry, EntryState
from extender.kube.sinks import ConfigMapSink, NodeSink, PodSink, TopologySink, is_parked
from extender.sample_machines import sample
from tests.builders import Clock, allocation_of, changed, gpushare_node, kube_node, pod, unhealthy_gpus

JsonObject = dict[str, Any]
NODE = "node-a"
UUIDS = [gpu.uuid for gpu in sample("dgx1v", NODE).spec.gpus]


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster("nvidia.com/gpu", Clock())
    made.apply_topology(sample("dgx1v", NODE).to_object())
    return made


def free(cluster: Cluster) -> int:
    view = cluster.view()
    return int(view.free[view.row_of[NODE]]).bit_count()


def promised(cluster: Cluster, name: str, *uuids: str) -> str:
    """Enter a promise as `binding` does, and return the pod's UID."""
    uid = pod(name).uid
    entry = Entry(uid, "default", name, NODE, frozenset(uuids), EntryState.PROMISED, allocation_of(NODE, {"main": uuids}))
    cluster.ledger.promise(entry)
    return uid


# --- pods -----------------------------------------------------------------------------------------------------------


def test_a_bound_pod_holds_its_gpus_until_it_is_gone(cluster: Cluster) -> None:
    sink = PodSink(cluster)
    bound = pod("a").holding(NODE, *UUIDS[:2]).build()
    sink.apply(bound)
    assert free(cluster) == 6
    assert set(sink.known()) == {sink.key(bound)} == {"uid-default-a"}
    sink.remove(bound)
    assert free(cluster) == 8
    assert set(sink.known()) == set()


def test_an_older_picture_of_a_pod_does_not_undo_its_binding(cluster: Cluster) -> None:
    """A list that was begun before the binding, or an event that lags behind it, shows the pod without a node."""
    sink = PodSink(cluster)
    uid = promised(cluster, "a", *UUIDS[:2])
    sink.apply(pod("a").gpus(2).build())
    assert free(cluster) == 6
    cluster.ledger.confirm(uid)
    sink.apply(pod("a").gpus(2).build())
    assert free(cluster) == 6


def test_a_list_that_lacks_a_promised_pod_says_nothing_about_it(cluster: Cluster) -> None:
    sink = PodSink(cluster)
    promised(cluster, "a", *UUIDS[:2])
    assert set(sink.known()) == set(), "the pod itself is asked what became of the promise"


def test_a_list_that_lacks_a_pod_bound_here_means_that_it_is_gone(cluster: Cluster) -> None:
    sink = PodSink(cluster)
    uid = promised(cluster, "a", *UUIDS[:2])
    cluster.ledger.confirm(uid)
    assert set(sink.known()) == {uid}, "although no watch has shown it yet"
    sink.forget(uid)
    assert free(cluster) == 8


def test_a_pod_bound_here_that_is_gone_before_any_watch_showed_it_stays_a_holder_where_the_agent_looks(cluster: Cluster) -> None:
    """The watch is broken, the pod is bound and starts, it is deleted by force, and the next list lacks it: its containers may run."""
    cluster.apply_topology(changed(sample("dgx1v", NODE).to_object(), holders={7: "default/another"}))
    uid = promised(cluster, "a", *UUIDS[:2])
    cluster.ledger.confirm(uid)
    PodSink(cluster).forget(uid)
    assert free(cluster) == 5


def test_a_promised_pod_that_is_deleted_unbound_holds_nothing_even_where_the_agent_looks(cluster: Cluster) -> None:
    """Nothing of it can run: its Binding names its UID, and no pod has that any more."""
    cluster.apply_topology(changed(sample("dgx1v", NODE).to_object(), holders={7: "default/another"}))
    promised(cluster, "a", *UUIDS[:2])
    PodSink(cluster).remove(pod("a").gpus(2).build())
    assert free(cluster) == 7


@pytest.mark.parametrize(
    ("status", "left"),
    [
        pytest.param({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, 6, id="its container ran: it may run on"),
        pytest.param({"phase": "Running", "containerStatuses": [{"state": {"terminated": {}}}]}, 8, id="its container had ended"),
        pytest.param({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]}, 6, id="its init container ran"),
        pytest.param({"phase": "Pending"}, 6, id="nothing had started: it may at any moment"),
        pytest.param({"phase": "Succeeded", "containerStatuses": [{"state": {"running": {}}}]}, 8, id="it had ended"),
    ],
)
def test_a_deleted_pod_frees_its_gpus_unless_its_containers_may_run_on_where_the_agent_looks(cluster: Cluster, status: JsonObject, left: int) -> None:
    observing = changed(sample("dgx1v", NODE).to_object(), holders={0: "default/a", 1: "default/a"})
    cluster.apply_topology(observing)
    sink = PodSink(cluster)
    bound = pod("a").holding(NODE, *UUIDS[:2]).build()
    sink.apply(bound)
    sink.remove({**bound, "status": status})
    assert free(cluster) == left


def test_a_pod_whose_end_nobody_saw_stays_a_holder_where_the_agent_looks(cluster: Cluster) -> None:
    cluster.apply_topology(changed(sample("dgx1v", NODE).to_object(), holders={0: "default/a"}))
    sink = PodSink(cluster)
    sink.apply(pod("a").holding(NODE, UUIDS[0]).build())
    sink.forget("uid-default-a")
    assert free(cluster) == 7
    assert set(sink.known()) == set(), "no list shows it again"


def test_a_pod_without_a_uid_is_told_apart_by_name(cluster: Cluster) -> None:
    sink = PodSink(cluster)
    by_hand = pod("a").holding(NODE, UUIDS[0]).build()
    del by_hand["metadata"]["uid"]
    sink.apply(by_hand)
    assert set(sink.known()) == {"default/a"}
    sink.remove(by_hand)
    assert free(cluster) == 8


def test_a_pod_without_gpus_is_known_while_it_is_bound(cluster: Cluster) -> None:
    """A list that lacks it has to take its CPU and memory back."""
    sink = PodSink(cluster)
    bound = pod("web").plain(cpu="1").bound_to(NODE).build()
    sink.apply(bound)
    assert set(sink.known()) == {"uid-default-web"}
    sink.forget("uid-default-web")
    assert set(sink.known()) == set()


# --- parked pods ----------------------------------------------------------------------------------------------------

PARKED = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


@pytest.mark.parametrize(
    ("raw", "parked"),
    [
        pytest.param(pod("a").gpus(1).build() | {"status": PARKED}, True, id="no node was found for it"),
        pytest.param(pod("a").gpus(1).build(), False, id="nobody has tried yet"),
        pytest.param(
            pod("a").gpus(1).build() | {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}]}},
            False,
            id="an error: kube-scheduler tries again by itself",
        ),
        pytest.param(
            pod("a").gpus(1).build() | {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}},
            False,
            id="gated",
        ),
        pytest.param(pod("a").gpus(1).bound_to(NODE).build() | {"status": PARKED}, False, id="bound since"),
        pytest.param(pod("a").gpus(1).terminating().build() | {"status": PARKED}, False, id="being deleted"),
        pytest.param({"metadata": {"name": "a"}}, False, id="nothing is told of it"),
        pytest.param({"metadata": None, "spec": None, "status": {"conditions": None}}, False, id="empty"),
    ],
)
def test_a_parked_pod_is_one_that_only_an_event_wakes(raw: JsonObject, parked: bool) -> None:
    assert is_parked(raw) is parked


def test_whoever_wants_to_hears_of_parked_pods_and_of_no_others(cluster: Cluster) -> None:
    heard: list[str] = []
    sink = PodSink(cluster, lambda raw: heard.append(raw["metadata"]["name"]))
    sink.apply(pod("parked").gpus(1).build() | {"status": PARKED})
    sink.apply(pod("new").gpus(1).build())
    sink.apply(pod("bound").holding(NODE, UUIDS[0]).build())
    assert heard == ["parked"]


# --- nodes ----------------------------------------------------------------------------------------------------------


def test_a_node_is_known_until_it_is_gone(cluster: Cluster) -> None:
    sink = NodeSink(cluster)
    raw = kube_node(NODE, cpu="64", memory="512Gi")
    sink.apply(raw)
    assert set(sink.known()) == {sink.key(raw)} == {NODE}
    sink.remove(raw)
    assert set(sink.known()) == set()
    sink.forget(NODE)


# --- topologies -----------------------------------------------------------------------------------------------------


def test_a_topology_comes_changes_and_goes() -> None:
    cluster = Cluster("nvidia.com/gpu", Clock())
    sink = TopologySink(cluster)
    whole = sample("dgx1v", NODE).to_object()
    sink.apply(whole)
    assert (free(cluster), set(sink.known()), sink.key(whole)) == (8, {NODE}, NODE)
    sink.apply(changed(whole, unhealthy=[3]))
    assert free(cluster) == 7
    sink.remove(whole)
    assert (free(cluster), set(sink.known())) == (0, set())
    sink.apply(whole)
    sink.forget(NODE)
    assert free(cluster) == 0


def test_an_unreadable_topology_closes_its_node_and_is_complained_of_once_until_it_changes() -> None:
    cluster = Cluster("nvidia.com/gpu", Clock())
    sink = TopologySink(cluster)
    whole = sample("dgx1v", NODE).to_object()
    broken = {**whole, "spec": {**whole["spec"], "gpus": []}}
    with structlog.testing.capture_logs() as logs:
        for raw in (broken, broken, whole, broken, {**whole, "spec": None}):
            sink.apply(raw)
            assert set(sink.known()) == {NODE}
    assert [entry["node"] for entry in logs] == [NODE] * 3
    sink.remove(broken)
    assert set(sink.known()) == set()


# --- ConfigMaps -----------------------------------------------------------------------------------------------------


def test_config_maps_of_unhealthy_gpus_count_until_they_are_gone_and_no_others_are_kept() -> None:
    """All of kube-system come, since a prefix of names cannot be selected."""
    cluster = Cluster("nvidia.com/gpu", Clock())
    cluster.apply_node(gpushare_node(NODE, 4))
    sink = ConfigMapSink(cluster)
    named = unhealthy_gpus(NODE, "0,2")
    sink.apply({"metadata": {"namespace": "kube-system", "name": "coredns"}, "data": {"Corefile": "..."}})
    sink.apply(named)
    assert set(sink.known()) == {sink.key(named)} == {f"unhealthy-gpu-{NODE}"}
    assert free(cluster) == 2
    sink.apply(unhealthy_gpus(NODE, "0"))
    assert free(cluster) == 3
    sink.remove(named)
    assert free(cluster) == 4
    assert set(sink.known()) == set()
    sink.remove({"metadata": {"namespace": "kube-system", "name": "coredns"}})
