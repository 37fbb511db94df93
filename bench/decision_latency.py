"""How long filter, prioritize and bind take over HTTP, beside a bare ASGI echo of the same bytes and a null extender in Go in the same run.

`python -m bench.decision_latency` serves a half-full synthetic cluster that changes between calls and plays kube-scheduler: every pod's names in a new order, the same bytes to every server in turns
(`bench.latency.walk`), then filter calls over four connections (`bench.latency.crowd`). The echo is the floor: reading a body and writing one back, in the same server. Quote the
ratios. `--url` measures any other extender with the same load, on its own cluster, which then stays as it is: `--names` are its nodes, one a line, and `--pod` is the pod to be sent.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
import yaml

from bench import machine, snapshot
from bench.latency import load, plots, report, servers
from bench.latency.churn import Churn, Door
from bench.latency.crowd import Crowd
from bench.latency.report import GO, Measured
from bench.latency.scene import scene
from bench.latency.walk import ECHO, FILTER, PRIORITIZE, Server, Walks
from topology.errors import InputError

NAME: Final = "decision_latency"
LINKWISE: Final = "linkwise"
CASES: Final = (
    (100, 100),
    (500, 500),
    (1000, 1000),
    (5000, 5000),
    (5000, 500),
)  # nodes, and how many of them a call names; the last is stock sampling
_CONNECTIONS: Final = 4


class Stream(StrEnum):
    """Which pods come."""

    TWO_GPUS = report.TWO_GPUS
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement: a cluster of so many nodes, calls that name so many of them, and the pods that come."""

    nodes: int
    names: int
    stream: Stream


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: calls of each verb, calls before them that do not count, seconds of the crowd, seed."""

    calls: int
    warm_up: int
    seconds: float
    seed: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """Another extender: where it answers, its nodes, and the pod that it is asked about."""

    server: Server
    names: Sequence[str]
    pod: load.Pod


def main(  # noqa: PLR0913, PLR0917 - the options of a command are its parameters
    calls: Annotated[int, typer.Option(min=10, help="Pods of each measurement.")] = 1000,
    warm_up: Annotated[int, typer.Option(min=1, help="Pods before them that are not counted.")] = 50,
    seconds: Annotated[float, typer.Option(min=0, help="How long calls over four connections are measured, each server; 0 leaves them out.")] = 5,
    seed: int = 0,
    largest: Annotated[int, typer.Option(help="Leave out larger clusters.")] = 5000,
    stream: Annotated[Stream | None, typer.Option(help="Only this stream of pods; both, if not given.")] = None,
    url: Annotated[str, typer.Option(help="Measure this extender instead: http://HOST:PORT/PREFIX.")] = "",
    names: Annotated[Path | None, typer.Option(help="With --url: file of node names, one a line.", exists=True, dir_okay=False)] = None,
    pod: Annotated[Path | None, typer.Option(help="With --url: the pod, as YAML or JSON.", exists=True, dir_okay=False)] = None,
    filter_verb: Annotated[str, typer.Option(help="With --url: its filterVerb.")] = "filter",
    prioritize_verb: Annotated[str, typer.Option(help="With --url: its prioritizeVerb; empty where it has none.")] = "prioritize",
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
    name: Annotated[str, typer.Option(help="Name of the files written.")] = NAME,
) -> None:
    """Measure and write bench/results/decision_latency.md, .json and .svg, or files of another name."""
    effort = Effort(calls, warm_up, seconds, seed)
    try:
        other = foreign(url, names, pod, filter_verb, prioritize_verb) if url else None
        with _others() as others:
            if other is not None:
                found = [measure_foreign(others, other, effort)]
            else:
                chosen = [stream] if stream else list(Stream)
                found = [measure(others, Case(*case, one), effort) for case in CASES if case[0] <= largest for one in chosen]
    except InputError as error:
        raise typer.BadParameter(str(error)) from error
    machine.write_json(name, {"effort": asdict(effort), "measurements": [one.to_json() for one in found]}, results)
    plots.curves(found, results / f"{name}.svg")
    told = _METHOD.format(**asdict(effort)) + ("Its cluster stays as it is, and nothing is bound.\n" if url else _CHANGES)
    machine.write(name, f"{machine.heading('Filter, prioritize and bind over HTTP')}\n{told}\n{report.text(found)}", results)


_METHOD: Final = (
    "{calls} pods each over one connection, {warm_up} before them to warm up, the same bytes to all servers in turns; names in a new order at every call. "
    "*first* is the very first call. calls/s over one connection is the inverse of the mean. "
)
_CHANGES: Final = (
    "Names of 30 to 40 bytes, pods of 2.4 kB. The cluster is half full and changes between calls: one pod is bound, and about one leaves.\n"
)


def measure(others: Sequence[Server], case: Case, effort: Effort) -> Measured:
    """Measure Linkwise on a cluster of its own, beside the others."""
    pods = load.pods(load.STREAMS[case.stream], effort.calls + effort.warm_up, effort.seed)
    most = None if case.names == case.nodes else case.names
    with scene(snapshot.Plan(case.nodes, 0.5, effort.seed), pods) as cluster, servers.linkwise(cluster.file) as (url, door_address, _):
        judge = Server(LINKWISE, url)
        names = load.Names(cluster.names, effort.seed)
        with closing(Door(door_address)) as door:
            churn = Churn(door, cluster.held, effort.seed)
            walked = Walks([*others, judge], judge, names, churn).run(pods, effort.warm_up, most)
            crowds = {}
            if effort.seconds:
                crowd = Crowd(pods, names, most)
                crowds = {one.name: crowd.run(one, _CONNECTIONS, effort.seconds, churn if one is judge else None) for one in (*others, judge)}
    return Measured(case.nodes, case.names, case.stream, LINKWISE, walked, crowds)


@contextmanager
def _others() -> Iterator[list[Server]]:
    """Run the echo, and the null extender where there is Go."""
    with servers.echo() as echo, servers.go_null() as go:
        yield [Server(ECHO, echo, {FILTER: "/", PRIORITIZE: "/"}), *([Server(GO, go)] if go else [])]


def measure_foreign(others: Sequence[Server], other: Foreign, effort: Effort) -> Measured:
    """Measure another extender beside the others; nothing is bound, so its cluster stays as it is."""
    names = load.Names(other.names, effort.seed)
    pods = [other.pod] * (effort.calls + effort.warm_up)
    walked = Walks([*others, other.server], other.server, names, None).run(pods, effort.warm_up)
    crowds = {}
    if effort.seconds:
        crowd = Crowd(pods, names)
        crowds = {one.name: crowd.run(one, _CONNECTIONS, effort.seconds) for one in (*others, other.server)}
    return Measured(len(other.names), len(other.names), other.server.url, other.server.name, walked, crowds)


def foreign(url: str, names: Path | None, pod: Path | None, filter_verb: str, prioritize_verb: str) -> Foreign:
    """Return another extender as it was named on the command line; raises InputError where something is missing."""
    if names is None or pod is None:
        raise InputError("--url needs --names and --pod: the nodes of that extender's cluster, and the pod that it is asked about")
    found = yaml.safe_load(pod.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        raise InputError(f"--pod {pod}: accepted: one Pod with metadata and spec, as YAML or JSON")
    found = {key: value for key, value in found.items() if key not in ("apiVersion", "kind")}  # as kube-scheduler sends it
    paths = {FILTER: f"/{filter_verb}", **({PRIORITIZE: f"/{prioritize_verb}"} if prioritize_verb else {})}
    listed = [line.strip() for line in names.read_text(encoding="utf-8").splitlines() if line.strip()]
    return Foreign(Server("extender", url, paths), listed, load.Pod(load.TWO_GPUS[0], found, load.go_json(found)))


if __name__ == "__main__":
    typer.run(main)
