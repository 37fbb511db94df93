"""How long the event loop of an extender stands still when a node of a new class comes: what calls about all other nodes wait at most.

Used by `topology_classes`. A hundred nodes are served; every millisecond the loop wakes up and answers one filter or prioritize for a pod of 1 to 8 GPUs. Then the node comes, and its
class is worked out until there is nothing left to find out, by `Deepening` or, for comparison, on the loop. What counts is the longest time from one wake-up to the next, less the
millisecond: by the clock, and as processor time of the loop's own thread, which leaves out what else the machine did meanwhile.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle
from typing import Any, Final

import orjson
import uvloop

from bench.snapshot import make
from extender.cluster import Cluster
from extender.deepening import Deepening
from extender.metrics import Metrics
from extender.settings import Settings
from extender.snapshot_file import SnapshotCluster, parse_snapshot
from extender.verbs import Clocks, Verbs
from topology.collective import Depth
from topology.matrix import LinkMatrix

_NODES: Final = 100
_PAUSE_S: Final = 0.001
_BESIDES_S: Final = 0.5  # that is looked at before the node comes, and after there is nothing left to find out


@dataclass(frozen=True, slots=True)
class Stop:
    """The longest time in which the loop answered nobody, in ms: by the clock, and processor time of its thread."""

    wall: float
    cpu: float


def longest_stop(matrix: LinkMatrix | None, depth: Depth, runs: int = 5) -> Stop:
    """Return the median over some runs; ``depth`` is how far the state works a class out on the loop. Without a matrix no node comes."""
    found = [uvloop.run(_longest_stop(matrix, depth)) for _ in range(runs)]
    return Stop(statistics.median(one.wall for one in found), statistics.median(one.cpu for one in found))


async def _longest_stop(matrix: LinkMatrix | None, depth: Depth) -> Stop:
    verbs = _extender()
    wall: list[float] = []
    cpu: list[float] = []
    answering = asyncio.create_task(_answer_all_the_time(verbs, wall, cpu))
    await asyncio.sleep(_BESIDES_S)
    wall.clear()
    cpu.clear()
    verbs.cluster.depth = depth
    if matrix is not None:
        verbs.cluster.apply_topology(_topology_of(matrix))
        deepening = Deepening(verbs.cluster, lambda: True)
        while await deepening.deepen_next():
            pass
    await asyncio.sleep(_BESIDES_S)
    answering.cancel()
    return Stop(1000 * max(wall), 1000 * max(cpu))


def _extender() -> Verbs:
    cluster = Cluster("nvidia.com/gpu", time.monotonic)
    source = SnapshotCluster(parse_snapshot(orjson.dumps(make(_NODES, 0.5, 0)), "bench"), cluster)
    source.feed()
    return Verbs(cluster, source, Metrics(), Settings(), Clocks(time.monotonic, lambda: datetime.now(UTC)))


async def _answer_all_the_time(verbs: Verbs, wall: list[float], cpu: list[float]) -> None:
    calls = _calls(verbs)
    last_wall, last_cpu = time.perf_counter(), time.thread_time()
    while True:
        await asyncio.sleep(_PAUSE_S)
        now_wall, now_cpu = time.perf_counter(), time.thread_time()
        wall.append(now_wall - last_wall - _PAUSE_S)
        cpu.append(now_cpu - last_cpu)
        last_wall, last_cpu = now_wall, now_cpu
        next(calls)


def _calls(verbs: Verbs) -> Iterator[bytes]:
    """Yield answers: filter and prioritize in turns."""
    for number, gpus in enumerate(cycle((2, 4, 8, 1))):
        metadata = {"namespace": "bench", "name": f"pod-{number}", "uid": f"uid-{number}"}
        pod = {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]}}
        body = orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": verbs.cluster.view().names})
        yield verbs.filter(body)
        yield verbs.prioritize(body)


def _topology_of(matrix: LinkMatrix) -> dict[str, Any]:
    """Return a GPUTopology with these links, of a class that no other run has seen."""
    memory = 1 + time.time_ns() % 10**9
    gpus = [{"index": at, "uuid": f"GPU-{at}", "memoryMiB": memory} for at in range(matrix.size)]
    rows = [["X" if a == b else getattr(matrix.between(a, b), "text", "-") for b in range(matrix.size)] for a in range(matrix.size)]
    return {"metadata": {"name": "new"}, "spec": {"gpus": gpus, "links": {"gpus": rows}}}
