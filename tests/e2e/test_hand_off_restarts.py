"""The hand-off on a real node while its parts are restarted or killed: kubelet, containerd, the extender, the agent at each of its steps, the node.

Running containers run on, those that start again have the GPUs that they had, and at the end nothing is kept from anybody.
"""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.builders import pod
from tests.e2e.extender import RunningExtender
from tests.e2e.node_pods import wait_printed
from tests.e2e.program import wait_until
from tests.e2e.workload import Workload
from topology.agent.handoff import faults

CRASH = "ended; exit 1"
FREE_WITHIN_S = 5


@pytest.mark.parametrize("which", ["kubelet", "containerd", "the agent"])
def test_containers_run_on_while_a_part_restarts_and_start_again_on_the_same_gpus(workload: Workload, which: str) -> None:
    """Pods that run are not touched, the next one has what they leave, and one that crashes then has what it had."""
    workload.run(pod("a").gpus(2), pod("b").shared(4), restartPolicy="Always")
    wait_until(lambda: all(phase == "Running" for phase, _, _ in workload.states().values()), 20, "both run")
    before = workload.states()
    restart = {"kubelet": workload.node.restart_kubelet, "containerd": workload.node.restart_containerd, "the agent": workload.agent.restart}
    restart[which]()
    workload.agent.wait_allocatable()  # kubelet forgets its plugins
    workload.run(pod("c").gpus(4))
    workload.check()
    assert {name: state for name, state in workload.states().items() if name != "c"} == before
    workload.crash("a")
    workload.crash("b")
    for name in "ab":
        wait_printed(workload.node, name, attempt=1)
    workload.check()
    workload.check_nothing_is_kept()


def test_no_pod_is_rejected_while_the_agent_is_replaced(workload: Workload) -> None:
    """Pods come all the time: some before it says that it ends, some meanwhile, and those wait for the next one; kubelet would reject them for good."""
    names = [f"part-{number}" for number in range(16)]
    with ThreadPoolExecutor(1) as beside:
        for number, name in enumerate(names):
            if number == len(names) // 4:
                replaced = beside.submit(workload.agent.restart)
            workload.create(pod(name).shared(8))
            time.sleep(0.3)
        replaced.result()
    assert any(workload.api.events(name, reason="FailedScheduling") for name in names), "some came meanwhile"
    for name in names:
        wait_printed(workload.node, name, timeout=60)
    assert len(workload.check()) == len(names)


def test_while_the_extender_is_away_containers_start_again_on_the_same_gpus_and_new_pods_wait_for_it(
    workload: Workload, extender: RunningExtender
) -> None:
    """The allocation is on the pod: nobody else is asked."""
    workload.run(pod("a").gpus(2), pod("b").shared(4), restartPolicy="Always")
    extender.stop()
    workload.crash("a")
    wait_printed(workload.node, "a", attempt=1)
    workload.agent.restart()
    workload.crash("b")
    wait_printed(workload.node, "b", attempt=1)
    workload.create(pod("c").gpus(4))
    workload.wait_event("c", "FailedScheduling")
    assert "nodeName" not in workload.api.get("Pod", "c")["spec"]
    extender.start().wait_leads()
    wait_printed(workload.node, "c", timeout=60)
    assert len(workload.check()) == 5
    workload.check_nothing_is_kept()


def test_a_container_that_crashes_starts_again_on_the_same_gpus(workload: Workload) -> None:
    """Every attempt has the GPUs of the allocation, while other pods come and go."""
    workload.create(pod("crashes").gpus(2), then=CRASH, restartPolicy="Always")
    wait_printed(workload.node, "crashes", attempt=0)
    workload.run(pod("other").gpus(2))
    wait_printed(workload.node, "crashes", attempt=2, timeout=60)
    starts = [start for start in workload.check() if start.environment["HOSTNAME"] == "crashes"]
    assert len({start.gpus for start in starts}) == 1
    assert len(starts) >= 3


def test_a_container_in_back_off_goes_on_after_kubelet_was_restarted(workload: Workload) -> None:
    """Its pod is admitted anew, with the same ids and GPUs."""
    workload.create(pod("crashes").gpus(2), then=CRASH, restartPolicy="Always")
    wait_printed(workload.node, "crashes", attempt=1)
    before: list[int] = []
    workload.node.restart_kubelet(before_kubelet=lambda: before.append(len(workload.hand_offs.starts())))
    wait_until(lambda: len(workload.hand_offs.starts()) > before[0], 60, "it has started again")
    assert len({start.gpus for start in workload.check()}) == 1


