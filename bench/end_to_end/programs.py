"""What a round starts for itself: a fresh kube-scheduler, and the extender of its variant.

`beside` runs them until its block ends, so that no program of one variant takes time from another. kube-scheduler's client limits are in the thousands: they are what would be measured
otherwise. The null extender is built with Go once a run (`bench/null_extender`).
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from bench import machine
from bench.end_to_end.cluster import LoadedCluster
from bench.end_to_end.door import Door
from bench.end_to_end.expositions import Counts, scrape
from bench.end_to_end.processes import children
from bench.end_to_end.variants import Variant, Who, configuration
from tests.e2e.calls import answers_ok
from tests.e2e.extender import RunningExtender, serve
from tests.e2e.program import Program, StartError, free_port

JsonObject = dict[str, Any]

NULL_EXTENDER: Final = Path(__file__).parents[1] / "null_extender"
# What is published once at the start stays true: no agents run.
SETTINGS: Final = {"LINKWISE_STALE_AFTER_S": "864000", **machine.COMPILED}
_CLIENT: Final = {"qps": 5000, "burst": 5000}
_START_S: Final = 120.0
_QUIET_S: Final = 12.0  # the target is looked at every 10 s
# How long nothing must be worked out before a round begins. A test that asks whether figures come, and not how large they are, sets it to 0.
_QUIET_BY: Final = "LINKWISE_BENCH_QUIET_S"


@dataclass(slots=True)
class Beside:
    """The programs of a round. ``extender_url`` is empty where nobody is asked."""

    scheduler: Program
    metrics_url: str
    extender_url: str = ""
    extender: RunningExtender | None = None
    pids: dict[str, int] = field(default_factory=dict)

    def scheduler_counts(self) -> Counts:
        """Read what kube-scheduler counts."""
        return scrape(self.metrics_url)

    def extender_counts(self) -> Counts:
        """Read what Linkwise counts; nothing for the others, which do not."""
        return scrape(f"{self.extender_url}/metrics") if self.extender is not None else Counts({})


@contextmanager
def beside(cluster: LoadedCluster, variant: Variant) -> Iterator[Beside]:
    """Run the extender of a variant and a fresh kube-scheduler."""
    with asked(cluster, variant.who) as (url, extender, pids):
        scheduler, metrics_url = start_scheduler(cluster, configuration(variant, url), variant.gates_off)
        try:
            yield Beside(scheduler, metrics_url, url, extender, {**pids, "kube-scheduler": scheduler.pid})
        finally:
            scheduler.stop()


@contextmanager
def asked(cluster: LoadedCluster, who: Who) -> Iterator[tuple[str, RunningExtender | None, dict[str, int]]]:
    """Run an extender; yields its URL, Linkwise's own face, and its process."""
    if who is Who.NOBODY:
        yield "", None, {}
    elif who is Who.NULL:
        program, url = start_null_extender(cluster)
        try:
            yield url, None, {"extender": program.pid}
        finally:
            program.stop()
    else:
        extender = serve(cluster.plane, environment=SETTINGS).wait_leads(timeout=_START_S)
        extender.wait_open(*cluster.names, timeout=_START_S)
        wait_settled(extender.program.pid)
        try:
            yield extender.url, extender, {"extender": extender.program.pid}
        finally:
            extender.stop()


def wait_settled(pid: int) -> None:
    """Wait until a fresh extender has worked out what its cluster is asked for: beside the calls, in children, some seconds of a processor each time that the target workload moves."""
    quiet_s = float(os.environ.get(_QUIET_BY, _QUIET_S))
    deadline, quiet_at = time.monotonic() + _START_S, time.monotonic()
    while time.monotonic() - quiet_at < quiet_s and time.monotonic() < deadline:
        time.sleep(0.2)
        if children(pid):
            quiet_at = time.monotonic()


def start_scheduler(cluster: LoadedCluster, settings: JsonObject, gates_off: tuple[str, ...] = ()) -> tuple[Program, str]:
    """Start kube-scheduler under its own account; returns it, and the URL of its metrics once its informers have synced."""
    plane, port = cluster.plane, free_port()
    path = plane.directory / f"scheduler-{port}.json"
    connection = {"kubeconfig": str(plane.kubeconfig("kube-scheduler")), **_CLIENT}
    path.write_bytes(orjson.dumps({**settings, "clientConnection": connection, "leaderElection": {"leaderElect": False}}))
    gates = (f"--feature-gates={','.join(f'{gate}=false' for gate in gates_off)}",) if gates_off else ()
    command = (
        *(plane.programs["kube-scheduler"], "--config", path, "--bind-address=127.0.0.1", f"--secure-port={port}"),
        "--authentication-tolerate-lookup-failure=true",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        *gates,
    )
    url = f"https://127.0.0.1:{port}"
    return plane.run("kube-scheduler", command).wait_ready(lambda: answers_ok(f"{url}/readyz"), _START_S), f"{url}/metrics"


def build_null_extender(directory: Path) -> Path:
    """Build the null extender into a directory, unless it is there; raises StartError where Go cannot."""
    target = directory / "null-extender"
    if not target.exists():
        go = shutil.which("go")
        if go is None:
            raise StartError("the null extender is built with Go, and there is no `go` on the PATH")
        done = subprocess.run([go, "build", "-o", target, "."], cwd=NULL_EXTENDER, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise StartError(f"go build in {NULL_EXTENDER}: {done.stderr}")
    return target


def start_null_extender(cluster: LoadedCluster) -> tuple[Program, str]:
    """Start the null extender, which binds under the account of Linkwise's own extender; returns it and its URL.

    The administrator's calls are exempt from the API server's flow control and from its roles, and so a little cheaper.
    """
    binary = build_null_extender(cluster.plane.directory)
    with closing(Door(cluster.plane, "linkwise-extender")) as account:
        program = cluster.plane.run("null-extender", (binary, "-server", account.url, "-token", account.token))
    return program, re.match(r"http://\S+", program.wait_log(r"^http://\S+")[0])[0]  # type: ignore[index]  # the log has matched already
