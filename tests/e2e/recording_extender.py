"""The smallest scheduler extender that can prove a registration: it lets one node through and writes down what it is asked.

For tests of the harness alone; it knows nothing of GPUs. The real one is `linkwise serve`.
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import orjson

JsonObject = dict[str, Any]


class RecordingExtender:
    """A context manager; filter lets ``node`` through and refuses the others with ``reason``, prioritize gives it 10. It has no bind."""

    def __init__(self, node: str, reason: str) -> None:
        self.node = node
        self.reason = reason
        self.calls: list[tuple[str, JsonObject]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        """What goes into the scheduler's urlPrefix."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def asked(self, verb: str) -> list[JsonObject]:
        """Return the calls of one verb, oldest first."""
        return [call for name, call in self.calls if name == verb]

    def answer(self, verb: str, call: JsonObject) -> Any:
        """Record a call and answer it."""
        self.calls.append((verb, call))
        names = call["NodeNames"]
        if verb == "prioritize":
            return [{"Host": name, "Score": 10 * (name == self.node)} for name in names]
        refused = {name: self.reason for name in names if name != self.node}
        return {"NodeNames": [name for name in names if name == self.node], "FailedAndUnresolvableNodes": refused, "Error": ""}


def _handler(extender: RecordingExtender) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            call = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = orjson.dumps(extender.answer(self.path.strip("/"), call))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Nothing on stderr: the calls are recorded."""

    return Handler
