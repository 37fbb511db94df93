"""Whether any GPU is given twice, after every event about any pod, and how soon pods are bound.

`Watching` follows all pods from before the first arrival on. The judge is `tests.e2e.share_checks`, which knows whole GPUs and parts and shares no code with the extender; events come in the API server's order, so what it
sees is what was true.
"""

import threading
import time
from contextlib import closing
from typing import Any, Final

import orjson

from bench.end_to_end.cluster import ARRIVING, LoadedCluster, pods_path
from bench.end_to_end.door import Call
from tests.builders import pod
from tests.e2e.objects import pod_object
from tests.e2e.share_checks import StepByStep

JsonObject = dict[str, Any]

_PATIENCE_S: Final = 30.0


class Watching:
    """Follows pods until `stop`; ``waits`` holds seconds from creation to binding, by when the binding was seen."""

    def __init__(self, cluster: LoadedCluster, created_at: dict[str, float]) -> None:
        self.waits: list[tuple[float, float]] = []
        self.troubles: list[str] = []
        self._judge = StepByStep(cluster.plane, cluster.topologies)
        self._cluster = cluster
        self._created_at = created_at
        self._bound: set[str] = set()
        self._over = False
        for item in (found := cluster.door.items("/api/v1/pods")):
            self._judge.step({"type": "ADDED", "object": item})
        self.fillers = len(found)
        version = cluster.door.version("/api/v1/pods")
        self._thread = threading.Thread(target=self._follow, args=(version,), daemon=True)
        self._thread.start()

    @property
    def wrong(self) -> list[str]:
        """What was wrong after any event."""
        return self._judge.wrong

    @property
    def steps(self) -> int:
        """How many events were looked at."""
        return self._judge.steps

    def stop(self) -> None:
        """Look at nothing more; returns at the latest with the next event."""
        self._over = True
        self._cluster.door.send(Call("POST", pods_path(ARRIVING), orjson.dumps(pod_object(pod("the-end").plain(), "nobody"))))
        self._thread.join(_PATIENCE_S)

    def _follow(self, version: str) -> None:
        try:
            with closing(self._cluster.door.changes("/api/v1/pods", {"resourceVersion": version})) as changes:
                for event in changes:
                    if self._over:
                        return
                    self._judge.step(event)
                    self._note(event["object"])
        except Exception as error:  # noqa: BLE001 - unless the soak is over, whatever it is means that nobody looks any more
            if not self._over:
                self.troubles.append(f"nobody watches the pods any more: {error!r}")

    def _note(self, item: JsonObject) -> None:
        metadata = item["metadata"]
        if item["spec"].get("nodeName") and metadata["namespace"] == ARRIVING and metadata["uid"] not in self._bound:
            self._bound.add(metadata["uid"])
            now = time.monotonic()
            self.waits.append((now, now - self._created_at.get(metadata["name"], now)))
