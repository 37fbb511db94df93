"""How much of a cluster a policy can fill: the FGD paper's experiment on the Alibaba openb trace, beside its published figures.

`python -m bench.placement_quality --data DIR [--trace NAME] [--policy NAME] [--seeds A:B] [--json FILE]`. DIR holds `openb/`, as `bench.openb.trace` describes it.
Every policy on every trace under every seed is one replay; they are spread over the cores. Writes placement_quality.md, every run as JSON, and two pictures; the JSON goes
to FILE where one is named. Nothing is timed: the same seeds give the same figures on every machine.
"""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Annotated

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
) -> None:
    """Replay the trace under every policy and seed and write bench/results/placement_quality.*."""
    names = _known("--policy", policies, tuple(POLICIES))
    traces = _known("--trace", trace_names, trace.present(data), trace.TRACES)
    tasks = [Task(data, *one) for one in product(traces, names, _seeds(seeds))]
    runs = Runs(sorted(_replayed(tasks, jobs), key=lambda run: (traces.index(run.trace), names.index(run.policy), run.seed)))

    plots.curves(runs, traces[0], results / f"{NAME}_curves.svg")
    plots.bars(runs, results / f"{NAME}_traces.svg")
    path = json_file or results / f"{NAME}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_json(runs), encoding="utf-8")
    machine.write(
        NAME, f"{machine.heading('Quality of placement: how much of a cluster gets filled', timed=False)}\n{report.text(runs, data)}", results
    )


def as_json(runs: Runs) -> str:
    """Return where it was measured, all runs, and the mean curves, a line each."""
    lists = {"runs": map(Run.facts, runs.all), "curves": runs.curves()}
    parts = [f'"measured": {json.dumps(machine.facts())}']
    parts += [f'"{name}": [\n' + ",\n".join(map(json.dumps, found)) + "\n]" for name, found in lists.items()]
    return "{" + ",\n".join(parts) + "}\n"


def _known(option: str, asked: list[str] | None, known: tuple[str, ...], default: tuple[str, ...] = ()) -> tuple[str, ...]:
    for name in asked or ():
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint=option)
    return tuple(dict.fromkeys(asked or default or known))


def _seeds(text: str) -> range:
    first, colon, end = text.partition(":")
    if not (colon and first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise typer.BadParameter(f"{text!r} is not A:B with A below B, as in 0:10", param_hint="--seeds")
    return range(int(first), int(end))


def _replayed(tasks: list[Task], jobs: int) -> Iterator[Run]:
    """Run the tasks over that many processes; progress goes to stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress, ProcessPoolExecutor(min(jobs, len(tasks))) as pool:
        bar = progress.add_task("replays", total=len(tasks))
        for done in as_completed([pool.submit(replayed, task) for task in tasks]):
            progress.advance(bar)
            yield done.result()


def replayed(task: Task) -> Run:
    """Return one run."""
    nodes, pods, target = _read(task.data, task.trace)
    cluster = Cluster(nodes, task.seed)
    surroundings = Surroundings(cluster, target, Fragmentation(target, cluster.models), task.seed)
    placer = POLICIES[task.policy](surroundings)
    return Run(task.policy, task.trace, task.seed, replay.run(surroundings, placer, trace.arrivals(pods, cluster.capacity_milli, task.seed)))


@lru_cache(maxsize=2)
def _read(data: Path, name: str) -> tuple[list[Node], list[Pod], tuple[PodClass, ...]]:
    pods = trace.pods(data, name)
    return trace.nodes(data), pods, workload.target(pods)


if __name__ == "__main__":
    typer.run(main)
