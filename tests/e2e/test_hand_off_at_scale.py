"""Many pods on a real node: two hundred of every kind that come and go at random, and how many a second start, beside a plain device plugin.

The comparison wants the machine for itself. The two hundred wait for each other's GPUs most of the time, so other tests run beside them. The figures are
printed with the results of the run.
"""

import random
import time
from collections.abc import Callable, Collection

import pytest

from tests.builders import PodBuilder, pod
from tests.e2e.api_server import JsonObject
from tests.e2e.node_pods import END, on_node
from tests.e2e.plain_plugin import RESOURCE, PlainPlugin
from tests.e2e.program import wait_until
from tests.e2e.workload import Workload

PODS = 200  # that start; some more are deleted before they do
CUT_SHORT = 20
MOST_WAITING = 12  # more than one burst leaves, so that there is always one of every size that would fit
THROUGHPUT_PODS = 40
# Runs on a busy machine differ by a fifth; less than this is no noise.
LEAST_SHARE = 0.6

KINDS: tuple[Callable[[PodBuilder], PodBuilder], ...] = (
    lambda p: p.gpus(1),
    lambda p: p.gpus(2),
    lambda p: p.gpus(4),
    lambda p: p.shared(4),
    lambda p: p.shared(20),
    lambda p: p.shared(8).annotated(gpu_count="2"),
    lambda p: p.gpus(1, "a").gpus(1, "b"),
    lambda p: p.gpus(2, "a").gpus(1, "b").init(3),
    lambda p: p.gpus(1).init(2),
    lambda p: p.gpus(2).init(1),
    lambda p: p.plain("main").init(1),
    lambda p: p.gpus(1).sidecar(1),
    lambda p: p.gpus(2).sidecar(1).init(2),
    lambda p: p.init_shared(6).shared(10).sidecar_shared(2),
)


def test_200_pods_that_come_in_bursts_and_go_at_random_always_have_their_own_gpus(
    workload: Workload, record_property: Callable[[str, object], None]
) -> None:
    """Every kind of pod, as many at a time as the node can take: no start is wrong, no GPU is in two containers at once, and at the end nothing is kept."""
    before = {ids: workload.agent.metric("linkwise_agent_container_starts_total", ids=ids) for ids in ("as-planned", "corrected")}
    began = time.monotonic()
    storm = Storm(workload, random.Random(200))
    given_twice: set[str] = set()
    while storm.goes_on():
        storm.burst()
        storm.wait_for_some_to_run()
        given_twice.update(workload.check_told())
        storm.delete_some()
    lasted = time.monotonic() - began
    starts = workload.check(gone=storm.cut_short)
    started = len({start.uid for start in starts})
    assert started >= PODS
    steered, corrected = (workload.agent.metric("linkwise_agent_container_starts_total", ids=ids) - count for ids, count in before.items())
    record_property(
        "two hundred pods",
        f"{started} started, {len(starts)} containers, in {lasted:.0f} s; at most {storm.most} pods at a time; "
        f"{steered / (steered + corrected):.0%} of {steered + corrected:.0f} starts on kubelet's own ids, {len(given_twice)} ids that kubelet gave to two pods",
    )
    workload.check_nothing_is_kept()


