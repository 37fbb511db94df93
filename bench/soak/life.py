"""What happens to the cluster during a soak: pods come and go, nodes flap, topologies change, agents give signs of life.

Each actor is a thread of its own that acts on its own clock, seeded; `Life` starts and ends them. What the API server refuses because somebody else was faster (404, 409) is part of life; anything else is kept in
`troubles` and fails the soak. Agents' heartbeats are merge patches of the time alone: the extender sees the same objects as after the agent's server-side apply, and kube-apiserver does less for it.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from heapq import heappop, heappush
from itertools import cycle
from typing import Any, Final

import orjson

from bench.end_to_end.cluster import ARRIVING, NODES, TOPOLOGIES, LoadedCluster, node_of, pods_path
from bench.end_to_end.door import MERGE, Call, RefusedError
from tests.builders import PodBuilder, pod
from tests.e2e.objects import pod_object

JsonObject = dict[str, Any]

HEARTBEAT_S: Final = 60.0  # as agents do
_SENDERS: Final = 4  # connections that play all agents
LIFETIME_S: Final = 120.0  # of a pod, in the mean
MOST_ARRIVALS_PER_S: Final = 5.0
_NODES_PER_ARRIVAL: Final = 100  # of a small cluster: a pod a second for so many nodes
FLAP_EVERY_S: Final = 10.0
AWAY_S: Final = 20.0
HEALTH_EVERY_S: Final = 5.0
LINKS_EVERY_S: Final = 30.0
REPAIRED_AFTER_S: Final = 30.0
_LOST_TO_LIFE: Final = frozenset({404, 409})
# What pods ask for, and how often.
_ASKED: Final[tuple[tuple[int, Callable[[PodBuilder], PodBuilder]], ...]] = (
    (45, lambda each: each.gpus(1)),
    (15, lambda each: each.gpus(2)),
    (5, lambda each: each.gpus(2).min_bandwidth(100)),
    (8, lambda each: each.gpus(4)),
    (2, lambda each: each.gpus(8)),
    (15, lambda each: each.shared(4)),
    (10, lambda each: each.shared(20).annotated(gpu_count="2")),
)


@dataclass
class Life:
    """All actors over one cluster; ``extender_tells`` says whether the extender believes a GPU healthy."""

    cluster: LoadedCluster
    extender_tells: Callable[[str, str], bool | None]
    seed: int
    made: int = 0
    deleted: int = 0
    flaps: int = 0
    changes: int = 0
    heartbeats: int = 0
    behind_s: float = 0.0  # how late heartbeats have been at most
    lags: list[tuple[float, float]] = field(default_factory=list)  # monotonic seconds, seconds until the extender told of a change
    created_at: dict[str, float] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._counting = threading.Lock()
        self._away: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._topology = {topology["metadata"]["name"]: topology for topology in self.cluster.topologies}

    def start(self) -> None:
        """Start all actors."""
        agents = (partial(self._agents, share) for share in range(_SENDERS))
        for number, actor in enumerate((self._pods, self._flaps, self._health, self._links, *agents)):
            thread = threading.Thread(target=self._kept, args=(actor, random.Random(self.seed + number)), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End all actors; what is away comes back."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _kept(self, actor: Callable[[random.Random], None], rng: random.Random) -> None:
        try:
            actor(rng)
        except Exception as error:  # noqa: BLE001 - an actor that ends is trouble, whatever it was
            self.troubles.append(f"{actor} ended: {error!r}")

    def _send(self, *calls: Call) -> None:
        for call in calls:
            try:
                self.cluster.door.send(call)
            except RefusedError as error:
                if error.status not in _LOST_TO_LIFE:
                    self.troubles.append(f"{call.method} {call.path}: {error}")

    # --- pods ---

    def arrivals_per_s(self) -> float:
        """How many pods come in a second, in the mean."""
        return min(MOST_ARRIVALS_PER_S, self.cluster.nodes / _NODES_PER_ARRIVAL)

    def _pods(self, rng: random.Random) -> None:
        leaving: list[tuple[float, str]] = []
        while not self._over.wait(rng.expovariate(self.arrivals_per_s())):
            name = f"soak-{self.made:06}"
            weights, asked = zip(*_ASKED, strict=True)
            body = orjson.dumps(pod_object(rng.choices(asked, weights)[0](pod(name))))
            self.created_at[name] = time.monotonic()
            self._send(Call("POST", pods_path(ARRIVING), body))
            self.made += 1
            heappush(leaving, (time.monotonic() + rng.expovariate(1 / LIFETIME_S), name))
            while leaving and leaving[0][0] < time.monotonic():
                self._leave(heappop(leaving)[1], rng)

    def _leave(self, name: str, rng: random.Random) -> None:
        """Let a pod go: at once, with grace, or by its own end, after which it is deleted by and by."""
        path = f"{pods_path(ARRIVING)}/{name}"
        how = rng.random()
        if how < 0.3:
            self._send(Call("PATCH", path, b'{"metadata":{"labels":{"e2e":"ends"}}}', MERGE))
        self._send(Call("DELETE", path if how < 0.8 else f"{path}?gracePeriodSeconds=0"))
        self.deleted += 1

    # --- nodes ---

    def _flaps(self, rng: random.Random) -> None:
        coming: list[tuple[float, str, bool]] = []
        while not self._over.wait(FLAP_EVERY_S):
            name, gone = rng.choice(self.cluster.names), rng.random() < 0.5
            if name not in self._away:
                self._away.add(name)
                self._send(*(self._remove(name) if gone else [self._taint(name, tainted=True)]))
                self.flaps += 1
                heappush(coming, (time.monotonic() + AWAY_S, name, gone))
            while coming and coming[0][0] < time.monotonic():
                self._come_back(*heappop(coming)[1:])
        for _, name, gone in coming:
            self._come_back(name, gone)

    def _remove(self, name: str) -> Iterable[Call]:
        """Yield what happens to a node that goes: it, its topology, and its pods, which nobody runs any more."""
        yield Call("DELETE", f"{NODES}/{name}")
        yield Call("DELETE", f"{TOPOLOGIES}/{name}")
        for item in self.cluster.door.items("/api/v1/pods", fieldSelector=f"spec.nodeName={name}"):
            metadata = item["metadata"]
            yield Call("DELETE", f"{pods_path(metadata['namespace'])}/{metadata['name']}?gracePeriodSeconds=0")

    def _taint(self, name: str, *, tainted: bool) -> Call:
        taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}] if tainted else None
        return Call("PATCH", f"{NODES}/{name}", orjson.dumps({"spec": {"taints": taints}}), MERGE)

    def _come_back(self, name: str, gone: bool) -> None:
        if gone:
            topology = self._topology[name]
            self._send(
                Call("POST", NODES, orjson.dumps(node_of(topology))),
                Call("POST", TOPOLOGIES, orjson.dumps({**topology, "status": {}})),
                self._status(name, topology["status"]["gpus"], topology["status"]),
            )
        self._send(self._taint(name, tainted=False))
        self._away.discard(name)

    # --- topologies ---

    def _status(self, name: str, gpus: list[JsonObject], status: JsonObject | None = None) -> Call:
        body = {"status": {**(status or {}), "gpus": gpus, "observedAt": datetime.now(UTC).isoformat()}}
        return Call("PATCH", f"{TOPOLOGIES}/{name}/status", orjson.dumps(body), MERGE)

    def _health(self, rng: random.Random) -> None:
        """Let a GPU fail, look how soon the extender knows, and let it be well again later."""
        ill: list[tuple[float, str]] = []
        while not self._over.wait(HEALTH_EVERY_S):
            name = rng.choice(self.cluster.names)
            if name not in self._away and name not in {other for _, other in ill}:
                gpus = self._topology[name]["status"]["gpus"]
                failing = rng.randrange(len(gpus))
                self._send(self._status(name, [{**gpu, "healthy": at != failing} for at, gpu in enumerate(gpus)]))
                self._time(name, gpus[failing]["uuid"])
                self.changes += 1
                heappush(ill, (time.monotonic() + REPAIRED_AFTER_S, name))
            while ill and ill[0][0] < time.monotonic():
                well = heappop(ill)[1]
                self._send(self._status(well, self._topology[well]["status"]["gpus"]))

    def _time(self, name: str, uuid: str) -> None:
        """Note how long it takes until the extender tells that a GPU is not healthy; a node that goes meanwhile tells nothing."""
        began = time.monotonic()
        while self.extender_tells(name, uuid):
            if name in self._away or self._over.is_set():
                return
            time.sleep(0.01)
        self.lags.append((began, time.monotonic() - began))

    def _links(self, rng: random.Random) -> None:
        """Let a node lose an NVLink, which makes it another class, and repair it later."""
        broken: list[tuple[float, str]] = []
        while not self._over.wait(LINKS_EVERY_S):
            name = rng.choice([name for name in self.cluster.names if degraded(self._topology[name]["spec"]["links"]["gpus"])])
            if name not in self._away:
                self._send(self._rows(name, degraded(self._topology[name]["spec"]["links"]["gpus"])))
                self.changes += 1
                heappush(broken, (time.monotonic() + REPAIRED_AFTER_S, name))
            while broken and broken[0][0] < time.monotonic():
                repaired = heappop(broken)[1]
                self._send(self._rows(repaired, self._topology[repaired]["spec"]["links"]["gpus"]))

    def _rows(self, name: str, rows: list[list[str]]) -> Call:
        return Call("PATCH", f"{TOPOLOGIES}/{name}", orjson.dumps({"spec": {"links": {"gpus": rows}}}), MERGE)

    # --- agents ---

    def _agents(self, share: int, rng: random.Random) -> None:
        """Send the time for one node after the other of this sender's share, so that each has its turn once a heartbeat."""
        names = self.cluster.names[share::_SENDERS]
        rng.shuffle(names)
        due = time.monotonic()
        for name in cycle(names):
            if self._over.wait(max(0.0, due - time.monotonic())):
                return
            if name not in self._away:
                body = orjson.dumps({"status": {"observedAt": datetime.now(UTC).isoformat()}})
                self._send(Call("PATCH", f"{TOPOLOGIES}/{name}/status", body, MERGE))
                with self._counting:
                    self.heartbeats += 1
                    self.behind_s = max(self.behind_s, time.monotonic() - due)
            due += HEARTBEAT_S / len(names)


def degraded(rows: list[list[str]]) -> list[list[str]]:
    """Return the rows with the first NVLink lost on both sides, as nvidia-smi would then print them; empty where there is none, or where a switch gives every pair the same."""
    pairs = [(a, b) for a, row in enumerate(rows) for b, cell in enumerate(row) if a < b and cell.startswith("NV")]
    if not pairs or (len({rows[a][b] for a, b in pairs}) == 1 and len(pairs) == len(rows) * (len(rows) - 1) // 2):
        return []
    first = pairs[0]
    return [["SYS" if (a, b) in (first, first[::-1]) else cell for b, cell in enumerate(row)] for a, row in enumerate(rows)]
