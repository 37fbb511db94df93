"""Raw requests to the API server: bytes of JSON in and out, status codes as they are, authentication by the official client.

Used by everything in this package. Configuration and credentials (kubeconfig, in-cluster token with refresh) are the official client's; requests go
through one aiohttp session, because its API classes decode every object into models, which the hot path cannot pay.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp
import orjson
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from yaml import YAMLError

from extender.kube.connections import Connections
from extender.kube.sockets import make_socket
from topology.errors import ApiServerError, InputError

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_CONNECTIONS: Final = 64
_USER_AGENT: Final = "linkwise"  # field managers are named after it
_READ_BUFFER: Final = 2 * 1024 * 1024  # a line may be twice that; etcd holds objects of up to 1.5 MiB
# The last: a token that cannot be read.
_NO_ANSWER: Final = (aiohttp.ClientError, TimeoutError, OSError, ConfigException)


class NoAnswerError(ApiServerError):
    """The API server gave no answer: refused, reset, timed out. What was sent may have taken effect."""


class ApiRefusedError(ApiServerError):
    """The API server answered with an error status; ``reason`` is the Status object's, for example `AlreadyExists`."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Body:
    """What a request carries: an object and the media type that says how it is meant."""

    value: Any
    content_type: str = JSON


class KubeClient:
    """One session with one API server; use as ``async with await KubeClient.connect(...)``."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._host = configuration.host.rstrip("/")
        trusted = RESTClientObject(configuration).ssl_context
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=trusted, socket_factory=make_socket)
        self._session = aiohttp.ClientSession(connector=connector, read_bufsize=_READ_BUFFER)
        where = urlsplit(self._host)
        self._connections = Connections(self._host, trusted)
        self._server = where.netloc.rpartition("@")[2]
        self._below = where.path  # a proxy may serve the API below a path

    @staticmethod
    async def connect(kubeconfig: Path | None = None, context: str | None = None) -> "KubeClient":
        """Return a client by kubeconfig, or by the pod's own account where there is none; raises InputError with a sentence."""
        configuration = Configuration()
        in_cluster = kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ
        files = str(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config")
        where = "the pod's service account" if in_cluster else f"kubeconfig {files}"
        if not in_cluster and not _any_exists(files):
            raise InputError(f"{where} cannot be used: no such file; accepted: --kubeconfig FILE, or a pod with a service account")
        try:
            if in_cluster:
                load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # the official client has no types here
            else:
                file = None if kubeconfig is None else str(kubeconfig)
                await load_kube_config(file, context, configuration, persist_config=False)  # type: ignore[no-untyped-call]  # as above
            return KubeClient(configuration)
        # What a damaged file makes of the client differs by the damage: its own error, YAML's, a missing key, a certificate that is none.
        except (ConfigException, YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            what = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"{where} cannot be used: {what}; accepted: --kubeconfig FILE, or a pod with a service account") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        self._connections.close()
        await self._session.close()

    async def request(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Body | None = None, timeout_s: float = 30.0) -> Any:
        """Send one request and return the decoded answer.

        Raises ApiRefusedError for any status of 300 and above, NoAnswerError where there was no answer. A POST or PATCH is sent once, whatever happens; a
        GET or PUT whose kept connection turns out to be closed is sent again by aiohttp, on a new one.
        """
        answer = await self.raw(method, path, query, body, timeout_s)
        return orjson.loads(answer)

    async def raw(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Body | None = None, timeout_s: float = 30.0) -> bytes:
        """Send one request and return the bytes of the answer; raises as `request` does."""
        data = None if body is None else orjson.dumps(body.value)
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            headers = await self._headers(body)
            async with self._session.request(
                method, self._host + path, params=query, data=data, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                answer = await response.read()
        except _NO_ANSWER as error:
            raise NoAnswerError(f"{method} {path}: {_why(error)}") from error
        _check(method, path, response.status, answer)
        return answer

    async def post(self, target: str, value: Any, may_leave: Callable[[], bool], timeout_s: float) -> None:
        """POST a value once, at the least cost; ``target`` is the path with its query, quoted.

        ``may_leave`` is asked at the last moment before the bytes go out: between decision and departure a process may wait for a connection, or be stopped for longer than its right
        to write lasts. False keeps them here and ends in NoAnswerError. Raises as `request` does.
        """
        content = orjson.dumps(value)
        try:
            async with asyncio.timeout(timeout_s):
                head = self._head("POST", target, await self._headers(Body(value)), len(content))
                reply = await self._connections.ask(head + content, may_leave)
        except _NO_ANSWER as error:
            raise NoAnswerError(f"POST {target}: {_why(error)}") from error
        _check("POST", target, reply.status, reply.body)

    def _head(self, method: str, target: str, headers: Mapping[str, str], length: int) -> bytes:
        lines = [f"{method} {self._below}{target} HTTP/1.1", f"Host: {self._server}", f"User-Agent: {_USER_AGENT}", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any("\n" in line or "\r" in line for line in lines):
            raise aiohttp.ClientError("a line break in the token would end its header")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str], silence_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and yield its lines; entering succeeds only when the server has answered.

        The lines end when the server ends them. Raises ApiRefusedError on an error status, NoAnswerError where the connection breaks or stays
        silent for ``silence_s``.
        """
        async with self._opened("watch", path, query, silence_s) as content:
            yield _lines(content)

    @asynccontextmanager
    async def pieces(self, path: str, query: Mapping[str, str], silence_s: float = 30.0) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send a GET and yield the bytes of the answer as they come, for one that is too large to be held; the server sends no faster than they are read. Raises as `watch` does."""
        async with self._opened("GET", path, query, silence_s) as content:
            yield content.iter_any()

    @asynccontextmanager
    async def _opened(self, what: str, path: str, query: Mapping[str, str], silence_s: float) -> AsyncIterator[aiohttp.StreamReader]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=silence_s)
        try:
            async with self._session.get(
                self._host + path, params=query, headers=await self._headers(None), timeout=timeout, allow_redirects=False
            ) as response:
                if response.status >= 300:
                    _check("GET", path, response.status, await response.read())
                yield response.content
        except _NO_ANSWER as error:
            raise NoAnswerError(f"{what} {path}: {_why(error)}") from error

    async def _headers(self, body: Body | None) -> dict[str, str]:
        # Not compressed: kube-apiserver takes three times as long for a list that it compresses, and whoever takes it in waits for that (decision 23).
        headers = {"Accept": JSON, "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = body.content_type
        token = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        return headers


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    while line := await content.readuntil(b"\n"):
        yield line


def _any_exists(files: str) -> bool:
    """Tell whether there is any of the files that are named as KUBECONFIG names them.

    The library writes a line of its own about a missing file, and goes on to complain of what an empty configuration lacks.
    """
    return any(Path(file).expanduser().exists() for file in files.split(os.pathsep))


def _check(method: str, path: str, status: int, answer: bytes) -> None:
    if status < 300:
        return
    try:
        told = orjson.loads(answer)
    except orjson.JSONDecodeError:
        told = None
    told = told if isinstance(told, dict) else {}
    # `Error`: one of our own extenders answers, through the API server's proxy.
    message = told.get("message") or told.get("Error") or answer[:200].decode(errors="replace").strip() or "no message"
    raise ApiRefusedError(status, str(told.get("reason") or ""), f"{method} {path} answered {status}: {message}")


def _why(error: BaseException) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else (str(error) or type(error).__name__)
