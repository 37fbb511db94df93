"""The openb replay through a running extender: filter, prioritize and bind over HTTP, ties broken at random by the client, as kube-scheduler breaks them.

`python -m bench.placement_http --data DIR [--trace NAME] [--seeds A:B] [--json FILE]`. For each seed `linkwise serve --snapshot` serves the trace's nodes and pods on 127.0.0.1; this program plays
kube-scheduler: it asks with the nodes that have CPU and memory left, takes a node of the highest score, at random among equals, and has the extender bind. What the pod got is read from
the bindings that the extender posted. Beside each run stands the same seed through the same code without HTTP. Writes placement_http.md and placement_http.json.
"""

import json
import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import httpx
import numpy as np
import orjson
import typer
from rich.console import Console
from rich.progress import Progress

from bench import machine
from bench.latency.servers import process
from bench.markdown import table
from bench.openb import replay, trace
from bench.openb.cluster import Placement
from bench.openb.objects import job_of, name_of, snapshot_of
from bench.openb.policies.linkwise import LinkwisePolicy, workload_of
from bench.openb.replay import Curves, Surroundings
from bench.openb.trace import Pod
from bench.placement_quality import read, seeds_of, surroundings
from topology.api import Allocation
from topology.api.annotations import ALLOCATION
from topology.errors import InternalError

NAME: Final = "placement_http"
_PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Result:
    """GPU allocated, percent of the cluster, when 100 and 130 percent has arrived: over HTTP and by the same code in one process."""

    trace: str
    seed: int
    http_100: float
    http_130: float
    direct_100: float
    direct_130: float


def main(
    data: Annotated[Path, typer.Option(help="Folder with openb/.", exists=True, file_okay=False)],
    trace_name: Annotated[str, typer.Option("--trace", help="The trace that is replayed.")] = "default",
    seeds: Annotated[str, typer.Option(help="A:B, from A to below B.")] = "0:10",
    json_file: Annotated[Path | None, typer.Option("--json", help="Where the runs go as JSON; beside the table, if not named.")] = None,
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
) -> None:
    """Replay a trace over HTTP and write bench/results/placement_http.*."""
    with Progress(console=Console(stderr=True)) as progress:
        found = [run(data, trace_name, seed, progress) for seed in seeds_of(seeds)]
    path = json_file or results / f"{NAME}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"measured": machine.facts(), "runs": [asdict(one) for one in found]}, indent=1) + "\n", encoding="utf-8")
    machine.write(NAME, f"{machine.heading('Quality of placement over HTTP', timed=False)}\n{text(found)}", results)


def text(found: Sequence[Result]) -> str:
    """Return the table: a row a seed, and the means."""
    figures = ("http_100", "direct_100", "http_130", "direct_130")
    rows: list[Sequence[object]] = [(one.seed, *(f"{getattr(one, figure):.2f}" for figure in figures)) for one in found]
    rows.append(("mean", *(f"{statistics.fmean(getattr(one, figure) for one in found):.2f}" for figure in figures)))
    return (
        f"Trace {found[0].trace}. GPU allocated, percent of the cluster, when 100 / 130 percent has arrived: through filter, prioritize and bind of `linkwise serve`, ties broken at random by the "
        "client, and by the same code without HTTP, ties by the order of nodes.\n\n"
        + table(("seed", "HTTP at 100", "direct at 100", "HTTP at 130", "direct at 130"), rows)
    )


def run(data: Path, trace_name: str, seed: int, progress: Progress) -> Result:
    """Return the figures of one seed."""
    nodes, pods, target = read(data, trace_name)
    around = surroundings(nodes, target, seed)
    arrivals = trace.arrivals(pods, around.cluster.capacity_milli, seed)
    direct = replay.run(around, LinkwisePolicy(around), arrivals)
    over_http = _over_http(surroundings(nodes, target, seed), arrivals, progress)
    return Result(trace_name, seed, over_http.allocated[100], over_http.allocated[130], direct.allocated[100], direct.allocated[130])


