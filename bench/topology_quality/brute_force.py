"""What every set of GPUs of a machine without NVSwitch gets, the slow and obvious way: every order of every set, and a linear program that is not ours.

The judge of the every-free-set experiment. It shares no code with `topology` and types its few rates in once more. Rings are packed by the dual program: the
lowest prices of the pairs at which no ring costs less than 1; by strong duality the capacity bought at these prices is the greatest packing.

    minimise   2 * sum of GB/s x price          over the pairs with NVLinks
    subject to sum of the prices along a ring >= 1     for every ring through all GPUs of the set
"""

from collections.abc import Sequence
from itertools import combinations, pairwise, permutations
from typing import Final

import numpy as np
from scipy.optimize import linprog

LEVELS: Final = ("PIX", "PXB", "PHB", "NODE", "SYS")
# GB/s of a slot of x16 by PCIe generation, and what a path of some length leaves of it: the figures that `linkwise links` prints.
SLOT: Final = {3: 15.75392, 4: 31.50768, 5: 63.01536}
SHARE: Final = {"PIX": 0.85, "PXB": 0.82, "PHB": 0.7617, "NODE": 0.70, "SYS": 0.58}

Pair = tuple[int, int]


def bandwidths(codes: Sequence[Sequence[str]], nvlink_gb_per_s: float, pcie_generation: int) -> dict[int, float]:
    """Return GB/s of every set of two or more; ``nvlink_gb_per_s`` is the rate of one NVLink and direction, all slots are x16."""
    size = len(codes)
    pcie = {pair: SLOT[pcie_generation] * SHARE[_pcie_level(codes, *pair)] for pair in combinations(range(size), 2)}
    nvlink = {(a, b): int(codes[a][b][2:]) * nvlink_gb_per_s for a, b in combinations(range(size), 2) if codes[a][b].startswith("NV")}
    return {
        sum(1 << gpu for gpu in chosen): _set_bandwidth(chosen, nvlink, pcie) for k in range(2, size + 1) for chosen in combinations(range(size), k)
    }


def best(own: dict[int, float], free: int, k: int) -> float:
    """Return GB/s of the best set of ``k`` inside a free mask, by trying all."""
    gpus = [gpu for gpu in range(free.bit_length()) if free >> gpu & 1]
    return max(own[sum(1 << gpu for gpu in chosen)] for chosen in combinations(gpus, k))


def _pcie_level(codes: Sequence[Sequence[str]], a: int, b: int) -> str:
    """Return the PCIe level of a pair; where NVLinks hide it, the shortest at which a walk over printed PCIe paths joins the two, SYS where none does."""
    if codes[a][b] in LEVELS:
        return codes[a][b]
    for reach, level in enumerate(LEVELS[:-1]):
        near, todo = {a}, [a]
        while todo:
            here = todo.pop()
            news = {there for there, code in enumerate(codes[here]) if code in LEVELS[: reach + 1] and there not in near}
            near |= news
            todo += news
        if b in near:
            return level
    return LEVELS[-1]


def _set_bandwidth(chosen: tuple[int, ...], nvlink: dict[Pair, float], pcie: dict[Pair, float]) -> float:
    if len(chosen) == 2:
        return max(nvlink.get((chosen[0], chosen[1]), 0.0), pcie[chosen[0], chosen[1]])
    first, *others = chosen
    rings = []
    for order in permutations(others):
        if order[0] < order[-1]:  # the other half are mirror images
            stops = (first, *order, first)
            rings.append([(min(a, b), max(a, b)) for a, b in pairwise(stops)])
    over_nvlink = [ring for ring in rings if all(pair in nvlink for pair in ring)]
    return max(_packing(over_nvlink, nvlink), *(min(pcie[pair] for pair in ring) for ring in rings))


def _packing(rings: list[list[Pair]], nvlink: dict[Pair, float]) -> float:
    if not rings:
        return 0.0
    pairs = sorted({pair for ring in rings for pair in ring})
    along = np.zeros((len(rings), len(pairs)))
    for row, ring in enumerate(rings):
        for pair in ring:
            along[row, pairs.index(pair)] = 1.0
    solved = linprog([nvlink[pair] for pair in pairs], A_ub=-along, b_ub=-np.ones(len(rings)), method="highs-ds")
    assert solved.success, solved.message
    return 2.0 * float(solved.fun)
