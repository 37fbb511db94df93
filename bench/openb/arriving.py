"""Pods of the trace arrive at a real API server, a few ahead of the answers, and what became of each is heard from a watch.

A placer for `replay`: `place` posts the pod and the few that come next, listens until kube-scheduler has bound or refused it, and answers with what the stored pod says. A pod
that was refused is deleted: it fits nowhere, and is dropped. The API server is a `Door`, so that tests can stand another one in its place.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from bench.openb.cluster import Placement
from bench.openb.stored import outcome_of
from bench.openb.trace import Pod
from extender.protocol import JsonObject


class Door(Protocol):
    """The way to the pods of an API server."""

    def post(self, pod: JsonObject) -> None:
        """Create a pod."""

    def delete(self, name: str) -> None:
        """Delete a pod at once."""

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield the pods as they are stored after each change, for ever; raises TimeoutError where nothing changes for too long."""


class Arriving:
    """Pods in their order, with at most ``in_flight`` of them waiting for an answer."""

    def __init__(self, door: Door, arrivals: Sequence[Pod], object_of: Callable[[Pod], JsonObject], in_flight: int) -> None:
        self._door = door
        self._coming = iter(arrivals)
        self._object_of = object_of
        self._in_flight = in_flight
        self._changes = door.changes()
        self._waiting: set[str] = set()
        self._outcomes: dict[str, Placement | None] = {}
        self.bound = 0
        self._started_at: float | None = None
        self._last_at = 0.0

    def place(self, pod: Pod) -> Placement | None:
        """Return where the pod went; pods are asked for in the order in which they were given."""
        self._post_ahead()
        while pod.name not in self._outcomes:
            self._hear(next(self._changes))
            self._post_ahead()
        return self._outcomes.pop(pod.name)

    @property
    def pods_per_s(self) -> float:
        """Bound pods a second, from the first pod posted to the last answer."""
        took = self._last_at - (self._started_at or 0.0)
        return self.bound / took if took > 0 else 0.0

    def _post_ahead(self) -> None:
        if self._started_at is None:
            self._started_at = time.monotonic()
        while len(self._waiting) < self._in_flight and (pod := next(self._coming, None)) is not None:
            self._waiting.add(pod.name)
            self._door.post(self._object_of(pod))

    def _hear(self, stored: dict[str, Any]) -> None:
        """Note what became of a pod, once: KWOK writes its status later, and that is a change as well."""
        name = stored["metadata"]["name"]
        outcome = outcome_of(stored) if name in self._waiting else None
        if outcome is None:
            return
        self._waiting.remove(name)
        self._outcomes[name] = outcome.placement
        self._last_at = time.monotonic()
        if outcome.placement is None:
            self._door.delete(name)
        else:
            self.bound += 1
