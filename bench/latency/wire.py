"""One kept HTTP connection over a raw socket, and the time from the first byte sent to the last byte received.

Used by everything here that measures. An HTTP library costs a client more than a good extender costs the server; what is timed here is one `sendall` and the fewest `recv`
that bring the answer. Headers are those of Go's client, as kube-scheduler sends them. Answers with Content-Length and chunked ones are read, which Go's servers send for
anything large; nothing else of HTTP is.
"""

import socket
import struct
import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from topology.errors import InputError, InternalError

_PATIENCE_S: Final = 120
_FIRST_BUFFER: Final = 1 << 20
_MOST_HEAD: Final = 8192
_HEAD_END: Final = b"\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer; ``seconds`` from the first byte sent to the last byte received."""

    seconds: float
    status: int
    body: bytes


class Connection:
    """A connection that is opened when it is first needed, and again after the server has closed it; opening is never part of the time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.hostname is None or parts.port is None:
            raise InputError(f"{url}: accepted: http://HOST:PORT, with or without a path")
        self._address = (parts.hostname, parts.port)
        self._prefix = parts.path.rstrip("/")
        self._host = parts.netloc
        self._socket: socket.socket | None = None
        self._buffer = memoryview(bytearray(_FIRST_BUFFER))

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def post(self, path: str, body: bytes) -> Answered:
        """Send a call and return its answer; raises InputError where nobody listens, InternalError where no answer comes."""
        head = (
            f"POST {self._prefix + path or '/'} HTTP/1.1\r\nHost: {self._host}\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        call = head.encode() + body
        connected = self._connected()
        started = time.perf_counter()
        try:
            connected.sendall(call)
            head_end, end = self._receive(connected)
        except OSError as error:
            raise InternalError(f"{self._host} did not answer: {error.strerror or error}") from error
        seconds = time.perf_counter() - started
        return self._answered(seconds, head_end, end)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            try:
                self._socket = socket.create_connection(self._address)
            except OSError as error:
                raise InputError(f"nothing answers on {self._host}: {error.strerror or error}") from error
            self._socket.settimeout(None)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as Go's client does
            # settimeout would cost a system call more for every receive.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _PATIENCE_S, 0))
        return self._socket

    def _receive(self, connected: socket.socket) -> tuple[int, int]:
        """Receive one answer into the buffer; returns where its head and where it ends."""
        end = 0
        while True:
            end += self._more(connected, end, 0)
            head_end = bytes(self._buffer[: min(end, _MOST_HEAD)]).find(_HEAD_END) + len(_HEAD_END)
            if head_end >= len(_HEAD_END):
                break
        length = _content_length(bytes(self._buffer[:head_end]))
        if length is None:
            while bytes(self._buffer[max(head_end, end - len(_LAST_CHUNK)) : end]) != _LAST_CHUNK:
                end += self._more(connected, end, 0)
            return head_end, end
        self._reserve(head_end + length)
        while end < head_end + length:
            end += self._more(connected, end, head_end + length)
        return head_end, end

    def _more(self, connected: socket.socket, at: int, until: int) -> int:
        """Receive more bytes to that place, all of those up to ``until`` at once where it is known (not 0)."""
        if at == len(self._buffer):
            self._reserve(2 * at)
        received = connected.recv_into(self._buffer[at : until or None], 0, socket.MSG_WAITALL if until else 0)
        if received == 0:
            raise InternalError(f"{self._host} closed the connection in the middle of an answer")
        return received

    def _reserve(self, size: int) -> None:
        if size > len(self._buffer):
            larger = memoryview(bytearray(size))
            larger[: len(self._buffer)] = self._buffer
            self._buffer = larger

    def _answered(self, seconds: float, head_end: int, end: int) -> Answered:
        head = bytes(self._buffer[:head_end]).lower()
        body = bytes(self._buffer[head_end:end])
        if b"connection: close" in head:
            self.close()
        return Answered(seconds, int(head.split(b" ", 2)[1]), _joined(body) if _content_length(head) is None else body)


def _content_length(head: bytes) -> int | None:
    """Return the length that a head tells, None where the body comes in chunks."""
    lowered = head.lower()
    at = lowered.find(b"\r\ncontent-length:")
    return None if at < 0 else int(lowered[at + 17 : lowered.index(b"\r\n", at + 17)])


def _joined(chunked: bytes) -> bytes:
    """Return the body that came in chunks; raises InternalError where they do not end with the last one."""
    parts: list[bytes] = []
    at = 0
    while True:
        line_end = chunked.find(b"\r\n", at)
        size = int(chunked[at:line_end].split(b";")[0] or b"x", 16) if line_end >= 0 else -1
        at = line_end + 2
        if size < 0 or at + size + 2 > len(chunked):
            raise InternalError("an answer in chunks breaks off")
        if size == 0:
            return b"".join(parts)
        parts.append(chunked[at : at + size])
        at += size + 2
