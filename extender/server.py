"""Serve an app over HTTP: uvicorn with uvloop and httptools, one process, one loop.

Called by `linkwise serve` and `linkwise demo`. Binds the socket itself, so that port 0 works and the address is announced only when calls are taken.
"""

import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from topology.errors import InputError


def run(app: FastAPI, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until a signal; raises InputError where the address cannot be taken."""
    listener = listen(host, port)
    server(app, announce, url_of(listener)).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to that address; raises InputError with a sentence where it cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(f"--host {host}: {error.strerror or error}; accepted: an address of this machine") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InputError(f"--host {host} --port {port} cannot be listened on: {error.strerror or error}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL under which a listening socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server(app: FastAPI, announce: Callable[[str], None], url: str) -> uvicorn.Server:
    """Return a server that announces its URL once it takes calls."""

    class _Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            announce(url)

    # kube-scheduler keeps its connections: close idle ones later than its 90 seconds, or its next call meets a reset.
    config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning", timeout_keep_alive=120)
    return _Announcing(config)
