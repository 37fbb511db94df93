"""Connections that are kept: which one a request takes, when another is opened, and what an answer, or none, makes of it."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.kube import connections
from extender.kube.connections import MOST, Connections, Reply, TooLateError

REQUEST = b"POST /binding HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
OK = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
LAST = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"

Answer = Callable[[int], Awaitable[bytes]]  # to the request of that number, counted from 0; empty: the connection is closed


@dataclass
class Peer:
    """A server that answers as a test says, and counts."""

    answer: Answer
    opened: int = 0
    requests: int = 0
    open: int = 0
    most_open: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened, self.open = self.opened + 1, self.open + 1
        self.most_open = max(self.most_open, self.open)
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"Content-Length: (\d+)", head)
                assert length is not None
                await reader.readexactly(int(length[1]))
                number, self.requests = self.requests, self.requests + 1
                answer = await self.answer(number)
                if not answer:
                    return
                writer.write(answer)
                if answer == LAST:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.open -= 1
            writer.close()


async def at_once(number: int) -> bytes:
    return OK


@asynccontextmanager
async def peer(answer: Answer = at_once) -> AsyncIterator[tuple[Peer, Connections]]:
    """Run a server and connections to it."""
    served = Peer(answer)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    kept = Connections(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", None)
    try:
        yield served, kept
    finally:
        kept.close()
        for writer in served.writers:
            writer.close()
        server.close()
        await server.wait_closed()


def ask(kept: Connections) -> Awaitable[Reply]:
    return kept.ask(REQUEST, lambda: True)


async def test_one_after_the_other_goes_over_one_connection() -> None:
    async with peer() as (served, kept):
        for _ in range(5):
            assert await ask(kept) == Reply(201, b"{}")
    assert (served.opened, served.requests) == (1, 5)


async def test_many_at_once_open_no_more_than_the_most_and_all_are_answered() -> None:
    gate = asyncio.Event()

    async def answer(number: int) -> bytes:
        if number == MOST - 1:
            gate.set()
        await gate.wait()
        return OK

    async with peer(answer) as (served, kept):
        replies = await asyncio.gather(*(ask(kept) for _ in range(3 * MOST)))
    assert len(replies) == 3 * MOST
    assert served.most_open == MOST


async def test_the_one_used_last_is_taken_first_so_that_the_others_may_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.05)
    async with peer() as (served, kept):
        await asyncio.gather(ask(kept), ask(kept), ask(kept))
        assert served.open == served.opened
        while served.open > 1:
            await ask(kept)
        assert served.opened == served.most_open, "none had to be opened again"


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(b"", id="closed without an answer"),
        pytest.param(b"no HTTP at all\r\n\r\n", id="no HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", id="an answer that cannot be read"),
    ],
)
async def test_without_an_answer_it_is_an_error_and_nothing_is_sent_again(second: bytes) -> None:
    async def answer(number: int) -> bytes:
        return second if number == 1 else OK

    async with peer(answer) as (served, kept):
        await ask(kept)
        with pytest.raises(ConnectionError):
            await ask(kept)
        assert served.requests == 2
        assert (await ask(kept)).status == 201
    assert (served.opened, served.requests) == (2, 3)


async def test_a_server_that_says_close_is_believed() -> None:
    async def answer(number: int) -> bytes:
        return LAST

    async with peer(answer) as (served, kept):
        assert [(await ask(kept)).status for _ in range(3)] == [201] * 3
    assert served.opened == 3


async def test_a_connection_that_was_closed_while_idle_is_replaced() -> None:
    async with peer() as (served, kept):
        await ask(kept)
        served.writers[0].close()
        async with asyncio.timeout(5):
            while kept._idle[0].usable:  # noqa: ASYNC110 - until this side has heard of it
                await asyncio.sleep(0)
        assert (await ask(kept)).status == 201
    assert served.opened == 2


async def test_who_gives_up_takes_the_connection_along_and_leaves_room_for_the_next() -> None:
    async def answer(number: int) -> bytes:
        if number == 0:
            await asyncio.Event().wait()
        return OK

    async with peer(answer) as (served, kept):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await ask(kept)
        assert (await ask(kept)).status == 201
        assert (served.opened, kept._open) == (2, 1)


async def test_who_gives_up_while_waiting_for_a_connection_keeps_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 1)
    gate = asyncio.Event()

    async def answer(number: int) -> bytes:
        await gate.wait()
        return OK

    async with peer(answer) as (_, kept):
        tasks = [asyncio.create_task(ask(kept)) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[2].cancel()
        gate.set()
        replies = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(reply, "status", type(reply)) for reply in replies] == [201, asyncio.CancelledError, asyncio.CancelledError, 201]


async def test_what_may_not_leave_any_more_never_does_and_costs_no_connection() -> None:
    async with peer() as (served, kept):
        await ask(kept)
        with pytest.raises(TooLateError, match="too late"):
            await kept.ask(REQUEST, lambda: False)
        await ask(kept)
    assert (served.opened, served.requests) == (1, 2)


async def test_a_server_that_is_not_there_is_told_by_its_address() -> None:
    async with peer() as (_, kept):
        pass
    with pytest.raises(ConnectionError, match=r"Cannot connect to host 127\.0\.0\.1:\d+: .*Errno 111"):
        await ask(kept)
    assert kept._open == 0


async def test_a_name_without_an_address_is_an_error_like_any_other() -> None:
    with pytest.raises(OSError, match=r"."):
        await Connections("http://no-such-host.invalid", None).ask(REQUEST, lambda: True)


@given(st.lists(st.tuples(st.integers(200, 599), st.binary(max_size=40)), min_size=1, max_size=4), st.data())
def test_answers_are_read_the_same_however_they_are_cut(answers: list[tuple[int, bytes]], data: st.DataObject) -> None:
    """A body of known length, one in chunks, or one after a word that another answer follows: what arrives is cut anywhere."""
    texts = [written(status, body, data.draw(st.sampled_from(["length", "chunks", "continue"]))) for status, body in answers]
    cuts = [sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4))) for text in texts]

    async def run() -> list[Reply]:
        replies = []
        connection = connections._Connection()
        connection.connection_made(Sink())
        for text, cut in zip(texts, cuts, strict=True):
            asking = asyncio.create_task(connection.ask(REQUEST, lambda: True))
            await asyncio.sleep(0)
            for begin, end in pairwise([0, *cut, len(text)]):
                connection.data_received(text[begin:end])
            replies.append(await asking)
        return replies

    empty = {204, 304}  # have no body, whatever their headers say
    assert asyncio.run(run()) == [Reply(status, b"" if status in empty else body) for status, body in answers]


def written(status: int, body: bytes, how: str) -> bytes:
    if status in (204, 304):
        return f"HTTP/1.1 {status} X\r\n\r\n".encode()
    if how == "chunks":
        chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n" if body else b""
        return f"HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + chunk + b"0\r\n\r\n"
    before = b"HTTP/1.1 100 Continue\r\n\r\n" if how == "continue" else b""
    return before + f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Sink(asyncio.Transport):
    """Takes everything and is always open."""

    def write(self, data: object) -> None:
        pass

    def is_closing(self) -> bool:
        return False
