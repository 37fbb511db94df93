"""What the owner of a pod is told by events, and that allocations which somebody else wrote change nothing. The admission policy is absent here."""

import json
from collections.abc import Callable
from functools import partial

import pytest

from tests.builders import allocation_of as allocation_text
from tests.builders import pod
from tests.e2e.checks import ALLOCATION, allocation_of, check_cluster, check_extender, free_gpus, indices_of
from tests.e2e.extender import RunningExtender
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.program import wait_until

PLACED, IGNORED, EDITED = "LinkwisePlaced", "LinkwiseAllocationIgnored", "LinkwiseAllocationEdited"


def told_of(cluster: LiveCluster, uid: str) -> bool:
    """Whether there is an event about the placement of the pod `again` with that UID."""
    return any(event["involvedObject"]["uid"] == uid for event in cluster.api.events("again", reason=PLACED))


@pytest.mark.parametrize(
    ("gpus", "sentence"),
    [
        pytest.param(2, "bound to bridges, GPUs 0,2, 300 GB/s over NV12", id="a pair"),
        pytest.param(1, "bound to bridges, GPU 0", id="one GPU has no bandwidth"),
    ],
)
def test_a_placement_is_told_with_its_set_and_bandwidth(cluster: LiveCluster, extender: RunningExtender, gpus: int, sentence: str) -> None:
    cluster.make_machine("bridges", "bridges")
    extender.wait_open("bridges")
    cluster.make_pod(pod("train").gpus(gpus))
    event = cluster.wait_event("bound to", "train", reason=PLACED)
    assert event["message"] == sentence
    assert (event["type"], event["involvedObject"]["uid"]) == ("Normal", cluster.pod("train")["metadata"]["uid"])
    assert event["source"]["component"] == "linkwise"


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(lambda uuids: allocation_text("bridges", {"main": uuids[:2]}), id="a plausible one"),
        pytest.param(lambda _: "mine", id="one that is none"),
    ],
)
def test_an_allocation_on_an_unbound_pod_is_ignored_told_and_overwritten(
    cluster: LiveCluster, extender: RunningExtender, written: Callable[[list[str]], str]
) -> None:
    uuids = [gpu.uuid for gpu in cluster.make_machine("bridges", "bridges").spec.gpus]
    extender.wait_open("bridges")
    cluster.make_pod(pod("sly").gpus(2).annotated(allocation=written(uuids)))
    assert indices_of(cluster.wait_bound("sly")) == [0, 2]
    event = cluster.wait_event("ignored and overwritten at bind", "sly", reason=IGNORED)
    assert event["type"] == "Warning"
    check_cluster(cluster.api)


@pytest.mark.parametrize("subresource", [pytest.param("", id="on the pod"), pytest.param("status", id="through its status")])
@pytest.mark.parametrize(
    "edited",
    [
        pytest.param(lambda _: None, id="removed"),
        pytest.param(lambda uuids: allocation_text("bridges", {"main": [uuids[1], uuids[3]]}), id="other GPUs"),
        pytest.param(lambda _: "{}", id="nothing that decodes"),
    ],
)
def test_an_edit_on_a_bound_pod_changes_no_ledger_and_is_told(
    cluster: LiveCluster, extender: RunningExtender, edited: Callable[[list[str]], str | None], subresource: str
) -> None:
    topology = cluster.make_machine("bridges", "bridges")
    extender.wait_open("bridges")
    cluster.make_pod(pod("tenant").gpus(2))
    honest = cluster.wait_bound("tenant")
    before = free_gpus([honest], cluster.api.items("GPUTopology"))["bridges"]
    told = extender.metric("linkwise_allocation_edits")

    patch = {"metadata": {"annotations": {ALLOCATION: edited([gpu.uuid for gpu in topology.spec.gpus])}}}
    cluster.api.patch("Pod", "tenant", patch, "default", subresource=subresource)
    event = cluster.wait_event("the change is ignored", "tenant", reason=EDITED)
    assert event["type"] == "Warning"
    assert extender.metric("linkwise_allocation_edits") == told + 1
    assert extender.free("bridges")["bridges"] == before
    assert extender.nodes()["bridges"]["closed"] is None

    cluster.make_pod(pod("next").gpus(6))
    after = {gpu["uuid"] for gpu in allocation_of(cluster.wait_bound("next"))["containers"]["main"]}
    assert after == before
    cluster.api.delete("Pod", "tenant", grace_s=0)
    check_extender(extender, cluster.api)


def test_every_placement_of_a_pod_that_is_made_again_is_told(cluster: LiveCluster, extender: RunningExtender) -> None:
    cluster.make_machine("mesh", "mesh")
    extender.wait_open("mesh")
    for _ in range(3):
        cluster.make_pod(pod("again").gpus(4))
        uid = cluster.wait_bound("again")["metadata"]["uid"]
        wait_until(partial(told_of, cluster, uid), what="each is told")
        cluster.api.delete("Pod", "again", grace_s=0)
        extender.wait_free("mesh", 4)
    check_extender(extender, cluster.api)


def test_the_allocation_of_a_pod_with_several_containers_gives_each_its_own_part(cluster: LiveCluster, extender: RunningExtender) -> None:
    cluster.make_machine("dgx1v", "dgx1v")
    extender.wait_open("dgx1v")
    cluster.make_pod(pod("parts").gpus(2, "left").gpus(2, "right").plain().init(4).sidecar(1))
    parts = allocation_of(cluster.wait_bound("parts"))["containers"]
    assert {name: len(gpus) for name, gpus in parts.items()} == {"left": 2, "right": 2, "init": 4, "sidecar": 1}
    check_cluster(cluster.api)
    check_extender(extender, cluster.api)
    assert json.loads(cluster.pod("parts")["metadata"]["annotations"][ALLOCATION])["node"] == "dgx1v"