def test_a_pod_in_back_off_that_kubelet_rejects_fails_and_frees_its_gpus_at_once(workload: Workload, extender: RunningExtender) -> None:
    """The agent is not there when kubelet restarts: kubelet's own rule. The pod beside it runs on."""
    workload.run(pod("beside").gpus(2))
    workload.create(pod("crashes").gpus(6), then=CRASH, restartPolicy="Always")
    wait_printed(workload.node, "crashes", attempt=1)
    workload.agent.program.stop()
    workload.node.restart_kubelet()
    check_is_rejected(workload, extender, "crashes", free=6)
    assert workload.states()["beside"][:2] == ("Running", 0)
    workload.agent.start()
    workload.agent.wait_allocatable()
    workload.run(pod("next").gpus(6))
    workload.check()


def check_is_rejected(workload: Workload, extender: RunningExtender, name: str, free: int) -> None:
    """Wait until kubelet has rejected a pod, and check that its GPUs are free for the extender within 5 s of that."""
    status = workload.node.wait_phase(name, "Failed")["status"]
    extender.wait_free(workload.node.name, free, timeout=FREE_WITHIN_S)
    assert any("UnexpectedAdmissionError" in str(status.get(key)) for key in ("reason", "message")), status


def test_after_a_reboot_pods_have_the_gpus_that_they_had(workload: Workload) -> None:
    """With its agent there in time, kubelet starts every container again, and each has what its allocation says, though the agent's own records are lost."""
    workload.run(pod("a").gpus(2), pod("b").gpus(4), pod("c").shared(4), restartPolicy="Always")

    def before_kubelet() -> None:
        shutil.rmtree(workload.agent.state)
        workload.agent.start_before_kubelet()

    workload.node.reboot(before_kubelet)
    for name in "abc":
        wait_printed(workload.node, name, attempt=1, timeout=60)
    assert len(workload.check()) == 6
    workload.check_nothing_is_kept()


def test_pods_that_kubelet_rejects_after_a_reboot_fail_and_free_their_gpus_at_once(workload: Workload, extender: RunningExtender) -> None:
    """The agent comes too late: kubelet's own rule. What is left is free for others."""
    workload.run(pod("a").gpus(8), restartPolicy="Always")
    workload.node.reboot()
    workload.agent.start()
    check_is_rejected(workload, extender, "a", free=8)
    workload.agent.wait_allocatable()
    workload.run(pod("b").gpus(8))
    assert len(workload.hand_offs.starts()) == 2


@pytest.mark.parametrize("point", faults.POINTS)
def test_an_agent_that_is_killed_at_any_step_harms_nobody(workload: Workload, point: str) -> None:
    """The pod of that moment starts with its GPUs when the agent is back, or fails as kubelet's rule is; the pod beside it runs on and can start again; nothing is kept."""
    workload.run(pod("beside").gpus(2), pod("leaves").gpus(2), restartPolicy="Always")
    workload.agent.die_at(point)
    workload.delete("leaves")
    workload.wait_gone("leaves")
    # It needs what the one before had, so that steps of clearing up are passed as well.
    workload.create(pod("meets-it").gpus(6))
    wait_until(lambda: not workload.agent.program.running(), 60, f"the agent has died at {point}")
    workload.agent.restart()
    workload.hurry("meets-it")
    if point.startswith("allocate"):
        workload.node.wait_phase("meets-it", "Failed")
    elif point.startswith("retire"):
        # Clearing up after the pod that left may come before kubelet admits this one: then it finds no plugin, and fails.
        wait_until(lambda: workload.states()["meets-it"][0] in ("Running", "Failed"), 60, "the pod runs, or kubelet has rejected it")
    else:
        wait_printed(workload.node, "meets-it", timeout=60)
    assert workload.states()["beside"][:2] == ("Running", 0)
    workload.crash("beside")
    wait_printed(workload.node, "beside", attempt=1)
    workload.check()
    workload.check_nothing_is_kept()
