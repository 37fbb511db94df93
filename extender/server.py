"""Serve an app over HTTP: uvicorn with uvloop and httptools, one process, one loop.

Called by `linkwise serve` and `linkwise demo`. Binds the socket itself, so that port 0 works and the address is announced only when calls are taken.
"""

import asyncio
import contextlib
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from extender.calls import Calls
from extender.direct_http import DirectProtocol
from topology.errors import InputError

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificate and key to show, and the authority whose clients are let in (None: any client)."""

    cert: Path
    key: Path
    client_ca: Path | None = None


def run(app: ASGIApp, host: str, port: int, announce: Callable[[str], None], tls: Tls | None = None) -> None:
    """Serve until a signal; raises InputError where the address cannot be taken."""
    listener = listen(host, port)
    server(app, announce, url_of(listener, tls), tls).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to that address; raises InputError with a sentence where it cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # ValueError: a name that IDNA cannot encode
        raise InputError(f"--host {host}: {getattr(error, 'strerror', None) or error}; accepted: an address of this machine") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InputError(f"--host {host} --port {port} cannot be listened on: {error.strerror or error}") from error
    return listener


def url_of(listener: socket.socket, tls: Tls | None = None) -> str:
    """Return the URL under which a listening socket is reached."""
    scheme = "http" if tls is None else "https"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def server(app: ASGIApp, announce: Callable[[str], None], url: str, tls: Tls | None = None) -> uvicorn.Server:
    """Return a server that announces its URL once it takes calls."""

    class _Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            announce(url)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            if self.force_exit:  # a second signal: uvicorn waits for no connection any more, and does not end what the app has begun, which would be told as a traceback
                await self.lifespan.shutdown()

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """End on a signal and return: uvicorn would raise it once more, and nothing that comes after the server (giving up the lease) would run."""
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            loop = asyncio.get_running_loop()
            for number in _ENDING:
                loop.add_signal_handler(number, self.handle_exit, number, None)
            try:
                yield
            finally:
                for number in _ENDING:
                    loop.remove_signal_handler(number)

    # kube-scheduler keeps its connections: close idle ones later than its 90 seconds, or its next call meets a reset.
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=DirectProtocol if isinstance(app, Calls) else "httptools",
        access_log=False,
        proxy_headers=False,
        log_level="warning",
        timeout_keep_alive=120,
        **_tls_options(tls),
    )
    return _Announcing(config)


def background_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server that runs beside another one: it handles no signals, set ``should_exit`` to end it."""

    class _Quiet(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return _Quiet(uvicorn.Config(app, access_log=False, log_level="warning"))


def _tls_options(tls: Tls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    options: dict[str, Any] = {"ssl_certfile": str(tls.cert), "ssl_keyfile": str(tls.key)}
    if tls.client_ca is not None:
        options |= {"ssl_ca_certs": str(tls.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options
