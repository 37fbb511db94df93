"""Why a set of GPUs gets its bandwidth, in words: over what its ring runs, and which hop holds it back.

The figure is `collective`'s; here only the ring behind it is looked for again, so that the slowest hop can be named. Called by `text` for the best set
of every size. If no ring is found within a bounded search, the words stay true and name no hop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topology.inspection.machine import Machine
from topology.links import Distance

MOST_STEPS: Final = 20_000  # of the search for one ring; a set of 8 needs some hundred


def reason(machine: Machine, positions: Sequence[int], gb_per_s: float) -> str:
    """Return why the set of GPU positions (two or more) gets ``gb_per_s``."""
    links = machine.links
    if len(positions) == 2:
        return _pair(machine, positions[0], positions[1], gb_per_s)
    if all(links.nvswitch[at] for at in positions):
        return "NVSwitch: every GPU uses all its NVLinks in any set"
    nvlinks = links.nvlinks * links.nvlink_gb_per_s
    ring = best_ring(nvlinks, positions)
    if ring is not None and gb_per_s >= ring.slowest:
        a, b = ring.hop
        return f"ring over NVLink, slowest hop {_named(machine, a, b)} {machine.matrix.between(a, b)}"
    why = "no NVLink ring" if ring is None and nvlinks[np.ix_(list(positions), list(positions))].any() else ""
    why = "faster than its NVLink ring" if ring is not None else why
    over = best_ring(links.pcie_gb_per_s, positions)
    if over is None:
        return f"{why}: over PCIe" if why else "over PCIe"
    a, b = over.hop
    slowest = f"over PCIe, slowest hop {_named(machine, a, b)} {_path_code(machine, a, b)}"
    return f"{why}: {slowest}" if why else slowest


def _pair(machine: Machine, a: int, b: int, gb_per_s: float) -> str:
    count = int(machine.links.nvlinks[a, b])
    if not count:
        return f"no NVLink: over PCIe, {_path_code(machine, a, b)}"
    one = float(machine.links.nvlink_gb_per_s[a, b])
    if gb_per_s > count * one:
        return f"over PCIe, faster than its {count} NVLink{'s' if count > 1 else ''}"
    over = " through NVSwitch" if machine.links.nvswitch[a] and machine.links.nvswitch[b] else ""
    return f"{count} NVLink{'s' if count > 1 else ''} of {one:g} GB/s{over}"


def _named(machine: Machine, a: int, b: int) -> str:
    return f"{machine.matrix.gpus[a].label}-{machine.matrix.gpus[b].label}"


def _path_code(machine: Machine, a: int, b: int) -> str:
    """The printed code where it is a PCIe path; under NVLinks the distance that is assumed; SYS where nothing was printed."""
    code = machine.matrix.between(a, b)
    return code.text if code is not None and not code.nvlinks else Distance(int(machine.links.pcie_distance[a, b])).name


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring and its slowest hop: the two positions and its GB/s, one direction."""

    order: tuple[int, ...]
    hop: tuple[int, int]
    slowest: float


def best_ring(hops: NDArray[np.float64], positions: Sequence[int]) -> Ring | None:
    """Return the ring over three or more positions whose slowest hop is fastest; None where there is none or the search gave up.

    ``hops`` (n, n): GB/s between two neighbours, 0.0 where they cannot be.

    >>> best_ring(np.array([[0.0, 2, 1], [2, 0, 2], [1, 2, 0]]), (0, 1, 2)).hop
    (0, 2)
    """
    rates = sorted({float(hops[a, b]) for a, b in combinations(positions, 2)} - {0.0}, reverse=True)
    for least in rates:
        order = _ring(hops, positions, least)
        if order is not None:
            pairs = [tuple(sorted(pair)) for pair in zip(order, (*order[1:], order[0]), strict=True)]
            a, b = min(pairs, key=lambda pair: (hops[pair[0], pair[1]], pair))
            return Ring(order, (a, b), float(hops[a, b]))
    return None


def _ring(hops: NDArray[np.float64], positions: Sequence[int], least: float) -> tuple[int, ...] | None:
    """Depth-first search for a ring whose hops all reach ``least``, at most `MOST_STEPS` steps long."""
    steps = 0
    path = [positions[0]]
    untried = [_next_hops(hops, positions, path, least)]
    while untried and steps < MOST_STEPS:
        steps += 1
        if len(path) == len(positions) and hops[path[-1], path[0]] >= least:
            return tuple(path)
        if untried[-1]:
            path.append(untried[-1].pop(0))
            untried.append(_next_hops(hops, positions, path, least))
        else:
            path.pop()
            untried.pop()
    return None


def _next_hops(hops: NDArray[np.float64], positions: Sequence[int], path: Sequence[int], least: float) -> list[int]:
    return [at for at in positions if at not in path and hops[path[-1], at] >= least]