def _over_http(around: Surroundings, arrivals: Sequence[Pod], progress: Progress) -> Curves:
    bar = progress.add_task(f"seed {around.seed}", total=len(arrivals))
    with serving(around, arrivals) as (client, path), path.open(encoding="utf-8") as bindings:
        client.put("/api/v1/workload", content=orjson.dumps(workload_of(around.target))).raise_for_status()
        curves = replay.run(around, OverHttp(around, client, bindings), progress.track(arrivals, task_id=bar))
    progress.remove_task(bar)
    return curves


@contextmanager
def serving(around: Surroundings, arrivals: Sequence[Pod]) -> Iterator[tuple[httpx.Client, Path]]:
    """Serve the trace until the block ends: a client, and the file of bindings."""
    with tempfile.TemporaryDirectory() as folder:
        snapshot, bindings = Path(folder, "snapshot.json"), Path(folder, "bindings")
        objects = snapshot_of(around.cluster.nodes).to_list()
        objects["items"] += [raw_of(pod) for pod in arrivals]
        snapshot.write_bytes(orjson.dumps(objects))
        bindings.touch()
        command = ("extender", "serve", "--snapshot", str(snapshot), "--port", "0", "--bindings", str(bindings))
        with process(*command) as url, httpx.Client(base_url=url, timeout=_PATIENCE_S, trust_env=False) as client:
            yield client, bindings


def raw_of(pod: Pod) -> dict[str, Any]:
    """Return the pod as an API server stores it."""
    job = job_of(pod)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        **job.pod,
        "metadata": {**job.pod["metadata"], "uid": f"uid-{pod.name}"},
        "status": {"phase": "Pending"},
    }


class OverHttp:
    """kube-scheduler's part as a placer."""

    def __init__(self, around: Surroundings, client: httpx.Client, bindings: TextIO) -> None:
        self._cluster = around.cluster
        self._client = client
        self._bindings = bindings
        self._draws = random.Random(f"http {around.seed}")

    def place(self, pod: Pod) -> Placement | None:
        """Make the three calls; None where the extender leaves no node."""
        raw = raw_of(pod)
        names = self._names(pod)
        fitting = self._call("filter", {"Pod": raw, "Nodes": None, "NodeNames": names})["NodeNames"] if names else []
        if not fitting:
            return None
        node = fitting[0] if len(fitting) == 1 else self._best(raw, fitting)
        uid = raw["metadata"]["uid"]
        error = self._call("bind", {"PodName": pod.name, "PodNamespace": "default", "PodUID": uid, "Node": node})["Error"]
        if error:
            raise InternalError(f"the bench is the only scheduler of its cluster, and yet: {error}")
        return self._bound(pod)

    def _names(self, pod: Pod) -> list[str]:
        """Return the nodes with CPU and memory left, in an order of its own each time: what NodeResourcesFit leaves."""
        demand = pod.demand
        rows = np.flatnonzero((self._cluster.cpu_left >= demand.cpu_milli) & (self._cluster.memory_left >= demand.memory_mib)).tolist()
        self._draws.shuffle(rows)
        return [name_of(row) for row in rows]

    def _best(self, raw: dict[str, Any], names: list[str]) -> str:
        scores = self._call("prioritize", {"Pod": raw, "Nodes": None, "NodeNames": names})
        most = max(one["Score"] for one in scores)
        return str(self._draws.choice([one["Host"] for one in scores if one["Score"] == most]))

    def _bound(self, pod: Pod) -> Placement:
        """Read what was posted."""
        posted = json.loads(self._bindings.readline())
        row = int(posted["target"]["name"].removeprefix(name_of(0)[:-5]))
        if posted["metadata"]["name"] != pod.name:
            raise InternalError(f"a binding of {posted['metadata']['name']} stands where that of {pod.name} was expected")
        if ALLOCATION not in posted["metadata"]["annotations"]:
            return Placement(row, ())
        allocation = Allocation.decode(posted["metadata"]["annotations"][ALLOCATION])
        return Placement(row, tuple(sorted(int(uuid.rpartition("-")[2]) for uuid in allocation.uuids())))

    def _call(self, verb: str, body: dict[str, Any]) -> Any:
        response = self._client.post(f"/{verb}", content=orjson.dumps(body), headers={"Content-Type": "application/json"})
        return orjson.loads(response.raise_for_status().content)


if __name__ == "__main__":
    typer.run(main)
