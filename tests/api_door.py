"""The door of an API server, for tests of what goes through it: real HTTP on a real port, with objects kept in memory and faults on demand.

It stands in where a test is about the agent's own steps and moments (what is written first, what a refusal changes), which a real API server does not show
or cannot be made to do in time. Whether a real one accepts what is written, tests/e2e says. Known here: GET of a Node and a GPUTopology, server-side apply
of a GPUTopology and of its status, POST of an Event; GET, list and watch of the pods of a node.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

JsonObject = dict[str, Any]

TOPOLOGIES = "/apis/linkwise.dev/v1alpha1/gputopologies/"
NODES = "/api/v1/nodes/"
EVENTS = "/api/v1/namespaces/default/events"
PODS = "/api/v1/pods"


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer as it goes out; a dict is JSON, a text is not. ``cut``: the connection is closed instead."""

    status: int = 200
    body: JsonObject | str = ""
    cut: bool = False


@dataclass
class ApiDoor:
    """What is behind the door, and who came through."""

    nodes: dict[str, str] = field(default_factory=dict)  # name -> UID
    topologies: dict[str, JsonObject] = field(default_factory=dict)
    events: list[JsonObject] = field(default_factory=list)
    pods: dict[str, JsonObject] = field(default_factory=dict)  # NAMESPACE/NAME -> pod
    watches: list[Queue[JsonObject | None]] = field(default_factory=list)  # None ends one
    calls: list[Call] = field(default_factory=list)
    fault: Callable[[Call], Raw | None] = lambda _: None  # answers in place of the door
    port: int = 0

    def writes(self) -> list[str]:
        """Return what was written, in order: spec, status, event."""
        kinds = {TOPOLOGIES: "spec", EVENTS: "event"}
        found = [call for call in self.calls if call.method != "GET"]
        return [
            "status" if call.path.endswith("/status") else next(kind for path, kind in kinds.items() if call.path.startswith(path)) for call in found
        ]

    def kubeconfig(self, directory: Path) -> Path:
        """Write a kubeconfig that leads here."""
        named = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}/"}}],
            "users": [{"name": "u", "user": {"token": "a-token"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        path = directory / "kubeconfig"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x", **named}), encoding="utf-8")
        return path

    def answer(self, call: Call) -> Raw:
        """Answer one request."""
        self.calls.append(call)
        faulty = self.fault(call)
        if faulty is not None:
            return faulty
        if "/pods" in call.path:
            return self._pods(call)
        if call.method == "POST" and call.path.endswith("/events"):
            self.events.append(call.body)
            return Raw(201, call.body)
        if call.path.startswith(NODES):
            name = call.path.removeprefix(NODES)
            return Raw(200, {"metadata": {"name": name, "uid": self.nodes[name]}}) if name in self.nodes else not_found("nodes", name)
        name, _, subresource = call.path.removeprefix(TOPOLOGIES).partition("/")
        if call.method == "PATCH":
            return self._apply(name, subresource, call.body)
        return Raw(200, self.topologies[name]) if name in self.topologies else not_found("gputopologies.linkwise.dev", name)

    def _pods(self, call: Call) -> Raw:
        if call.path == PODS:
            node = call.query["fieldSelector"].removeprefix("spec.nodeName=")
            found = [pod for pod in self.pods.values() if pod["spec"].get("nodeName") == node]
            return Raw(200, {"metadata": {"resourceVersion": "7"}, "items": found})
        _, _, _, _, namespace, _, name = call.path.split("/")
        pod = self.pods.get(f"{namespace}/{name}")
        return Raw(200, pod) if pod is not None else not_found("pods", name)

    def _apply(self, name: str, subresource: str, body: JsonObject) -> Raw:
        stored = self.topologies.get(name)
        before = None if stored is None else json.dumps(stored)
        if subresource:
            if stored is None:
                return not_found("gputopologies.linkwise.dev", name)
            stored["status"] = body["status"]
        elif stored is None:
            stored = {**body, "metadata": {**body["metadata"], "uid": str(uuid4()), "generation": 1}}
            self.topologies[name] = stored
        else:
            stored["metadata"] |= body["metadata"] | {"generation": stored["metadata"]["generation"] + (stored["spec"] != body["spec"])}
            stored["spec"] = body["spec"]
        if json.dumps(stored) != before:
            stored["metadata"]["resourceVersion"] = str(int(stored["metadata"].get("resourceVersion", "0")) + 1)
        return Raw(200, stored)


def not_found(resource: str, name: str) -> Raw:
    """Return the answer about an object that does not exist."""
    return refused(404, "NotFound", f'{resource} "{name}" not found')


def refused(status: int, reason: str, message: str) -> Raw:
    """Return an error as the API server puts it."""
    return Raw(status, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": status})


@contextmanager
def api_door() -> Iterator[ApiDoor]:
    """Keep a door open while the block runs."""
    door = ApiDoor()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(door))
    server.daemon_threads = True
    door.port = server.server_address[1]
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield door
    finally:
        for watch in list(door.watches):
            watch.put(None)
        server.shutdown()
        server.server_close()


def _handler(door: ApiDoor) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are two writes: the second would wait 40 ms for the client's acknowledgement

        def do_any(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            call = Call(self.command, url.path, dict(parse_qsl(url.query)), dict(self.headers), body)
            if call.query.get("watch") and door.fault(call) is None:
                self._stream(call)
                return
            answer = door.answer(call)
            if answer.cut:
                self.close_connection = True
                return
            is_json = isinstance(answer.body, dict)
            data = (json.dumps(answer.body) if is_json else str(answer.body)).encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json" if is_json else "text/plain")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, call: Call) -> None:
            events: Queue[JsonObject | None] = Queue()
            door.calls.append(call)
            door.watches.append(events)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while (event := events.get()) is not None:
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
            door.watches.remove(events)

        do_GET = do_PATCH = do_POST = do_any  # noqa: N815  # names that the base class looks for

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
