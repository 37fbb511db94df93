"""Pods that come and go on a nearly full cluster: which policy turns away the least GPU, and keeps F low.

`python -m bench.churn --data DIR [--trace NAME] [--policy NAME] [--load L] [--seeds A:B] [--json FILE]`. Pods are drawn from the trace with replacement and stay for exponential
times, so long that on average they ask for the given percent of the cluster's GPU at a time. What fits nowhere is turned away and does not come again. The first two lifetimes fill the
cluster, the next three are counted. Nothing is timed: the same seeds give the same figures everywhere. Writes churn.md and churn.json.
"""

import json
import os
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from itertools import product
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import machine
from bench.markdown import table
from bench.openb.cluster import Placement
from bench.openb.policies import POLICIES
from bench.openb.replay import LeavingPlacer, Surroundings
from bench.openb.trace import Pod
from bench.placement_quality import known, read, seeds_of, spread, surroundings

NAME: Final = "churn"
FILLING: Final = 2  # mean lifetimes before anything is counted
COUNTED: Final = 3
SAMPLED_EVERY: Final = 50  # arrivals between two looks at F


@dataclass(frozen=True, slots=True)
class Task:
    """One run: percent of the cluster's GPU asked for at a time."""

    data: Path
    trace: str
    policy: str
    load: float
    seed: int


@dataclass(frozen=True, slots=True)
class Result:
    """Percent of the arriving GPU that was turned away, F and GPU allocated as percents of the cluster, means over the counted time; pods that were turned away."""

    policy: str
    trace: str
    load: float
    seed: int
    rejected: float
    fragmentation: float
    allocated: float
    rejected_pods: int


def main(  # noqa: PLR0913, PLR0917 - the options of a command are its parameters
    data: Annotated[Path, typer.Option(help="Folder with openb/.", exists=True, file_okay=False)],
    trace: Annotated[str, typer.Option(help="The trace whose pods come.")] = "default",
    policies: Annotated[list[str] | None, typer.Option("--policy", help=f"Repeatable: {', '.join(POLICIES)}; all, if none is named.")] = None,
    loads: Annotated[list[float] | None, typer.Option("--load", help="Percent, repeatable; 90, 94 and 97, if none is given.")] = None,
    seeds: Annotated[str, typer.Option(help="A:B, from A to below B.")] = "0:5",
    json_file: Annotated[Path | None, typer.Option("--json", help="Where the runs go as JSON; beside the table, if not named.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = os.cpu_count() or 1,
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
) -> None:
    """Let pods come and go under every policy and write bench/results/churn.*."""
    names = known("--policy", policies, tuple(POLICIES))
    tasks = [Task(data, trace, *one) for one in product(names, loads or [90.0, 94.0, 97.0], seeds_of(seeds))]
    found = sorted(spread(run, tasks, jobs), key=lambda one: (one.load, names.index(one.policy), one.seed))
    path = json_file or results / f"{NAME}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"measured": machine.facts(), "runs": [asdict(one) for one in found]}, indent=1) + "\n", encoding="utf-8")
    machine.write(NAME, f"{machine.heading('Quality of placement: pods that come and go', timed=False)}\n{text(found)}", results)


def text(found: Sequence[Result]) -> str:
    """Return the table: a row a policy, two columns a load, the mean over the seeds; the best of each column in bold."""
    loads, names = sorted({one.load for one in found}), list(dict.fromkeys(one.policy for one in found))
    columns = [[_mean(found, name, load, figure) for name in names] for load in loads for figure in ("rejected", "fragmentation")]
    rows = [
        (name, *(f"**{column[at]:.2f}**" if column[at] == min(column) else f"{column[at]:.2f}" for column in columns))
        for at, name in enumerate(names)
    ]
    head = ("policy", *(f"{what} at {load:g}" for load in loads for what in ("rejected", "F")))
    seeds = sorted({one.seed for one in found})
    return (
        f"Trace {found[0].trace}, seeds {seeds[0]} to {seeds[-1]}. Pods arrive and leave; load: GPU that they ask for at a time, percent of the cluster. Rejected: percent of the "
        "arriving GPU that found no room; F: percent of the cluster. Means over three mean lifetimes after two of filling.\n\n" + table(head, rows)
    )


def _mean(found: Sequence[Result], policy: str, load: float, figure: str) -> float:
    return statistics.fmean(getattr(one, figure) for one in found if (one.policy, one.load) == (policy, load))


def run(task: Task) -> Result:
    """Return one run."""
    nodes, pods, target = read(task.data, task.trace)
    around = surroundings(nodes, target, task.seed)
    placer = POLICIES[task.policy](around)
    draws = random.Random(f"churn {task.seed}")
    asked = statistics.fmean(pod.demand.total_gpu_milli for pod in pods)
    lifetime = task.load / 100 * around.cluster.capacity_milli / asked  # in arrivals
    return _Churn(task, around, placer).counted(pods, lifetime, draws)


class _Churn:
    """One run at work."""

    def __init__(self, task: Task, around: Surroundings, placer: LeavingPlacer) -> None:
        self._task = task
        self._around = around
        self._placer = placer
        self._leaving: list[tuple[float, int, Pod]] = []
        self._placed: dict[str, Placement] = {}

    def counted(self, pods: Sequence[Pod], lifetime: float, draws: random.Random) -> Result:
        """Let pods come and go, and count what came after the filling."""
        cluster, measure = self._around.cluster, self._around.fragmentation
        filling, last = int(FILLING * lifetime), int((FILLING + COUNTED) * lifetime)
        asked = rejected = rejected_pods = 0
        fragments, allocated = [], []
        for number in range(last):
            self._leave_until(number)
            drawn = pods[draws.randrange(len(pods))]
            until = number + draws.expovariate(1 / lifetime)
            is_placed = self._arrive(Pod(f"{drawn.name}-{number}", drawn.demand), number, until)
            if number >= filling:
                asked += drawn.demand.total_gpu_milli
                rejected += 0 if is_placed else drawn.demand.total_gpu_milli
                rejected_pods += not is_placed
                if number % SAMPLED_EVERY == 0:
                    fragments.append(float(measure.of_nodes(cluster).sum()))
                    allocated.append(cluster.capacity_milli - int(cluster.gpu_left.sum()))
        share = 100 / cluster.capacity_milli
        task = self._task
        return Result(
            task.policy,
            task.trace,
            task.load,
            task.seed,
            100 * rejected / asked,
            share * statistics.fmean(fragments),
            share * statistics.fmean(allocated),
            rejected_pods,
        )

    def _arrive(self, pod: Pod, number: int, until: float) -> bool:
        placement = self._placer.place(pod)
        if placement is None:
            return False
        self._around.cluster.take(pod.demand, placement)
        self._placed[pod.name] = placement
        heappush(self._leaving, (until, number, pod))
        return True

    def _leave_until(self, number: float) -> None:
        while self._leaving and self._leaving[0][0] <= number:
            pod = heappop(self._leaving)[2]
            self._around.cluster.give_back(pod.demand, self._placed.pop(pod.name))
            self._placer.leave(pod)


if __name__ == "__main__":
    typer.run(main)
