"""Events on pods: posted one by one in the background, limited, and never in the way of a bind.

While bindings are in hand events wait, since each is one more write for an API server that has its hands full.
The `Recorder` of a running extender. The same sentence about the same pod is said once in ten minutes; when more happens than the limit allows, the newest
are dropped and counted in the log. Source of the fields: core/v1 Event.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote
from uuid import uuid4

import structlog
from cachetools import TTLCache

from extender import log_keys
from extender.kube.client import ApiRefusedError, Body, KubeClient, NoAnswerError
from extender.notices import Notice
from extender.protocol import JsonObject

_log = structlog.get_logger()

MOST_WAITING: Final = 1000
PER_SECOND: Final = 20.0
SAME_AGAIN_S: Final = 600.0
BINDINGS_FIRST_S: Final = 1.0  # how long one event lets bindings go first, as long as half of the queue is free
_LOOK_AGAIN_S: Final = 0.05
_LONGEST_NAME: Final = 253 - 17  # an object's name has room for 253 characters; a dot and 16 of our own follow the pod's


class KubeEvents:
    """Takes notices and posts them as core/v1 Events."""

    def __init__(self, client: KubeClient, component: str, may_post: Callable[[], bool], binding: Callable[[], bool] = lambda: False) -> None:
        self._client = client
        self._component = component
        self._may_post = may_post
        self._binding = binding
        self._queue: asyncio.Queue[tuple[Notice, datetime]] = asyncio.Queue(MOST_WAITING)
        self._said: TTLCache[tuple[str, str, str], None] = TTLCache(10_000, SAME_AGAIN_S)

    def record(self, notice: Notice) -> None:
        """Take a notice; drops it where too many wait."""
        said = (notice.uid, notice.reason, notice.message)
        if said in self._said or not self._may_post():
            return
        try:
            self._queue.put_nowait((notice, datetime.now(UTC)))
        except asyncio.QueueFull:
            _log.warning("event dropped", **{log_keys.POD: f"{notice.namespace}/{notice.name}", log_keys.REASON: notice.reason})
        else:
            self._said[said] = None

    @property
    def waiting(self) -> int:
        """How many notices are still to be posted."""
        return self._queue.qsize()

    async def run(self) -> None:
        """Post notices until cancelled."""
        while True:
            notice, at = await self._queue.get()
            await self._after_bindings()
            path = f"/api/v1/namespaces/{quote(notice.namespace, safe='')}/events"
            try:
                await self._client.raw("POST", path, body=Body(self._event(notice, at)), timeout_s=5.0)
            except (NoAnswerError, ApiRefusedError) as error:
                _log.warning("event not posted", **{log_keys.POD: f"{notice.namespace}/{notice.name}", log_keys.REASON: str(error)})
            await asyncio.sleep(1 / PER_SECOND)

    async def _after_bindings(self) -> None:
        """Let bindings go first: pods wait for those. Not for ever, and not until notices would be dropped."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + BINDINGS_FIRST_S
        while self._binding() and self._queue.qsize() < MOST_WAITING // 2 and loop.time() < latest:  # noqa: ASYNC110 - nobody tells when the last is done
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _event(self, notice: Notice, at: datetime) -> JsonObject:
        now = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{notice.name[:_LONGEST_NAME].rstrip('-.')}.{uuid4().hex[:16]}", "namespace": notice.namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": notice.namespace, "name": notice.name, "uid": notice.uid},
            "reason": notice.reason,
            "message": notice.message[:1024],  # the API server refuses longer ones
            "type": "Warning" if notice.reason.is_warning else "Normal",
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
