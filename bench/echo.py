"""The floor of any Python extender: a bare ASGI app that reads the body and sends the same bytes back.

Run by `bench.decision_latency` and `bench.nodes_form`. With `--names` it also reads the names of whole Node objects with a typed decoder (`bench.latency.typed_names`), and does nothing with them.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

from bench.latency.typed_names import typed_decoder
from extender.server import listen, url_of

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def echo(look: Callable[[bytes], object] | None = None) -> Callable[[Message, Receive, Send], Awaitable[None]]:
    """Return an app that answers every call with its own body, after ``look`` has looked at it."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        parts: list[bytes] = []
        more = True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        if look is not None:
            look(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def main() -> None:
    """Serve on a free port and print the URL."""
    import uvicorn

    listener = listen("127.0.0.1", 0)
    app = echo(typed_decoder().names if "--names" in sys.argv[1:] else None)
    listener.listen()  # whoever reads the URL may call at once
    print(url_of(listener), flush=True)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning", lifespan="off", timeout_keep_alive=120)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
