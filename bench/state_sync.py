"""What it costs to take in a whole cluster, beside fetching the same pages and decoding them; and what stays in memory.

`python -m bench.state_sync`: a list server in another process (`watch_stream_server`), then in processes of their own, in turns, a client that fetches every page and calls orjson.loads, and
the reflectors and the state of the extender until they are synced. Times are processor time, which other work on the machine moves less, and by the clock. Memory is what the second process
holds after the sync beyond what it held before, for clusters of several sizes: bytes per node, per pod without GPUs and per pod with some.
"""

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer
import uvloop
from kubernetes.aio.client import Configuration

from bench import machine, markdown
from extender.cluster import Cluster
from extender.kube.client import KubeClient
from extender.kube.sinks import ConfigMapSink, NodeSink, PodSink, TopologySink
from extender.kube.watch import NODES, PODS, TOPOLOGIES, UNHEALTHY, Reflector
from extender.memory import collect_rarely

_MB: Final = 1e6
_PAGE: Final = 500  # of the floor: a decoded page that fits a processor's caches costs least, so this is the hardest to be compared with
_SIZES: Final = ((1_000, 10_000), (10_000, 100_000), (50_000, 200_000))


@contextmanager
def list_server(nodes: int, pods: int, lives: int = 0) -> Iterator[str]:
    """Run a list server and yield its URL."""
    command = [sys.executable, "-m", "bench.watch_stream_server", "--nodes", str(nodes), "--pods", str(pods), "--lives", str(lives)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def client_of(url: str) -> KubeClient:
    """Return a client of a server without authentication."""
    configuration = Configuration()
    configuration.host = url
    return KubeClient(configuration)


def resident() -> int:
    """Return the bytes that this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


class _Began:
    """When something began, by the clock and by the processor."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def passed(self) -> dict[str, float]:
        """Return the seconds since."""
        return {"wall": time.perf_counter() - self._wall, "cpu": time.process_time() - self._cpu}


async def _fetch(url: str) -> dict[str, Any]:
    """Fetch all pages of all kinds and decode them, keeping nothing."""
    began = _Began()
    objects = size = 0
    async with client_of(url) as client:
        for resource in (TOPOLOGIES, NODES, UNHEALTHY, PODS):
            onward = ""
            while True:
                data = await client.raw("GET", resource.path, {"limit": str(_PAGE), **({"continue": onward} if onward else {})})
                page = orjson.loads(data)
                objects, size = objects + len(page["items"]), size + len(data)
                onward = page["metadata"].get("continue")
                if not onward:
                    break
    return {"objects": objects, "bytes": size, **began.passed()}


async def _sync(url: str) -> dict[str, Any]:
    """Take everything in as `serving` does."""
    began = _Began()
    cluster = Cluster("nvidia.com/gpu", time.monotonic, needs_observation=True)
    async with client_of(url) as client:
        reflectors = (
            Reflector(client, TOPOLOGIES, TopologySink(cluster), time.monotonic),
            Reflector(client, NODES, NodeSink(cluster), time.monotonic),
            Reflector(client, UNHEALTHY, ConfigMapSink(cluster), time.monotonic),
            Reflector(client, PODS, PodSink(cluster), time.monotonic),
        )
        tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
        await asyncio.gather(*(reflector.synced.wait() for reflector in reflectors))
        found: dict[str, Any] = {**began.passed(), "rows": cluster.view().rows, "pods": len(set(cluster.pod_uids())), "entries": len(cluster.ledger)}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        gc.collect()
        return found | {"resident": resident()}


def _child(what: str, url: str) -> None:
    collect_rarely()
    before = resident()
    found = uvloop.run(_fetch(url) if what == "fetch" else _sync(url))
    print(orjson.dumps({**found, "before": before}).decode())


def measured(what: str, url: str) -> dict[str, Any]:
    """Run one of the two in a process of its own and return what it found."""
    environment = {**os.environ, **machine.COMPILED}
    command = [sys.executable, "-m", "bench.state_sync", "--child", what, "--url", url]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment).stdout  # noqa: S603
    found: dict[str, Any] = orjson.loads(output)
    return found


def times(nodes: int, pods: int, runs: int) -> tuple[list[list[str]], dict[str, Any]]:
    """Return the rows of the table of times, and the figures behind them."""
    figures: dict[str, list[dict[str, Any]]] = {"fetch": [], "sync": []}
    with list_server(nodes, pods) as url:
        for _ in range(runs):
            for what, found in figures.items():
                found.append(measured(what, url))
    rows = []
    for key, name in (("cpu", "processor time, s"), ("wall", "by the clock, s")):
        fetch, sync = (statistics.median(one[key] for one in figures[what]) for what in ("fetch", "sync"))
        ratio = statistics.median(a[key] / b[key] for a, b in zip(figures["sync"], figures["fetch"], strict=True))
        rows.append([name, f"{fetch:.2f}", f"{sync:.2f}", f"{ratio:.2f}"])
    return rows, figures


def memory() -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Return the rows of the table of memory, and the figures behind them.

    Of each number of nodes there are three clusters: without pods, with GPU pods alone, with all; what one node alone costs is what everybody has.
    """
    one = _of_size(1, 0)
    rows, figures = [], [one]
    for nodes, pods in _SIZES:
        bare, gpu_pods, whole = (_of_size(nodes, number) for number in (0, 1, pods))
        figures += [bare, gpu_pods, whole]
        plain = pods - gpu_pods["pods"]
        rows.append(
            [
                f"{nodes:,}",
                f"{gpu_pods['pods']:,} + {plain:,}",
                f"{whole['resident'] / _MB:.0f}",
                f"{(bare['resident'] - one['resident']) / nodes / 1000:.1f}",
                f"{(gpu_pods['resident'] - bare['resident']) / gpu_pods['pods'] / 1000:.1f}",
                f"{(whole['resident'] - gpu_pods['resident']) / plain / 1000:.2f}",
                f"{whole['cpu']:.1f}",
            ]
        )
    return rows, figures


def _of_size(nodes: int, pods: int) -> dict[str, Any]:
    """Take in a cluster of a size; ``pods`` 1 is as many as have GPUs."""
    with list_server(nodes, pods) as url:
        return {"nodes": nodes, **measured("sync", url)}


def main(
    nodes: int = 10_000,
    pods: int = 100_000,
    runs: int = 3,
    sizes: Annotated[bool, typer.Option(help="Also measure memory by size.")] = True,
    child: Annotated[str, typer.Option(hidden=True)] = "",
    url: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Measure and write bench/results/state_sync.md."""
    if child:
        _child(child, url)
        return
    rows, figures = times(nodes, pods, runs)
    text = machine.heading("Taking in a cluster")
    text += f"\n{nodes:,} nodes and {pods:,} pods, {figures['fetch'][0]['bytes'] / _MB:.0f} MB; the floor fetches pages of {_PAGE}; medians of {runs} runs in turns.\n\n"
    text += markdown.table(["", "fetch and orjson.loads", "fetch and take in", "ratio"], rows)
    if sizes:
        by_size, found = memory()
        head = ["nodes", "pods with GPUs + without", "RSS, MB", "kB a node", "kB a pod with GPUs", "kB a pod without", "start, s of processor"]
        text += "\nMemory of the whole process by size, and what one more of each takes.\n\n" + markdown.table(head, by_size)
        figures["memory"] = found
    machine.write("state_sync", text)
    machine.write_json("state_sync", figures)


if __name__ == "__main__":
    typer.run(main)
