"""The way to the API server, disturbed on demand: lost calls, lost answers, late watches, no server at all.

`FaultProxy` listens on 127.0.0.1 (plain HTTP) and forwards to kube-apiserver with the caller's own token, so it has no rights of its own. A client
is led through it by its kubeconfig: `control_plane.kubeconfig("linkwise-extender", server=proxy.url)`. Clients in Go send no token over plain HTTP:
kubectl and kube-scheduler go straight to the API server.

It runs in a thread with an event loop; every public method may be called from the test's thread. A call passes in this order: log, faults before
forwarding, the API server, faults after, answer. The answer is read whole, except of a watch, whose bytes are passed on as they come.
"""

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
from aiohttp import web
from yarl import URL

from tests.e2e.fault_rules import Fault, Rule, Seen
from tests.e2e.program import free_port

T = TypeVar("T")

POLL_S = 0.02
ANY = ".*"
# Of one connection, not of the call (RFC 9110, 7.6.1); the body is sent anew with its own length.
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization", "content-length", "host"}


class FaultProxy:
    """A context manager: `with FaultProxy(control_plane.url, control_plane.certificate_authority) as proxy: ...`."""

    def __init__(self, upstream: str, certificate_authority: Path) -> None:
        self._upstream = upstream
        self._context = ssl.create_default_context(cafile=str(certificate_authority))
        self._port = free_port()
        self._rules: list[Rule] = []
        self._seen: list[Seen] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy")
        self._server: web.Server
        self._listener: asyncio.Server | None = None
        self._session: aiohttp.ClientSession
        self._watches: dict[asyncio.Task[None], tuple[str, web.BaseRequest]] = {}

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.clear()
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # Faults. Each returns its rule: `rule.wait_hit()`, `rule.release()`, `rule.remove()`, `rule.hits`.

    def delay(self, seconds: float, method: str = ANY, path: str = ANY, *, times: int | None = None) -> Rule:
        """Forward calls so much later, also when the caller has given up meanwhile: the late arrival of a lost call."""
        return self._add(Rule(Fault.DELAY, method, path, times=times, seconds=seconds))

    def hold(self, method: str = ANY, path: str = ANY, *, times: int | None = None) -> Rule:
        """Keep calls back until `rule.release()`, then forward them."""
        return self._add(Rule(Fault.HOLD, method, path, times=times))

    def drop(self, method: str = ANY, path: str = ANY, *, times: int | None = None) -> Rule:
        """Close the caller's connection; the API server never sees the call."""
        return self._add(Rule(Fault.DROP, method, path, times=times))

    def cut_after_send(self, method: str = ANY, path: str = ANY, *, times: int | None = None) -> Rule:
        """Forward calls, wait for the API server's answer, and close the caller's connection: it has happened, and the caller cannot know."""
        return self._add(Rule(Fault.CUT, method, path, times=times))

    def hold_answer(self, method: str = ANY, path: str = ANY, *, times: int | None = None) -> Rule:
        """Forward calls and keep their answers back until `rule.release()`: time to kill the caller between the two."""
        return self._add(Rule(Fault.HOLD_ANSWER, method, path, times=times))

    def answer(self, status: int, method: str = ANY, path: str = ANY, *, times: int | None = None, retry_after_s: int | None = None) -> Rule:
        """Answer calls with this status (500, 503, 429 ...) in the API server's place."""
        return self._add(Rule(Fault.ANSWER, method, path, times=times, status=status, retry_after_s=retry_after_s))

    def answer_after_send(self, status: int, method: str = ANY, path: str = ANY, *, times: int | None = None) -> Rule:
        """Forward calls, wait for the API server's answer, and answer with this status instead: an error that came after the deed."""
        return self._add(Rule(Fault.ANSWER_AFTER, method, path, times=times, status=status))

    def hold_watch_events(self, seconds: float, path: str = ANY) -> Rule:
        """Pass on what watches say so many seconds late, in order; `math.inf` until `rule.remove()`. Running watches are hit too."""
        return self._add(Rule(Fault.LAG, "GET", path, seconds=seconds))

    def cut_watches(self, path: str = ANY) -> int:
        """Close the connections of the watches that run now, and return how many. Held events on them are lost with them."""
        rule = Rule(Fault.DROP, "GET", path)
        return self._wait(self._cut(rule))

    def watches(self, path: str = ANY) -> int:
        """Return how many watches run now."""
        return self._wait(self._count(Rule(Fault.DROP, "GET", path)))

    def go_away(self) -> None:
        """Be an API server that is gone: close every connection, refuse new ones."""
        self._wait(self._stop_listening())

    def come_back(self) -> None:
        """Listen again, at the same address."""
        self._wait(self._listen())

    def clear(self) -> None:
        """Remove every rule: held calls go on."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.remove()

    def seen(self, method: str = ANY, path: str = ANY) -> list[Seen]:
        """Return the calls so far that match, oldest first."""
        rule = Rule(Fault.DELAY, method, path)
        with self._lock:
            return [call for call in self._seen if rule.matches(call.method, call.path)]

    # Inside: everything below runs in the loop's thread

    def _add(self, rule: Rule) -> Rule:
        with self._lock:
            self._rules.append(rule)
        return rule

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        # Bytes go through as they are: compressed answers stay compressed. No time-outs: time is what the rules are about.
        connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None))
        # Handlers are not cancelled when a caller goes away, as a call under way is not recalled either.
        self._server = web.Server(self._pass, access_log=None, handler_cancellation=False)
        await self._listen()

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await self._loop.create_server(self._server, "127.0.0.1", self._port, reuse_address=True)

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._cut(Rule(Fault.DROP, ANY, ANY))
        for connection in list(self._server.connections):
            _reset(connection.transport)

    async def _close(self) -> None:
        await self._stop_listening()
        await self._server.shutdown(1)
        await self._session.close()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for _ in range(5):  # a closed transport gives its socket back some turns of the loop later
            await asyncio.sleep(0)

    async def _count(self, rule: Rule) -> int:
        return sum(1 for path, _ in self._watches.values() if rule.matches("GET", path))

    async def _cut(self, rule: Rule) -> int:
        chosen = [(task, request) for task, (path, request) in self._watches.items() if rule.matches("GET", path)]
        for task, request in chosen:
            _abort(request)
            task.cancel()
        return len(chosen)

    async def _pass(self, request: web.BaseRequest) -> web.StreamResponse:
        """Take one call through all stages."""
        method, path = request.method, request.rel_url.raw_path
        body = await request.content.read()
        place = self._log(Seen(method, path, request.rel_url.raw_query_string, body, None))
        rules = self._take(method, path)
        for rule in rules:
            stopped = await _before(rule, request)
            if stopped is not None:
                return stopped
        try:
            async with self._forward(request, body) as upstream:
                self._log(Seen(method, path, request.rel_url.raw_query_string, body, upstream.status), place)
                if upstream.status == 200 and request.query.get("watch") in {"1", "true"}:
                    return await self._stream(upstream, request, path)
                content = await upstream.read()
        except (aiohttp.ClientError, ConnectionError):
            return _abort(request)
        for rule in rules:
            stopped = await _after(rule, request)
            if stopped is not None:
                return stopped
        return web.Response(status=upstream.status, headers=_passed_on(upstream.headers), body=content)

    def _log(self, call: Seen, place: int | None = None) -> int:
        with self._lock:
            if place is None:
                self._seen.append(call)
                return len(self._seen) - 1
            self._seen[place] = call
            return place

    def _take(self, method: str, path: str) -> list[Rule]:
        with self._lock:
            return [rule for rule in self._rules if rule.fault is not Fault.LAG and rule.take(method, path)]

    def _lag(self, path: str) -> float:
        with self._lock:
            return max((rule.seconds for rule in self._rules if rule.fault is Fault.LAG and rule.matches("GET", path)), default=0)

    @asynccontextmanager
    async def _forward(self, request: web.BaseRequest, body: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        url = URL(f"{self._upstream}{request.raw_path}", encoded=True)
        # aiohttp would add an Accept-Encoding of its own, which the caller may not understand.
        headers = {"Accept-Encoding": "identity", **_passed_on(request.headers)}
        async with self._session.request(request.method, url, headers=headers, data=body or None, allow_redirects=False) as upstream:
            try:
                yield upstream
            finally:
                # Not read to its end: a watch. Its orderly TLS end would outlive this loop.
                if upstream.connection is not None:
                    _reset(upstream.connection.transport)

    async def _stream(self, upstream: aiohttp.ClientResponse, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Pass on a watch until one of its sides ends, or `cut_watches`."""
        response = web.StreamResponse(status=upstream.status, headers=_passed_on(upstream.headers))
        await response.prepare(request)
        pump = self._loop.create_task(self._pump(upstream, response, request, path))
        self._watches[pump] = (path, request)
        try:
            await asyncio.wait([pump])
        finally:
            pump.cancel()
            del self._watches[pump]
        if pump.cancelled() or pump.exception() is not None:
            return _abort(request)
        await response.write_eof()
        return response

    async def _pump(self, upstream: aiohttp.ClientResponse, response: web.StreamResponse, request: web.BaseRequest, path: str) -> None:
        arrived: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        reader = self._loop.create_task(_read_chunks(upstream, arrived, self._loop.time))
        try:
            while _connected(request):
                try:
                    async with asyncio.timeout(0.5):
                        since, chunk = await arrived.get()
                except TimeoutError:  # a look at whether the caller is still there: an idle watch writes nothing that could fail
                    continue
                while self._loop.time() - since < self._lag(path):  # noqa: ASYNC110 - the rules live behind a thread's lock
                    await asyncio.sleep(POLL_S)
                if not chunk:
                    return
                await response.write(chunk)
            raise ConnectionResetError
        finally:
            reader.cancel()


