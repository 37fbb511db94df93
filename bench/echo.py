"""The floor of any Python extender: a bare ASGI app that reads the body and sends one of the same size back. Run by `bench.decision_latency`."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

from extender.server import listen, url_of

Message = dict[str, Any]


async def echo(scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
    """Answer every call with its own body."""
    if scope["type"] != "http":
        return
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    """Serve on a free port and print the URL."""
    import uvicorn

    listener = listen("127.0.0.1", 0)
    print(url_of(listener), flush=True)
    config = uvicorn.Config(echo, loop="uvloop", http="httptools", access_log=False, log_level="warning", lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    sys.exit(main())
