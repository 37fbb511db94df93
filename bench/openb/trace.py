"""The trace as it stands in its files, and the order in which its pods arrive.

DIR/openb is the folder `cluster-trace-gpu-v2023/csv` of github.com/alibaba/clusterdata (commit 7a6c496). What is read of it:
    openb_node_list_gpu_node.csv        sn, cpu_milli, memory_mib, gpu, model
    openb_pod_list_NAME.csv             name, cpu_milli, memory_mib, num_gpu, gpu_milli (of each GPU), gpu_spec (models, with | between them; empty: any)

Called by `bench.placement_quality`; `workload` counts the same pods, `replay` lets them arrive. Times in the files are left out: only requests count.
"""

import csv
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WHOLE: Final = 1000  # milli of one GPU
ARRIVING: Final = 1.3  # GPU that arrives over GPU of the cluster
NODES: Final = "openb_node_list_gpu_node.csv"
TRACES: Final = (
    "default",
    *("cpu050", "cpu100", "cpu200", "cpu250"),
    *("gpushare40", "gpushare60", "gpushare80", "gpushare100"),
    *("gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33"),
    *("multigpu20", "multigpu30", "multigpu40", "multigpu50"),
)  # those with published figures


@dataclass(frozen=True, slots=True)
class Node:
    """One machine: CPU in milli, memory in MiB, how many GPUs, and their model."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod asks for: ``gpu_milli`` is that of each of its ``gpus``; no ``models``: any."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()

    @property
    def total_gpu_milli(self) -> int:
        """Return what it takes of all its GPUs together."""
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Pod:
    """One arrival; names are unique within a run."""

    name: str
    demand: Demand


def nodes(data: Path) -> list[Node]:
    """Return the nodes that have GPUs, in the order of the file."""
    with (data / "openb" / NODES).open(newline="") as file:
        return [
            Node(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(file)
            if int(row["gpu"])
        ]


def present(data: Path) -> tuple[str, ...]:
    """Return the names of all traces that are there."""
    return tuple(path.stem.removeprefix("openb_pod_list_") for path in sorted((data / "openb").glob("openb_pod_list_*.csv")))


def pods(data: Path, name: str) -> list[Pod]:
    """Return the pods of a trace, sorted by name.

    Raises FileNotFoundError where there is no such trace, ValueError on a pod that asks for parts of several GPUs: no trace has one, and F would need other tables.
    """
    path = data / "openb" / f"openb_pod_list_{name}.csv"
    if not path.is_file():
        raise FileNotFoundError(f"there is no trace {name!r}: {path} does not exist")
    with path.open(newline="") as file:
        found = [Pod(row["name"], _demand(row)) for row in csv.DictReader(file)]
    for pod in found:
        if pod.demand.gpus > 1 and pod.demand.gpu_milli != WHOLE:
            raise ValueError(
                f"{path.name}: pod {pod.name} asks for {pod.demand.gpu_milli} milli of each of {pod.demand.gpus} GPUs; only whole ones were expected"
            )
    return sorted(found, key=lambda pod: pod.name)


def _demand(row: dict[str, str]) -> Demand:
    spec = row.get("gpu_spec")  # the multigpu traces have no such column
    models = tuple(spec.split("|")) if spec else ()
    return Demand(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]), int(row["gpu_milli"]), models)


def arrivals(found: list[Pod], capacity_milli: int, seed: int) -> list[Pod]:
    """Return the pods in the order of arrival, brought to `ARRIVING` times the GPU of the cluster.

    Shuffled; then pods are drawn with replacement and appended, or, where there are too many already, random ones left out. The test that ends the drawing adds what the
    pod asks of *one* GPU, as the artefact does, so a run may pass the target by a pod of several GPUs.
    """
    draws = random.Random(seed)
    order = list(found)
    draws.shuffle(order)
    target = ARRIVING * capacity_milli
    arrived = sum(pod.demand.total_gpu_milli for pod in order)
    while arrived > target:
        arrived -= order.pop(draws.randrange(len(order))).demand.total_gpu_milli
    order.extend(_drawn(order, target - arrived, draws))
    return order


def _drawn(order: list[Pod], room: float, draws: random.Random) -> Iterator[Pod]:
    for copy in range(1, 1 << 30):
        pod = order[draws.randrange(len(order))]
        if pod.demand.gpu_milli > room:
            return
        room -= pod.demand.total_gpu_milli
        yield Pod(f"{pod.name}-{copy}", pod.demand)
