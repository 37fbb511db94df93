"""A small API server for tests, on a real port: objects by path, list and watch, bindings, and every way to go wrong that a test asks for.

It speaks what `extender.kube` needs of the Kubernetes API: pages with `continue`, watches with bookmarks and 410, resourceVersions as optimistic locks,
Bindings that put node and annotations on the pod in one write. It runs on the test's own loop, so a test may touch its objects between two awaits.
`fault` decides what becomes of the calls to come. The real kube-apiserver is the business of tests/e2e.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from operator import getitem
from typing import Any

import orjson
from aiohttp import web
from kubernetes.aio.client import Configuration

from extender.kube.client import KubeClient

JsonObject = dict[str, Any]

PODS = "/api/v1/pods"
TOPOLOGIES = "/apis/linkwise.dev/v1alpha1/gputopologies"


class Fault(Enum):
    """What happens to a call."""

    DROP = "the connection is reset before anything has happened"
    CUT = "it takes effect, and the connection is reset instead of an answer"
    HOLD = "it waits for `go` before it takes effect"
    HOLD_ANSWER = "it takes effect, and the answer waits for `go`"
    GARBAGE = "it is answered with 200 and something that is no JSON"


@dataclass
class Rule:
    """One fault, or a status that is answered in place, for the next ``times`` calls that match."""

    method: str
    path: str
    what: Fault | int
    times: int
    go: asyncio.Event = field(default_factory=asyncio.Event)
    hit: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class Call:
    """One call as it arrived, whole."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    token: str | None


@dataclass
class _Watch:
    path: str
    request: web.BaseRequest
    events: "asyncio.Queue[bytes | None]" = field(default_factory=asyncio.Queue)


