"""The extender of a test: `linkwise serve` on the control plane, under its own account, and what it says of itself.

`serve` starts one; the fixtures of `conftest` do so for most tests. It is a process like any other (`.program` can be killed, paused, started again), and
everything below reads its HTTP face: readiness, the read API, metrics. What the cluster says of it is the business of `tests.e2e.checks`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from extender.demand_class import SEED_TARGET, Target, as_objects
from tests.e2e.calls import HTTP
from tests.e2e.control_plane import ControlPlane
from tests.e2e.program import Program, free_port, wait_until
from topology.topology_class import SEED_WEIGHTS

JsonObject = dict[str, Any]

MANIFESTS = Path(__file__).parents[2] / "manifests"


class ExtenderAt:
    """One replica, wherever it runs; ``url`` is what kube-scheduler calls and what `linkwise explain --server` takes."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ready(self) -> bool:
        """Whether its state is synced: it may lead or wait for its turn."""
        return self._status("GET", "/readyz") == 200

    def leads(self) -> bool:
        """Whether it answers calls: ready, leading, fresh. Told by a body that is no call, which only an open gate looks at."""
        return self._status("POST", "/filter") == 400

    def get(self, path: str) -> JsonObject:
        """GET a path of the read API."""
        answer = HTTP.get(f"{self.url}/api/v1/{path}")
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        found: JsonObject = answer.json()
        return found

    def nodes(self) -> dict[str, JsonObject]:
        """Return every node that it knows, by name: class, total, healthy, free, closed."""
        return {node["name"]: node for node in self.get("nodes")["nodes"]}

    def decision(self, pod: str, namespace: str = "default") -> JsonObject:
        """Return the last decision about a pod."""
        return self.get(f"pods/{namespace}/{pod}/decision")

    def free(self, *nodes: str) -> dict[str, set[str]]:
        """Return the UUIDs of the healthy GPUs that it believes free, by node (all of them where none is named)."""
        shown = {name: self.get(f"nodes/{name}") for name in nodes or tuple(self.nodes())}
        return {name: {gpu["uuid"] for gpu in node.get("gpus", []) if gpu["healthy"] and gpu["heldBy"] is None} for name, node in shown.items()}

    def wait_open(self, *names: str, timeout: float = 60) -> None:
        """Wait until it knows these nodes, none of them is closed, and their classes are worked out: figures before that are lower bounds."""

        def opened() -> bool:
            nodes = self.nodes()
            return all(name in nodes and nodes[name]["closed"] is None and nodes[name]["exact"] for name in names)

        wait_until(opened, timeout, f"the extender knows {', '.join(names[:5])} as open")

    def wait_priced(self) -> None:
        """Wait until it knows the prices of its kinds of GPUs: where parts of GPUs go before that is a first guess.

        They are worked out with what nobody else wants of the processors, and there other tests run beside this one.
        """
        wait_until(lambda: self.get("workload")["pricesKnown"], 180, "prices of parts of GPUs are known")

    def ask_for(self, weights: Mapping[int, float] = SEED_WEIGHTS, classes: Target = SEED_TARGET) -> None:
        """Fix what the cluster is asked for, until it is started again: what it counts by itself moves in steps of ten seconds, and scores with it."""
        told = {"weights": {str(size): share for size, share in weights.items()}, "classes": as_objects(classes)}
        assert HTTP.put(f"{self.url}/api/v1/workload", json=told).status_code == 200

    def count_for_itself(self) -> None:
        """Take that back."""
        assert HTTP.delete(f"{self.url}/api/v1/workload").status_code == 200

    def wait_closed(self, name: str, text: str, timeout: float = 10) -> str:
        """Wait until it has closed a node for a reason that holds ``text``, and return the reason."""

        def reason() -> str:
            closed = self.nodes().get(name, {}).get("closed")
            return closed["reason"] if closed and text in closed["reason"] else ""

        return wait_until(reason, timeout, f"the extender has closed {name} because of {text!r}")

    def wait_free(self, name: str, gpus: int, timeout: float = 10) -> None:
        """Wait until it believes so many GPUs of a node free."""
        wait_until(lambda: self.nodes().get(name, {}).get("free") == gpus, timeout, f"the extender believes {gpus} GPUs of {name} free")

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that carry these labels; 0 where there is none."""
        text = HTTP.get(f"{self.url}/metrics").text
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return sum(sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items())

    def _status(self, method: str, path: str) -> int:
        try:
            return HTTP.request(method, f"{self.url}{path}", timeout=2).status_code
        except httpx.HTTPError:
            return 0


class RunningExtender(ExtenderAt):
    """One that is a process of this machine."""

    def __init__(self, program: Program, url: str) -> None:
        super().__init__(url)
        self.program = program

    def wait_ready(self, timeout: float = 30) -> "RunningExtender":
        """Wait until it is synced; raises StartError with the end of its log."""
        self.program.wait_ready(self.ready, timeout)
        return self

    def wait_leads(self, timeout: float = 30) -> "RunningExtender":
        """Wait until it answers calls; raises StartError with the end of its log."""
        self.program.wait_ready(self.leads, timeout)
        return self

    def stop(self) -> int:
        """End it as Kubernetes does: SIGTERM, time to finish; returns the exit status."""
        return self.program.stop()

    def start(self) -> "RunningExtender":
        """Start it again after `stop` or `program.kill()`: same address, nothing remembered."""
        self.program.start()
        return self


def serve(
    plane: ControlPlane, *, user: str = "linkwise-extender", server: str | None = None, environment: Mapping[str, str] | None = None
) -> RunningExtender:
    """Start an extender and return at once; ``server`` is another way to the API server (`FaultProxy.url`), ``environment`` its settings."""
    port = free_port()
    command = (sys.executable, "-m", "extender", "serve", "--kubeconfig", plane.kubeconfig(user, server=server), "--port", str(port))
    return RunningExtender(plane.run("extender", command, environment), f"http://127.0.0.1:{port}")


def shipped_configuration(url: str, **extender: Any) -> JsonObject:
    """Return the KubeSchedulerConfiguration that the project ships, for an extender at ``url``; ``extender`` replaces fields of its entry."""
    configuration: JsonObject = yaml.safe_load((MANIFESTS / "scheduler-config.yaml").read_text(encoding="utf-8"))
    (entry,) = configuration["extenders"]
    return {**configuration, "extenders": [{**entry, "urlPrefix": url, **extender}]}
