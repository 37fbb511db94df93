"""How long a topology class takes: the bandwidth of every set of its GPUs, and all tables.

`python -m bench.topology_classes --data DIR`. A class is analysed once, however many nodes have it; this is the price of a new kind of machine. Beside it the floor for
an irregular mesh: a bare loop over the linear programs of all its sets, prepared before the clock starts. And how long the event loop of an extender stands still
when such a machine turns up (`arriving_class`). Without DIR, MAPA's two machines of 16 GPUs are left out.
"""

import statistics
import time
from collections.abc import Callable
from itertools import combinations, permutations
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from scipy.optimize import linprog

from bench import machine
from bench.arriving_class import longest_stop
from bench.topology_quality import mapa
from extender.sample_machines import SAMPLE_MACHINES, sample
from topology.collective import Depth, machine_links, matched_gpus, set_rates
from topology.matrix import LinkMatrix, from_codes
from topology.topology_class import TopologyClass

_STOPS: Final = """
Longest time from one call to the next in which the loop of an extender with 100 nodes answered nobody, while calls came every millisecond and a node of a new class came. The clock
counts what else ran on the machine's cores, the other process among it; the processor time is that of the loop's thread:
"""


def sixteen() -> LinkMatrix:
    """Return sixteen GPUs in a ring of NV2 with NV1 chords: irregular, the largest that the tables hold."""
    codes = [["SYS"] * 16 for _ in range(16)]
    for i in range(16):
        codes[i][i] = "X"
        for step, code in ((1, "NV2"), (4, "NV1")):
            codes[i][(i + step) % 16] = codes[(i + step) % 16][i] = code
    return from_codes(codes)


def switched() -> LinkMatrix:
    """Return the links of a DGX-2: six NVLinks to NVSwitch, shown in every cell."""
    return from_codes([["X" if a == b else "NV6" for b in range(16)] for a in range(16)])


def eight() -> LinkMatrix:
    """Return eight GPUs with NV1 or NV2 between any two, no two GPUs alike: every set is irregular and has all the rings there can be."""
    codes = [["X" if a == b else f"NV{1 + (a * b + a + b) % 3 % 2}" for b in range(8)] for a in range(8)]
    return from_codes(codes)


def milliseconds(action: Callable[[], object], runs: int = 5) -> float:
    """Return the median time of an action."""
    found = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        found.append((time.perf_counter() - started) * 1000)
    return statistics.median(found)


def tables(matrix: LinkMatrix, bandwidth: np.ndarray) -> None:
    """Fill what a decision may look up beside these bandwidths (2**n,): the best ones of every size, and the worth of every remainder."""
    kind = TopologyClass("bench", matrix, matched_gpus(matrix, None), machine_links(matrix), bandwidth=bandwidth)  # made afresh: no memo in between
    for size in range(1, matrix.size + 1):
        kind.best_bandwidths(size)
    _ = kind.worth


Program = tuple[np.ndarray, np.ndarray]  # ring by pair, 1.0 where the ring uses it; GB/s of each pair


def programs(matrix: LinkMatrix) -> list[Program]:
    """Return the linear program of every set of three or more GPUs that has an NVLink ring."""
    links = machine_links(matrix)
    hop = links.nvlinks * links.nvlink_gb_per_s
    found = []
    for gpus in (chosen for size in range(3, matrix.size + 1) for chosen in combinations(range(matrix.size), size)):
        pairs = {pair: at for at, pair in enumerate(combinations(gpus, 2))}
        orders = ((gpus[0], *rest) for rest in permutations(gpus[1:]) if rest[0] < rest[-1])
        rings = [[pairs[min(a, b), max(a, b)] for a, b in zip(order, (*order[1:], order[0]), strict=True)] for order in orders if _linked(hop, order)]
        if rings:
            uses = np.zeros((len(rings), len(pairs)))
            for row, ring in enumerate(rings):
                uses[row, ring] = 1.0
            found.append((uses, np.array([hop[pair] for pair in pairs])))
    return found


