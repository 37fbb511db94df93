"""How much of a cluster a policy can fill: the FGD paper's experiment on the Alibaba openb trace, beside its published figures.

`python -m bench.placement_quality --data DIR [--trace NAME] [--policy NAME] [--seeds A:B] [--json FILE]`. DIR holds `openb/`, as `bench.openb.trace` describes it.
Every policy on every trace under every seed is one replay; they are spread over the cores. Writes placement_quality.md, every run as JSON, and two pictures; the JSON goes
to FILE where one is named. Nothing is timed: the same seeds give the same figures on every machine.
"""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench import machine
from bench.openb import plots, replay, report, trace, workload
from bench.openb.cluster import Cluster
from bench.openb.fragmentation import Fragmentation
from bench.openb.policies import POLICIES
from bench.openb.replay import Surroundings
from bench.openb.report import Run, Runs
from bench.openb.trace import Node, Pod
from bench.openb.workload import PodClass

NAME = "placement_quality"
_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True, slots=True)
class Task:
    """One replay that is to be run."""

    data: Path
    trace: str
    policy: str
    seed: int


def main(  # noqa: PLR0913, PLR0917 - the options of a command are its parameters
    data: Annotated[Path, typer.Option(help="Folder with openb/.", exists=True, file_okay=False)],
    trace_names: Annotated[
        list[str] | None, typer.Option("--trace", help="A trace, repeatable; all that have published figures, if none is named.")
    ] = None,
    policies: Annotated[
        list[str] | None, typer.Option("--policy", help=f"A policy, repeatable: {', '.join(POLICIES)}; all, if none is named.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="A:B, from A to below B.")] = "0:10",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where the runs go as JSON; beside the table, if not named.", dir_okay=False)
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = os.cpu_count() or 1,
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
    stem: Annotated[
        str, typer.Option("--as", help="What the written files are called: runs of some policies need not overwrite those of all.")
    ] = NAME,
) -> None:
    """Replay the trace under every policy and seed and write bench/results/placement_quality.*."""
    names = known("--policy", policies, tuple(POLICIES))
    traces = known("--trace", trace_names, trace.present(data), trace.TRACES)
    tasks = [Task(data, *one) for one in product(traces, names, seeds_of(seeds))]
    runs = Runs(sorted(spread(replayed, tasks, jobs), key=lambda run: (traces.index(run.trace), names.index(run.policy), run.seed)))

    plots.curves(runs, traces[0], results / f"{stem}_curves.svg")
    plots.bars(runs, results / f"{stem}_traces.svg")
    path = json_file or results / f"{stem}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_json(runs), encoding="utf-8")
    machine.write(
        stem, f"{machine.heading('Quality of placement: how much of a cluster gets filled', timed=False)}\n{report.text(runs, data)}", results
    )


def as_json(runs: Runs) -> str:
    """Return where it was measured, all runs, and the mean curves, a line each."""
    lists = {"runs": map(Run.facts, runs.all), "curves": runs.curves()}
    parts = [f'"measured": {json.dumps(machine.facts())}']
    parts += [f'"{name}": [\n' + ",\n".join(map(json.dumps, found)) + "\n]" for name, found in lists.items()]
    return "{" + ",\n".join(parts) + "}\n"


def known(option: str, asked: list[str] | None, accepted: tuple[str, ...], default: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the names that were asked for, once each; ``default``, or all, where none was. Raises BadParameter for one that is not accepted."""
    for name in asked or ():
        if name not in accepted:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(accepted)}", param_hint=option)
    return tuple(dict.fromkeys(asked or default or accepted))


def seeds_of(text: str) -> range:
    """Return the seeds of A:B; raises BadParameter for anything else."""
    first, colon, end = text.partition(":")
    if not (colon and first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise typer.BadParameter(f"{text!r} is not A:B with A below B, as in 0:10", param_hint="--seeds")
    return range(int(first), int(end))


def spread(action: Callable[[_In], _Out], tasks: list[_In], jobs: int) -> Iterator[_Out]:
    """Yield the answers as they come, from that many processes; progress goes to stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress, ProcessPoolExecutor(min(jobs, len(tasks))) as pool:
        bar = progress.add_task("replays", total=len(tasks))
        for done in as_completed([pool.submit(action, task) for task in tasks]):
            progress.advance(bar)
            yield done.result()


def replayed(task: Task) -> Run:
    """Return one run."""
    nodes, pods, target = read(task.data, task.trace)
    around = surroundings(nodes, target, task.seed)
    placer = POLICIES[task.policy](around)
    return Run(task.policy, task.trace, task.seed, replay.run(around, placer, trace.arrivals(pods, around.cluster.capacity_milli, task.seed)))


def surroundings(nodes: list[Node], target: tuple[PodClass, ...], seed: int) -> Surroundings:
    """Return an empty cluster in a seed's order, and F on it."""
    cluster = Cluster(nodes, seed)
    return Surroundings(cluster, target, Fragmentation(target, cluster.models), seed)


@lru_cache(maxsize=2)
def read(data: Path, name: str) -> tuple[list[Node], list[Pod], tuple[PodClass, ...]]:
    """Return nodes, pods and target workload of a trace."""
    pods = trace.pods(data, name)
    return trace.nodes(data), pods, workload.target(pods)


if __name__ == "__main__":
    typer.run(main)
