"""What of a pod matters to the state, however odd the rest of it looks."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings

from extender.cluster import pods as module
from extender.cluster.pods import (
    TOPOLOGY_AFFINITY,
    RefusedPod,
    has_ended,
    kept,
    node_of,
    read_bound_pod,
    read_plain_pod,
    refused_by_topology_manager,
    uid_of,
)
from extender.demand_class import DemandClass
from extender.requests import NOTHING, read_requests
from tests.builders import PodBuilder, allocation_of, pod
from tests.strategies import deep, json_objects, odd_pods
from topology.api import AllocatedGpu, Allocation

GPU = "nvidia.com/gpu"
TWO = allocation_of("a", {"main": ["GPU-1", "GPU-2"]})


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(pod().gpus(2), id="not bound yet"),
        pytest.param(pod().gpus(2).bound_to("a", TWO, "Succeeded"), id="all containers have ended well"),
        pytest.param(pod().gpus(2).bound_to("a", TWO, "Failed"), id="failed: its GPUs are free at once (kubernetes 120146)"),
        pytest.param(pod().plain().bound_to("a"), id="bound without GPUs"),
        pytest.param(pod().gpus(0).bound_to("a"), id="bound, and asks for no GPU in so many words"),
        pytest.param(pod().gpus(0, resource="nvidia.com/gpu.shared").bound_to("a"), id="bound, and asks for no replica of a GPU"),
    ],
)
def test_a_pod_that_holds_nothing(builder: PodBuilder):
    assert read_bound_pod(builder.build(), GPU) is None


@pytest.mark.parametrize(
    ("builder", "gpus"),
    [
        pytest.param(pod().gpus(2).bound_to("a", TWO), 2, id="running"),
        pytest.param(pod().gpus(2).bound_to("a", TWO, "Pending"), 2, id="bound and not started"),
        pytest.param(pod().gpus(2).bound_to("a", TWO, "Unknown"), 2, id="its node is silent"),
        pytest.param(pod().gpus(2).bound_to("a", TWO).terminating(), 2, id="terminating: until its containers have ended (kueue 10076)"),
        pytest.param(pod().gpus(1).init(2).bound_to("a", TWO), 2, id="by the rule for effective requests"),
    ],
)
def test_a_pod_that_holds_gpus(builder: PodBuilder, gpus: int):
    found = read_bound_pod(builder.build(), GPU)
    assert found is not None
    assert (found.node, found.gpus, found.annotation, found.problem) == ("a", gpus, TWO, "")
    assert found.allocation is not None
    assert found.allocation.uuids() == {"GPU-1", "GPU-2"}


def test_a_pod_that_is_told_once_more_is_kept_as_the_object_that_it_was():
    """A list tells of all pods every ten minutes; its texts would stand beside those of the first one that others keep."""
    running, pending = (read_bound_pod(pod().gpus(2).bound_to("a", TWO, phase).build(), GPU) for phase in ("Running", "Pending"))
    again = read_bound_pod(json.loads(json.dumps(pod().gpus(2).bound_to("a", TWO).build())), GPU)
    assert running is not None
    assert pending is not None
    assert again is not None
    first = kept(running, None)
    assert (first.allocation, first.annotation) == (None, TWO)
    assert kept(again, first) is first
    assert kept(pending, first) == kept(pending, None) != first


def test_a_pod_that_came_around_linkwise_has_no_allocation_and_no_problem():
    found = read_bound_pod(pod().gpus(2).bound_to("a").build(), GPU)
    assert found is not None
    assert (found.gpus, found.annotation, found.allocation, found.problem) == (2, None, None, "")


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        pytest.param("garbage", "linkwise.dev/allocation=garbage is not JSON", id="no JSON"),
        pytest.param('{"v":9}', "linkwise.dev/allocation=", id="another version"),
        pytest.param("", "linkwise.dev/allocation= is not JSON", id="empty"),
        pytest.param(
            allocation_of("b", {"main": ["GPU-1", "GPU-2"]}), "linkwise.dev/allocation names node b, but the pod is on a", id="another node"
        ),
        pytest.param(
            allocation_of("a", {"main": ["GPU-1"]}), "linkwise.dev/allocation names 1 of the 2 GPUs that the pod uses", id="a GPU is missing"
        ),
        pytest.param(allocation_of("a", {}), "linkwise.dev/allocation names 0 of the 2 GPUs that the pod uses", id="no container"),
        pytest.param(
            allocation_of("a", {"x": ["GPU-1"], "y": ["GPU-1"]}),
            "linkwise.dev/allocation names 1 of the 2 GPUs that the pod uses",
            id="one GPU twice",
        ),
    ],
)
def test_an_allocation_that_cannot_be_believed_is_a_problem_with_a_sentence(annotation: str, problem: str):
    """HAMi 2958: the allocation of a live pod does not decode."""
    found = read_bound_pod(pod().gpus(2).bound_to("a", annotation).build(), GPU)
    assert found is not None
    assert found.allocation is None
    assert found.problem.startswith(problem)


def shares_of(**containers: list[tuple[str, int | None]]) -> str:
    """The allocation annotation for (UUID, MiB) by container; None for a whole GPU."""
    given = {
        name: tuple(AllocatedGpu(uuid=uuid) if mib is None else AllocatedGpu(uuid=uuid, memory_mib=mib, shared=True) for uuid, mib in gpus)
        for name, gpus in containers.items()
    }
    return Allocation(node="a", containers=given).encode()


MIXED = pod().gpus(2, "train").shared(8, "serve").init_shared(4)


@pytest.mark.parametrize(
    ("builder", "annotation", "problem"),
    [
        pytest.param(
            pod().shared(10), shares_of(main=[("GPU-1", 10_239)]), "gives container main 10239 MiB of the 10 GiB that it uses", id="a MiB too little"
        ),
        pytest.param(
            pod().shared(10),
            shares_of(other=[("GPU-1", 10_240)]),
            "gives container main 0 MiB of the 10 GiB that it uses",
            id="nothing for the container that asks",
        ),
        pytest.param(pod().shared(10), shares_of(), "names 0 of the 1 GPUs that the pod uses", id="no GPU at all"),
        pytest.param(
            MIXED,
            shares_of(train=[("GPU-1", None), ("GPU-2", None)], serve=[("GPU-3", 8192)], init=[("GPU-3", 100)]),
            "gives container init 100 MiB of the 4 GiB that it uses",
            id="an init container is short",
        ),
        pytest.param(
            MIXED,
            shares_of(train=[("GPU-1", None)], serve=[("GPU-3", 8192), ("GPU-2", 1)], init=[("GPU-3", 4096)]),
            "names 1 of the 2 whole GPUs that the pod uses",
            id="a part is no whole GPU",
        ),
        pytest.param(
            MIXED,
            shares_of(train=[("GPU-1", None), ("GPU-2", None)], serve=[("GPU-2", 8192)], init=[("GPU-2", 4096)]),
            "names 2 of the 3 GPUs that the pod uses",
            id="the part lies on a GPU that is the pod's own",
        ),
    ],
)
def test_an_allocation_that_gives_less_than_the_pod_uses_is_not_believed(builder: PodBuilder, annotation: str, problem: str):
    """Kubelet gives the container what it asks, whatever is written: believing it would give the rest away twice."""
    found = read_bound_pod(builder.bound_to("a", annotation).build(), GPU)
    assert found is not None
    assert (found.allocation, found.problem) == (None, f"linkwise.dev/allocation {problem}")


@pytest.mark.parametrize(
    ("builder", "annotation"),
    [
        pytest.param(pod().shared(10), shares_of(main=[("GPU-1", 10_240)]), id="exactly what is asked"),
        pytest.param(
            pod().shared(10).annotated(gpu_count="3"), shares_of(main=[("GPU-1", 3414), ("GPU-2", 3414), ("GPU-3", 3414)]), id="spread over three"
        ),
        pytest.param(pod().shared(10), shares_of(main=[("GPU-1", 6000), ("GPU-2", 4240)]), id="spread in another way: wishes are history"),
        pytest.param(
            pod().shared(10),
            '{"v":1,"node":"a","containers":{"main":[{"uuid":"GPU-1","memoryMiB":81920}]}}',
            id="a whole GPU, as before there were parts",
        ),
        pytest.param(
            MIXED, shares_of(train=[("GPU-1", None), ("GPU-2", None)], serve=[("GPU-3", 8192)], init=[("GPU-3", 4096)]), id="whole GPUs and parts"
        ),
    ],
)
def test_an_allocation_that_gives_what_the_pod_uses_is_believed(builder: PodBuilder, annotation: str):
    found = read_bound_pod(builder.bound_to("a", annotation).build(), GPU)
    assert found is not None
    assert (found.problem, found.allocation is not None) == ("", True)


@pytest.mark.parametrize(
    ("builder", "gpus", "shared"),
    [
        pytest.param(pod().shared(10), 1, True, id="a part of one GPU at least"),
        pytest.param(MIXED, 3, True, id="two whole ones, and a part of another"),
        pytest.param(pod().gpus(2), 2, False, id="whole ones alone"),
        pytest.param(pod().gpus(2, resource="nvidia.com/gpu.shared"), 1, True, id="a part that others hand out"),
    ],
)
def test_a_pod_that_came_around_uses_at_least_so_many_gpus(builder: PodBuilder, gpus: int, shared: bool):
    found = read_bound_pod(builder.bound_to("a").build(), GPU)
    assert found is not None
    assert (found.gpus, found.shared) == (gpus, shared)


def test_an_allocation_that_is_no_string_is_a_problem():
    raw = pod().gpus(2).bound_to("a").build()
    raw["metadata"]["annotations"]["linkwise.dev/allocation"] = {"v": 1}
    found = read_bound_pod(raw, GPU)
    assert found is not None
    assert found.problem.startswith("linkwise.dev/allocation is a dict; accepted: a string")


def test_wishes_of_a_bound_pod_are_history():
    """A bound pod whose annotations no version of Linkwise understands still holds its GPUs."""
    found = read_bound_pod(pod().gpus(2).annotated(min_bandwidth="lots", unknown="x").bound_to("a", TWO).build(), GPU)
    assert found is not None
    assert (found.gpus, found.problem) == (2, "")


@pytest.mark.parametrize(
    "containers",
    [
        pytest.param([{"name": "a", "resources": {"limits": {GPU: "1.5"}}}], id="half a GPU"),
        pytest.param([{"resources": {"requests": {GPU: "1"}, "limits": {GPU: "2"}}}], id="requests that differ from limits"),
        pytest.param([5, {"name": "a", "resources": {"limits": {GPU: deep(1000)}}}], id="beside a container that is a number"),
    ],
)
def test_a_pod_too_odd_to_count_still_counts_as_a_user_of_gpus(containers: list[Any]):
    found = read_bound_pod({"metadata": {"name": "odd"}, "spec": {"nodeName": "a", "containers": containers}}, GPU)
    assert found is not None
    assert found.gpus == 1


@pytest.mark.parametrize(
    ("metadata", "uid"),
    [
        pytest.param({"uid": "u-1", "name": "a"}, "u-1", id="as the API server writes it"),
        pytest.param({"name": "a", "namespace": "team"}, "team/a", id="written by hand"),
        pytest.param({"name": "a"}, "default/a", id="without a namespace"),
        pytest.param({"uid": 7, "name": "a"}, "default/a", id="with a number as UID"),
    ],
)
def test_a_pod_is_known_by_its_uid(metadata: dict[str, Any], uid: str):
    assert uid_of(metadata) == uid


@settings(deadline=None, max_examples=200)
@example({"spec": {"containers": [{"resources": {"limits": {}, "requests": 1}}], "nodeName": "a"}})
@example({"spec": {"containers": [{"name": "a", "resources": {"limits": {GPU: []}}}], "nodeName": "a"}})
@given(odd_pods | json_objects)
def test_no_pod_at_all_crashes_the_reader(raw: dict[str, Any]):
    found = read_bound_pod(raw, GPU)
    assert found is None or (found.node == raw["spec"]["nodeName"] and isinstance(found.uid, str))


# --- gpushare -------------------------------------------------------------------------------------------------------

OLD = pod("old").placed_by_gpushare("a", index=2, units=10, gpu_units=23)


@pytest.mark.parametrize(
    ("builder", "assigned", "pending"),
    [
        pytest.param(OLD, True, False, id="running"),
        pytest.param(pod("old").placed_by_gpushare("a", 2, 10, 23, assigned=False), False, True, id="bound, and the plugin has not seen it"),
        pytest.param(OLD.terminating(), True, False, id="terminating"),
    ],
)
def test_a_pod_that_gpushares_extender_placed_is_told_by_its_annotations(builder: PodBuilder, assigned: bool, pending: bool):
    """They are all that tells."""
    found = read_bound_pod(builder.build(), GPU)
    assert found is not None
    assert (found.allocation, found.annotation, found.problem, found.pending) == (None, None, "", pending)
    assert found.share is not None
    assert (found.share.index, found.share.mib, found.share.assigned) == (2, 10 * 1024, assigned)


def test_an_allocation_of_ours_is_the_record_whatever_gpushares_annotations_say():
    """A pod's owner may edit those, and nobody may edit ours."""
    edited = pod("ours").units(10).carrying(idx="broken").bound_to("a", allocation_of("a", {"main": ["gpushare:a:0"]}))
    found = read_bound_pod(edited.build(), GPU)
    assert found is not None
    assert (found.problem, found.share) == ("", None)
    assert found.allocation is not None


