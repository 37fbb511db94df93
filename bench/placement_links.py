"""What multi-GPU pods get on a cluster of several kinds of machine: Linkwise beside FGD, which is blind to links.

`python -m bench.placement_links --data DIR [--trace NAME] [--seeds A:B] [--json FILE]`. The openb cluster with other machines: its nodes of eight GPUs are, a third each, DGX-1V (a cube
mesh of NVLinks), eight cards on PCIe, and four bridged pairs; the smaller ones are plain PCIe. Pods of several GPUs care for their links, the others do not. At every such arrival the best bandwidth
that any node with room could have given is noted beside what the pod got, each policy on its own state. Nothing is timed. Writes placement_links.md and placement_links.json.
"""

import json
import os
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer

from bench import machine
from bench.markdown import table
from bench.openb import replay, trace
from bench.openb.cluster import Placement
from bench.openb.objects import snapshot_of, uniform
from bench.openb.policies.fgd import FGD
from bench.openb.policies.linkwise import LinkwisePolicy
from bench.openb.replay import Placer, Surroundings
from bench.openb.trace import WHOLE, Node, Pod
from bench.placement_quality import read, seeds_of, spread, surroundings
from extender.cluster import Cluster
from extender.sample_machines import SAMPLE_MACHINES
from extender.snapshot_file import SnapshotCluster
from topology.topology_class import TopologyClass

NAME: Final = "placement_links"
KINDS: Final = ("dgx1v", "pcie", "bridges")
TRACES: Final = ("default", "multigpu50")  # neither asks for models, which the machines here do not have
POLICIES: Final = ("fgd", "linkwise")
ALMOST: Final = 0.99


@dataclass(frozen=True, slots=True)
class Task:
    """One replay."""

    data: Path
    trace: str
    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class Result:
    """GPU allocated at 100 and 130 percent arrived; of the pods of two and more GPUs: how many, their GB/s over the best there was (percent, of sums), percent that got the best, mean GB/s."""

    policy: str
    trace: str
    seed: int
    allocated_100: float
    allocated_130: float
    pods: int
    share_of_best: float
    got_best: float
    mean_gb_per_s: float


