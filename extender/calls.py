"""What surrounds every call of kube-scheduler: reading the body, time, counts, and errors as sentences.

`app.make_app` puts this before the web framework: a call for one of the verbs is answered here, raw ASGI without routing, middleware or models, because at 5,000 nodes
reading and writing names is most of the work already. Everything else goes on to the framework. What is answered is `verbs`' business.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import structlog
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from extender import log_keys
from extender.metrics import Metrics
from extender.protocol import error_answer
from topology.errors import ApiServerError, CallError

_log = structlog.get_logger()
GPUSHARE_PREFIX: Final = "/gpushare-scheduler"  # where configurations point that were written for gpushare's extender
_NOT_A_POST: Final = "accepted: POST"

Answer = Callable[[bytes], bytes]
LaterAnswer = Callable[[bytes], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Closed:
    """Why a call must not be answered; a replica that does not lead also closes the connection, so that the next call finds the leader."""

    sentence: str
    close_connection: bool = False


class Gate(Protocol):
    """When calls may be answered."""

    def closed(self) -> Closed | None:
        """Return why a call must not be answered now, None where it may."""
        ...

    def unready(self) -> str:
        """Return why this process is not ready, empty where it is."""
        ...


class OpenGate:
    """The gate of a snapshot: its state is always synced, and nobody else serves it."""

    def closed(self) -> Closed | None:
        """Let every call in."""
        return None

    def unready(self) -> str:
        """Be ready."""
        return ""


@dataclass(frozen=True, slots=True)
class Route:
    """Who answers a path: ``at_once``, or ``later`` where the verb waits for somebody."""

    verb: str
    at_once: Answer | None = None
    later: LaterAnswer | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back; ``outcome`` is how it is counted."""

    body: bytes
    outcome: str = "answered"
    status: int = 200
    close_connection: bool = False


class Calls:
    """An ASGI app: the verbs by path, and another app for every other path."""

    def __init__(self, routes: Mapping[str, Route], others: Starlette, metrics: Metrics, gate: Gate, most_body_bytes: int) -> None:
        self.routes = routes
        self.most_body_bytes = most_body_bytes
        self.others = others
        self._metrics = metrics
        self._gate = gate
        self._seconds = {route.verb: metrics.call_seconds.labels(route.verb) for route in routes.values()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        route = self.routes.get(scope["path"]) if scope["type"] == "http" else None
        if route is None:
            await self.others(scope, receive, send)
        elif scope["method"] != "POST":
            await _send(send, Reply(error_answer(_NOT_A_POST), status=405))
        else:
            await self._answer(route, receive, send)

    def reply_at_once(self, route: Route, body: bytes) -> Reply:
        """Answer a call of a verb that waits for nobody, and count it."""
        assert route.at_once is not None
        started = time.perf_counter()
        try:
            reply = self._closed() or Reply(route.at_once(body))
        except Exception as error:  # noqa: BLE001 - `_failed` logs what is none of a call's own errors
            reply = _failed(route.verb, error)
        self._count(route, reply, started)
        return reply

    def too_large(self, route: Route) -> Reply:
        """Refuse a call whose body is larger than is read."""
        reply = _failed(route.verb, CallError(f"the body is larger than {self.most_body_bytes} bytes"))
        self._count(route, reply, time.perf_counter())
        return reply

    async def _answer(self, route: Route, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        try:
            body = await self._body(receive)
            if body is None:
                return
        except CallError as error:
            reply = _failed(route.verb, error)
        else:
            if route.later is None:
                await _send(send, self.reply_at_once(route, body))
                return
            reply = await self._reply_later(route.later, route.verb, body)
        await _send(send, reply)
        self._count(route, reply, started)

    async def _reply_later(self, answer: LaterAnswer, verb: str, body: bytes) -> Reply:
        try:
            # Binds overlap, so each would leave kube-scheduler one more idle connection. Should this process be stopped in mid-air, a call on any of
            # them would wait for the whole httpTimeout, one after the other, long after another replica leads.
            return self._closed() or Reply(await answer(body), close_connection=True)
        except Exception as error:  # noqa: BLE001 - as above
            return _failed(verb, error)

    def _closed(self) -> Reply | None:
        closed = self._gate.closed()
        return None if closed is None else Reply(error_answer(closed.sentence), "closed", close_connection=closed.close_connection)

    def _count(self, route: Route, reply: Reply, started: float) -> None:
        self._seconds[route.verb].observe(time.perf_counter() - started)
        self._metrics.calls.labels(route.verb, reply.outcome).inc()

    async def _body(self, receive: Receive) -> bytes | None:
        """Return the whole body, None where the caller hung up before it was complete."""
        parts: list[bytes] = []
        size = 0
        is_more = True
        while is_more:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message.get("body", b"")
            size += len(part)
            if size > self.most_body_bytes:
                raise CallError(f"the body is larger than {self.most_body_bytes} bytes")
            parts.append(part)
            is_more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _failed(verb: str, error: Exception) -> Reply:
    """Return what a caller is told of the exception that is being handled: whatever the bug, kube-scheduler gets an answer that it understands."""
    if isinstance(error, CallError):
        return Reply(error_answer(str(error)), "no call", status=400)
    if isinstance(error, ApiServerError):
        return Reply(error_answer(str(error)), "no api server")
    _log.exception("call failed, please report", **{log_keys.VERB: verb})
    sentence = f"Linkwise could not answer this {verb} call because of a bug of its own; its log says more"
    # An empty list is the only way to say nothing in prioritize: it has no field for errors.
    return Reply(b"[]" if verb == "prioritize" else error_answer(sentence), "bug")


async def _send(send: Send, reply: Reply) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(reply.body)).encode())]
    if reply.close_connection:
        headers.append((b"connection", b"close"))
    if reply.status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
