"""How long a topology class takes: the bandwidth of every set of its GPUs, and all tables.

`python -m bench.topology_classes`. A class is analysed once, however many nodes have it; this is the price of a new kind of machine. Beside it the floor for
an irregular mesh: a bare loop over the linear programs of all its sets, prepared before the clock starts. And how long the event loop of an extender stands still
when such a machine turns up: what a call waits at most for the analysis of another machine's class.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from itertools import combinations, permutations
from typing import Any

import numpy as np
from scipy.optimize import linprog

from bench import machine
from extender.cluster import Cluster
from extender.deepening import Deepening
from extender.sample_machines import SAMPLE_MACHINES, sample
from topology.collective import Depth, machine_links, matched_gpus, set_bandwidths
from topology.matrix import LinkMatrix, from_codes
from topology.topology_class import TopologyClass


def sixteen() -> LinkMatrix:
    """Return sixteen GPUs in a ring of NV2 with NV1 chords: irregular, the largest that the tables hold."""
    codes = [["SYS"] * 16 for _ in range(16)]
    for i in range(16):
        codes[i][i] = "X"
        for step, code in ((1, "NV2"), (4, "NV1")):
            codes[i][(i + step) % 16] = codes[(i + step) % 16][i] = code
    return from_codes(codes)


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


def tables(matrix: LinkMatrix) -> None:
    """Fill what a decision may look up: best bandwidths of every size, and the worth of every remainder."""
    links = machine_links(matrix)
    kind = TopologyClass("bench", matrix, matched_gpus(matrix, None), links, depth=Depth.AT_ONCE)  # made afresh: no memo in between
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
    bare, ours = milliseconds(lambda: solve(found), 3), milliseconds(lambda: set_bandwidths(machine_links(matrix)), 3)
    return f"A bare loop over the {len(found)} linear programs of {kind}: {bare:.1f} ms; every set's bandwidth takes {ours / bare:.2f} times as long."


async def stall(matrix: LinkMatrix, depth: Depth) -> float:
    """Return the longest time, in ms, in which a loop did nothing else when a new class came; ``depth`` is how far the state works it out itself."""
    state = Cluster("nvidia.com/gpu", time.monotonic, depth=depth)
    deepening = Deepening(state, lambda: True)
    gaps = [0.0]

    async def answer_all_the_time() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last - 0.001)
            last = now

    ticking = asyncio.create_task(answer_all_the_time())
    await asyncio.sleep(0.1)
    state.apply_topology(topology_of(matrix))
    while await deepening.deepen_next():
        pass
    await asyncio.sleep(0.1)
    ticking.cancel()
    return max(gaps) * 1000


def topology_of(matrix: LinkMatrix) -> dict[str, Any]:
    """Return a GPUTopology with these links, of a class that no other run has seen."""
    memory = 1 + time.time_ns() % 10**9
    gpus = [{"index": at, "uuid": f"GPU-{at}", "memoryMiB": memory} for at in range(matrix.size)]
    rows = [["X" if a == b else getattr(matrix.between(a, b), "text", "-") for b in range(matrix.size)] for a in range(matrix.size)]
    return {"metadata": {"name": "new"}, "spec": {"gpus": gpus, "links": {"gpus": rows}}}


def stalls(machines: dict[str, LinkMatrix]) -> list[str]:
    """Return table rows: on the loop and beside it."""
    rows = []
    for kind in ("dgx1v", "irregular mesh of 8", "irregular mesh of 16"):
        on, beside = (statistics.median(asyncio.run(stall(machines[kind], depth)) for _ in range(3)) for depth in (Depth.SOON, Depth.AT_ONCE))
        rows.append(f"| {kind} | {on:.1f} | {beside:.1f} |")
    return rows


def main() -> None:
    """Measure and write bench/results/topology_classes.md."""
    machines = {kind: sample(kind, "bench").matrix() for kind in sorted(SAMPLE_MACHINES)} | {
        "irregular mesh of 8": eight(),
        "irregular mesh of 16": sixteen(),
    }
    rows = [row(kind, matrix) for kind, matrix in machines.items()]
    floors = [floor(kind, machines[kind]) for kind in ("dgx1v", "irregular mesh of 8")]
    head = "| machine | GPUs | at once, ms | up to 8 GPUs, ms | all sets, ms | all other tables, ms |\n| --- | --- | --- | --- | --- | --- |"
    told = "\nLongest time in which the loop answered nobody when the class came:\n"
    stall_head = "| machine | worked out on the loop, ms | beside it, ms |\n| --- | --- | --- |"
    lines = [machine.heading("Analysing a topology class"), head, *rows, "", *floors, told, stall_head, *stalls(machines), ""]
    machine.write("topology_classes", "\n".join(lines))


def row(kind: str, matrix: LinkMatrix) -> str:
    """Measure one machine: bandwidths to each depth that tells more than the one before, then the tables made of them."""
    links = machine_links(matrix)
    cells = [f"{milliseconds(lambda d=depth: set_bandwidths(links, d), 1 if depth is Depth.FULL else 5):.1f}" for depth in depths(links)]
    cells += ["-"] * (len(Depth) - len(cells))
    return f"| {kind} | {matrix.size} | {' | '.join(cells)} | {milliseconds(lambda: tables(matrix)):.1f} |"


if __name__ == "__main__":
    main()