def test_annotations_of_gpushare_mean_nothing_on_a_pod_that_asks_nothing_of_its_plugin():
    """A template was copied."""
    found = read_bound_pod(pod().gpus(2).carrying(idx="0").bound_to("a", TWO).build(), GPU)
    assert found is not None
    assert (found.problem, found.share) == ("", None)
    assert read_bound_pod(pod().plain().carrying(idx="0").bound_to("a").build(), GPU) is None


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param([{"uuid": "GPU-1"}, {"uuid": "GPU-2"}], DemandClass(2000, 2, model="*T4*"), id="two whole GPUs"),
        pytest.param([{"uuid": "GPU-1", "memoryMiB": 10240, "shared": True}], DemandClass(2000, 1, 10240, "*T4*"), id="a share"),
        pytest.param(
            [{"uuid": f"GPU-{number}", "memoryMiB": 2048, "shared": True} for number in range(3)],
            DemandClass(2000, 3, 2048, "*T4*"),
            id="shares on three",
        ),
    ],
)
def test_a_bound_pod_is_counted_by_what_it_was_given(gpus: list[dict[str, Any]], expected: DemandClass):
    """CPU from its containers, GPUs from its allocation, the model from its wish."""
    raw = pod("counted").annotated(gpu_model="*T4*").bound_to("a", json.dumps({"v": 1, "node": "a", "containers": {"main": gpus}})).build()
    raw["spec"]["containers"] = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    found = read_bound_pod(raw, "nvidia.com/gpu")
    assert found is not None
    assert found.demand_class == expected


