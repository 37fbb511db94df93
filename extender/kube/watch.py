"""List and watch one kind of object: raw JSON as it comes, then events for ever, and a new list whenever the thread is lost.

One `Reflector` a kind, run as a task by `serving`; what it sees goes to a `Sink` (the cluster's state). It never gives up: every trouble ends in a new list
after a back-off. A list is the truth of its moment, so objects that it lacks are removed; that also repairs a missed delete event, and the
resync does it even where nobody noticed a loss. The informer of the official client is a thread over model objects; hence our own.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson
import structlog

from extender import log_keys
from extender.kube.client import ApiRefusedError, KubeClient, NoAnswerError
from extender.kube.rest import rest_until
from extender.memory import give_back_freed_memory
from extender.raw_list import ListReader
from topology.api.annotations import GPUSHARE_NAMESPACE

_log = structlog.get_logger()
JsonObject = dict[str, Any]

PAGE: Final = 10_000  # objects that are asked for together; kube-apiserver takes half a second more for each further page of a custom resource, whatever it holds (decision 23)
WATCH_S: Final = 300  # the server ends a watch after this long; jittered, so that watches do not all end at once
SILENCE_S: Final = 90.0  # bookmarks come about once a minute: a watch that is silent for longer is dead
RESYNC_S: Final = 600.0
BACKOFF_S: Final = (0.2, 5.0)  # first and longest pause after a failure
SHORT_WATCH_S: Final = 1.0  # a server that is about to go ends each watch at once: the next one is opened this much later
TURN_S: Final = 0.002  # for so long objects are taken in before calls get their turn


class Sink(Protocol):
    """Where a reflector's objects go."""

    def apply(self, raw: JsonObject) -> None:
        """Take in an object as it is now."""
        ...

    def remove(self, raw: JsonObject) -> None:
        """Take out an object that is gone."""
        ...

    def known(self) -> Iterable[str]:
        """Return the keys (UIDs or names) of everything taken in by now, as `key` tells them; what is taken in later does not change the answer."""
        ...

    def key(self, raw: JsonObject) -> str:
        """Return the key of an object."""
        ...

    def forget(self, key: str) -> None:
        """Take out an object that a list no longer has."""
        ...


@dataclass(frozen=True, slots=True)
class Resource:
    """What is listed: its path and, for kinds whose lists leave it out of their items, its kind."""

    path: str
    kind: str


PODS: Final = Resource("/api/v1/pods", "Pod")
NODES: Final = Resource("/api/v1/nodes", "Node")
UNHEALTHY: Final = Resource(f"/api/v1/namespaces/{GPUSHARE_NAMESPACE}/configmaps", "ConfigMap")  # a prefix of names cannot be selected
TOPOLOGIES: Final = Resource("/apis/linkwise.dev/v1alpha1/gputopologies", "GPUTopology")


class _ExpiredError(Exception):
    """The server no longer knows the resourceVersion: list again."""