class LocalApiServer:
    """Objects by path (`/api/v1/namespaces/NS/pods/NAME`); ``calls`` is everything that was asked, oldest first."""

    def __init__(self) -> None:
        self.objects: dict[str, JsonObject] = {}
        self.calls: list[Call] = []
        self.page = 500  # most items a page, whatever is asked
        self.url = ""
        self._version = 100
        self._oldest = 0  # a watch or a page from before is answered with 410
        self._history: list[tuple[int, str, JsonObject]] = []
        self._watches: list[_Watch] = []
        self._rules: list[Rule] = []

    # --- what a test does ---

    def put(self, path: str, item: JsonObject) -> JsonObject:
        """Store an object and tell the watches; returns it as stored."""
        known = path in self.objects
        stored = {**item, "metadata": {**item.get("metadata", {}), "resourceVersion": self._next()}}
        self.objects[path] = stored
        self._tell("MODIFIED" if known else "ADDED", path, stored)
        return stored

    def put_pod(self, pod: JsonObject) -> JsonObject:
        """Store a pod."""
        return self.put(pod_path(pod), pod)

    def put_topology(self, topology: JsonObject) -> JsonObject:
        """Store a GPUTopology."""
        return self.put(f"{TOPOLOGIES}/{topology['metadata']['name']}", topology)

    def delete(self, path: str, *, told: bool = True) -> None:
        """Remove an object; with ``told`` False no watch ever hears of it."""
        item = self.objects.pop(path)
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": self._next()}}
        if told:
            self._tell("DELETED", path, item)

    def expire(self) -> None:
        """Forget what was before now: nobody can go on from an older version."""
        self._next()
        self._oldest = self._version
        self._history.clear()

    def bookmark(self) -> None:
        """Tell every watch the version of this moment."""
        for watch in self._watches:
            watch.events.put_nowait(_line("BOOKMARK", {"metadata": {"resourceVersion": self._next()}}))

    def say(self, line: bytes) -> None:
        """Send a line of one's own to every watch."""
        for watch in self._watches:
            watch.events.put_nowait(line)

    def end_watches(self) -> None:
        """End every watch in good order."""
        for watch in self._watches:
            watch.events.put_nowait(None)

    def cut_watches(self) -> None:
        """Reset the connection of every watch."""
        for watch in self._watches:
            _abort(watch.request)
            watch.events.put_nowait(None)

    def watches(self, path: str) -> int:
        """Return how many watches of a collection are open."""
        return sum(watch.path == path for watch in self._watches)

    def fault(self, method: str, path: str, what: Fault | int, times: int = 1) -> Rule:
        """Decide about the next ``times`` calls whose method and path (regular expressions, in full) match."""
        rule = Rule(method, path, what, times)
        self._rules.append(rule)
        return rule

    @contextmanager
    def failing(self, method: str, path: str, what: Fault | int = Fault.DROP) -> Iterator[Rule]:
        """Let every matching call fail within the block: a GET or PUT may be sent twice, if its connection was an old one."""
        rule = self.fault(method, path, what, times=1_000_000)
        try:
            yield rule
        finally:
            rule.times = 0

    def asked(self, method: str, path: str) -> list[Call]:
        """Return the calls whose method and path (a regular expression, in full) match."""
        return [call for call in self.calls if call.method == method and re.fullmatch(path, call.path)]

    # --- inside ---

    def _next(self) -> str:
        self._version += 1
        return str(self._version)

    def _tell(self, kind: str, path: str, item: JsonObject) -> None:
        self._history.append((self._version, kind, {**item, "_path": path}))
        for watch in self._watches:
            if watch.path in _lists_of(path):
                watch.events.put_nowait(_line(kind, item))

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Take one call through its faults to its effect."""
        body = await request.read()
        call = Call(request.method, request.path, dict(request.query), orjson.loads(body) if body else None, request.headers.get("Authorization"))
        self.calls.append(call)
        rule = next(
            (rule for rule in self._rules if rule.times and re.fullmatch(rule.method, call.method) and re.fullmatch(rule.path, call.path)), None
        )
        if rule is None:
            return await self._effect(request, call)
        rule.times -= 1
        rule.hit.set()
        if rule.what is Fault.DROP:
            return _abort(request)
        if rule.what is Fault.GARBAGE:
            return web.Response(text="<html>a proxy says hello</html>")
        if isinstance(rule.what, int):
            return _status(rule.what, "Scripted", "refused by the test")
        if rule.what is Fault.HOLD:
            await rule.go.wait()
        response = await self._effect(request, call)
        if rule.what is Fault.HOLD_ANSWER:
            await rule.go.wait()
        return _abort(request) if rule.what is Fault.CUT else response

    async def _effect(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        if call.method == "GET":
            if call.query.get("watch"):
                return await self._watch(request, call)
            return self._get(call)
        if call.method == "POST":
            return self._bind(call) if call.path.endswith("/binding") else self._create(call)
        known = self.objects.get(call.path)
        if known is None:
            return _status(404, "NotFound", f"{call.path} not found")
        return self._change(call, known, is_json_patch=request.content_type == "application/json-patch+json")

    def _change(self, call: Call, known: JsonObject, *, is_json_patch: bool) -> web.Response:
        if call.method == "PUT" and call.body["metadata"].get("resourceVersion") != known["metadata"]["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified")
        changed = call.body if call.method == "PUT" else json_patched(known, call.body) if is_json_patch else _merged(known, call.body)
        if changed is None:
            return _status(422, "Invalid", "the server rejected our request due to an error in our request")
        return web.json_response(self.put(call.path, changed))

    def _get(self, call: Call) -> web.Response:
        if call.path in self.objects:
            return web.json_response(self.objects[call.path])
        if call.path.rpartition("/")[2] not in ("pods", "gputopologies", "nodes", "configmaps"):
            return _status(404, "NotFound", f"{call.path} not found")
        return self._list(call)

    def _list(self, call: Call) -> web.Response:
        start, _, version = call.query.get("continue", f"0/{self._version}").partition("/")
        if int(version) < self._oldest:
            return _status(410, "Expired", "the continue token is too old")
        items = [item for path, item in self.objects.items() if call.path in _lists_of(path)]
        items = [item for item in items if _selected(item, call.query.get("labelSelector", ""))]
        page = min(self.page, int(call.query.get("limit", "500")))
        onward = {"continue": f"{int(start) + page}/{version}"} if int(start) + page < len(items) else {}
        return web.json_response({"metadata": {"resourceVersion": version, **onward}, "items": items[int(start) : int(start) + page] or None})

    async def _watch(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        since = int(call.query["resourceVersion"])
        if since < self._oldest:
            return _status(410, "Expired", "too old resource version")
        watch = _Watch(call.path, request)
        for version, kind, item in self._history:
            if version > since and call.path in _lists_of(item["_path"]):
                watch.events.put_nowait(_line(kind, {key: value for key, value in item.items() if key != "_path"}))
        response = web.StreamResponse()
        await response.prepare(request)
        self._watches.append(watch)
        try:
            while (line := await watch.events.get()) is not None:
                await response.write(line)
        except ConnectionError:  # the client has gone
            return response
        finally:
            self._watches.remove(watch)
        return response

    def _create(self, call: Call) -> web.Response:
        path = f"{call.path}/{call.body['metadata']['name']}"
        if path in self.objects:
            return _status(409, "AlreadyExists", f"{path} already exists")
        return web.json_response(self.put(path, call.body), status=201)

    def _bind(self, call: Call) -> web.Response:
        path = call.path.removesuffix("/binding")
        pod = self.objects.get(path)
        if pod is None:
            return _status(404, "NotFound", f"{path} not found")
        metadata = call.body["metadata"]
        if metadata["uid"] != pod["metadata"]["uid"] or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return _status(409, "Conflict", f"{path} is bound, being deleted, or another")
        annotations = {**pod["metadata"].get("annotations", {}), **metadata.get("annotations", {})}
        bound = {"metadata": {"annotations": annotations}, "spec": {"nodeName": call.body["target"]["name"]}}
        self.put(path, _merged(pod, bound))
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)


@asynccontextmanager
async def running(server: LocalApiServer, port: int = 0) -> AsyncIterator[LocalApiServer]:
    """Serve until the end of the block; what is still held or watched then is reset."""
    runner = web.ServerRunner(web.Server(server.answer, access_log=None), shutdown_timeout=0)  # type: ignore[arg-type]  # handlers take what the server makes
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.cut_watches()
        for rule in server._rules:
            rule.go.set()
        await runner.cleanup()


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Let the loop run until something is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in code that knows no event of ours
            await asyncio.sleep(0.002)


def client_of(server: LocalApiServer, token: str = "") -> KubeClient:
    """Return a client of that server; closed by ``async with``."""
    configuration = Configuration()
    configuration.host = server.url
    if token:
        configuration.api_key["authorization"] = token
    return KubeClient(configuration)


def pod_path(pod: JsonObject) -> str:
    """Return the path of a pod."""
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _lists_of(path: str) -> tuple[str, str]:
    """Return the paths that list objects like this one: in its namespace, and in all."""
    own = path.rpartition("/")[0]
    return own, re.sub(r"/namespaces/[^/]+", "", own)


def _selected(item: JsonObject, selector: str) -> bool:
    key, _, value = selector.partition("=")
    return not selector or item["metadata"].get("labels", {}).get(key) == value


def _merged(known: Any, patch: Any) -> Any:
    """Return what a merge patch makes of an object (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    known = known if isinstance(known, dict) else {}
    merged = {**known, **{key: _merged(known.get(key), value) for key, value in patch.items()}}
    return {key: value for key, value in merged.items() if value is not None}


def json_patched(known: Any, operations: list[JsonObject]) -> Any:
    """Return what a JSON patch (RFC 6902) of `test` and `remove` makes of an object, None where a test fails or a place is not there."""
    patched = deepcopy(known)
    for operation in operations:
        *way, last = [int(step) if step.isdigit() else step for step in operation["path"].split("/")[1:]]
        try:
            where = reduce(getitem, way, patched)
            found = where[last]
        except (KeyError, IndexError, TypeError):
            return None
        if operation["op"] == "remove":
            del where[last]
        elif found != operation["value"]:
            return None
    return patched


def _line(kind: str, item: JsonObject) -> bytes:
    return orjson.dumps({"type": kind, "object": item}) + b"\n"


def _status(code: int, reason: str, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}, status=code)


def _abort(request: web.BaseRequest) -> web.Response:
    """Reset the connection; the answer that aiohttp wants in return goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
