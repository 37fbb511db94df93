"""Parts of GPUs onto one node pool: 40 pods, and 1,000, through kube-scheduler with Linkwise, with a null extender, and by clients that decide nothing.

The pods are made while kube-scheduler stands still, so that the pace is that of binding and not of creation. What happens is recorded as the API server tells it, and judged afterwards, event by event, by
`tests.e2e.share_checks`, which shares no code with the extender: judging on the way would take the time that is measured.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import orjson

from bench.end_to_end.bound import Bound
from bench.end_to_end.cluster import ARRIVING, LoadedCluster, pods_path
from bench.end_to_end.door import Call
from bench.end_to_end.programs import beside
from bench.end_to_end.throughput import WARM_UP
from bench.end_to_end.variants import LINKWISE, NULL, Sampling, Variant, Who
from tests.builders import pod
from tests.e2e.objects import pod_object
from tests.e2e.share_checks import StepByStep

JsonObject = dict[str, Any]

POOL: Final = 20  # nodes
COUNTS: Final = (40, 1000)
# GiB, and over how many GPUs: 5.3 GiB in the mean, so that 1,000 pods are half of what the pool has.
SIZES: Final = ((2, 1), (10, 1), (4, 1), (8, 2), (9, 1), (3, 1), (4, 4), (5, 1), (6, 1), (1, 1), (6, 2))
PLAIN: Final = (1, 8)  # connections of the clients that decide nothing


@dataclass(frozen=True, slots=True)
class Shares:
    """One round: who bound how many pods, bindings a second from the moment that kube-scheduler ran, and how many events were looked at without finding anything wrong."""

    who: str
    pods: int
    pods_per_s: float
    steps: int


def measure(cluster: LoadedCluster, rounds: int, counts: tuple[int, ...] = COUNTS) -> list[Shares]:
    """Return one figure a round for each who and count; the cluster is the pool."""
    found: list[Shares] = []
    for _ in range(rounds):
        for count in counts:
            for variant in (NULL, LINKWISE):
                found.append(_scheduled(cluster, variant, count))
                cluster.clear()
            for clients in PLAIN:
                found.append(_plain(cluster, count, clients))
                cluster.clear()
    return found


def wanted(batch: str, count: int, scheduler: str) -> list[JsonObject]:
    """Return pods that ask for parts of GPUs."""
    made = []
    for number in range(count):
        gib, gpus = SIZES[number % len(SIZES)]
        asking = pod(f"{batch}-{number:04}").shared(gib)
        made.append(pod_object(asking if gpus == 1 else asking.annotated(gpu_count=str(gpus)), scheduler))
    return made


def _scheduled(cluster: LoadedCluster, variant: Variant, count: int) -> Shares:
    with beside(cluster, variant) as programs:
        before = Bound(cluster, WARM_UP)
        _make(cluster, wanted(cluster.batch(), WARM_UP, Sampling.ALL.profile))
        before.last_at()
        programs.scheduler.pause()
        try:
            _make(cluster, wanted(cluster.batch(), count, Sampling.ALL.profile))
            recorded = Bound(cluster, count)
        finally:
            programs.scheduler.resume()
        started = time.monotonic()
        seconds = recorded.last_at() - started
    steps = judged(cluster, [*before.events, *recorded.events]) if variant.who is Who.LINKWISE else 0
    return Shares(variant.name, count, count / seconds, steps)


def _plain(cluster: LoadedCluster, count: int, clients: int) -> Shares:
    made = wanted(cluster.batch(), count, "nobody")
    _make(cluster, made)
    names = cluster.names

    def bind(number: int) -> None:
        name = made[number]["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": names[number % len(names)]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        cluster.door.send(Call("POST", f"{pods_path(ARRIVING)}/{name}/binding", orjson.dumps(body)))

    started = time.monotonic()
    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(bind, range(count)))
    return Shares(f"{clients} plain client{'s' if clients > 1 else ''}", count, count / (time.monotonic() - started), 0)


def _make(cluster: LoadedCluster, pods: list[JsonObject]) -> None:
    cluster.door.each(Call("POST", pods_path(ARRIVING), orjson.dumps(item)) for item in pods)


def judged(cluster: LoadedCluster, events: list[JsonObject]) -> int:
    """Look at the node of a pod after every event about that pod; returns how many there were, raises AssertionError with what was wrong."""
    judge = StepByStep(cluster.plane, cluster.topologies)
    for event in events:
        judge.step(event)
    assert not judge.wrong, "\n".join(judge.wrong[:10])
    return judge.steps
