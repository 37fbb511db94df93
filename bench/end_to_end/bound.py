"""When the pods of a round were bound, as the API server tells it.

Used by `throughput` and `shares`: made before the first pod, asked for the last. Its watch shows bound pods alone, so that events about waiting ones cost the load's side nothing.
"""

import threading
import time
from contextlib import closing
from typing import Any, Final

from bench.end_to_end.cluster import ARRIVING, LoadedCluster, pods_path

JsonObject = dict[str, Any]

PATIENCE_S: Final = 300.0


class Bound:
    """Watches for that many pods to be bound, from its making on; ``events`` is what the watch told until then."""

    def __init__(self, cluster: LoadedCluster, count: int) -> None:
        self.events: list[JsonObject] = []
        self._left = count
        self._cluster = cluster
        self._done = threading.Event()
        self._at = 0.0
        path = pods_path(ARRIVING)
        query = {"fieldSelector": "spec.nodeName!=", "resourceVersion": cluster.door.version(path)}
        threading.Thread(target=self._follow, args=(path, query), daemon=True).start()

    def _follow(self, path: str, query: dict[str, str]) -> None:
        with closing(self._cluster.door.changes(path, query)) as changes:
            while self._left > 0:
                event = next(changes)
                self.events.append(event)
                if event["type"] == "ADDED":  # it was not among the bound ones before
                    self._left -= 1
                    self._at = time.monotonic()
        self._done.set()

    def last_at(self) -> float:
        """Wait for the last, and return when it was seen, monotonic seconds; raises TimeoutError with the ends of the logs."""
        if not self._done.wait(PATIENCE_S):
            raise TimeoutError(f"{self._left} pods are not bound after {PATIENCE_S:g} s\n{self._cluster.plane.tails()}")
        return self._at
