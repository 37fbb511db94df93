"""The API server over kept connections with as little work as possible: whatever the load's own side costs is missing to what it measures.

Used by everything in this package and by `bench.soak`. Bytes in, bytes out, one connection a thread; no model objects, no retries. `each` sends many requests from
several threads, `changes` yields the events of a watch.
"""

import http.client
import json
import ssl
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import orjson

from tests.e2e.control_plane import ControlPlane

JsonObject = dict[str, Any]

WRITERS: Final = 8  # connections that create and delete side by side
_PATIENCE_S: Final = 60.0
_IDLE_S: Final = 60.0  # kube-apiserver closes a connection that nobody has used for 90 s
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Call:
    """One request that writes."""

    method: str
    path: str
    body: bytes | None = None
    content_type: str = JSON


class RefusedError(Exception):
    """The API server answered with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Door:
    """The API server as one user sees it; close it at the end."""

    def __init__(self, plane: ControlPlane, user: str = "admin") -> None:
        config = json.loads(plane.kubeconfig(user).read_bytes())
        (cluster,), (found,) = config["clusters"], config["users"]
        self.url = cluster["cluster"]["server"]
        self.token = found["user"]["token"]
        self._trusted = ssl.create_default_context(cafile=cluster["cluster"]["certificate-authority"])
        self._mine = threading.local()
        self._all: list[http.client.HTTPSConnection] = []
        self._writers = ThreadPoolExecutor(WRITERS)

    def connect(self, timeout_s: float = _PATIENCE_S) -> http.client.HTTPSConnection:
        """Return a connection of the caller's own."""
        where = urlsplit(self.url)
        return http.client.HTTPSConnection(where.hostname or "", where.port, timeout=timeout_s, context=self._trusted)

    def send(self, call: Call) -> bytes:
        """Send a request on this thread's connection and return the answer's body; raises RefusedError."""
        connection = self._kept()
        connection.request(call.method, call.path, call.body, self._headers(call.content_type))
        response = connection.getresponse()
        answer: bytes = response.read()
        if response.status >= 300:
            raise RefusedError(response.status, answer[:500].decode(errors="replace"))
        return answer

    def _kept(self) -> http.client.HTTPSConnection:
        """Return this thread's connection, a fresh one where it has been idle for so long that the server may have closed it."""
        found: http.client.HTTPSConnection | None = getattr(self._mine, "connection", None)
        if found is None:
            found = self._mine.connection = self.connect()
            self._all.append(found)
        elif time.monotonic() - self._mine.used_at > _IDLE_S:
            found.close()  # it opens itself again with the next request
        self._mine.used_at = time.monotonic()
        return found

    def get(self, path: str, **query: str) -> bytes:
        """GET a path."""
        return self.send(Call("GET", f"{path}?{urlencode(query)}" if query else path))

    def items(self, path: str, **query: str) -> list[JsonObject]:
        """LIST a path."""
        found: list[JsonObject] = orjson.loads(self.get(path, **query))["items"]
        return found

    def each(self, calls: Iterable[Call]) -> None:
        """Send all, several at a time, over connections that are kept from one time to the next."""
        for _ in self._writers.map(self.send, calls):
            pass

    def version(self, path: str) -> str:
        """Return the resourceVersion of a collection as it is now."""
        return str(orjson.loads(self.get(path, limit="1"))["metadata"]["resourceVersion"])

    def changes(self, path: str, query: Mapping[str, str]) -> Generator[JsonObject, None, None]:
        """Yield the events of a collection from ``resourceVersion`` in the query on, for ever: a watch that ends, or is silent for long, is opened again."""
        asked = dict(query)
        while True:
            with closing(self.connect()) as connection, suppress(TimeoutError):
                connection.request("GET", f"{path}?{urlencode({**asked, 'watch': '1'})}", headers=self._headers(JSON))
                response = connection.getresponse()
                while line := response.readline():
                    event = orjson.loads(line)
                    asked["resourceVersion"] = event["object"]["metadata"]["resourceVersion"]
                    yield event

    def close(self) -> None:
        """Close the connections of all threads."""
        self._writers.shutdown()
        for connection in self._all:
            connection.close()

    def _headers(self, content_type: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Content-Type": content_type, "Accept": JSON}
