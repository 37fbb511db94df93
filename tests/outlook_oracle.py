"""Slow, obvious versions of what a placement costs the pods to come: one node, the sums of decision 16 written out, whole GiB, no tables by level or band.

Prices come from the other linear program of the cutting stock: the dual, "the most that a price list can charge for all pieces", over every cutting pattern there is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import combinations

import numpy as np
from scipy.optimize import linprog

from extender.demand_class import DemandClass

GIB = 1024


@dataclass(frozen=True)
class OneNode:
    """What is left on one node; a GPU is idle, held whole (``left`` 0), or has MiB left."""

    cpu: int
    idle: tuple[bool, ...]
    left: tuple[int, ...]
    offered: tuple[int, ...]
    models: tuple[str, ...]


@dataclass(frozen=True)
class Cluster:
    """What is expected, and of what: GPUs by (model, GiB offered), and GB/s of every set of GPUs of the node's kind (a tuple of positions)."""

    target: tuple[DemandClass, ...]
    supply: Mapping[tuple[str, int], int]
    bandwidth: Mapping[tuple[int, ...], float]

    @property
    def average_gib(self) -> float:
        sized = {kind: count for kind, count in self.supply.items() if kind[1]}
        return sum(kind[1] * count for kind, count in sized.items()) / sum(sized.values())

    @property
    def whole(self) -> float:
        """Share of the GPUs asked for that are whole ones."""
        whole = sum(one.popularity * one.gpus for one in self.target if not one.mib)
        parts = sum(one.popularity * one.gpus * gib_of(one) / self.average_gib for one in self.target if one.mib)
        return whole / (whole + parts) if whole + parts else 1.0

    def size(self, gib: int) -> float:
        return self.whole + (1 - self.whole) * (gib / self.average_gib if gib else 1.0)


def gib_of(one: DemandClass) -> int:
    return -(-one.mib // GIB)


def accepts(one: DemandClass, model: str, gib: int) -> bool:
    return one.gpus > 0 and gib_of(one) <= gib and (one.model is None or fnmatchcase(model.upper(), one.model.upper()))


def patterns(sizes: Sequence[int], room: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to cut some room."""
    if not sizes:
        yield ()
        return
    for often in range(room // sizes[0] + 1):
        for others in patterns(sizes[1:], room - often * sizes[0]):
            yield (often, *others)


def fewest_gpus(sizes: Sequence[int], counts: Sequence[float], capacity: int) -> float:
    """Return the fewest GPUs, parts of them allowed, that hold so many pieces of those sizes: every pattern tried."""
    ways = np.array(list(patterns(sizes, capacity)), float).T
    found = linprog(np.ones(ways.shape[1]), A_ub=-ways, b_ub=-np.array(counts), method="highs")
    assert found.x is not None
    return float(sum(found.x))


def scarcity(cluster: Cluster, model: str, gib: int) -> float:
    demand = dict.fromkeys(cluster.supply, 0.0)
    for one in cluster.target:
        share = one.gpus > 0 and one.mib > 0
        hosts = [kind for kind in cluster.supply if accepts(one, *kind)]
        room = sum(cluster.supply[kind] * (kind[1] if share else 1) for kind in hosts)
        for kind in hosts:
            amount = one.popularity * one.gpus * (gib_of(one) / cluster.average_gib if share else 1)
            demand[kind] += amount * (kind[1] if share else 1) / room / cluster.size(kind[1])
    average = sum(demand[kind] * count for kind, count in cluster.supply.items()) / sum(cluster.supply.values())
    return demand[model, gib] / average if average else 1.0


def worth(node: OneNode, cluster: Cluster, price: Mapping[int, Sequence[float]]) -> float:
    """Return W; ``price`` says by GiB offered what 0, 1, 2 ... GiB left are worth, in GPUs."""
    kinds = [(model, amount // GIB) for model, amount in zip(node.models, node.offered, strict=True)]
    gpus = sum(
        1000 * cluster.size(gib) * (1.0 if idle else price[gib][left // GIB])
        for (_, gib), idle, left in zip(kinds, node.idle, node.left, strict=True)
    )
    size = sum(cluster.size(gib) for _, gib in kinds) / len(kinds)
    mean = sum(gib for _, gib in kinds) / len(kinds)
    asking = [one for one in cluster.target if one.gpus and gib_of(one) <= mean]
    milli = sum(1000 * size * one.popularity * one.gpus * (gib_of(one) / mean if one.mib else 1) for one in asking)
    cpu = sum(one.popularity * one.cpu_milli for one in asking)
    served = min(gpus, max(0, node.cpu) * milli / cpu) if cpu else gpus
    return served * sum(scarcity(cluster, *kind) for kind in kinds) / len(kinds)


def packed(gpus: Sequence[int], k: int, bandwidth: Mapping[tuple[int, ...], float]) -> float:
    """Return GPU x GB/s of the best disjoint sets of ``k``."""
    if len(gpus) < k:
        return 0.0
    first, rest = gpus[0], gpus[1:]
    best = packed(rest, k, bandwidth)
    for others in combinations(rest, k - 1):
        left = [gpu for gpu in rest if gpu not in others]
        best = max(best, k * bandwidth[first, *others] + packed(left, k, bandwidth))
    return best


def fragmentation(node: OneNode, cluster: Cluster) -> float:
    """Return F: for each class what it cannot use of the node's idle GPU, by its popularity."""
    gibs = [amount // GIB for amount in node.offered]
    milli = [
        1000 * cluster.size(gib) * (1.0 if idle else left // GIB / max(1, gib)) for gib, idle, left in zip(gibs, node.idle, node.left, strict=True)
    ]
    found = 0.0
    for one in cluster.target:
        usable = 0.0
        mine = [gpu for gpu in range(len(gibs)) if accepts(one, node.models[gpu], gibs[gpu])]
        if node.cpu >= one.cpu_milli and one.gpus:
            if one.mib:
                usable = sum(milli[gpu] for gpu in mine if node.left[gpu] // GIB >= gib_of(one))
            elif one.gpus == 1:
                usable = sum(milli[gpu] for gpu in mine if node.idle[gpu])
            elif len(mine) >= one.gpus:
                size = sum(cluster.size(gib) for gib in gibs) / len(gibs)
                best = max(cluster.bandwidth[gpus] for gpus in combinations(range(len(gibs)), one.gpus))
                usable = 1000 * size * packed([gpu for gpu in mine if node.idle[gpu]], one.gpus, cluster.bandwidth) / best
        found += one.popularity * (sum(milli) - usable)
    return found


def with_share(node: OneNode, gpu: int, mib: int) -> OneNode:
    """Return the node with a share of one of its GPUs given away."""
    return replace(
        node,
        idle=tuple(idle and at != gpu for at, idle in enumerate(node.idle)),
        left=tuple(left - mib * (at == gpu) for at, left in enumerate(node.left)),
    )