def test_a_bound_pod_without_allocation_is_counted_by_what_it_asks_for():
    """It came around Linkwise; what it asked for is known all the same."""
    found = read_bound_pod(pod("around").gpus(4).bound_to("a").build(), "nvidia.com/gpu")
    assert found is not None
    assert found.demand_class == DemandClass(0, 4)


# --- short ways -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(pod().plain(cpu="1").bound_to("a"), id="it runs"),
        pytest.param(pod().plain(cpu="1").plain("other", memory="1Gi").bound_to("a"), id="with two containers"),
        pytest.param(pod().plain().bound_to("a", phase="Succeeded"), id="it has ended"),
        pytest.param(pod().plain(cpu="1").annotated(team="web").bound_to("a"), id="with annotations of others"),
        pytest.param(pod().plain(), id="it waits"),
    ],
)
def test_a_pod_without_gpus_is_read_the_short_way(builder: PodBuilder):
    """As nearly all pods of a cluster."""
    raw = builder.build()
    found = read_plain_pod(raw)
    assert found is not None
    expected = NOTHING if has_ended(raw) or not node_of(raw) else read_requests(raw)
    assert (found.uid, found.node, found.requests, found.ended) == (uid_of(raw["metadata"]), node_of(raw), expected, has_ended(raw))


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(pod().gpus(1).bound_to("a"), id="a GPU"),
        pytest.param(pod().gpus(0).bound_to("a"), id="no GPU in so many words"),
        pytest.param(pod().shared(4).bound_to("a"), id="a part of one"),
        pytest.param(pod().units(4).bound_to("a"), id="a part as gpushare counts"),
        pytest.param(pod().plain().init(1).bound_to("a"), id="an init container with one"),
        pytest.param(pod().gpus(1, resource="nvidia.com/mig-1g.5gb").bound_to("a"), id="a slice of one"),
        pytest.param(pod().gpus(1, resource="example.com/device").bound_to("a"), id="a device that nobody knows"),
        pytest.param(pod().plain().bound_to("a", TWO), id="an allocation without a GPU"),
    ],
)
def test_a_pod_that_may_use_gpus_is_read_with_care(builder: PodBuilder):
    assert read_plain_pod(builder.build()) is None