def main(
    data: Annotated[Path, typer.Option(help="Folder with openb/.", exists=True, file_okay=False)],
    traces: Annotated[list[str] | None, typer.Option("--trace", help="Repeatable; default and multigpu50, if none is named.")] = None,
    seeds: Annotated[str, typer.Option(help="A:B, from A to below B.")] = "0:10",
    json_file: Annotated[Path | None, typer.Option("--json", help="Where the runs go as JSON; beside the table, if not named.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = os.cpu_count() or 1,
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
) -> None:
    """Replay the traces on machines with links and write bench/results/placement_links.*."""
    asked = list(traces or TRACES)
    tasks = [Task(data, *one) for one in product(asked, POLICIES, seeds_of(seeds))]
    found = sorted(spread(run, tasks, jobs), key=lambda one: (asked.index(one.trace), POLICIES.index(one.policy), one.seed))
    path = json_file or results / f"{NAME}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"measured": machine.facts(), "runs": [asdict(one) for one in found]}, indent=1) + "\n", encoding="utf-8")
    machine.write(NAME, f"{machine.heading('Quality of placement: links', timed=False)}\n{text(found)}", results)


def text(found: Sequence[Result]) -> str:
    """Return the table: means over the seeds."""
    figures = ("allocated_100", "allocated_130", "share_of_best", "got_best", "mean_gb_per_s")
    rows = []
    for name, policy in product(dict.fromkeys(one.trace for one in found), POLICIES):
        own = [one for one in found if (one.trace, one.policy) == (name, policy)]
        rows.append(
            (name, policy, sum(one.pods for one in own), *(f"{statistics.fmean(getattr(one, figure) for one in own):.2f}" for figure in figures))
        )
    seeds = sorted({one.seed for one in found})
    return (
        f"Seeds {seeds[0]} to {seeds[-1]}. Nodes of eight GPUs are a third each DGX-1V, eight cards on PCIe, four bridged pairs. GPU allocated: percent of the cluster when 100 / 130 percent has "
        "arrived. Of the best: GB/s of the pods of two and more GPUs over the best that any node with room could have given them at that moment, percent; got it: percent of those pods.\n\n"
        + table(("trace", "policy", "pods of 2+", "allocated at 100", "at 130", "of the best", "got it", "mean GB/s"), rows)
    )


def run(task: Task) -> Result:
    """Return one replay."""
    nodes, pods, target = read(task.data, task.trace)
    around = surroundings(with_machines(nodes, task.seed), target, task.seed)
    placer = FGD(around) if task.policy == "fgd" else LinkwisePolicy(around, codes_of, careful=True)
    watched = Watched(placer, around)
    curves = replay.run(around, watched, trace.arrivals(pods, around.cluster.capacity_milli, task.seed))
    got, best = np.array(watched.got), np.array(watched.best)
    return Result(
        policy=task.policy,
        trace=task.trace,
        seed=task.seed,
        allocated_100=curves.allocated[100],
        allocated_130=curves.allocated[130],
        pods=len(got),
        share_of_best=100 * float(got.sum() / best.sum()),
        got_best=100 * float((got >= ALMOST * best).mean()),
        mean_gb_per_s=float(got.mean()),
    )


def with_machines(nodes: Sequence[Node], seed: int) -> list[Node]:
    """Return the nodes with the models of the machines: those of eight GPUs in turn, in a random order."""
    large = [at for at, node in enumerate(nodes) if node.gpus == SAMPLE_MACHINES[KINDS[0]].size]
    random.Random(f"machines {seed}").shuffle(large)
    kinds = {at: KINDS[number % len(KINDS)] for number, at in enumerate(large)}
    return [replace(node, model=SAMPLE_MACHINES[kinds[at]].model if at in kinds else "none") for at, node in enumerate(nodes)]


def codes_of(node: Node) -> Sequence[Sequence[str]]:
    """Return the link codes of a node's machine."""
    kind = next((kind for kind in KINDS if SAMPLE_MACHINES[kind].model == node.model), None)
    return uniform(node) if kind is None else [row.split() for row in SAMPLE_MACHINES[kind].gpu_rows]


class Watched:
    """A placer, and what its multi-GPU pods got (GB/s) beside the best that there was."""

    def __init__(self, placer: Placer, around: Surroundings) -> None:
        self._placer = placer
        self._cluster = around.cluster
        self._classes = classes_of(around.cluster.nodes)
        self.got: list[float] = []
        self.best: list[float] = []

    def place(self, pod: Pod) -> Placement | None:
        """Pass the pod on, and note what it got."""
        best = self._best(pod) if pod.demand.gpus > 1 else 0.0
        placement = self._placer.place(pod)
        if placement is not None and pod.demand.gpus > 1:
            self.best.append(best)
            self.got.append(float(self._classes[placement.row].bandwidth[sum(1 << gpu for gpu in placement.gpus)]))
        return placement

    def _best(self, pod: Pod) -> float:
        rows = np.flatnonzero(self._cluster.feasible(pod.demand))
        idle = (self._cluster.gpu_left[rows] == WHOLE) @ (1 << np.arange(self._cluster.gpu_left.shape[1]))
        return max(
            (float(self._classes[row].best_bandwidths(pod.demand.gpus)[mask]) for row, mask in zip(rows.tolist(), idle.tolist(), strict=True)),
            default=0.0,
        )


def classes_of(nodes: Sequence[Node]) -> list[TopologyClass]:
    """Return the tables of each node, by row."""
    cluster = Cluster("nvidia.com/gpu", lambda: 0.0)
    SnapshotCluster(snapshot_of(nodes, codes_of), cluster).feed()
    view = cluster.view()
    return [view.classes[number] for number in view.class_index.tolist()]


if __name__ == "__main__":
    typer.run(main)
