"""How start-up, memory and a decision grow with the cluster: 1,000, 10,000 and 50,000 nodes of 8 GPUs, half full.

`python -m bench.scale [--sizes 1000,10000]`. For each size `linkwise serve --snapshot` is started on a synthetic snapshot, beside a process that reads and decodes the same bytes with
orjson and holds what comes out: the floor of any start from that file. Then filter calls that name every node in a new order, with a bind between two calls. What a process costs before it has seen any
node is told apart, by a cluster of one. 50,000 nodes take some GB of memory and minutes.
"""

import gc
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from bench import machine, snapshot
from bench.latency import answers, load
from bench.latency.resident import Resident, processor_s, resident
from bench.latency.scene import Scene, scene
from bench.latency.servers import program, url_in
from bench.latency.wire import Connection
from bench.markdown import table
from topology.errors import InputError

NAME: Final = "scale"
KINDS: Final = ("bridges", "dgx1v", "nvswitch", "pcie")  # those of 8 GPUs
START_OF_FLOOR: Final = 3.0
DECISION_GROWTH: Final = 3.0  # at 10,000 nodes over 1,000


@dataclass(frozen=True, slots=True)
class Floor:
    """Reading and decoding the same bytes: seconds by the clock and of processor time, MiB resident afterwards and at most."""

    seconds: float
    processor_s: float
    rss_mib: float
    peak_mib: float
    items: int


@dataclass(frozen=True, slots=True)
class Grown:
    """One size; ``start_s`` and ``start_processor_s`` from the start of the process to the first call that it takes; decisions in ms."""

    nodes: int
    gpus: int
    pods: int
    file_mb: float
    floor: Floor
    start_s: float
    start_processor_s: float
    memory: Resident
    first_ms: float
    warm_ms: float


@dataclass(frozen=True, slots=True)
class Serving:
    """A running Linkwise: seconds until it took calls, by the clock and of processor time."""

    url: str
    pid: int
    start_s: float
    start_processor_s: float


def main(
    sizes: Annotated[str, typer.Option(help="Numbers of nodes, with commas between them.")] = "1000,10000,50000",
    calls: Annotated[int, typer.Option(min=3, help="Warm decisions of which the median is taken.")] = 40,
    seed: int = 0,
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
) -> None:
    """Measure and write bench/results/scale.md and .json."""
    try:
        numbers = read_sizes(sizes)
    except InputError as error:
        raise typer.BadParameter(str(error)) from error
    empty = measure(1, 3, seed)
    found = [measure(nodes, calls, seed) for nodes in numbers]
    machine.write_json(NAME, {"calls": calls, "seed": seed, "empty": asdict(empty), "sizes": [asdict(one) for one in found]}, results)
    machine.write(NAME, f"{machine.heading('How start-up, memory and a decision grow')}\n{text(empty, found)}", results)


def read_sizes(sizes: str) -> list[int]:
    """Return the numbers of nodes; raises InputError for anything else."""
    if not re.fullmatch(r"\d{1,6}(,\d{1,6})*", sizes) or not all(0 < int(size) <= snapshot.MOST_NODES for size in sizes.split(",")):
        raise InputError(f"--sizes {sizes}: accepted: numbers of 1 to {snapshot.MOST_NODES}, with commas between them")
    return [int(size) for size in sizes.split(",")]


def measure(nodes: int, calls: int, seed: int) -> Grown:
    """Measure one size."""
    pods = load.pods(load.TWO_GPUS, calls + 1, seed)
    with scene(snapshot.Plan(nodes, 0.5, seed, KINDS), pods) as cluster:
        floor = decoded(cluster.file)
        with serving(cluster.file) as linkwise:
            times = decisions(linkwise.url, cluster, pods, seed)
            memory = resident(linkwise.pid)
        megabytes = cluster.file.stat().st_size / 1e6
    first, warm = 1000 * times[0], 1000 * statistics.median(times[1:])
    return Grown(nodes, 8 * nodes, len(cluster.held), megabytes, floor, linkwise.start_s, linkwise.start_processor_s, memory, first, warm)


