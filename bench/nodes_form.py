"""Filter calls that carry whole Node objects: what Linkwise takes for them, beside reading only the names with a typed decoder.

`python -m bench.nodes_form`: 1,000 and 5,000 nodes of 7 kB, half full, in a new order at every call, of which one in a hundred has reported since the last one. In turns: the bare echo, an echo that also reads the names with
a typed decoder, the null extender in Go, and Linkwise, which has to answer with the objects of the nodes that fit. Beside it, what reading the names alone takes in one
process, without HTTP. Answers are looked at, outside of the time.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import orjson
import typer

from bench import machine, snapshot
from bench.latency import answers, load, servers
from bench.latency.node_list import Nodes, nodes_body
from bench.latency.percentiles import Latency, latency
from bench.latency.scene import scene
from bench.latency.typed_names import typed_decoder
from bench.latency.wire import Answered, Connection
from bench.markdown import table
from extender.node_objects import NodeObjects

NAME: Final = "nodes_form"
SIZES: Final = (1000, 5000)
CHANGED: Final = 0.01  # of the nodes between two calls: kubelets report every five minutes, kube-scheduler asks many times a second
TARGET: Final = 1.5
_OWN: Final = "linkwise"
_CHECK_EVERY: Final = 10


@dataclass(frozen=True, slots=True)
class Measured:
    """One size: what HTTP calls took by server, and in one process what reading took by reader, medians in ms."""

    nodes: int
    body_bytes: int
    decoder: str
    servers: dict[str, Latency]
    readers_ms: dict[str, float]

    @property
    def ratio(self) -> float:
        """Linkwise's p50 over that of the typed decoder behind the same HTTP."""
        return self.servers[_OWN].p50 / self.servers[self.decoder].p50


class Calls:
    """Bodies one after the other: a new order each time, some nodes changed."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        self._names = names
        self._nodes = Nodes(names, seed)
        self._rng = np.random.default_rng(seed)

    def body(self, pod: load.Pod) -> tuple[bytes, list[str]]:
        """Return the next call, and the names in it."""
        self._nodes.change(round(CHANGED * len(self._names)))
        order = self._rng.permutation(len(self._names)).tolist()
        return nodes_body(pod.encoded, [self._nodes.written[at] for at in order]), [self._names[at] for at in order]


def main(
    calls: Annotated[int, typer.Option(min=5, help="Calls to each server.")] = 60,
    seed: int = 0,
    largest: Annotated[int, typer.Option(help="Leave out larger sizes.")] = SIZES[-1],
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
) -> None:
    """Measure and write bench/results/nodes_form.md and .json."""
    found = [measure(nodes, calls, seed) for nodes in SIZES if nodes <= largest]
    machine.write_json(NAME, {"calls": calls, "seed": seed, "sizes": [asdict(one) for one in found]}, results)
    machine.write(NAME, f"{machine.heading('Filter calls with whole Node objects')}\n{text(found)}", results)


def measure(nodes: int, calls: int, seed: int) -> Measured:
    """Measure one size."""
    pods = load.pods(load.TWO_GPUS, calls + 1, seed)
    title = typed_decoder().title
    with scene(snapshot.Plan(nodes, 0.5, seed), pods) as cluster, ExitStack() as stack:
        go = stack.enter_context(servers.go_null())
        linkwise, _, _ = stack.enter_context(servers.linkwise(cluster.file))
        urls = {
            "echo": stack.enter_context(servers.echo()),
            title: stack.enter_context(servers.echo("--names")),
            **({"go": f"{go}/filter"} if go else {}),
            _OWN: f"{linkwise}/filter",
        }
        sequence = Calls(cluster.names, seed)
        found, size = over_http(urls, pods, sequence)
    return Measured(nodes, size, title, found, in_process(title, pods[0], sequence))


def over_http(urls: Mapping[str, str], pods: Sequence[load.Pod], sequence: Calls) -> tuple[dict[str, Latency], int]:
    """Send every call to every server in turns; returns the figures and the bytes of a call."""
    seconds: dict[str, list[float]] = {name: [] for name in urls}
    body = b""
    gc.disable()
    with ExitStack() as stack:
        stack.callback(gc.enable)
        connections = {name: stack.enter_context(closing(Connection(url))) for name, url in urls.items()}
        for turn, pod in enumerate(pods):
            body, asked = sequence.body(pod)
            for name in (*list(urls)[turn % len(urls) :], *list(urls)[: turn % len(urls)]):
                answer = connections[name].post("", body)
                seconds[name].append(answer.seconds)
                if turn % _CHECK_EVERY == 0:
                    _check(name, answer, body, asked)
            gc.collect()
    return {name: latency(times[1:], times[0]) for name, times in seconds.items()}, len(body)


def _check(name: str, answer: Answered, body: bytes, asked: Sequence[str]) -> None:
    if name in ("go", _OWN):
        answers.fitting_objects(answer, asked)
    else:
        answers.echoed(answer, body)


def in_process(title: str, pod: load.Pod, sequence: Calls, repeats: int = 7) -> dict[str, float]:
    """Return the median ms of each way to the names; of the one with a memory, the first call and the later ones apart."""
    remembered = NodeObjects()
    first, _ = sequence.body(pod)
    typed = typed_decoder().names
    ways: dict[str, Callable[[bytes], Any]] = {"orjson.loads": orjson.loads, title: typed, "node_objects, Nodes seen before": remembered.read}
    found = {"node_objects, no Node seen before": 1000 * _seconds(lambda body: NodeObjects().read(body), first)}
    remembered.read(first)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats):
        body, _ = sequence.body(pod)
        for way, read in ways.items():
            times[way].append(_seconds(read, body))
    return {**{way: 1000 * statistics.median(own) for way, own in times.items()}, **found}


def _seconds(read: Callable[[bytes], Any], body: bytes) -> float:
    started = time.perf_counter()
    read(body)
    return time.perf_counter() - started


def text(found: Sequence[Measured]) -> str:
    """Return the tables."""
    rows = [
        (
            one.nodes,
            f"{one.body_bytes / 1e6:.1f}",
            name,
            *(f"{time:.0f}" for time in (own.first_ms, own.p50, own.p90, own.max)),
            f"{own.p50 / one.servers[one.decoder].p50:.2f}",
        )
        for one in found
        for name, own in one.servers.items()
    ]
    verdicts = [(one.nodes, f"{one.ratio:.2f}", f"<= {TARGET}", "met" if one.ratio <= TARGET else "**missed**") for one in found]
    readers = [(one.nodes, way, f"{time:.1f}") for one in found for way, time in one.readers_ms.items()]
    return (
        f"Nodes of 7 kB in a new order at every call, {CHANGED:.0%} of them changed since the last; the same bytes to all servers in turns.\n\n"
        + table(("nodes", f"Linkwise's p50 / that of reading the names with {found[0].decoder}", "limit", "verdict"), verdicts)
        + "\n"
        + table(("nodes", "MB", "server", "first ms", "p50 ms", "p90", "max", f"p50 / {found[0].decoder}"), rows)
        + f"\n{found[0].decoder} is the echo that also reads the names. Without HTTP, reading the names alone:\n\n"
        + table(("nodes", "reader", "ms"), readers)
    )


if __name__ == "__main__":
    typer.run(main)
