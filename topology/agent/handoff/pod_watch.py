"""Keeps the cache of this node's pods: a list, then a watch, again and again, in a thread of its own.

Started by `plugin`; fills `pods`. As kubelet itself does it, and for the same pods, so the load on the API server is one more watch a node. The list is the one
of the API server's cache: whoever needs to be sure about one pod asks `Pods.read`. While the API server is away the cache stands still: a pod that it knows
counts as living.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from topology.agent.api_server import ApiServer, NoAnswerError, RefusedError
from topology.agent.handoff.pods import PODS, Pods

_log = structlog.get_logger()

_WATCH_S: Final = 600.0  # then the API server ends it, and a new one begins
_SHORT_S: Final = 1.0  # a watch that ends earlier has failed, whatever it says
_PAUSES_S: Final = (0.5, 10.0)  # first and longest between two tries


class PodWatch:
    """The thread; ``changed`` is called after each change of the cache."""

    def __init__(self, api: ApiServer, pods: Pods, changed: Callable[[], None]) -> None:
        self._api = api
        self._pods = pods
        self._changed = changed
        self._selector = {"fieldSelector": f"spec.nodeName={pods.node_name}"}
        self._stopping = threading.Event()
        self._pause: Callable[[float], object] = self._stopping.wait
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="pod-watch", daemon=True)

    def start(self) -> None:
        """Begin with a list."""
        self._thread.start()

    def stop(self) -> None:
        """End, in the middle of a watch."""
        self._stopping.set()
        with self._lock:
            if self._end is not None:
                self._end()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        pause_s = _PAUSES_S[0]
        version: str | None = None
        while not self._stopping.is_set():
            try:
                version = self.list() if version is None else version
                began = time.monotonic()
                version = self.follow(version)
                if time.monotonic() - began >= _SHORT_S:
                    pause_s = _PAUSES_S[0]
                    continue  # it was ended in good order
            except (NoAnswerError, RefusedError) as error:
                version = None  # expired or not, a list tells what was missed
                if not self._stopping.is_set():
                    _log.info("the pods of this node are listed anew", why=str(error))
            except Exception:  # noqa: BLE001  # our bug must not end the thread: the cache would stand still for ever
                version = None
                pause_s = _PAUSES_S[1]
                _log.exception("the watch of pods failed, which is a bug in Linkwise")
            # Also where watches are opened and end at once, again and again: an API server that cannot go on from there, something between that cuts them.
            self._pause(pause_s * random.uniform(0.5, 1.0))  # noqa: S311  # spreads the agents, hides no secret
            pause_s = min(pause_s * 2, _PAUSES_S[1])

    def list(self) -> str:
        """Take a whole list, and return its resource version; raises NoAnswerError, RefusedError."""
        answer = self._api.request("GET", PODS, {**self._selector, "resourceVersion": "0"})
        items = answer.get("items")
        self._pods.replace(items if isinstance(items, list) else [])
        self._changed()
        return str((answer.get("metadata") or {}).get("resourceVersion") or "0")

    def follow(self, version: str) -> str | None:
        """Take the events of one watch, and return where to go on, None for a new list; raises NoAnswerError, RefusedError."""
        query = {**self._selector, "resourceVersion": version, "timeoutSeconds": str(int(_WATCH_S))}
        try:
            for event in self._api.watch(PODS, query, self._opened):
                kind, raw = str(event.get("type")), event.get("object")
                if kind == "ERROR":
                    return None
                self._pods.take(kind, raw)
                version = str(((raw if isinstance(raw, dict) else {}).get("metadata") or {}).get("resourceVersion") or version)
                if kind != "BOOKMARK":
                    self._changed()
        finally:
            with self._lock:
                self._end = None
        return version

    def _opened(self, end: Callable[[], None]) -> None:
        with self._lock:
            self._end = end
        if self._stopping.is_set():
            end()
