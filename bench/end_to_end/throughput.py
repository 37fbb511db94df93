"""Pods a second through a real kube-scheduler: from the first creation to the last binding, and where the time went.

One `measure` is one round of one variant; `__main__` interleaves them. The pods ask for one or two GPUs, so that whoever places them fits all: a pod that waits would end the comparison. All that a
figure rests on is read from the API server's events, kube-scheduler's metrics and /proc; with Linkwise every pod's allocation is checked by an oracle that shares no code with it.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from bench.end_to_end.bound import PATIENCE_S, Bound
from bench.end_to_end.cluster import ARRIVING, SIZES, LoadedCluster, pods_path
from bench.end_to_end.door import Call
from bench.end_to_end.expositions import Counts
from bench.end_to_end.processes import Cpu, read_cpu
from bench.end_to_end.programs import Beside, beside
from bench.end_to_end.variants import Sampling, Variant, Who
from tests.builders import pod
from tests.e2e.checks import check_pods
from tests.e2e.objects import pod_object
from tests.e2e.program import wait_until

JsonObject = dict[str, Any]

WARM_UP: Final = 20  # pods that open connections and fill caches before the clock starts
_IN_TREE: Final = ("PreFilter", "Filter", "PreScore", "Score")  # within the scheduling algorithm; asking an extender is within it and in none of them


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one variant. Seconds are of kube-scheduler's metrics, added up over the pods; ``calls`` are Linkwise's own, by verb: how many and how long."""

    variant: str
    sampling: str
    pods: int
    seconds: float
    in_tree_s: dict[str, float] = field(default_factory=dict)
    algorithm_s: float = 0.0
    bind_s: float = 0.0
    calls: dict[str, tuple[float, float]] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    checked: int = 0

    @property
    def pods_per_s(self) -> float:
        """Bindings a second."""
        return self.pods / self.seconds

    @property
    def not_in_tree_s(self) -> float:
        """What kube-scheduler spent on choosing nodes outside of its own plugins: its snapshot, and waiting for an extender."""
        return self.algorithm_s - sum(self.in_tree_s.values())


def measure(cluster: LoadedCluster, variant: Variant, sampling: Sampling, count: int) -> Round:
    """Run one round and leave the cluster as it was."""
    if variant.who is Who.LINKWISE:
        cluster.allow_only_linkwise()
    try:
        with beside(cluster, variant) as programs:
            arrive(cluster, wanted(cluster.batch(), WARM_UP, sampling))
            found = _timed(cluster, programs, variant, wanted(cluster.batch(), count, sampling), sampling)
    finally:
        cluster.clear()
        if variant.who is Who.LINKWISE:
            cluster.lift_policy()
    return found


def _timed(cluster: LoadedCluster, programs: Beside, variant: Variant, pods: list[JsonObject], sampling: Sampling) -> Round:
    pids = {**cluster.pids(), **programs.pids}
    scheduler, extender, cpu = programs.scheduler_counts(), programs.extender_counts(), read_cpu(pids)
    seconds = arrive(cluster, pods)
    # The processor time of all that comes of the pods: who binds quickly would otherwise leave the statuses out that KWOK has not written yet.
    wait_until(lambda: not cluster.door.items(pods_path(ARRIVING), fieldSelector="status.phase=Pending", limit="1"), PATIENCE_S, "all pods run")
    used = read_cpu(pids).since(cpu)
    found = round_of(
        Timed(variant.name, sampling, len(pods), seconds),
        programs.scheduler_counts().since(scheduler),
        programs.extender_counts().since(extender),
        used,
    )
    return _checked(cluster, found) if variant.who is Who.LINKWISE else found


@dataclass(frozen=True, slots=True)
class Timed:
    """What was run, and how long it took."""

    variant: str
    sampling: Sampling
    pods: int
    seconds: float


def round_of(timed: Timed, scheduler: Counts, extender: Counts, cpu: Cpu) -> Round:
    """Put together what was counted while the pods arrived."""
    points = scheduler.by("scheduler_framework_extension_point_duration_seconds_sum", "extension_point", profile=timed.sampling.profile)
    calls = {
        verb: (count, extender.total("linkwise_call_seconds_sum", verb=verb))
        for verb, count in sorted(extender.by("linkwise_call_seconds_count", "verb").items())
        if count
    }
    return Round(
        variant=timed.variant,
        sampling=timed.sampling.value,
        pods=timed.pods,
        seconds=timed.seconds,
        in_tree_s={point: points.get(point, 0.0) for point in _IN_TREE},
        algorithm_s=scheduler.total("scheduler_scheduling_algorithm_duration_seconds_sum"),
        bind_s=points.get("Bind", 0.0),
        calls=calls,
        cpu_s=dict(cpu.seconds),
    )


def _checked(cluster: LoadedCluster, found: Round) -> Round:
    """Check every pod of the cluster against the topologies, those that fill it among them; raises AssertionError with whatever is wrong."""
    held = check_pods([*cluster.door.items("/api/v1/pods")], cluster.topologies)
    own = sum(name.startswith(f"{ARRIVING}/") for name in held)
    expected = found.pods + WARM_UP
    assert own == expected, f"{own} pods carry an allocation, {expected} were created"
    return replace(found, checked=own)


def wanted(prefix: str, count: int, sampling: Sampling) -> list[JsonObject]:
    """Return that many pods for the profile that samples so."""
    return [pod_object(pod(f"{prefix}-{number:05}").gpus(SIZES[number % len(SIZES)]), sampling.profile) for number in range(count)]


def arrive(cluster: LoadedCluster, pods: Iterable[JsonObject]) -> float:
    """Create pods as fast as the API server takes them and wait until the last is bound; returns the seconds from before the first creation."""
    calls = [Call("POST", pods_path(ARRIVING), orjson.dumps(item)) for item in pods]
    waiting = Bound(cluster, len(calls))
    started = time.monotonic()
    cluster.door.each(calls)
    return waiting.last_at() - started
