"""The agent's Prometheus series, and the small server that shows them with its health: /metrics and /healthz.

`running` counts and says whether all is well; kubelet and Prometheus ask. A server of the standard library in a thread of its own: two answers a minute
need no framework, and a busy or hanging agent is still asked.
"""

import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from topology.errors import InputError

_BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)  # seconds; one hanging call takes 20


class Metrics:
    """The series; a registry of its own, so that two agents in one process do not share counters."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._published_at: float | None = None
        self.registry = CollectorRegistry()
        self.probe_seconds = Histogram("linkwise_agent_probe_seconds", "Time of one look at the hardware", buckets=_BUCKETS, registry=self.registry)
        self.publishes = Counter("linkwise_agent_publishes", "Writes to the API server, by what was written", ["what"], registry=self.registry)
        self.failures = Counter("linkwise_agent_failures", "What went wrong, by what was tried", ["what"], registry=self.registry)
        age = Gauge("linkwise_agent_last_publish_age_seconds", "Time since the last write; -1 before the first", registry=self.registry)
        age.set_function(self._age_s)
        for what in ("spec", "status", "event"):
            self.publishes.labels(what)
        for what in ("probe", "holders", "publish", "round"):
            self.failures.labels(what)

    def published(self, what: str) -> None:
        """Count one write."""
        self.publishes.labels(what).inc()
        self._published_at = self._clock()

    def failed(self, what: str) -> None:
        """Count one failure."""
        self.failures.labels(what).inc()

    def text(self) -> bytes:
        """Return the exposition in Prometheus' text format."""
        return generate_latest(self.registry)

    def _age_s(self) -> float:
        return -1.0 if self._published_at is None else self._clock() - self._published_at


class MetricsServer:
    """Serves /metrics and /healthz; ``ill`` says what is wrong, an empty text where nothing is."""

    def __init__(self, port: int, metrics: Metrics, ill: Callable[[], str]) -> None:
        """Raise InputError where the port cannot be had; 0 takes a free one."""
        try:
            self._server = _Server(port, _answering(metrics, ill))
        except OSError as error:
            raise InputError(f"--metrics-port {port} cannot be listened on: {error.strerror or error}") from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="metrics", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """On all addresses of the machine, both families where it has both."""

    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("", port), handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _answering(metrics: Metrics, ill: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that sends nothing keeps no thread

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, metrics.text(), CONTENT_TYPE_LATEST)
            elif path == "/healthz":
                problem = ill()
                self._answer(503 if problem else 200, f"{problem or 'ok'}\n".encode(), "text/plain; charset=utf-8")
            else:
                self._answer(404, b"accepted: /metrics, /healthz\n", "text/plain; charset=utf-8")

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing: probes come every few seconds."""

    return Handler
