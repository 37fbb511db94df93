"""The extender on a real socket, over a snapshot whose machines were looked at by the probe; and a client that calls it as kube-scheduler does.

The chain is the one of a cluster: recorded-style output of nvidia-smi -> `linkwise agent --once` -> GPUTopology documents in a file -> `linkwise serve`.
"""

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import yaml

from extender.app import from_snapshot
from extender.sample_machines import BRIDGES, SAMPLE_MACHINES, SampleMachine
from extender.server import listen, server, url_of
from extender.settings import Settings
from extender.snapshot_file import read_snapshot
from tests.builders import PodBuilder
from tests.stand_in import write_nvidia_smi, write_sysfs
from topology.agent import once

JsonObject = dict[str, Any]

# The layout of NVIDIA/k8s-device-plugin issue 436: one bridged pair, one pair without a bridge.
HALF_BRIDGED = replace(
    BRIDGES,
    bus_ids=BRIDGES.bus_ids[:4],
    minors=BRIDGES.minors[:4],
    numa_nodes=(0, 0, 1, 1),
    cpus=BRIDGES.cpus[2:6],
    gpu_rows=("X NV12 SYS SYS", "NV12 X SYS SYS", "SYS SYS X NODE", "SYS SYS NODE X"),
)
MACHINES: dict[str, SampleMachine] = {**SAMPLE_MACHINES, "half-bridged": HALF_BRIDGED}
FIVE_KINDS = tuple(SAMPLE_MACHINES)


def probed(kind: str, node: str, directory: Path) -> str:
    """The GPUTopology document that the agent of such a machine prints."""
    machine = MACHINES[kind]
    return once(node, str(write_nvidia_smi(directory / "bin", machine, seed=node)), write_sysfs(directory / "kernel", machine))


@dataclass(frozen=True)
class Scheduler:
    """One kube-scheduler: its connections, and the names of the nodes that it knows."""

    client: httpx.Client
    names: tuple[str, ...]

    def filter(self, asked: PodBuilder, *names: str) -> JsonObject:
        answer: JsonObject = self._post("filter", self._args(asked, names))
        return answer

    def prioritize(self, asked: PodBuilder, *names: str) -> dict[str, int]:
        scores = {each["Host"]: each["Score"] for each in self._post("prioritize", self._args(asked, names))}
        assert list(scores) == list(names or self.names)
        return scores

    def bind(self, asked: PodBuilder, node: str) -> str:
        """The Error of the answer; empty is success."""
        call = {"PodNamespace": asked.namespace, "PodName": asked.name, "PodUID": asked.uid, "Node": node}
        error: str = self._post("bind", call)["Error"]
        return error

    def chosen(self, asked: PodBuilder) -> str | None:
        """The node that the pod would be bound to, None where it stays pending."""
        fitting = self.filter(asked)["NodeNames"]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        scores = self.prioritize(asked, *fitting)
        assert sorted(scores.values())[-2:] != [10, 10]
        return max(scores, key=lambda node: scores[node])

    def place(self, asked: PodBuilder) -> str | None:
        """Schedule a pod until it is bound or fits nowhere; the node, or None."""
        while (node := self.chosen(asked)) is not None:
            if self.bind(asked, node) == "":
                return node
        return None

    def get(self, path: str) -> JsonObject:
        answer = self.client.get(path)
        answer.raise_for_status()
        found: JsonObject = answer.json()
        return found

    def _args(self, asked: PodBuilder, names: tuple[str, ...]) -> JsonObject:
        return {"Pod": asked.build(), "Nodes": None, "NodeNames": list(names or self.names)}

    def _post(self, verb: str, body: JsonObject) -> Any:
        answer = self.client.post(f"/{verb}", json=body)
        assert answer.status_code == 200
        return answer.json()


@dataclass(frozen=True)
class Served:
    """A running extender: where, over what, and what it wrote down."""

    url: str
    documents: dict[str, JsonObject]  # node -> its GPUTopology
    problems: list[str]
    bindings_file: Path
    scheduler: Scheduler

    @contextmanager
    def another_scheduler(self) -> Iterator[Scheduler]:
        with httpx.Client(base_url=self.url, timeout=30) as client:
            yield Scheduler(client, tuple(self.documents))

    def bindings(self) -> list[JsonObject]:
        """The Bindings as they would have been posted, in their order."""
        return [json.loads(line) for line in self.bindings_file.read_text().splitlines()] if self.bindings_file.exists() else []

    def allocations(self) -> dict[str, JsonObject]:
        """Pod name -> what it was given; every pod is bound once at most."""
        found = {each["metadata"]["name"]: json.loads(each["metadata"]["annotations"]["linkwise.dev/allocation"]) for each in self.bindings()}
        assert len(found) == len(self.bindings())
        return found

    def given(self) -> list[str]:
        """UUID of every GPU given, as often as it was given."""
        return [gpu["uuid"] for allocation in self.allocations().values() for gpus in allocation["containers"].values() for gpu in gpus]

    def indices(self, asked: PodBuilder) -> list[int]:
        """GPUs of a pod by the index that nvidia-smi shows."""
        return sorted(gpu["index"] for gpus in self.allocations()[asked.name]["containers"].values() for gpu in gpus)

    def free(self) -> dict[str, int]:
        return {node["name"]: node["free"] for node in self.scheduler.get("/api/v1/nodes")["nodes"]}


@contextmanager
def serve(directory: Path, documents: Iterable[str], pods: Iterable[JsonObject] = (), more: str = "") -> Iterator[Served]:
    """Serve a snapshot of these GPUTopology documents and pods; ``more`` is appended to the file as it is."""
    documents = list(documents)
    snapshot = directory / "snapshot.yaml"
    snapshot.write_text("---\n".join([*documents, *(yaml.safe_dump(each) for each in pods)]) + more)
    bindings = directory / "bindings.jsonl"
    app, problems = from_snapshot(read_snapshot(snapshot), Settings(), bindings)
    listener = listen("127.0.0.1", 0)
    url, started = url_of(listener), threading.Event()
    running = server(app, lambda _: started.set(), url)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert started.wait(20)
        read = {each["metadata"]["name"]: each for each in map(yaml.safe_load, documents)}
        with httpx.Client(base_url=url, timeout=30) as client:
            yield Served(url, read, problems, bindings, Scheduler(client, tuple(read)))
    finally:
        running.should_exit = True
        thread.join(20)
        listener.close()