def _linked(hop: np.ndarray, order: tuple[int, ...]) -> bool:
    return all(hop[a, b] > 0 for a, b in zip(order, (*order[1:], order[0]), strict=True))


def solve(found: list[Program]) -> None:
    """Solve them one after the other."""
    for uses, rates in found:
        linprog(-np.ones(len(uses)), A_ub=uses.T, b_ub=rates, method="highs")


def floor(kind: str, matrix: LinkMatrix) -> str:
    """Say what every set's bandwidth costs beside a bare loop over the linear programs."""
    found = programs(matrix)
    bare, ours = milliseconds(lambda: solve(found), 3), milliseconds(lambda: set_rates(machine_links(matrix)), 3)
    return f"A bare loop over the {len(found)} linear programs of {kind}: {bare:.1f} ms; every set's bandwidth takes {ours / bare:.2f} times as long."


def stops(machines: dict[str, LinkMatrix]) -> list[str]:
    """Return table rows: how long the loop stands still, with and without a class that comes, beside the loop and on it."""
    nothing = longest_stop(None, Depth.AT_ONCE)
    rows = [f"| no node | {nothing.wall:.1f} | {nothing.cpu:.1f} | |"]
    for kind, matrix in machines.items():
        beside, on = longest_stop(matrix, Depth.AT_ONCE), longest_stop(matrix, Depth.SOON)
        rows.append(f"| {kind} | {beside.wall:.1f} | {beside.cpu:.1f} | {on.cpu:.1f} |")
    return rows


def row(kind: str, matrix: LinkMatrix) -> str:
    """Measure one machine: bandwidths to each depth that tells more than the one before, then the tables made of them."""
    links = machine_links(matrix)
    cells: list[str] = []
    rates = None
    for depth in Depth:
        if rates is None or not rates.exact.all():
            rates = set_rates(links, depth)
            cells.append(f"{milliseconds(lambda d=depth: set_rates(links, d)):.1f}{'' if rates.exact.all() else ' (bounds)'}")
    cells += ["-"] * (len(Depth) - len(cells))
    assert rates is not None
    return f"| {kind} | {matrix.size} | {' | '.join(cells)} | {milliseconds(lambda: tables(matrix, rates.gb_per_s)):.1f} |"


def main(
    data: Annotated[Path | None, typer.Option(help="Folder with mapa/: adds MAPA's machines of 16 GPUs.", exists=True, file_okay=False)] = None,
) -> None:
    """Measure and write bench/results/topology_classes.md."""
    large = {"irregular mesh of 16": sixteen()}
    large |= {name: from_codes(table.codes) for name, table in (mapa.machines(data) if data else {}).items() if table.size == 16}
    small = {kind: sample(kind, "bench").matrix() for kind in sorted(SAMPLE_MACHINES)} | {"irregular mesh of 8": eight()}
    machines = small | {"16 behind NVSwitch": switched()} | large
    rows = [row(kind, matrix) for kind, matrix in machines.items()]
    floors = [floor(kind, machines[kind]) for kind in ("dgx1v", "irregular mesh of 8")]
    coming = {kind: machines[kind] for kind in ("dgx1v", "irregular mesh of 8", "16 behind NVSwitch", *large)}
    head = "| machine | GPUs | at once, ms | soon, ms | full, ms | all other tables, ms |\n| --- | --- | --- | --- | --- | --- |"
    stop_head = "| what comes | by the clock, ms | processor time of the loop, ms | the same, worked out on the loop |\n| --- | --- | --- | --- |"
    lines = [machine.heading("Analysing a topology class"), head, *rows, "", *floors, _STOPS, stop_head, *stops(coming), ""]
    machine.write("topology_classes", "\n".join(lines))


if __name__ == "__main__":
    typer.run(main)