class Storm:
    """Pods that come in bursts and go at random; ``chosen`` decides."""

    def __init__(self, workload: Workload, chosen: random.Random) -> None:
        self._workload = workload
        self._chosen = chosen
        self._coming = [chosen.choice(KINDS)(pod(f"p{number}")) for number in range(PODS + CUT_SHORT)]
        self._pods: list[JsonObject] = []
        self._ran: set[str] = set()
        self.cut_short: set[str] = set()  # deleted before they ran: containers that were being made could not always say when they ended
        self.most = 0

    def goes_on(self) -> bool:
        """Whether there is anybody left."""
        self._look()
        return bool(self._coming or self._living())

    def burst(self) -> None:
        """Create some pods, unless many wait already."""
        waiting = sum(1 for each in self._pods if not each["spec"].get("nodeName"))
        if waiting < MOST_WAITING:
            size = self._chosen.randint(1, 16)
            self._workload.create(*self._coming[:size])
            del self._coming[:size]

    def wait_for_some_to_run(self) -> None:
        """Wait until so many more run, or all that can."""
        enough = len(self._ran) + self._chosen.randint(1, 6)
        wait_until(lambda: self._look() or len(self._ran) >= enough or self._is_settled(), 60, "more pods run")

    def delete_some(self) -> None:
        """Delete pods that run, and now and then one that does not yet."""
        running = sorted(each["metadata"]["name"] for each in self._living() if _runs(each))
        others = sorted(each["metadata"]["name"] for each in self._living() if not _runs(each))
        leaving = self._chosen.sample(running, min(len(running), self._chosen.randint(1, 6)))
        if others and len(self.cut_short) < CUT_SHORT and self._chosen.random() < 0.3:
            leaving.append(self._chosen.choice(others))
        uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in self._living()}
        self.cut_short |= {uids[name] for name in leaving if name not in running}
        self._workload.delete(*leaving)

    def _look(self) -> None:
        self._pods = self._workload.note()
        failed = {each["metadata"]["name"]: each["status"] for each in self._living() if each["status"]["phase"] == "Failed"}
        assert not failed, failed
        self._ran |= {each["metadata"]["uid"] for each in self._pods if _runs(each)}
        self.most = max(self.most, sum(1 for each in self._pods if _runs(each)))

    def _living(self) -> list[JsonObject]:
        return [each for each in self._pods if "deletionTimestamp" not in each["metadata"]]

    def _is_settled(self) -> bool:
        """Whether every bound pod runs, and every other one was refused for want of room."""
        return all(_runs(each) if each["spec"].get("nodeName") else _refused(each) for each in self._pods)


def _runs(pod: JsonObject) -> bool:
    """Whether all its containers do."""
    statuses: Collection[JsonObject] = pod["status"].get("containerStatuses", ())
    return pod["status"]["phase"] == "Running" and all("running" in each["state"] for each in statuses)


def _refused(pod: JsonObject) -> bool:
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ()))


@pytest.mark.alone
def test_pods_start_as_fast_as_with_a_plain_device_plugin(workload: Workload, record_property: Callable[[str, object], None]) -> None:
    """Forty pods of one device that print and end, five times as many as there is room for at once: both ways, one after the other."""
    plugin = PlainPlugin(workload.node).wait_allocatable()
    try:
        plain = pods_per_second(workload, "plain", RESOURCE, "default-scheduler")
    finally:
        plugin.stop()
    workload.node.clear()
    linkwise = pods_per_second(workload, "linkwise", "nvidia.com/gpu", "linkwise")
    assert len(workload.check()) >= THROUGHPUT_PODS
    record_property("pods a second", f"{linkwise:.2f} through Linkwise, {plain:.2f} with a plain device plugin, {linkwise / plain:.0%}")
    assert linkwise > LEAST_SHARE * plain


def pods_per_second(workload: Workload, name: str, resource: str, scheduler: str) -> float:
    """Create all pods at once and return how many ended a second."""
    began = time.monotonic()
    for number in range(THROUGHPUT_PODS):
        workload.api.create(on_node(pod(f"{name}-{number}").gpus(1, resource=resource), END, scheduler=scheduler, records=workload.hand_offs.records))

    def all_ended() -> bool:
        phases = {each["metadata"]["name"]: each["status"]["phase"] for each in workload.note()}
        failed = [name for name, phase in phases.items() if phase == "Failed"]
        assert not failed, failed
        return set(phases.values()) == {"Succeeded"}

    wait_until(all_ended, 300, f"{THROUGHPUT_PODS} pods have ended")
    return THROUGHPUT_PODS / (time.monotonic() - began)
