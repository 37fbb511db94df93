"""The openb replay through a real kube-scheduler: the shipped configuration, a real API server, KWOK's nodes, and `linkwise serve` beside them.

`python -m bench.placement_real --data DIR [--seed N] [--nodes N] [--pods N] [--in-flight N] [--cpu-pods WHO]`, from the repository's root; the programs are built with
Go the first time, as for the end-to-end tests. Pods arrive in the seed's order; one that kube-scheduler finds no node for is deleted. What a pod got is read from the pod as the API server
stores it, and counted once more from the list of all pods at the end. Beside the run stands the same seed through the same code without Kubernetes. Writes placement_real.md and
.json; where `--cpu-pods` is given several times, which compares the ways, placement_real_cpu_pods.*.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, takewhile
from math import isnan
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench import machine
from bench.markdown import table
from bench.openb import replay, trace
from bench.openb.arriving import Arriving
from bench.openb.control_plane import PodsDoor, running
from bench.openb.cpu_pods import WAYS, CpuPods, configured
from bench.openb.policies.linkwise import LinkwisePolicy, workload_of
from bench.openb.replay import Curves
from bench.openb.stored import pod_of, taken_milli
from bench.openb.trace import Pod
from bench.placement_quality import read, surroundings
from topology.errors import InternalError

NAME: Final = "placement_real"
TRACE: Final = "default"
_REPORTED: Final = (25, 50, 75, 90, 95, 100)  # percent arrived


@dataclass(frozen=True, slots=True)
class Setup:
    """One run: a cluster of the first ``nodes`` in the seed's order (all of them: 0), and as many pods as bring ``arrived`` percent of its GPU, ``pods`` at most (0: no limit)."""

    data: Path
    seed: int
    nodes: int
    pods: int
    arrived: int
    in_flight: int
    cpu_pods: CpuPods


@dataclass(frozen=True, slots=True)
class Result:
    """GPU allocated, percent of the cluster, at each percent arrived: by the real kube-scheduler and by the same code in one process."""

    setup: Setup
    nodes: int
    pods: int
    dropped: int
    pods_per_s: float
    started_s: float
    real: dict[int, float]
    direct: dict[int, float]

    def facts(self) -> dict[str, object]:
        """Return it as plain data."""
        return {**asdict(self), "setup": {**asdict(self.setup), "data": "", "cpu_pods": self.setup.cpu_pods.value}}


def main(  # noqa: PLR0913, PLR0917 - the options of a command are its parameters
    data: Annotated[Path, typer.Option(help="Folder with openb/.", exists=True, file_okay=False)],
    seed: Annotated[int, typer.Option(min=0, help="Of the order of pods and nodes.")] = 0,
    nodes: Annotated[int, typer.Option(min=0, help="A smaller cluster, the pods cut in proportion; 0: all nodes.")] = 0,
    pods: Annotated[int, typer.Option(min=0, help="At most so many pods; 0: no limit.")] = 0,
    arrived: Annotated[int, typer.Option(min=1, max=130, help="Stop when so much GPU has arrived, percent of the cluster.")] = 101,
    in_flight: Annotated[int, typer.Option(min=1, help="Pods that wait for kube-scheduler at a time.")] = 3,
    cpu_pods: Annotated[list[CpuPods] | None, typer.Option(help="Who places pods without GPUs, repeatable; linkwise, if not named.")] = None,
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
) -> None:
    """Replay the default trace through kube-scheduler and write bench/results/placement_real.*."""
    ways = tuple(dict.fromkeys(cpu_pods or [CpuPods.LINKWISE]))
    found = [run(Setup(data, seed, nodes, pods, arrived, in_flight, who)) for who in ways]
    name = NAME if len(ways) == 1 else f"{NAME}_cpu_pods"
    machine.write_json(name, {"runs": [one.facts() for one in found]}, results)
    machine.write(name, f"{machine.heading('Quality of placement through a real kube-scheduler', timed=False)}\n{text(found)}", results)


def text(found: Sequence[Result]) -> str:
    """Return the tables: what was allocated, a row a percent arrived, and what the runs were, a row each."""
    first = found[0]
    rows = [
        (percent, f"{first.direct[percent]:.2f}", *(f"{one.real[percent]:.2f} ({one.real[percent] - one.direct[percent]:+.2f})" for one in found))
        for percent in reported(first.real)
    ]
    runs = [
        (one.setup.cpu_pods.value, f"pods without GPUs {WAYS[one.setup.cpu_pods].sentence}", one.dropped, f"{one.pods_per_s:.1f}") for one in found
    ]
    return (
        f"Trace {TRACE}, seed {first.setup.seed}, {first.nodes} nodes, {first.pods} pods, {first.setup.in_flight} at a time. GPU allocated, percent of the cluster, when so much has arrived: "
        f"by the same code in one process (direct), and by kube-scheduler with the shipped configuration and `linkwise serve` beside it, as the pods tell that the API server "
        f"stores (and the difference).\n\n"
        + table(("arrived", "direct", *(one.setup.cpu_pods.value for one in found)), rows)
        + "\n"
        + table(("run", "what it was", "pods that fitted nowhere", "pods bound a second"), runs)
        + "\nAll programs ran on this machine, kube-scheduler, etcd and KWOK among them.\n"
    )


def reported(found: dict[int, float]) -> list[int]:
    """Return the percents to show: round ones as far as the run came, or the last."""
    return [percent for percent in _REPORTED if percent in found] or [max(found)]


def run(setup: Setup) -> Result:
    """Return the figures of one run."""
    all_nodes, all_pods, target = read(setup.data, TRACE)
    chosen = list(surroundings(all_nodes, target, setup.seed).cluster.nodes[: setup.nodes or None])
    around, beside = (surroundings(chosen, target, setup.seed) for _ in range(2))
    arrivals = arriving(all_pods, around.cluster.capacity_milli, setup)
    direct = replay.run(beside, LinkwisePolicy(beside), arrivals)
    began = time.monotonic()
    shape = partial(configured, who=setup.cpu_pods)
    with running(around.cluster.nodes, workload_of(target), shape) as plane, closing(PodsDoor(plane)) as door:
        started_s = time.monotonic() - began
        placer = Arriving(door, arrivals, lambda pod: pod_of(pod, setup.cpu_pods), setup.in_flight)
        real = replay.run(around, placer, shown(arrivals))
        held = taken_milli(door.stored())
    heard = around.cluster.capacity_milli - int(around.cluster.gpu_left.sum())
    if held != heard:
        raise InternalError(f"the pods that the API server stores hold {held} milli of GPUs, but {heard} were heard of")
    return Result(setup, len(chosen), len(arrivals), real.dropped, placer.pods_per_s, started_s, by_percent(real), by_percent(direct))


def arriving(pods: list[Pod], capacity_milli: int, setup: Setup) -> list[Pod]:
    """Return the pods of the run in their order, until enough GPU has come or enough pods have."""
    order = trace.arrivals(pods, capacity_milli, setup.seed)
    sums = accumulate(pod.demand.total_gpu_milli for pod in order)
    enough = sum(1 for _ in takewhile(lambda arrived: 100 * arrived <= setup.arrived * capacity_milli, sums))
    return order[: min(enough, setup.pods or enough)]


def by_percent(curves: Curves) -> dict[int, float]:
    """Return what was allocated at each percent that the run came to."""
    return {percent: value for percent, value in enumerate(curves.allocated) if not isnan(value)}


def shown(arrivals: Sequence[Pod]) -> Iterator[Pod]:
    """Yield the pods, with progress on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield from progress.track(arrivals, description="pods")


if __name__ == "__main__":
    typer.run(main)
