"""The HTTP protocol of uvicorn, with a shorter way for calls that are answered at once: no task, no event, no message is made for them.

`server` gives it to uvicorn in place of its own. A call of 5,000 names comes in several pieces; by the ordinary way each wakes a task that adds it to the body, which takes as long as the
decision itself. Here the pieces are kept until the last, the answer is written, and every other request, and every one that is unusual in any way (another method,
`Expect`, one that came before the answer to the last), goes the ordinary way. Built on uvicorn's HttpToolsProtocol, whose parser callbacks are overridden one by one.
"""

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from extender.calls import Calls, Reply, Route

_KEPT_OPEN: Final = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
_CLOSED: Final = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"


class DirectProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        assert isinstance(config.app, Calls)
        self._calls: Calls = config.app
        self._direct = {path.encode(): route for path, route in config.app.routes.items() if route.at_once is not None}
        self._route: Route | None = None  # of the request that is being read, where it goes the short way
        self._parts: list[bytes] = []
        self._size = 0
        self._ends = False  # after the request that is being read

    def on_headers_complete(self) -> None:
        """Choose the way."""
        route = self._direct.get(self.url)
        is_waiting = self.cycle is not None and not self.cycle.response_complete
        if route is None or is_waiting or self.expect_100_continue or self.parser.get_method() != b"POST" or self.parser.should_upgrade():
            self._route = None
            super().on_headers_complete()
        else:
            self._route, self._parts, self._size = route, [], 0

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        if self._route is None:
            super().on_body(body)
            return
        self._size += len(body)
        if self._size <= self._calls.most_body_bytes:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        """Answer."""
        route = self._route
        if route is None:
            super().on_message_complete()
            return
        parts, self._parts, self._route = self._parts, [], None
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        if self._size > self._calls.most_body_bytes:
            self._write(self._calls.too_large(route), stays=False)
            return
        self._write(self._calls.reply_at_once(route, body), stays=self.parser.should_keep_alive())

    def shutdown(self) -> None:
        """End the connection, after the request that is being read."""
        if self._route is None:
            super().shutdown()
        self._ends = True

    def _write(self, reply: Reply, *, stays: bool) -> None:
        stays = stays and not reply.close_connection and not self._ends
        head = [STATUS_LINE[reply.status]]
        for name, value in self.server_state.default_headers:
            head += [name, b": ", value, b"\r\n"]
        head.append((_KEPT_OPEN if stays else _CLOSED) % len(reply.body))
        self.transport.writelines((b"".join(head), reply.body))
        if not stays:
            self.transport.close()
        self.on_response_complete()
