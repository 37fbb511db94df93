"""A synthetic cluster of N nodes from the sample machines, partly full: the load behind the timing benchmarks.

`python -m bench.snapshot --nodes N --fill 0.5 --seed S > FILE` writes one JSON `List` that `linkwise serve --snapshot` reads. Filling is done by
random sets of 1, 2 and 4 GPUs, so that the masks differ as they do on a used cluster.
"""

import random
import sys
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from extender.sample_machines import SAMPLE_MACHINES, sample
from topology.api import AllocatedGpu, Allocation, annotations

JsonObject = dict[str, Any]


def make(nodes: int, fill: float, seed: int) -> JsonObject:
    """Return the `List`: nodes named like `gpu-node-00042.example.internal`, kinds in turn, about ``fill`` of all GPUs held."""
    rng = random.Random(seed)
    kinds = sorted(SAMPLE_MACHINES)
    items: list[JsonObject] = []
    for number in range(nodes):
        name = f"gpu-node-{number:05d}.example.internal"
        topology = sample(kinds[number % len(kinds)], name).to_object()
        items += [_node(name), topology, *_pods(name, topology["spec"]["gpus"], fill, rng)]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _node(name: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def _pods(node: str, gpus: list[JsonObject], fill: float, rng: random.Random) -> list[JsonObject]:
    order = rng.sample(range(len(gpus)), len(gpus))
    taken = order[: sum(rng.random() < fill for _ in gpus)]
    pods: list[JsonObject] = []
    while taken:
        size = min(len(taken), rng.choice((1, 1, 2, 4)))
        own, taken = taken[:size], taken[size:]
        pods.append(_pod(f"{node.split('.', maxsplit=1)[0]}-{len(pods)}", node, [gpus[index] for index in own]))
    return pods


def _pod(name: str, node: str, gpus: list[JsonObject]) -> JsonObject:
    allocation = Allocation(node=node, containers={"main": tuple(AllocatedGpu(uuid=gpu["uuid"], index=gpu["index"]) for gpu in gpus)})
    container = {"name": "main", "resources": {"limits": {annotations.WHOLE_GPU: str(len(gpus))}}}
    metadata = {"namespace": "load", "name": name, "uid": f"uid-{name}", "annotations": {annotations.ALLOCATION: allocation.encode()}}
    spec = {"nodeName": node, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def main(
    nodes: Annotated[int, typer.Option(min=1, max=100_000)] = 1000,
    fill: Annotated[float, typer.Option(min=0, max=1)] = 0.5,
    seed: int = 0,
    output: Annotated[Path | None, typer.Option(help="File to write; standard output by default.")] = None,
) -> None:
    """Write a synthetic snapshot."""
    data = orjson.dumps(make(nodes, fill, seed))
    if output is None:
        sys.stdout.buffer.write(data)
    else:
        output.write_bytes(data)


if __name__ == "__main__":
    typer.run(main)