async def _read_chunks(upstream: aiohttp.ClientResponse, arrived: "asyncio.Queue[tuple[float, bytes]]", now: Callable[[], float]) -> None:
    """Read on while chunks wait to be passed on: a late watch is not a slow one. An empty chunk is the end."""
    try:
        async for chunk in upstream.content.iter_any():
            arrived.put_nowait((now(), chunk))
    except (aiohttp.ClientError, ConnectionError):
        pass
    arrived.put_nowait((now(), b""))


async def _before(rule: Rule, request: web.BaseRequest) -> web.StreamResponse | None:
    """Play a fault of the way there; an answer ends the call."""
    if rule.fault in {Fault.HOLD_ANSWER, Fault.CUT, Fault.ANSWER_AFTER}:
        return None
    rule.hit()
    if rule.fault is Fault.DELAY:
        await asyncio.sleep(rule.seconds)
    elif rule.fault is Fault.HOLD:
        await _released(rule)
    elif rule.fault is Fault.DROP:
        return _abort(request)
    elif rule.fault is Fault.ANSWER:
        return _refusal(rule)
    return None


async def _after(rule: Rule, request: web.BaseRequest) -> web.StreamResponse | None:
    """Play a fault of the way back; an answer ends the call."""
    if rule.fault is Fault.HOLD_ANSWER:
        rule.hit()
        await _released(rule)
    elif rule.fault is Fault.CUT:
        rule.hit()
        return _abort(request)
    elif rule.fault is Fault.ANSWER_AFTER:
        rule.hit()
        return _refusal(rule)
    return None


async def _released(rule: Rule) -> None:
    while not rule.released:  # noqa: ASYNC110 - released by another thread
        await asyncio.sleep(POLL_S)


def _refusal(rule: Rule) -> web.Response:
    """Answer as the API server words its own failures."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "refused by the fault injector",
        "code": rule.status,
    }
    headers = {} if rule.retry_after_s is None else {"Retry-After": str(rule.retry_after_s)}
    return web.json_response(status, status=rule.status, headers=headers)


def _abort(request: web.BaseRequest) -> web.Response:
    """Reset the caller's connection; the answer that aiohttp wants in return goes nowhere."""
    _reset(request.transport)
    return web.Response()


def _reset(transport: asyncio.Transport | None) -> None:
    """Close a connection with RST: an orderly end would look like the end of an answer to some clients."""
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _connected(request: web.BaseRequest) -> bool:
    return request.transport is not None and not request.transport.is_closing()


def _passed_on(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}
