"""The whole path on a real node: kube-scheduler, the extender, the agent's device plugin, kubelet, containerd: every container has exactly its pod's GPUs.

GPUs are stood in for by nvidia-smi; what a container got is what it says itself, its environment. `tests.e2e.hand_off_checks` compares that with the
allocation of its own pod, and looks whether a GPU was ever in two containers at once. What happens when a part of the path is restarted or killed is in
`test_hand_off_restarts`.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.builders import PodBuilder, pod
from tests.e2e.node_pods import wait_printed
from tests.e2e.program import wait_until
from tests.e2e.workload import Workload


@pytest.mark.parametrize(
    ("builder", "containers"),
    [
        pytest.param(pod("p").gpus(1), {"main": 1}, id="one GPU"),
        pytest.param(pod("p").gpus(2), {"main": 2}, id="two GPUs"),
        pytest.param(pod("p").gpus(4), {"main": 4}, id="four GPUs"),
        pytest.param(pod("p").gpus(2, "a").gpus(1, "b"), {"a": 2, "b": 1}, id="two containers"),
        pytest.param(pod("p").shared(5), {"main": 1}, id="a part of a GPU"),
        pytest.param(pod("p").shared(8).annotated(gpu_count="2"), {"main": 2}, id="parts of two GPUs"),
        pytest.param(pod("p").gpus(2).init(1), {"init": 1, "main": 2}, id="an init container that asks less"),
        pytest.param(pod("p").gpus(1).init(3), {"init": 3, "main": 1}, id="an init container that asks more"),
        pytest.param(pod("p").plain("main").init(2), {"init": 2, "main": 0}, id="an init container alone"),
        pytest.param(
            pod("p").gpus(1, "a").gpus(1, "b").init(2, "i").init(2, "j"), {"i": 2, "j": 2, "a": 1, "b": 1}, id="two init containers of the same ids"
        ),
        pytest.param(pod("p").gpus(2).sidecar(1), {"sidecar": 1, "main": 2}, id="a sidecar"),
        pytest.param(pod("p").gpus(2).sidecar(1).init(2), {"sidecar": 1, "init": 2, "main": 2}, id="a sidecar and an init container"),
    ],
)
def test_a_container_has_the_gpus_of_its_pod_s_allocation(workload: Workload, builder: PodBuilder, containers: dict[str, int]) -> None:
    """Each container of a pod finds as many GPUs as it asked for, and those of the annotation."""
    workload.run(builder)
    assert {start.container: len(start.gpus) for start in workload.check()} == containers


def test_pods_created_together_have_their_own_gpus_each(workload: Workload) -> None:
    """Four pods of two GPUs at once fill the node; none has another's."""
    workload.run(*(pod(name).gpus(2) for name in "abcd"))
    assert len(set().union(*(start.gpus for start in workload.check()))) == 8


def test_kubelet_s_own_ids_are_the_planned_gpus_where_pods_come_one_at_a_time(
    workload: Workload, record_property: Callable[[str, object], None]
) -> None:
    """Other tools map kubelet's ids to pods, and are right in at least 95 of 100 starts."""
    chosen = random.Random(20)
    living: list[str] = []
    steered = 0
    for number in range(20):
        size = chosen.choice((1, 2, 2))
        if len(living) == 2:  # beside one that is ending, with room for the next
            leaving = living.pop(chosen.randrange(2))
            workload.delete(leaving)
        workload.run(pod(f"p{number}").gpus(size))
        living.append(f"p{number}")
        shown = wait_printed(workload.node, f"p{number}").environment["NVIDIA_VISIBLE_DEVICES"].split(",")
        steered += workload.node.kubelet.ids_of(workload.api.get("Pod", f"p{number}")["metadata"]["uid"]) == {"main": set(shown)}
    workload.check()
    record_property("kubelet's own ids are the planned GPUs", f"{steered} of 20 starts, one at a time")
    assert steered >= 19


def test_a_pod_that_came_around_the_extender_is_given_free_gpus_and_told_so(workload: Workload) -> None:
    """A pod with a node name of its own: GPUs that nobody holds, and an event."""
    workload.run(pod("ours").gpus(4))
    workload.run(pod("around").gpus(2).bound_to(workload.node.name))
    theirs = wait_printed(workload.node, "around").environment["NVIDIA_VISIBLE_DEVICES"].split(",")
    ours = wait_printed(workload.node, "ours").environment["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert len(theirs) == 2
    assert not set(theirs) & set(ours)
    assert "its pod has no allocation by Linkwise" in workload.wait_event("around", "CameAround")


def test_the_topology_tells_who_holds_what_in_truth(workload: Workload) -> None:
    """Pods created together, whose ids kubelet chose: by pod, UID and MiB what their containers say that they have, planned or not."""
    workload.run(*(pod(name).gpus(1) for name in "abcd"), pod("share").shared(5))
    workload.run(pod("around").shared(3).bound_to(workload.node.name))
    names = (*"abcd", "share", "around")
    uids = {name: workload.api.get("Pod", name)["metadata"]["uid"] for name in names}
    shown = {name: wait_printed(workload.node, name).environment for name in names}
    mib = {name: int(shown[name]["LINKWISE_GPU_MEMORY_MIB"]) if name in ("share", "around") else None for name in names}
    expected = {(shown[name]["NVIDIA_VISIBLE_DEVICES"], name, uids[name], mib[name], name != "around") for name in names}

    def told() -> set[tuple[Any, ...]]:
        gpus = workload.agent.topology()["status"]["gpus"]
        return {(gpu["uuid"], one["name"], one["uid"], one.get("memoryMiB"), one["planned"]) for gpu in gpus for one in gpu.get("holders", ())}

    wait_until(lambda: told() == expected, 5, "the topology tells the holders")
    workload.run(pod("next").shared(2))  # the extender goes by it: a pod from around whose share is known closes no node


def test_gpus_of_a_pod_that_was_deleted_by_force_are_free_within_seconds(workload: Workload) -> None:
    """Four pods of two GPUs take the node at once, though the API server forgot its pod before the containers had ended."""
    workload.run(pod("forced").gpus(3))
    workload.api.delete("Pod", "forced", "default", grace_s=0)
    began = time.monotonic()
    workload.run(*(pod(name).gpus(2) for name in "abcd"))
    # Kubernetes gives the containers their grace; these end at once. Then the agent has to look, and kube-scheduler to be woken.
    assert time.monotonic() - began < 12
    workload.check()