@settings(deadline=None)
@given(odd_pods | json_objects)
def test_what_is_read_the_short_way_holds_nothing_read_with_care(raw: dict[str, Any]):
    """Whatever else stands in it."""
    found = read_plain_pod(raw)
    if found is not None:
        assert read_bound_pod(raw, GPU) is None
        assert (found.uid, found.node, found.ended and bool(found.node)) == (
            uid_of(raw["metadata"]),
            node_of(raw),
            has_ended(raw) and bool(node_of(raw)),
        )


@settings(deadline=None, max_examples=300)
@given(odd_pods)
def test_whole_gpus_alone_are_counted_as_by_the_rule_for_all(raw: dict[str, Any]):
    """The short way gives no other number than the long one, or none at all."""
    counted = module._whole_alone(raw, GPU) if isinstance(raw.get("spec"), dict) else None
    if counted is not None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_whole_alone", lambda *_: None)
            assert module._uses(raw, GPU) == (counted, False)


@pytest.mark.parametrize("limits_alone", [True, False])
@pytest.mark.parametrize("counts", [(1,), (4, 2), (0,), (16, 0, 1)])
def test_whole_gpus_of_containers_that_run_together_add_up(counts: tuple[int, ...], limits_alone: bool):
    """As most GPU pods ask, which is why there is a short way."""
    made = pod()
    for number, count in enumerate(counts):
        made = made.gpus(count, container=f"main-{number}")
    raw = made.plain(cpu="1").build()
    if not limits_alone:
        for container in raw["spec"]["containers"]:
            container["resources"]["requests"] = {**container["resources"].get("requests", {}), **container["resources"].get("limits", {})}
    assert module._whole_alone(raw, GPU) == sum(counts)


