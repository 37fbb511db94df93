"""Why a set of GPUs gets its bandwidth, in words: over what its rings run, and which hop or which links hold them back.

The figure is `collective`'s; here only what proves it is looked for again. One ring: its slowest hop. Several: GPUs whose NVLinks to the others of the set are
all full, for every ring comes in over one of them and leaves over another. Called by `text` for the best set of every size. If no ring is found within a
bounded search, or no such GPUs, the words stay true and name none.
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
_CLOSE: Final = 1e-3  # GB/s: the packing rounds its answers to 1e-6
_ROUNDED: Final = 1 + 1e-6


def reason(machine: Machine, positions: Sequence[int], gb_per_s: float) -> str:
    """Return why the set of GPU positions (two or more) gets ``gb_per_s``."""
    links = machine.links
    if len(positions) == 2:
        return _pair(machine, positions[0], positions[1], gb_per_s)
    nvlinks = links.nvlinks * links.nvlink_gb_per_s
    ring = best_ring(nvlinks, positions)
    if all(links.nvswitch[at] for at in positions) and ring is not None:
        return _through_nvswitch(machine, ring, gb_per_s)
    over = best_ring(links.pcie_gb_per_s, positions)
    if ring is not None and (over is None or gb_per_s > over.slowest or gb_per_s <= 2 * ring.slowest):
        if gb_per_s > 2 * ring.slowest * _ROUNDED:
            return _several_rings(machine, positions, gb_per_s)
        more = "" if _is_exact(machine, positions) else "at least one "
        return f"{more}NVLink ring, both ways; slowest {_hop(machine, ring, nvlink=True)}"
    slowest = f", slowest {_hop(machine, over, nvlink=False)}" if over else ""
    if ring is not None:
        return f"over PCIe, faster than its NVLinks{slowest}"
    some_nvlinks = bool(nvlinks[np.ix_(list(positions), list(positions))].any())
    return f"no NVLink ring: PCIe{slowest}" if some_nvlinks else f"over PCIe{slowest}"


def _is_exact(machine: Machine, positions: Sequence[int]) -> bool:
    """Tell whether the figure of a set is what its links carry; else it is a lower bound: packing all its rings takes longer than anybody waits at a prompt."""
    return machine.sets is None or bool(machine.sets.exact[sum(1 << at for at in positions)])


def _pair(machine: Machine, a: int, b: int, gb_per_s: float) -> str:
    count = int(machine.links.nvlinks[a, b])
    if not count:
        return f"no NVLink: over PCIe, {_path_code(machine, a, b)}"
    one = float(machine.links.nvlink_gb_per_s[a, b])
    if gb_per_s > count * one:
        return f"over PCIe, faster than its {count} NVLink{'s' if count > 1 else ''}"
    over = " through NVSwitch" if machine.links.nvswitch[a] and machine.links.nvswitch[b] else ""
    return f"{count} NVLink{'s' if count > 1 else ''} of {one:g} GB/s{over}"


def _through_nvswitch(machine: Machine, ring: "Ring", gb_per_s: float) -> str:
    tables = machine.sets
    if tables is not None and machine.links.nvswitch.all() and len(np.unique(tables.bandwidth[tables.bandwidth > 0])) == 1:
        return f"NVSwitch: every set gets {gb_per_s:g} GB/s"
    return f"through NVSwitch, slowest {_hop(machine, ring, nvlink=True)}"


def _several_rings(machine: Machine, positions: Sequence[int], gb_per_s: float) -> str:
    """Say how many rings are packed, each of one NVLink a hop, and what leaves no room for more."""
    links = machine.links
    rates = {float(links.nvlink_gb_per_s[a, b]) for a, b in combinations(positions, 2)} - {0.0}
    count = f"{round(gb_per_s / (2 * rates.pop()), 2):g}" if len(rates) == 1 else "several"
    if not _is_exact(machine, positions):
        return f"at least {count} rings over NVLink, both ways"
    full = full_cut(links.nvlinks * links.nvlink_gb_per_s, positions, gb_per_s)
    if full is None:
        return f"{count} rings over NVLink, both ways"
    others = [at for at in positions if at not in full]
    number = int(links.nvlinks[np.ix_(full, others)].sum())
    labels = ", ".join(machine.matrix.gpus[at].label for at in full)
    whose = f"{number} NVLinks of {labels}" if len(full) == 1 else f"{number} NVLinks from {labels} to the others"
    return f"{count} rings over NVLink, both ways; the {whose} are full"


def full_cut(hops: NDArray[np.float64], positions: Sequence[int], gb_per_s: float) -> tuple[int, ...] | None:
    """Return the smallest group of the positions whose ``hops`` to the others carry ``gb_per_s`` in all; None where there is none.

    A ring both ways round, of rate x each way, takes x of two hops at least between a group and the others: so rings never carry more than such hops in all.

    >>> full_cut(25.0 * (np.ones((4, 4)) - np.eye(4)), (0, 1, 2, 3), 75.0)
    (0,)
    """
    for size in range(1, len(positions) // 2 + 1):
        for group in combinations(positions, size):
            others = [at for at in positions if at not in group]
            if abs(float(hops[np.ix_(group, others)].sum()) - gb_per_s) < _CLOSE:
                return group
    return None


def _hop(machine: Machine, ring: "Ring", *, nvlink: bool) -> str:
    """Name the slowest hop of a ring; of equal ones the first whose code was printed and not hidden by NVLinks."""
    a, b = min(ring.slowest_hops, key=lambda pair: (bool(machine.links.nvlinks[pair]), pair))
    code = machine.matrix.between(a, b) if nvlink else _path_code(machine, a, b)
    return f"{machine.matrix.gpus[a].label}-{machine.matrix.gpus[b].label} {code}"


def _path_code(machine: Machine, a: int, b: int) -> str:
    """Return the printed code of a PCIe path; under NVLinks the distance that is assumed; SYS where nothing was printed."""
    code = machine.matrix.between(a, b)
    return code.text if code is not None and not code.nvlinks else Distance(int(machine.links.pcie_distance[a, b])).name


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring: positions in order, GB/s of its slowest hop (one direction), and every hop that is as slow, positions ascending."""

    order: tuple[int, ...]
    slowest: float
    slowest_hops: tuple[tuple[int, int], ...]


def best_ring(hops: NDArray[np.float64], positions: Sequence[int]) -> Ring | None:
    """Return the ring over three or more positions whose slowest hop is fastest; None where there is none or the search gave up.

    ``hops`` (n, n): GB/s between two neighbours, 0.0 where they cannot be.

    >>> best_ring(np.array([[0.0, 2, 1], [2, 0, 2], [1, 2, 0]]), (0, 1, 2)).slowest_hops
    ((0, 2),)
    """
    rates = sorted({float(hops[a, b]) for a, b in combinations(positions, 2)} - {0.0}, reverse=True)
    for least in rates:
        order = _ring(hops, positions, least)
        if order is not None:
            pairs = [(min(a, b), max(a, b)) for a, b in zip(order, (*order[1:], order[0]), strict=True)]
            slowest = min(float(hops[pair]) for pair in pairs)
            return Ring(order, slowest, tuple(sorted(pair for pair in pairs if hops[pair] == slowest)))
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
