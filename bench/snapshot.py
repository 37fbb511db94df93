"""A synthetic cluster of N nodes from the sample machines, partly full: the load behind the timing benchmarks.

`python -m bench.snapshot --nodes N --fill 0.5 --seed S > FILE` writes one JSON `List` that `linkwise serve --snapshot` reads. Nodes have names of 30 to 40 bytes, as
cloud providers give them, and are drawn from a mix of machine kinds; `--kinds` narrows it. Filling is done by random sets of 1, 2 and 4 GPUs, so that the masks differ
as they do on a used cluster. Objects are made and written one after the other: 50,000 nodes take the memory of one. The same seed gives the same bytes. The fewest
fields are written that a stripped snapshot of a real cluster has.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import orjson
import typer

from extender.sample_machines import SAMPLE_MACHINES, sample
from topology.api import AllocatedGpu, Allocation, annotations
from topology.errors import InputError

JsonObject = dict[str, Any]

NAMESPACE: Final = "load"
KINDS: Final = tuple(sorted(SAMPLE_MACHINES))
MOST_NODES: Final = 100_000  # five digits in every name
_TAIL: Final = (3, 13)  # hexadecimal digits after the number: they make names of 30 to 40 bytes
_DOMAIN: Final = "example.internal"
_CPU_A_GPU: Final = 8  # what training pods usually request beside each GPU
_GIB_A_GPU: Final = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """Which cluster to make; ``fill`` is the share of GPUs that are held, 0..1."""

    nodes: int
    fill: float = 0.5
    seed: int = 0
    kinds: Sequence[str] = KINDS


def make(nodes: int, fill: float, seed: int) -> JsonObject:
    """Return the `List` of a cluster of all kinds."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects(Plan(nodes, fill, seed)))}


def write(plan: Plan, file: BinaryIO, more: Sequence[JsonObject] = ()) -> None:
    """Write the `List`, and ``more`` objects behind it, one at a time."""
    file.write(b'{"apiVersion":"v1","kind":"List","items":[')
    file.writelines((b",\n" if position else b"\n") + orjson.dumps(item) for position, item in enumerate(_chained(objects(plan), more)))
    file.write(b"\n]}\n")


def names(plan: Plan) -> list[str]:
    """Return the names of its nodes, in their order."""
    return [item["metadata"]["name"] for item in objects(plan) if item["kind"] == "Node"]


def objects(plan: Plan) -> Iterator[JsonObject]:
    """Yield for each node its Node, its GPUTopology and its pods, like `gpu-00042-9f3c1.example.internal` and `gpu-00042-9f3c1-0`."""
    rng = random.Random(plan.seed)
    templates = {kind: sample(kind, "template").to_object() for kind in plan.kinds}
    for number in range(plan.nodes):
        kind = rng.choice(plan.kinds)
        digits = rng.randint(*_TAIL)
        name = f"gpu-{number:05d}-{rng.getrandbits(4 * digits):0{digits}x}.{_DOMAIN}"
        uuids = SAMPLE_MACHINES[kind].uuids(name)
        yield _node(name, len(uuids))
        yield _topology(templates[kind], name, uuids)
        yield from _pods(name, uuids, plan.fill, rng)


def _chained(items: Iterator[JsonObject], more: Sequence[JsonObject]) -> Iterator[JsonObject]:
    yield from items
    yield from more


def _node(name: str, gpus: int) -> JsonObject:
    allocatable = {"cpu": str(12 * gpus), "memory": f"{96 * gpus}Gi", annotations.WHOLE_GPU: str(gpus)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}


def _topology(template: JsonObject, name: str, uuids: Sequence[str]) -> JsonObject:
    """Return the template under another name with other GPUs: making each anew through its types would take ten times as long."""
    spec, status = template["spec"], template["status"]
    return {
        **template,
        "metadata": {"name": name},
        "spec": {**spec, "gpus": [{**gpu, "uuid": uuid} for gpu, uuid in zip(spec["gpus"], uuids, strict=True)]},
        "status": {**status, "gpus": [{**gpu, "uuid": uuid} for gpu, uuid in zip(status["gpus"], uuids, strict=True)]},
    }


def _pods(node: str, uuids: Sequence[str], fill: float, rng: random.Random) -> Iterator[JsonObject]:
    order = rng.sample(range(len(uuids)), len(uuids))
    taken = order[: sum(rng.random() < fill for _ in uuids)]
    short, number = node.split(".", maxsplit=1)[0], 0
    while taken:
        size = min(len(taken), rng.choice((1, 1, 2, 4)))
        own, taken = taken[:size], taken[size:]
        yield _pod(f"{short}-{number}", node, [AllocatedGpu(uuid=uuids[index], index=index) for index in own])
        number += 1


def _pod(name: str, node: str, gpus: Sequence[AllocatedGpu]) -> JsonObject:
    allocation = Allocation(node=node, containers={"main": tuple(gpus)})
    requests = {"cpu": str(_CPU_A_GPU * len(gpus)), "memory": f"{_GIB_A_GPU * len(gpus)}Gi", annotations.WHOLE_GPU: str(len(gpus))}
    container = {"name": "main", "resources": {"requests": requests, "limits": {annotations.WHOLE_GPU: str(len(gpus))}}}
    metadata = {"namespace": NAMESPACE, "name": name, "uid": f"uid-{name}", "annotations": {annotations.ALLOCATION: allocation.encode()}}
    spec = {"nodeName": node, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def read_kinds(text: str) -> tuple[str, ...]:
    """Return the kinds of a list with commas; raises InputError for one that is not among the samples."""
    kinds = tuple(part.strip() for part in text.split(","))
    for kind in kinds:
        if kind not in SAMPLE_MACHINES:
            raise InputError(f"--kinds {text}: there is no kind of machine {kind!r}; accepted: some of {','.join(KINDS)}")
    return kinds


def main(
    nodes: Annotated[int, typer.Option(min=1, max=MOST_NODES)] = 1000,
    fill: Annotated[float, typer.Option(min=0, max=1)] = 0.5,
    seed: int = 0,
    kinds: Annotated[str, typer.Option(help="Kinds of machine to draw from, with commas between them.")] = ",".join(KINDS),
    output: Annotated[Path | None, typer.Option(help="File to write; standard output by default.")] = None,
) -> None:
    """Write a synthetic snapshot."""
    try:
        plan = Plan(nodes, fill, seed, read_kinds(kinds))
    except InputError as error:
        raise typer.BadParameter(str(error)) from error
    if output is None:
        write(plan, sys.stdout.buffer)
    else:
        with output.open("wb") as file:
            write(plan, file)


if __name__ == "__main__":
    typer.run(main)
