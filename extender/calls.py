"""What surrounds every call of kube-scheduler: reading the body, time, counts, and errors as sentences.

`app.make_app` puts this before the web framework: a call for one of the verbs is answered here, raw ASGI without routing, middleware or models, because at 5,000 nodes
reading and writing names is most of the work already. Everything else goes on to the framework. What is answered is `verbs`' business.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from extender import log_keys
from extender.metrics import Metrics
from extender.protocol import error_answer
from topology.errors import ApiServerError, CallError

_log = structlog.get_logger()
_NOT_A_POST: Final = "accepted: POST"

Answer = Callable[[bytes], Awaitable[bytes]]


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
    """Who answers a path."""

    verb: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class _Reply:
    body: bytes
    outcome: str  # as it is counted
    status: int = 200
    close_connection: bool = False


class _GoneError(Exception):
    """The caller has hung up before its body was complete."""


class Calls:
    """An ASGI app: the verbs by path, and another app for every other path."""

    def __init__(self, routes: Mapping[str, Route], others: ASGIApp, metrics: Metrics, gate: Gate, most_body_bytes: int) -> None:
        self._routes = routes
        self._others = others
        self._metrics = metrics
        self._gate = gate
        self._most = most_body_bytes
        self._seconds = {route.verb: metrics.call_seconds.labels(route.verb) for route in routes.values()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        route = self._routes.get(scope["path"]) if scope["type"] == "http" else None
        if route is None:
            await self._others(scope, receive, send)
        elif scope["method"] != "POST":
            await _send(send, _Reply(error_answer(_NOT_A_POST), "no call", status=405))
        else:
            await self._answer(route, receive, send)

    async def _answer(self, route: Route, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        try:
            reply = await self._reply(route, receive)
        except _GoneError:
            return
        await _send(send, reply)
        self._seconds[route.verb].observe(time.perf_counter() - started)
        self._metrics.calls.labels(route.verb, reply.outcome).inc()

    async def _reply(self, route: Route, receive: Receive) -> _Reply:
        closed = self._gate.closed()
        if closed is not None:
            return _Reply(error_answer(closed.sentence), "closed", close_connection=closed.close_connection)
        verb = route.verb
        try:
            # Binds overlap, so each would leave kube-scheduler one more idle connection. Should this process be stopped in mid-air, a call on any of
            # them would wait for the whole httpTimeout, one after the other, long after another replica leads.
            return _Reply(await route.answer(await self._body(receive)), "answered", close_connection=verb == "bind")
        except CallError as error:
            return _Reply(error_answer(str(error)), "no call", status=400)
        except ApiServerError as error:
            return _Reply(error_answer(str(error)), "no api server")
        except _GoneError:
            raise
        except Exception:  # noqa: BLE001 - whatever the bug, kube-scheduler gets an answer that it understands
            _log.exception("call failed, please report", **{log_keys.VERB: verb})
            sentence = f"Linkwise could not answer this {verb} call because of a bug of its own; its log says more"
            # An empty list is the only way to say nothing in prioritize: it has no field for errors.
            return _Reply(b"[]" if verb == "prioritize" else error_answer(sentence), "bug")

    async def _body(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        is_more = True
        while is_more:
            message = await receive()
            if message["type"] != "http.request":
                raise _GoneError
            part = message.get("body", b"")
            size += len(part)
            if size > self._most:
                raise CallError(f"the body is larger than {self._most} bytes")
            parts.append(part)
            is_more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)


async def _send(send: Send, reply: _Reply) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(reply.body)).encode())]
    if reply.close_connection:
        headers.append((b"connection", b"close"))
    if reply.status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
