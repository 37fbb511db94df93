"""Slow and obvious versions of what the tables compute fast: every order tried, every set tried, every packing tried.

They share no code with `topology`: they take link codes as text and rates as plain numbers, and know their own few figures. Rings are packed by the other of
the two linear programs that have one answer: prices of links instead of rates of rings. A machine of 8 GPUs takes them seconds. Where an oracle and the product differ, one of them is wrong; the oracle is the one that can be read in a minute.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations

import numpy as np
from scipy.optimize import linprog

LEVELS = ("NV", "PIX", "PXB", "PHB", "NODE", "SYS")
# What a PCIe path of some length leaves of the slot, and the slot's GB/s by generation (x16, one direction, after line coding).
PATH_SHARE = {"PIX": 0.85, "PXB": 0.82, "PHB": 0.7617, "NODE": 0.70, "SYS": 0.58}
SLOT_X16 = {3: 15.75392, 4: 31.50768, 5: 63.01536}

Set = frozenset[int]


def bits(gpu_set: Set) -> int:
    """Mask of a set."""
    return sum(1 << gpu for gpu in gpu_set)


def level(code: str) -> int:
    """How far a code is: 0 for NVLink, 5 for SYS."""
    return LEVELS.index("NV" if code.startswith("NV") else code)


@dataclass(frozen=True)
class MachineOracle:
    """A machine as text and numbers; every method is a definition, spelt out."""

    codes: list[list[str]]
    numa: tuple[str, ...] | None
    nvlink_gb_per_s: float
    nvlinks_per_gpu: int
    pcie_generation: int

    @property
    def everything(self) -> Set:
        return frozenset(range(len(self.codes)))

    def subsets(self, gpus: Set, size: int) -> list[Set]:
        return [frozenset(found) for found in combinations(sorted(gpus), size)]

    def links(self, a: int, b: int) -> int:
        return int(self.codes[a][b][2:]) if self.codes[a][b].startswith("NV") else 0

    @cached_property
    def pcie(self) -> list[list[str]]:
        """PCIe code of every pair. Under NVLinks: the nearest level at which the two are connected over links and guesses of at most that level."""
        guesses = [list(row) for row in self.codes]
        hidden = [(a, b) for a in self.everything for b in self.everything if a != b and self.links(a, b)]
        for a, b in hidden:
            together = self.numa is not None and self.numa[a] == self.numa[b] and self.numa[a].isdigit()
            guesses[a][b] = "NODE" if together else "SYS"
        paths = [list(row) for row in guesses]
        for a, b in hidden:
            paths[a][b] = next(name for name in LEVELS[1:] if b in self._reached(guesses, a, name))
        return paths

    def _reached(self, codes: list[list[str]], start: int, farthest: str) -> set[int]:
        """GPUs that a walk from ``start`` over codes of at most that level comes to."""
        seen, todo = {start}, [start]
        while todo:
            here = todo.pop()
            news = {there for there in self.everything - seen if level(codes[here][there]) <= level(farthest)}
            seen |= news
            todo += news
        return seen

    @cached_property
    def islands(self) -> list[Set]:
        """Groups that NVLinks join; in their place their largest groups of three or more in which all are joined to all, where these share no GPU."""
        found: list[Set] = []
        for group in {frozenset(self._nvlink_reached(gpu)) for gpu in self.everything}:
            meshes = [
                gpus
                for size in range(3, len(group) + 1)
                for gpus in self.subsets(group, size)
                if all(self.links(a, b) for a, b in combinations(gpus, 2))
            ]
            largest = [gpus for gpus in meshes if len(gpus) == max(map(len, meshes))]
            apart = len(largest) > 1 and len(frozenset().union(*largest)) == sum(map(len, largest))
            found += largest if apart else [group] if len(group) > 1 else []
        return found

    def in_broken_islands(self, free: Set) -> Set:
        """Free GPUs of islands of which some GPU is not free."""
        return frozenset(gpu for island in self.islands if not island <= free for gpu in island & free)

    @cached_property
    def switched(self) -> bool:
        """Whether some three or more GPUs show more NVLinks to each other than a GPU has."""
        for size in range(3, len(self.codes) + 1):
            for group in combinations(range(len(self.codes)), size):
                fewest = min(self.links(a, b) for a, b in combinations(group, 2))
                if (size - 1) * fewest > self.nvlinks_per_gpu:
                    return True
        return False

    def pcie_hop(self, a: int, b: int) -> float:
        return SLOT_X16[self.pcie_generation] * PATH_SHARE[self.pcie[a][b]]

    def bandwidth(self, gpus: Set) -> float:
        """GB/s of exactly this set: a pair's better path, else the better of its packed NVLink rings and its PCIe ring, every order tried."""
        if len(gpus) < 2:
            return 0.0
        if len(gpus) == 2:
            a, b = gpus
            return max(self.links(a, b) * self.nvlink_gb_per_s, self.pcie_hop(a, b))
        rings = self._rings(gpus)
        pcie = max(min(self.pcie_hop(a, b) for a, b in ring) for ring in rings)
        nvlink_rings = [ring for ring in rings if all(self.links(a, b) for a, b in ring)]
        if not nvlink_rings:
            return pcie
        slowest = max(min(self.links(a, b) for a, b in ring) for ring in nvlink_rings) * self.nvlink_gb_per_s
        if self.switched:
            return max(pcie, slowest)
        return max(pcie, 2 * self.nvlink_gb_per_s * self._packed_rings(gpus, nvlink_rings))

    @staticmethod
    def _rings(gpus: Set) -> list[list[tuple[int, int]]]:
        """Every ring through all of them as the pairs that it uses, the lower GPU first; each ring stands in one of its two directions."""
        first, *others = sorted(gpus)
        orders = [(first, *order) for order in permutations(others) if order[0] < order[-1]]
        return [[(min(a, b), max(a, b)) for a, b in zip(order, (*order[1:], order[0]), strict=True)] for order in orders]

    def nvlink_rings(self, gpus: Set) -> float:
        """GB/s of the NVLink rings of a set of any size, as long as its links are few: every walk along NVLinks is walked, and those that close are packed."""
        walks = [[min(gpus)]]
        for _ in range(len(gpus) - 1):
            walks = [[*walk, gpu] for walk in walks for gpu in gpus if gpu not in walk and self.links(walk[-1], gpu)]
        closed = [walk for walk in walks if walk[1] < walk[-1] and self.links(walk[-1], walk[0])]
        rings = [[(min(a, b), max(a, b)) for a, b in zip(walk, (*walk[1:], walk[0]), strict=True)] for walk in closed]
        return 2 * self.nvlink_gb_per_s * self._packed_rings(gpus, rings) if rings else 0.0

    def _packed_rings(self, gpus: Set, rings: list[list[tuple[int, int]]]) -> float:
        """How many undirected rings the links carry at once: by duality the cheapest prices of links at which no ring costs less than one."""
        pairs = list(combinations(sorted(gpus), 2))
        costs = np.zeros((len(rings), len(pairs)))
        for row, ring in enumerate(rings):
            for pair in ring:
                costs[row, pairs.index(pair)] = 1
        found = linprog([self.links(a, b) for a, b in pairs], A_ub=-costs, b_ub=-np.ones(len(rings)), method="highs")
        assert found.success, found.message
        return float(found.fun)

    @cached_property
    def bandwidths(self) -> dict[Set, float]:
        """GB/s of every set."""
        return {gpus: self.bandwidth(gpus) for size in range(len(self.codes) + 1) for gpus in self.subsets(self.everything, size)}

    def islands_broken(self, free: Set, taken: Set) -> tuple[int, int]:
        """How many groups of GPUs that NVLinks join, all of them free, lose a GPU; and how many groups inside them in which all are joined to all."""
        joined = {frozenset(self._nvlink_reached(gpu)) for gpu in self.everything}
        return tuple(
            sum(len(group) > 1 and group <= free and bool(group & taken) for group in groups) for groups in (joined, set(self.islands) - joined)
        )

    def _nvlink_reached(self, start: int) -> set[int]:
        nvlinks = [["NV" if self.links(a, b) else "SYS" for b in sorted(self.everything)] for a in sorted(self.everything)]
        return self._reached(nvlinks, start, "NV")

    def worst(self, gpus: Set) -> int:
        """Level of the worst link inside a set, 0 below two GPUs."""
        return max((level(self.codes[a][b]) for a, b in combinations(sorted(gpus), 2)), default=0)

    def on_one_numa_node(self, gpus: Set) -> bool:
        """Whether all GPUs are known to be on one NUMA node: all print its number, or the whole machine says one thing and has no link between nodes."""
        told = [None if cell in ("", "N/A") else cell for cell in self.numa or [""] * len(self.codes)]
        if len(gpus) < 2:
            return True
        if len(set(told)) == 1 and (told[0] is None or not told[0].isdigit()):
            return not any("SYS" in row for row in self.codes)
        return len({told[gpu] for gpu in gpus}) == 1 and all((told[gpu] or "").isdigit() for gpu in gpus)

    def best_bandwidth(self, free: Set, size: int, ceiling: int = 5) -> float:
        """GB/s of the best set of that size among the free GPUs, -1 where there is none."""
        return max((self.bandwidths[found] for found in self.subsets(free, size) if self.worst(found) <= ceiling), default=-1.0)

    def packing(self, free: Set, size: int) -> float:
        """GPU x GB/s of the best disjoint sets of that size: leave the first GPU out, or try every set that holds it."""
        return self._packing(free, size, {})

    def _packing(self, free: Set, size: int, known: dict[Set, float]) -> float:
        if len(free) < size:
            return 0.0
        if free not in known:
            first = min(free)
            best = self._packing(free - {first}, size, known)
            for others in self.subsets(free - {first}, size - 1):
                gpus = others | {first}
                best = max(best, size * self.bandwidths[gpus] + self._packing(free - gpus, size, known))
            known[free] = best
        return known[free]

    def worth(self, free: Set, weights: dict[int, float]) -> float:
        """Worth of a remainder: 1 GB/s a GPU for demands of one, the best packing for all others, by their weights."""
        return weights[1] * len(free) + sum(weight * self.packing(free, size) for size, weight in weights.items() if size > 1)


def best_effort_partitions(gpus: Sequence[int], k: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield every way to cut GPUs into groups of k, with one smaller group of all that is left over, in the order in which NVIDIA's best-effort rule meets them."""
    yield from _partitions(list(gpus), k, -len(gpus) % k)


def _partitions(gpus: list[int], k: int, spare: int) -> Iterator[list[tuple[int, ...]]]:
    """Places that stay empty are ``spare``; an empty place sorts behind every GPU."""
    if not gpus:
        yield []
        return
    first, *others = gpus
    smaller = combinations(others, k - spare - 1) if spare else ()
    for rest in sorted([*combinations(others, k - 1), *smaller], key=lambda found: (*found, 99)):
        group = (first, *rest)
        left = [gpu for gpu in gpus if gpu not in group]
        for further in _partitions(left, k, 0 if len(group) < k else spare):
            yield [group, *further]
