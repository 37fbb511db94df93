"""On a socket the short way answers what the ordinary one answers: in pieces, one after the other, pipelined, with and without a connection that stays."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route as WebRoute

from extender.calls import Calls, OpenGate, Route
from extender.metrics import Metrics
from extender.server import listen, server, url_of

MOST = 1_000_000


async def later(body: bytes) -> bytes:
    return body + body


async def web(_: object) -> PlainTextResponse:
    return PlainTextResponse("the framework")


@contextmanager
def serving() -> Iterator[tuple[tuple[str, int], uvicorn.Server]]:
    """Run a server whose filter turns the body around, and whose bind says it twice."""
    routes = {"/filter": Route("filter", at_once=lambda body: body[::-1]), "/bind": Route("bind", later=later)}
    app = Calls(routes, Starlette(routes=[WebRoute("/healthz", web)]), Metrics(), OpenGate(), MOST)
    listener, ready = listen("127.0.0.1", 0), threading.Event()
    served = server(app, lambda _: ready.set(), url_of(listener))
    thread = threading.Thread(target=served.run, kwargs={"sockets": [listener]})
    thread.start()
    assert ready.wait(10)
    yield listener.getsockname()[:2], served
    served.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """Where such a server listens."""
    with serving() as (address, _):
        yield address


def request(path: str, body: bytes, *headers: str, method: str = "POST", version: str = "1.1") -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "Host: extender", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Caller:
    """One connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=10)
        self._unread = b""

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.socket.sendall(piece)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        while b"\r\n\r\n" not in self._unread:
            self._read()
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers["content-length"])
        while len(self._unread) < size:
            self._read()
        body, self._unread = self._unread[:size], self._unread[size:]
        return int(first.split()[1]), headers, body

    def is_closed(self) -> bool:
        return not self._unread and self.socket.recv(1) == b""

    def _read(self) -> None:
        found = self.socket.recv(1 << 20)
        assert found, "the server closed the connection"
        self._unread += found


@pytest.fixture
def caller(address: tuple[str, int]) -> Iterator[Caller]:
    """A connection to it."""
    made = Caller(address)
    with made.socket:
        yield made


def test_calls_one_after_the_other_are_answered_over_one_connection(caller: Caller):
    for body in (b"", b"ab", b"x" * 300_000 + b"y"):
        caller.send(request("/filter", body))
        status, headers, answer = caller.answer()
        assert (status, headers["content-type"], answer) == (200, "application/json", body[::-1])


def test_a_call_in_many_pieces_is_read_whole(caller: Caller):
    whole = request("/filter", bytes(range(256)) * 40)
    caller.send(*(whole[at : at + 100] for at in range(0, len(whole), 100)))
    assert caller.answer()[2] == (bytes(range(256)) * 40)[::-1]


def test_pipelined_calls_are_answered_in_their_order_whatever_way_they_go(caller: Caller):
    caller.send(request("/filter", b"ab") + request("/healthz", b"", method="GET") + request("/filter", b"cd") + request("/filter", b"ef"))
    assert [caller.answer()[2] for _ in range(4)] == [b"ba", b"the framework", b"dc", b"fe"]


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(request("/filter", b"ab", "Connection: close"), id="as the caller asks"),
        pytest.param(request("/filter", b"ab", version="1.0"), id="in HTTP 1.0"),
    ],
)
def test_a_connection_ends_after_the_answer(caller: Caller, asked: bytes):
    caller.send(asked)
    status, headers, answer = caller.answer()
    assert (status, headers["connection"], answer) == (200, "close", b"ba")
    assert caller.is_closed()


def test_a_caller_that_waits_to_be_told_to_go_on_is_told(caller: Caller):
    """Expect goes the ordinary way."""
    head, body = request("/filter", b"ab", "Expect: 100-continue").split(b"\r\n\r\n")
    caller.send(head + b"\r\n\r\n")
    assert caller.socket.recv(100).startswith(b"HTTP/1.1 100 Continue")
    caller.send(body)
    assert caller.answer()[2] == b"ba"


def test_too_large_a_body_is_refused_and_the_connection_closed(caller: Caller):
    caller.send(request("/filter", b"x" * (MOST + 1)))
    status, _, answer = caller.answer()
    assert (status, answer) == (400, b'{"Error":"the body is larger than 1000000 bytes"}')
    assert caller.is_closed()


@pytest.mark.parametrize(
    ("asked", "status", "answer"),
    [
        pytest.param(request("/bind", b"ab"), 200, b"abab", id="a verb that waits"),
        pytest.param(request("/healthz", b"", method="GET"), 200, b"the framework", id="a path that is no verb"),
        pytest.param(request("/filter", b"", method="GET"), 405, b'{"Error":"accepted: POST"}', id="a verb that is not posted"),
        pytest.param(request("/filter?x=1", b"ab"), 200, b"ba", id="a verb with a query"),
    ],
)
def test_what_is_no_call_that_is_answered_at_once_goes_the_ordinary_way(caller: Caller, asked: bytes, status: int, answer: bytes):
    caller.send(asked)
    found = caller.answer()
    assert (found[0], found[2]) == (status, answer)


def test_what_is_no_http_is_refused(caller: Caller):
    caller.send(b"no http at all\r\n\r\n")
    assert caller.answer()[0] == 400


def test_a_server_that_ends_answers_what_is_being_read_and_closes():
    with serving() as (address, server):
        caller, idle = Caller(address), Caller(address)
        with caller.socket, idle.socket:
            whole = request("/filter", b"x" * 100)
            idle.send(request("/filter", b"ab"))
            idle.answer()
            caller.send(whole[:-50])
            server.should_exit = True
            assert idle.is_closed()
            caller.send(whole[-50:])
            status, headers, answer = caller.answer()
            assert (status, headers["connection"], answer) == (200, "close", b"x" * 100)
