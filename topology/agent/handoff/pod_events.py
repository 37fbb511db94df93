"""Events on pods: why a container does not start, or started otherwise than one would think. For people, beside kubelet's own event with the error's text.

Called by `hand_off`, which must not wait for the API server: what is said is queued and posted by a thread. The same sentence about the same pod is said
once in ten minutes, however often kubelet tries. What cannot be posted is dropped after a few tries; the log has it.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import uuid4

import structlog

from topology.agent.api_server import ApiServer, Body, JsonObject, NoAnswerError, RefusedError
from topology.agent.handoff.pod import Pod
from topology.agent.probe import utc_now

_log = structlog.get_logger()

SOURCE: Final = "linkwise-agent"
_AGAIN_AFTER_S: Final = 600.0
_MOST_WAITING: Final = 200
_MOST_REMEMBERED: Final = 2000
_LONGEST: Final = 1024  # bytes of a message that the API server takes
_TRIES: Final = 3
_PAUSE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One event: a word for programs, a sentence for people."""

    pod: Pod
    reason: str
    message: str
    is_warning: bool = True


class PodEvents:
    """Says things about the pods of one node; ``failed`` counts what could not be posted."""

    def __init__(
        self,
        api: ApiServer,
        node_name: str,
        failed: Callable[[], None],
        day: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._node_name = node_name
        self._failed = failed
        self._day = day
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[tuple[str, str, str], float] = {}
        self._queue: queue.Queue[PodEvent | None] = queue.Queue(_MOST_WAITING)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._post_all, name="pod-events", daemon=True)

    def start(self) -> None:
        """Begin to post."""
        self._thread.start()

    def stop(self) -> None:
        """Post no more."""
        self._stopping.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return  # it looks up after the one that it posts
        if self._thread.is_alive():
            self._thread.join(_PAUSE_S)

    def say(self, event: PodEvent) -> None:
        """Log an event and queue it, unless it was said lately."""
        key = (event.pod.uid, event.reason, event.message)
        now = self._clock()
        with self._lock:
            if now - self._said.get(key, float("-inf")) < _AGAIN_AFTER_S:
                return
            if len(self._said) >= _MOST_REMEMBERED:
                self._said.clear()  # then some are said twice
            self._said[key] = now
        _log.log(30 if event.is_warning else 20, event.message, pod=f"{event.pod.namespace}/{event.pod.name}", reason=event.reason)
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._failed()

    def _post_all(self) -> None:
        while (event := self._queue.get()) is not None and not self._stopping.is_set():
            try:
                self._post(event)
            except Exception:  # noqa: BLE001  # our bug must not end the thread: nothing would be told any more, and nobody would know
                self._failed()
                _log.exception("an event could not be posted, which is a bug in Linkwise")

    def _post(self, event: PodEvent) -> None:
        path, body = f"/api/v1/namespaces/{event.pod.namespace}/events", Body(self._raw(event))
        for _ in range(_TRIES):
            try:
                self._api.request("POST", path, body=body)
            except NoAnswerError:
                if self._stopping.wait(_PAUSE_S):
                    break
            except RefusedError:
                break
            else:
                return
        self._failed()

    def _raw(self, event: PodEvent) -> JsonObject:
        pod, now = event.pod, self._day().strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod.name[:220].rstrip('-.')}.{uuid4().hex[:16]}", "namespace": pod.namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
            "reason": event.reason,
            "message": event.message.encode()[:_LONGEST].decode(errors="ignore"),
            "type": "Warning" if event.is_warning else "Normal",
            "source": {"component": SOURCE, "host": self._node_name},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
