"""What was measured, as tables and verdicts: figures beside their targets, judged by the figures themselves.

Used by `decision_latency`. A target is a ratio between two servers of the same run. The verdict "met" or "missed" is computed, never written by hand.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from bench.latency.crowd import Throughput
from bench.latency.percentiles import Latency
from bench.latency.walk import BIND, ECHO, FILTER, PRIORITIZE, REORDERED, Walked
from bench.markdown import table

GO: Final = "go"
TWO_GPUS: Final = "two GPUs"  # the stream by which the targets are judged
P50_OF_ECHO: Final = 2.0
P99_OF_ECHO: Final = 3.0
CALLS_OF_ECHO: Final = 0.5
CALM_P99: Final = 4.0  # times p50: on a machine that does nothing else the echo's p99 is about twice its p50
GO_AT_NAMES: Final = 5000  # the number of names at which an empty answer in Go is to be beaten


@dataclass(frozen=True, slots=True)
class Measured:
    """One cluster and stream of pods; ``crowds`` by server."""

    nodes: int
    names: int
    stream: str
    judge: str
    walked: Walked
    crowds: dict[str, Throughput]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        crowds = {name: {**asdict(crowd), "calls_per_s": crowd.calls_per_s} for name, crowd in self.crowds.items()}
        walked = {**asdict(self.walked), "latencies": {label: _rounded(found) for label, found in self.walked.latencies.items()}}
        return {"nodes": self.nodes, "names": self.names, "stream": self.stream, **walked, "connections": crowds}


def _rounded(found: dict[str, Latency]) -> dict[str, dict[str, Any]]:
    """Return the figures of each server to a microsecond, the ladder as an object by percent."""
    return {
        name: {key: round(value, 3) for key, value in asdict(one).items() if key != "ladder"}
        | {"ladder": {f"{percent:g}": round(time, 3) for percent, time in one.ladder}}
        for name, one in found.items()
    }


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and whether it was met: ``found`` is to be at most ``limit``, or at least with ``at_least``."""

    what: str
    names: int
    found: float
    limit: float
    at_least: bool = False
    noisy: bool = False  # the machine did so much else that the slowest calls say nothing about the servers

    @property
    def met(self) -> bool:
        """Whether it holds."""
        return self.found >= self.limit if self.at_least else self.found <= self.limit

    def row(self) -> tuple[object, ...]:
        """Return the row of a table."""
        verdict = ("met" if self.met else "**missed**") + (", but the machine was not calm" if self.noisy else "")
        return self.what, self.names, f"{self.found:.2f}", f"{'>=' if self.at_least else '<='} {self.limit:g}", verdict


def text(measured: Sequence[Measured]) -> str:
    """Return the tables of all measurements, verdicts first."""
    judged = [verdict for one in measured for verdict in verdicts(one)]
    parts = [table(("target, pods of 2 GPUs", "names", "found", "limit", "verdict"), [one.row() for one in judged])] if judged else []
    parts += [f"## {one.stream}, {one.names} names of {one.nodes} nodes\n\n{_latencies(one)}\n{_closing(one)}" for one in measured]
    return "\n".join(parts)


def verdicts(measured: Measured) -> Iterator[Verdict]:
    """Judge one measurement: the targets are about Linkwise, pods of 2 GPUs, and all nodes of the cluster named."""
    if measured.stream != TWO_GPUS or measured.names != measured.nodes:
        return
    for label in (FILTER, PRIORITIZE, REORDERED):
        yield from _of_latencies(label, measured)
    own, echo = measured.crowds.get(measured.judge), measured.crowds.get(ECHO)
    if own is not None and echo is not None:
        yield Verdict(
            f"{own.connections} connections: calls/s / echo's", measured.names, own.calls_per_s / echo.calls_per_s, CALLS_OF_ECHO, at_least=True
        )


def _of_latencies(label: str, measured: Measured) -> Iterator[Verdict]:
    found = measured.walked.latencies.get(label, {})
    own, echo, go = (found.get(name) for name in (measured.judge, ECHO, GO))
    if own is None or echo is None:
        return
    yield Verdict(f"{label}: p50 / echo's", measured.names, own.p50 / echo.p50, P50_OF_ECHO)
    yield Verdict(f"{label}: p99 / echo's", measured.names, own.p99 / echo.p99, P99_OF_ECHO, noisy=echo.p99 > CALM_P99 * echo.p50)
    if go is not None and measured.names == GO_AT_NAMES:
        yield Verdict(f"{label}: p50 / Go null extender's", measured.names, own.p50 / go.p50, 1.0)


def _latencies(measured: Measured) -> str:
    head = ("verb", "server", "calls", "first ms", "p50 ms", "p90", "p99", "p99.9", "max", "calls/s", "p50 / echo", "p99 / echo")
    rows = []
    for label, servers in measured.walked.latencies.items():
        for name, found in servers.items():
            rows.append((label, name, found.calls, *_times(found), f"{found.calls_per_s:.0f}", *_ratios(found, servers.get(ECHO), label)))
    return table(head, rows)


def _times(found: Latency) -> tuple[str, ...]:
    return tuple(f"{time:.2f}" for time in (found.first_ms, found.p50, found.p90, found.p99, found.p999, found.max))


def _ratios(found: Latency, echo: Latency | None, label: str) -> tuple[str, str]:
    if echo is None or found is echo or label == BIND:
        return "", ""
    return f"{found.p50 / echo.p50:.2f}", f"{found.p99 / echo.p99:.2f}"


def _closing(measured: Measured) -> str:
    walked = measured.walked
    lines = []
    for name, crowd in measured.crowds.items():
        lines.append((name, crowd.connections, f"{crowd.calls_per_s:.0f}", f"{crowd.client_busy:.2f}", crowd.changes))
    told = f"{walked.bound} pods bound, {walked.nowhere} fitted nowhere, {walked.left} left.\n"
    return (table(("server", "connections", "filter calls/s", "client busy", "changes"), lines) + "\n" if lines else "") + told
