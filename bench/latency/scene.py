"""The cluster of one measurement: its snapshot on disk with the pods that will come, the names of its nodes, and who holds GPUs at the start.

Used by the commands. Pods that will be scheduled are in the snapshot from the beginning, waiting, as kube-scheduler's extender has heard of them before it is asked.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import snapshot
from bench.latency.churn import Held
from bench.latency.load import Pod
from topology.api import annotations


@dataclass(frozen=True, slots=True)
class Scene:
    """A snapshot file, and what is in it."""

    file: Path
    names: tuple[str, ...]
    held: tuple[Held, ...]


@contextmanager
def scene(plan: snapshot.Plan, waiting: Sequence[Pod]) -> Iterator[Scene]:
    """Write the snapshot to a temporary folder that goes with the block."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "snapshot.json")
        with file.open("wb") as opened:
            snapshot.write(plan, opened, [{"apiVersion": "v1", "kind": "Pod", **pod.object} for pod in waiting])
        names: list[str] = []
        held: list[Held] = []
        for item in snapshot.objects(plan):
            if item["kind"] == "Node":
                names.append(item["metadata"]["name"])
            elif item["kind"] == "Pod":
                gpus = item["spec"]["containers"][0]["resources"]["limits"][annotations.WHOLE_GPU]
                held.append(Held(item["metadata"]["namespace"], item["metadata"]["name"], float(gpus)))
        yield Scene(file, tuple(names), tuple(held))
