"""Half an hour of a living cluster: whether the extender stays small, quick and right.

`python -m bench.soak [--minutes M] [--nodes N]`, from the repository's root; not part of any test. A real kube-apiserver and kube-scheduler with the shipped configuration and policies, KWOK's nodes, `linkwise serve`, and
around it whatever happens on a cluster (`life`): pods arrive and leave in several ways, nodes flap, GPUs fail, links break, and every node's agent gives a sign of life every 60 s. All the time somebody who shares no code
with the extender looks whether any GPU is given twice (`watching`). Writes soak.md, .json and .svg, judged by `judging`.
"""

import http.client
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import orjson
import typer

from bench import machine
from bench.end_to_end.cluster import LoadedCluster, running
from bench.end_to_end.processes import read_cpu, read_resident_mib
from bench.end_to_end.programs import start_scheduler
from bench.soak import report
from bench.soak.judging import Found, Sample, judge, read_log
from bench.soak.life import Life
from bench.soak.watching import Watching
from tests.e2e.extender import RunningExtender, serve, shipped_configuration

NAME: Final = "soak"
_SAMPLE_EVERY_S: Final = 5.0


def main(
    minutes: Annotated[float, typer.Option(min=0.5, help="How long.")] = 30.0,
    nodes: Annotated[int, typer.Option(min=50, help="Size of the cluster.")] = 5000,
    seed: int = 0,
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
) -> None:
    """Run a soak and write bench/results/soak.*; the status is 1 where a target is missed."""
    with running(nodes, seed) as cluster:
        _say(f"{nodes} nodes are there")
        cluster.fill()
        cluster.allow_only_linkwise()
        found, happened = _soak(cluster, minutes, seed)
    verdicts = judge(found)
    machine.write_json(NAME, {"nodes": nodes, "verdicts": [asdict(one) for one in verdicts], "happened": happened, **asdict(found)}, results)
    title = f"{minutes:g} minutes on {nodes} nodes"
    machine.write(NAME, f"{machine.heading(title)}{report.text(found, verdicts, happened)}", results)
    report.draw(found, results / f"{NAME}.svg")
    if not all(one.met for one in verdicts):
        raise typer.Exit(1)


def _soak(cluster: LoadedCluster, minutes: float, seed: int) -> tuple[Found, dict[str, Any]]:
    extender = serve(cluster.plane).wait_leads(timeout=120)
    start_scheduler(cluster, shipped_configuration(extender.url))
    teller = Teller(extender.url)
    life = Life(cluster, teller.healthy, seed)
    watching = Watching(cluster, life.created_at)
    began = time.monotonic()
    life.start()
    _say("life has begun")
    samples: list[Sample] = []
    while time.monotonic() - began < 60 * minutes:
        time.sleep(_SAMPLE_EVERY_S)
        samples.append(_sample(extender, life, watching, began))
        if len(samples) % 12 == 0:
            _say(
                f"{samples[-1].at_s / 60:.0f} min: {samples[-1].resident_mib:.0f} MiB, {samples[-1].bound} bound, {samples[-1].waiting} wait, {len(watching.wrong)} wrong"
            )
    life.stop()
    teller.close()
    watching.stop()
    found = Found(
        minutes,
        tuple(samples),
        tuple((at - began, lag) for at, lag in life.lags),
        tuple((at - began, wait) for at, wait in watching.waits),
        tuple(watching.wrong),
        watching.steps,
        (*life.troubles, *watching.troubles),
        read_log(extender.program.text()),
    )
    return found, {
        "pods created": life.made,
        "pods bound": len(watching.waits),
        "pods deleted": life.deleted,
        "nodes that flapped": life.flaps,
        "GPUs that failed, links that broke": life.changes,
        "heartbeats of agents": life.heartbeats,
        "a heartbeat was late by at most": f"{life.behind_s:.1f} s",
        "pods that fill": watching.fillers,
    }


def _sample(extender: RunningExtender, life: Life, watching: Watching, began: float) -> Sample:
    pid = extender.program.pid
    bound = len(watching.waits)
    return Sample(time.monotonic() - began, read_resident_mib(pid), read_cpu({NAME: pid}).seconds[NAME], life.made - bound, bound)


class Teller:
    """The extender's read API over one kept connection; used by one thread."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)

    def healthy(self, node: str, uuid: str) -> bool | None:
        """Tell whether the extender believes a GPU healthy, None where it does not know the node."""
        self._connection.request("GET", f"/api/v1/nodes/{node}")
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            return None
        return next((bool(gpu["healthy"]) for gpu in orjson.loads(body).get("gpus", ()) if gpu["uuid"] == uuid), None)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _say(sentence: str) -> None:
    sys.stderr.write(f"soak: {sentence}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
