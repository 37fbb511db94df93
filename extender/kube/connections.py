"""Kept connections for bindings: one request, one answer, and next to no work around it.

Behind `client.KubeClient.post`. A general client costs 0.6 ms of processor a Binding (measured: a fifth of all that a pod costs the extender), most of it for what a Binding
never has: redirects, cookies, compression, streaming. Left out, on purpose: whatever tries again. A request goes out once, on a connection that is open, and what becomes of it is an
answer or `ConnectionError`. The most recently used connection is taken first, so that few are open when few are needed; each open one has cost both sides a TLS handshake.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

from extender.kube.sockets import make_socket

# Open at a time; more bindings than that wait for one. Enough for 500 a second at 30 ms each; opening one costs kube-apiserver 2 ms, as much as half a binding.
MOST: Final = 16
# kube-apiserver closes idle connections after 90 s: a request that crosses such a close would stay without an answer.
IDLE_S: Final = 60.0
_INFORMATIONAL: Final = 200  # statuses below announce another answer


class TooLateError(ConnectionError):
    """It may not be sent any more; nothing has left."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer's status and body."""

    status: int
    body: bytes


class Connections:
    """Connections to one server; ``url`` is its scheme, host and port, ``trusted`` None for plain HTTP."""

    def __init__(self, url: str, trusted: ssl.SSLContext | None) -> None:
        where = urlsplit(url)
        self._host = where.hostname or ""
        self._trusted = trusted if where.scheme == "https" else None
        self._port = where.port or (80 if self._trusted is None else 443)
        self._idle: list[_Connection] = []
        self._open = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def ask(self, request: bytes, may_leave: Callable[[], bool]) -> Reply:
        """Send the bytes of a request and return its answer.

        ``may_leave`` is asked at the last moment before they go: False raises TooLateError. Raises ConnectionError or another OSError where there is no answer; a caller that is cancelled,
        or whose time is up, takes the connection with it, so that nothing of the request is delivered later.
        """
        connection = await self._take()
        try:
            reply = await connection.ask(request, may_leave)
        finally:
            self._give_back(connection)
        return reply

    def close(self) -> None:
        """Close all that are idle; those in use end when they are given back."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in self._idle:
            connection.drop()
        self._idle.clear()

    async def _take(self) -> "_Connection":
        while True:
            while self._idle:
                connection = self._idle.pop()
                if connection.usable:
                    return connection
                self._open -= 1
            if self._open < MOST:
                return await self._opened()
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()  # it was this one's turn, and now it is the next one's
                raise
            finally:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(turn)

    async def _opened(self) -> "_Connection":
        self._open += 1
        try:
            return await self._connect()
        except BaseException:
            self._open -= 1
            self._wake()
            raise

    async def _connect(self) -> "_Connection":
        """Connect to the first address that takes it; raises OSError with every address's reason."""
        loop = asyncio.get_running_loop()
        reasons: list[str] = []
        for *made_of, _, address in await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM):
            made = make_socket(tuple(made_of))
            made.setblocking(False)
            try:
                await loop.sock_connect(made, address)
                name = self._host if self._trusted is not None else None
                return (await loop.create_connection(_Connection, sock=made, ssl=self._trusted, server_hostname=name))[1]
            except OSError as error:
                made.close()
                reasons.append(str(error))
            except BaseException:
                made.close()
                raise
        raise ConnectionError(f"Cannot connect to host {self._host}:{self._port}: {'; '.join(reasons) or 'it has no address'}")

    def _give_back(self, connection: "_Connection") -> None:
        if connection.usable and not self._closed:
            self._idle.append(connection)
            self._sweep_later()
        else:
            connection.drop()
            self._open -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE_S, self._sweep)

    def _sweep(self) -> None:
        """Close connections that nobody has used for long."""
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        kept = [connection for connection in self._idle if connection.usable and now - connection.used_at < IDLE_S]
        for connection in self._idle:
            if connection not in kept:
                connection.drop()
                self._open -= 1
        self._idle = kept
        if kept:
            self._sweep_later()


class _Connection(asyncio.Protocol):
    """One connection, one request at a time. The callbacks are httptools' and asyncio's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._reply: asyncio.Future[Reply] | None = None
        self._body: list[bytes] = []
        self.used_at = self._loop.time()

    @property
    def usable(self) -> bool:
        """Whether another request may go out on it: open, and nothing is awaited."""
        return self._transport is not None and not self._transport.is_closing() and self._reply is None

    async def ask(self, request: bytes, may_leave: Callable[[], bool]) -> Reply:
        """Send a request and wait for its answer."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the server has closed the connection")
        if not may_leave():
            raise TooLateError("it was too late to send it")
        self._reply = self._loop.create_future()
        self._transport.write(request)
        reply = await self._reply  # not cleared in a finally: who gives up leaves an answer outstanding, and nobody may use the connection again
        self._reply = None
        self.used_at = self._loop.time()
        return reply

    def drop(self) -> None:
        """End it at once, with whatever has not been delivered."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what to write to."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of that class

    def data_received(self, data: bytes) -> None:
        """Read on."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the answer is no HTTP: {error}"))
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits that no answer will come."""
        self._transport = None
        self._fail(exc if isinstance(exc, OSError) else ConnectionResetError("the server closed the connection before its answer"))

    # httptools

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Hand the answer over."""
        status, body = self._parser.get_status_code(), b"".join(self._body)
        self._body.clear()
        if status < _INFORMATIONAL:
            return
        if not self._parser.should_keep_alive() and self._transport is not None:
            self._transport.close()
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(Reply(status, body))

    def _fail(self, error: Exception) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)