def decoded(file: Path) -> Floor:
    """Read and decode the file in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "bench.latency.decoded", str(file)], capture_output=True, check=True)  # noqa: S603
    return Floor(**orjson.loads(done.stdout))


@contextmanager
def serving(file: Path) -> Iterator[Serving]:
    """Run `linkwise serve --snapshot` until the block ends."""
    started = time.perf_counter()
    with program([sys.executable, "-m", "extender", "serve", "--snapshot", str(file), "--port", "0"]) as (line, pid):
        yield Serving(url_in(line), pid, time.perf_counter() - started, processor_s(pid))


def decisions(url: str, cluster: Scene, pods: Sequence[load.Pod], seed: int) -> list[float]:
    """Return the seconds of filter calls that name every node, one a pod; each pod is bound to the first node that fits before the next call."""
    names = load.Names(cluster.names, seed)
    seconds = []
    gc.disable()
    with ExitStack() as stack:
        stack.callback(gc.enable)
        asking, binding = (stack.enter_context(closing(Connection(url))) for _ in range(2))
        for pod in pods:
            asked = names.shuffled()
            answer = asking.post("/filter", load.call_body(pod.encoded, load.written(asked)))
            seconds.append(answer.seconds)
            fitting = answers.fitting(answer, asked)
            if fitting:
                answers.bound(binding.post("/bind", load.bind_body(pod, fitting[0])))
    return seconds


def text(empty: Grown, found: Sequence[Grown]) -> str:
    """Return the tables."""
    told = (
        f"Nodes of 8 GPUs, half full. With one node a start takes {empty.start_s:.2f} s and {empty.memory.now_mib:.0f} MiB; *a node* is what comes on top, by node. "
        "The floor is reading and decoding the same bytes with orjson.\n"
    )
    decided = "A decision is a filter call for 2 GPUs that names every node in a new order; between two calls a pod is bound.\n"
    times = ((one.nodes, f"{one.first_ms:.1f}", f"{one.warm_ms:.2f}", f"{1000 * one.warm_ms / one.nodes:.2f}") for one in found)
    grown = table(_HEAD, (_row(empty, one) for one in found))
    judged = table(("target", "found", "limit", "verdict"), verdicts(found))
    return "\n".join((told, judged, grown, decided, table(("nodes", "first, ms", "warm, ms (median)", "warm, us a node"), times)))


_HEAD: Final = (
    *("nodes", "GPUs", "pods", "file, MB", "floor, s", "start, s", "start / floor", "the same in processor time", "processor time, ms a node"),
    *("floor RSS / peak, MiB", "RSS / peak, MiB", "RSS, KiB a node", "peak / floor's peak"),
)


def _row(empty: Grown, one: Grown) -> tuple[object, ...]:
    start, memory = one.start_processor_s - empty.start_processor_s, one.memory.now_mib - empty.memory.now_mib
    return (
        *(one.nodes, one.gpus, one.pods, f"{one.file_mb:.0f}", f"{one.floor.seconds:.2f}", f"{one.start_s:.2f}"),
        *(f"{one.start_s / one.floor.seconds:.1f}", f"{one.start_processor_s / one.floor.processor_s:.1f}", f"{1000 * start / one.nodes:.3f}"),
        *(f"{one.floor.rss_mib:.0f} / {one.floor.peak_mib:.0f}", f"{one.memory.now_mib:.0f} / {one.memory.peak_mib:.0f}"),
        *(f"{1024 * memory / one.nodes:.1f}", f"{one.memory.peak_mib / one.floor.peak_mib:.2f}"),
    )


def verdicts(found: Sequence[Grown]) -> Iterator[tuple[str, str, str, str]]:
    """Judge starts from 10,000 nodes on (below, loading Python's modules is all there is), and the growth of a warm decision.

    Starts are judged in processor time: next to nothing of a start waits for anything else, and it is the same on a machine that does other work meanwhile.
    """
    for one in found:
        if one.nodes >= 10_000:
            what = f"start at {one.nodes} nodes / reading and decoding the same bytes, processor time"
            yield _verdict(what, one.start_processor_s / one.floor.processor_s, START_OF_FLOOR)
    by_size = {one.nodes: one for one in found}
    if 1000 in by_size and 10_000 in by_size:
        yield _verdict("warm decision at 10000 nodes / at 1000", by_size[10_000].warm_ms / by_size[1000].warm_ms, DECISION_GROWTH)


def _verdict(what: str, ratio: float, limit: float) -> tuple[str, str, str, str]:
    return what, f"{ratio:.2f}", f"<= {limit:g}", "met" if ratio <= limit else "**missed**"


if __name__ == "__main__":
    typer.run(main)