class _Turn:
    """How long objects have been taken in without a pause."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends = time.perf_counter() + TURN_S

    def is_over(self) -> bool:
        """Tell whether others have waited for long enough."""
        return time.perf_counter() > self._ends

    async def pause(self) -> None:
        """Let others have the loop."""
        await asyncio.sleep(0)
        self._ends = time.perf_counter() + TURN_S


class Reflector:
    """Keeps a sink equal to the API server's objects of one kind.

    ``fresh_at`` is the monotonic time up to which the sink is known to be right: it moves on while the watch is open, and stands still while it is not.
    """

    def __init__(self, client: KubeClient, resource: Resource, sink: Sink, clock: Callable[[], float]) -> None:
        self._client = client
        self._resource = resource
        self._sink = sink
        self._clock = clock
        self._open = False
        self._lost_at = clock()
        self._relist = asyncio.Event()
        self._listed = asyncio.Event()
        self._listed_at = -math.inf  # when the last list that was taken in had been asked for
        self.synced = asyncio.Event()

    @property
    def age_s(self) -> float:
        """Seconds for which the sink may have missed something; 0 while a watch is open."""
        return 0.0 if self._open else self._clock() - self._lost_at

    async def run(self) -> None:
        """List and watch until cancelled."""
        pause = BACKOFF_S[0]
        while True:
            listed_at = self._clock()
            try:
                await self._watch_from(await self._list())
                pause = BACKOFF_S[0]
                continue
            except _ExpiredError:
                _log.info("watch expired, listing again", **{log_keys.KIND: self._resource.kind})
            except (NoAnswerError, ApiRefusedError, ValueError) as error:
                _log.warning("list or watch failed", **{log_keys.KIND: self._resource.kind, log_keys.REASON: str(error)})
            if self._clock() - listed_at > BACKOFF_S[1]:
                pause = BACKOFF_S[0]  # it went well for a while
            await self._rest(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries, guards nothing
            pause = min(2 * pause, BACKOFF_S[1])

    async def _rest(self, seconds: float) -> None:
        """Wait, unless somebody asks for a new list."""
        await rest_until(self._relist, seconds)

    async def list_afresh(self) -> None:
        """List once more, from now on, and return when that list has been taken in: a new leader may trust nothing older."""
        asked_at = self._clock()
        while self._listed_at < asked_at:
            self._listed.clear()
            self._relist.set()
            await self._listed.wait()

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._lost_at = self._clock()

    # --- list ---

    async def _list(self) -> str:
        """Take in all pages, then remove what they lack; returns the resourceVersion to watch from."""
        self._relist.clear()
        asked_at = self._clock()
        seen: set[str] = set()
        before = self._sink.known()
        metadata = await self._take_page({}, seen)
        while onward := metadata.get("continue"):
            metadata = await self._take_page({"continue": onward}, seen)
        turn = _Turn()
        for key in before:
            if key not in seen:
                self._sink.forget(key)
            if turn.is_over():
                await turn.pause()
        give_back_freed_memory()
        self._lost_at = asked_at
        self._listed_at = asked_at
        self._listed.set()
        self.synced.set()
        return str(metadata.get("resourceVersion", ""))

    async def _take_page(self, onward: Mapping[str, str], seen: set[str]) -> JsonObject:
        """Take in the objects of one page while it comes; returns the metadata of the list."""
        reader, turn = ListReader(), _Turn()
        async with self._client.pieces(self._resource.path, {"limit": str(PAGE), **onward}) as pieces:
            async for piece in pieces:
                for items in reader.take(piece):
                    await self._take(items, seen, turn)
        head, rest = reader.end()
        await self._take(rest, seen, turn)
        metadata: JsonObject = head.get("metadata") or {}
        return metadata

    async def _take(self, items: Iterable[Any], seen: set[str], turn: _Turn) -> None:
        """Take in objects, with calls of kube-scheduler in between."""
        kind, sink = self._resource.kind, self._sink
        for item in items:
            item.setdefault("kind", kind)
            seen.add(sink.key(item))
            sink.apply(item)
            if turn.is_over():
                await turn.pause()

    # --- watch ---

    async def _watch_from(self, version: str) -> None:
        """Follow events until the thread is lost, a resync is due or a new list is asked for."""
        following = asyncio.create_task(self._follow_for_ever(version))
        asked = asyncio.create_task(self._relist.wait())
        resync_s = RESYNC_S * random.uniform(0.8, 1.2)  # noqa: S311 - spreads lists, guards nothing
        try:
            await asyncio.wait((following, asked), timeout=resync_s, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
        finally:
            asked.cancel()
            following.cancel()
            await asyncio.gather(asked, following, return_exceptions=True)
            self._close()

    async def _follow_for_ever(self, version: str) -> None:
        while True:
            watch_s = int(WATCH_S * random.uniform(0.8, 1.2))  # noqa: S311 - as above
            query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version, "timeoutSeconds": str(watch_s)}
            opened_at = self._clock()
            version = await self._follow(query, version)
            if self._clock() - opened_at < SHORT_WATCH_S:
                await asyncio.sleep(SHORT_WATCH_S)

    async def _follow(self, query: Mapping[str, str], version: str) -> str:
        """Take in the events of one watch; returns the resourceVersion to go on from when the server ends it."""
        try:
            async with self._client.watch(self._resource.path, query, SILENCE_S) as lines:
                self._open = True
                turn = _Turn()
                async for line in lines:
                    version = self._take_event(orjson.loads(line)) or version
                    if turn.is_over():  # lines that have come already are read without a pause
                        await turn.pause()
        finally:
            self._close()
        return version

    def _take_event(self, event: JsonObject) -> str:
        """Take in one event; returns its resourceVersion."""
        kind, found = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            code = int(found.get("code") or 500)
            if code == 410:
                raise _ExpiredError
            raise ApiRefusedError(code, str(found.get("reason") or ""), str(found.get("message") or "watch error"))
        if kind in ("ADDED", "MODIFIED"):
            self._sink.apply(found)
        elif kind == "DELETED":
            self._sink.remove(found)
        return str((found.get("metadata") or {}).get("resourceVersion") or "")
