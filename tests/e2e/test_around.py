"""Pods that came around Linkwise on a real node, under both policies (`LINKWISE_AGENT_AROUND`): with `nodeName` set by hand, with an allocation that is stale, forged or damaged, with one for a GPU that is gone.

The policy of admission that keeps people from writing allocations is not in force here, so that the agent is the last one in the way.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.builders import PodBuilder, allocation_of, pod
from tests.e2e.extender import RunningExtender
from tests.e2e.node import RealNode
from tests.e2e.node_agent import NodeAgent
from tests.e2e.node_pods import printed, wait_printed
from tests.e2e.program import wait_until
from tests.e2e.workload import Workload

GONE = "GPU-00000000-0000-0000-0000-000000000000"
ALONE = "this node takes pods from Linkwise alone: delete the pod"
# It gives up on a GPU that is held after a second, so that a test need not wait; the policies are `observe` at first, then `refuse`.
OBSERVE = {"LINKWISE_AGENT_START_PATIENCE_S": "1", "LINKWISE_AGENT_AROUND": "observe"}
REFUSE = {**OBSERVE, "LINKWISE_AGENT_AROUND": "refuse"}


@pytest.fixture(scope="module")
def node_agent(node: RealNode, extender: RunningExtender) -> Iterator[NodeAgent]:
    """Run the agent with the policy that lets pods from around in; the last test of this file makes it stricter."""
    agent = NodeAgent(node, environment=OBSERVE).wait_allocatable()
    extender.wait_open(node.name)
    yield agent
    agent.program.stop()


@dataclass(frozen=True)
class Case:
    """A pod from around, and what its event says; ``is_around``: policy decides about it, else it has an allocation for this node, and gets that or nothing."""

    pod: PodBuilder
    reason: str
    words: str
    is_around: bool


def cases(node: str, held: str, policy: str) -> list[Case]:
    """The pods; ``held`` is a GPU that a pod of Linkwise has."""

    def by_hand(name: str, allocation: str | None = None) -> PodBuilder:
        return pod(f"{name}-{policy}").gpus(1).bound_to(node, allocation)

    unkept = f"linkwise.dev/allocation of pod default/other-{policy} gives container main no GPU, and it asks for 1 nvidia.com/gpu; it was not written by Linkwise"
    return [
        Case(by_hand("plain"), "CameAround", f"pod default/plain-{policy} has no linkwise.dev/allocation", is_around=True),
        Case(by_hand("stale", allocation_of("node-b", {"main": [held]})), "CameAround", f"is for node node-b, and this is {node}", is_around=True),
        Case(by_hand("damaged", "{"), "CameAround", "is not JSON", is_around=True),
        Case(
            by_hand("gone", allocation_of(node, {"main": [GONE]})), "GPUGone", f"GPU {GONE} of the allocation is not in node {node}", is_around=False
        ),
        Case(by_hand("other", allocation_of(node, {"other": [held]})), "AllocationUnkept", unkept, is_around=False),
        Case(by_hand("forged", allocation_of(node, {"main": [held]})), "GPUHeld", "container main of pod default/ours holds it", is_around=False),
    ]


def check_cases(workload: Workload, policy: str) -> None:
    """Create every pod beside one of Linkwise, and see what becomes of it and what its owner is told."""
    workload.run(pod("ours").gpus(1))
    held = wait_printed(workload.node, "ours").environment["NVIDIA_VISIBLE_DEVICES"]
    every = cases(workload.node.name, held, policy)
    workload.create(*(case.pod for case in every))
    taken = {held}
    for case in every:
        name = case.pod.name
        message = workload.wait_event(name, case.reason)
        assert case.words in message, name
        assert (ALONE in message) == (case.is_around and policy == "refuse"), name
        if case.is_around and policy == "observe":
            (gpu,) = wait_printed(workload.node, name).environment["NVIDIA_VISIBLE_DEVICES"].split(",")
            assert gpu not in taken, name
            taken.add(gpu)
        else:
            assert printed(workload.node, name) is None, name
            assert workload.api.get("Pod", name)["status"]["phase"] == "Pending", name
    assert workload.states()["ours"][:2] == ("Running", 0)


def test_policy_observe_gives_free_gpus_to_pods_from_around_and_never_another_gpu_than_an_allocation_names(workload: Workload) -> None:
    check_cases(workload, "observe")


def test_a_pod_whose_gpu_is_gone_closes_its_node_by_name_until_it_is_deleted(workload: Workload, extender: RunningExtender) -> None:
    """Nobody knows what it would take; then all GPUs of the node are placed on again."""
    workload.create(pod("wants-gone").gpus(1).bound_to(workload.node.name, allocation_of(workload.node.name, {"main": [GONE]})))
    workload.wait_event("wants-gone", "GPUGone")
    extender.wait_closed(workload.node.name, f"pod default/wants-gone holds {GONE}")
    workload.delete("wants-gone")
    workload.run(pod("all").gpus(8))
    workload.check()


def test_policy_refuse_lets_no_new_pod_from_around_start_tells_each_why_and_leaves_those_alone_that_were_let_in(workload: Workload) -> None:
    """The policy becomes stricter while one of them runs: its container starts again on the GPUs that it had."""
    workload.create(pod("around").gpus(2).bound_to(workload.node.name), then="sleep 1; ended; exit 1", restartPolicy="Always")
    before = wait_printed(workload.node, "around", attempt=0).environment["NVIDIA_VISIBLE_DEVICES"]
    workload.agent.restart(REFUSE)
    restarts = workload.states()["around"][1]
    wait_until(lambda: printed(workload.node, "around", attempt=restarts + 1), 30, "it has started again")
    assert wait_printed(workload.node, "around", attempt=restarts + 1).environment["NVIDIA_VISIBLE_DEVICES"] == before
    workload.delete("around")
    workload.wait_gone("around")
    check_cases(workload, "refuse")
