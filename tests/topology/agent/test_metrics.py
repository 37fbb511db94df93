"""Prometheus and kubelet are answered, whatever the agent is busy with."""

import inspect
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.builders import Clock
from topology.agent.metrics import Metrics, MetricsServer
from topology.errors import InputError


@dataclass
class Served:
    """A server with what it shows."""

    metrics: Metrics
    problem: list[str] = field(default_factory=list)
    port: int = 0

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served(Metrics(Clock(100.0)))
    server = MetricsServer(0, served.metrics, lambda: "".join(served.problem))
    served.port = server.port
    server.start()
    yield served
    server.stop()


def test_health_is_a_word_or_what_is_wrong(served: Served) -> None:
    assert served.get("/healthz") == (200, "ok\n")
    served.problem.append("the agent hangs")
    assert served.get("/healthz") == (503, "the agent hangs\n")


def test_series_are_shown_and_other_paths_are_named(served: Served) -> None:
    served.metrics.published("spec")
    status, text = served.get("/metrics?name=all")
    assert status == 200
    assert 'linkwise_agent_publishes_total{what="spec"} 1.0' in text
    assert served.get("/") == (404, "accepted: /metrics, /healthz\n")


def test_every_series_is_there_before_anything_happens() -> None:
    names = {line.split("{")[0].split(" ")[0] for line in Metrics().text().decode().splitlines() if not line.startswith("#")}
    assert {name for name in names if not name.endswith(("_created", "_bucket", "_sum"))} == {
        "linkwise_agent_probe_seconds_count",
        "linkwise_agent_publishes_total",
        "linkwise_agent_failures_total",
        "linkwise_agent_last_publish_age_seconds",
    }


def test_the_age_of_the_last_write_grows_until_the_next() -> None:
    clock = Clock(100.0)
    metrics = Metrics(clock)

    def age() -> float:
        line = next(line for line in metrics.text().decode().splitlines() if line.startswith("linkwise_agent_last_publish_age_seconds "))
        return float(line.split(" ")[1])

    assert age() == -1.0
    metrics.published("status")
    clock.now += 42
    assert age() == 42.0
    metrics.published("status")
    assert age() == 0.0


def test_the_age_is_not_told_by_the_time_of_day() -> None:
    """A clock that is set right would make a fresh write hours old, or one of the future."""
    assert inspect.signature(Metrics).parameters["clock"].default is time.monotonic


def test_a_port_that_is_taken_is_one_sentence(served: Served) -> None:
    with pytest.raises(InputError, match=rf"--metrics-port {served.port} cannot be listened on: Address already in use"):
        MetricsServer(served.port, Metrics(), str)