# --- what kubelet refused -------------------------------------------------------------------------------------------

REFUSED = {"phase": "Failed", "reason": TOPOLOGY_AFFINITY, "message": "Pod was rejected", "startTime": "2026-01-01T12:00:00Z"}


def test_a_pod_that_the_topology_manager_refused_is_told_with_its_node_and_time():
    raw = {**pod("p").gpus(2).bound_to("a", TWO).build(), "status": REFUSED}
    assert refused_by_topology_manager(raw) == RefusedPod("uid-default-p", "default/p", "a", datetime(2026, 1, 1, 12, tzinfo=UTC))
    without_time = {**raw, "status": {**REFUSED, "startTime": "long ago"}}
    assert refused_by_topology_manager(without_time) == RefusedPod("uid-default-p", "default/p", "a", None)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(
            {**pod().gpus(2).bound_to("a").build(), "status": {**REFUSED, "reason": "UnexpectedAdmissionError"}}, id="refused by another part"
        ),
        pytest.param({**pod().gpus(2).bound_to("a").build(), "status": {**REFUSED, "phase": "Running"}}, id="runs, whatever the reason says"),
        pytest.param({**pod().gpus(2).build(), "status": REFUSED}, id="was never bound"),
        pytest.param(pod().gpus(2).bound_to("a", TWO, "Failed").build(), id="failed for no reason"),
    ],
)
def test_any_other_pod_is_none_of_the_topology_manager_s(raw: dict[str, Any]):
    assert refused_by_topology_manager(raw) is None


@given(json_objects, json_objects)
def test_whatever_stands_in_a_pod_is_read_without_harm(raw: dict[str, Any], status: dict[str, Any]):
    assert refused_by_topology_manager(raw) is None or raw["status"]["reason"] == TOPOLOGY_AFFINITY
    found = refused_by_topology_manager({**raw, "status": {**status, "phase": "Failed", "reason": TOPOLOGY_AFFINITY}})
    assert (found is None) == (not node_of(raw))
