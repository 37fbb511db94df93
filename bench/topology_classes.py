"""How long a topology class takes: the bandwidth of every set of its GPUs, and all tables.

`python -m bench.topology_classes`. A class is analysed once, however many nodes have it; this is the price of a new kind of machine.
"""

import statistics
import time
from collections.abc import Callable

from bench import machine
from extender.sample_machines import SAMPLE_MACHINES, sample
from topology.collective import machine_links, matched_gpus, set_bandwidths
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
    kind = TopologyClass("bench", matrix, matched_gpus(matrix, None), machine_links(matrix))  # made afresh: no memo in between
    for size in range(1, matrix.size + 1):
        kind.best_bandwidths(size)
    _ = kind.worth


def main() -> None:
    """Measure and write bench/results/topology_classes.md."""
    machines = {kind: sample(kind, "bench").matrix() for kind in sorted(SAMPLE_MACHINES)} | {"irregular mesh of 16": sixteen()}
    rows = [
        f"| {kind} | {matrix.size} | {milliseconds(lambda m=matrix: set_bandwidths(machine_links(m))):.1f} | {milliseconds(lambda m=matrix: tables(m)):.1f} |"
        for kind, matrix in machines.items()
    ]
    head = "| machine | GPUs | every set's bandwidth, ms | all tables, ms |\n| --- | --- | --- | --- |"
    machine.write("topology_classes", "\n".join([machine.heading("Analysing a topology class"), head, *rows, ""]))


if __name__ == "__main__":
    main()
