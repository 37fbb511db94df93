from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from extender.cluster import Cluster, RefusedPod
from extender.cluster.kubelet_refusals import REMEMBERED
from extender.demand import Shape, read_demand
from extender.placement import Placement
from extender.sample_machines import sample
from extender.waiting import WaitingPods
from tests.builders import Clock, PodBuilder, changed, pod

JsonObject = dict[str, Any]


@dataclass
class Scene:
    """Two nodes of eight GPUs, `full` and `half`, and the pods that wait."""

    cluster: Cluster
    waiting: WaitingPods
    clock: Clock

    def refuse(self, asked: PodBuilder) -> None:
        self.waiting.refused(asked.uid, shape(asked), self.cluster.view().generation)

    def helpful(self, *besides: str) -> str | None:
        return self.waiting.node_that_may_help(self.cluster.view(), set(besides))


def shape(asked: PodBuilder) -> Shape:
    return read_demand(asked.build(), "nvidia.com/gpu").shape


def holder(node: str, count: int) -> JsonObject:
    uuids = [gpu.uuid for gpu in sample("dgx1v", node).spec.gpus][:count]
    return pod(f"on-{node}").holding(node, *uuids).build()


@pytest.fixture
def scene() -> Scene:
    clock = Clock()
    cluster = Cluster("nvidia.com/gpu", clock)
    for node in ("full", "half"):
        cluster.apply_topology(sample("dgx1v", node).to_object())
    cluster.apply_pod(holder("full", 8))
    cluster.apply_pod(holder("half", 4))
    return Scene(cluster, WaitingPods(Placement()), clock)


def test_a_pod_that_kubelet_would_refuse_is_woken_when_the_node_may_be_tried_again(scene: Scene) -> None:
    """Nothing else happens on the node."""
    refused = RefusedPod("uid", "default/before", "half", None)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    scene.cluster.kubelet_refusals.note(shape(pod().gpus(4)), refused, now, now)
    scene.refuse(pod("a").gpus(4))
    assert scene.helpful() is None
    scene.clock.now += REMEMBERED.total_seconds()
    assert scene.helpful() == "half"


def test_nobody_waits_nobody_is_woken(scene: Scene) -> None:
    assert scene.helpful() is None
    scene.cluster.remove_pod("uid-default-on-full")
    assert scene.helpful() is None


def test_nothing_has_changed_nobody_is_woken(scene: Scene) -> None:
    scene.refuse(pod("a").gpus(8))
    assert scene.helpful() is None


@pytest.mark.parametrize(
    ("change", "node"),
    [
        pytest.param(lambda cluster: cluster.remove_pod("uid-default-on-full"), "full", id="a pod ends"),
        pytest.param(lambda cluster: cluster.apply_topology(sample("nvswitch", "new").to_object()), "new", id="a topology is published"),
        pytest.param(lambda cluster: cluster.remove_pod("uid-default-on-half"), "half", id="another one ends"),
        pytest.param(lambda cluster: cluster.apply_topology(sample("dgx1v", "half").to_object()), None, id="a heartbeat"),
        pytest.param(
            lambda cluster: cluster.apply_topology(changed(sample("dgx1v", "half").to_object(), unhealthy=[7])),
            None,
            id="a change that does not help",
        ),
    ],
)
def test_a_change_that_lets_a_waiting_pod_in_names_its_node(scene: Scene, change: Any, node: str | None) -> None:
    scene.refuse(pod("a").gpus(8))
    change(scene.cluster)
    assert scene.helpful() == node


def test_a_node_that_had_room_before_and_has_not_changed_is_not_news(scene: Scene) -> None:
    """kube-scheduler did not ask about it: other rules keep the pod away from there."""
    scene.refuse(pod("a").gpus(4))
    scene.cluster.apply_topology(changed(sample("dgx1v", "full").to_object(), unhealthy=[0]))
    assert scene.helpful() is None


def test_once_woken_the_same_change_wakes_nobody_again_and_a_pod_refused_meanwhile_still_waits(scene: Scene) -> None:
    scene.refuse(pod("a").gpus(8))
    scene.cluster.remove_pod("uid-default-on-full")
    seen = scene.cluster.view().generation
    assert scene.helpful() == "full"
    scene.cluster.apply_pod(holder("full", 8))
    scene.refuse(pod("b").gpus(8))
    scene.waiting.woken(seen)
    assert len(scene.waiting) == 1
    assert scene.helpful() is None
    scene.cluster.remove_pod("uid-default-on-full")
    assert scene.helpful() == "full"


def test_a_part_that_is_freed_names_its_node_for_whom_it_is_enough(scene: Scene) -> None:
    """The mask of idle GPUs is as before: what has changed is how much is left of one."""
    uuids = [gpu.uuid for gpu in sample("dgx1v", "full").spec.gpus]
    scene.cluster.remove_pod("uid-default-on-full")
    parts = {gib: pod(f"part-{gib}").shared(gib).sharing("full", {uuids[0]: gib * 1024}) for gib in (10, 20)}
    for each in (*parts.values(), pod("rest").holding("full", *uuids[1:])):
        scene.cluster.apply_pod(each.build())
    scene.cluster.apply_pod(pod("on-half").holding("half", *[gpu.uuid for gpu in sample("dgx1v", "half").spec.gpus]).build())
    scene.refuse(pod("small").shared(12))
    scene.refuse(pod("large").shared(23))
    assert scene.helpful() is None
    scene.cluster.remove_pod(parts[10].uid)
    assert scene.helpful() == "full"
    scene.waiting.served(pod("small").uid)
    assert scene.helpful() is None, "12 of 32 GiB are left: not enough for 23"


def test_a_pod_that_has_somewhere_to_go_waits_no_more(scene: Scene) -> None:
    scene.refuse(pod("a").gpus(8))
    scene.waiting.served(pod("a").uid)
    scene.waiting.served("somebody unknown")
    scene.cluster.remove_pod("uid-default-on-full")
    assert scene.helpful() is None


def test_a_node_that_cannot_be_touched_is_passed_over_for_another(scene: Scene) -> None:
    scene.refuse(pod("a").gpus(8))
    scene.cluster.remove_pod("uid-default-on-full")
    scene.cluster.remove_pod("uid-default-on-half")
    assert scene.helpful("full") == "half"
    assert scene.helpful("full", "half") is None


def test_a_pod_that_another_leader_refused_is_woken_by_what_fits_now(scene: Scene) -> None:
    scene.waiting.adopt("uid-a", shape(pod("a").gpus(8)))
    assert scene.helpful() is None
    scene.waiting.adopt("uid-b", shape(pod("b").gpus(2)))
    assert scene.helpful() == "half", "on what state it was refused nobody knows"


def test_adopting_a_pod_does_not_forget_on_which_state_it_was_refused_here(scene: Scene) -> None:
    scene.refuse(pod("a").gpus(4))
    scene.waiting.adopt(pod("a").uid, shape(pod("a").gpus(4)))
    assert scene.helpful() is None


def test_pods_without_a_uid_are_not_kept(scene: Scene) -> None:
    scene.waiting.refused("", shape(pod("a").gpus(8)), 0)
    scene.waiting.adopt("", shape(pod("a").gpus(8)))
    assert len(scene.waiting) == 0


def test_however_many_wait_the_memory_is_bounded(scene: Scene) -> None:
    for number in range(6000):
        scene.waiting.refused(f"uid-{number}", shape(pod("a").gpus(8)), 0)
    assert len(scene.waiting) == 5000
