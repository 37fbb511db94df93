"""The tables behind `extender.placement.outlook`: what one kind of GPU, and one kind of node, is good for under a target workload M.

A kind of GPU is its model and the GiB that it gives away; a kind of node is a topology class with the kinds of its GPUs. All worth is in milli of the cluster's average GPU. What
another GPU counts follows from what is asked for (`Expectation.size`): where pods want whole GPUs all count alike, where they want shares they count by memory, so that a pod
that may go anywhere leaves the large ones alone.

F is FGD's: idle GPU that a class of M cannot use, by the popularity of the class; all of the node's, where its CPU does not suffice. One thing is ours: for classes
of several whole GPUs the idle GPUs count as useful as far as disjoint sets of them get the bandwidth that the empty machine gives (`useful`), which without differences between
links is their number rounded down to whole sets. A class with a share on each of several GPUs counts as so many shares.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.cluster import View
from extender.demand_class import DemandClass, Target
from extender.placement.prices import Prices, Question
from topology.capacity import MIB_PER_GIB
from topology.topology_class import TopologyClass, accepts_model

MILLI: Final = 1000.0


@dataclass(frozen=True, slots=True)
class GpuKind:
    """Model (None: unknown) and GiB that it gives away in shares (0: unknown, whole GPUs alone)."""

    model: str | None
    gib: int

    def accepts(self, one: DemandClass) -> bool:
        """Tell whether pods of a class may be on such a GPU."""
        return one.gpus > 0 and _gib(one) <= self.gib and (one.model is None or accepts_model(one.model, self.model))


@dataclass(frozen=True, slots=True)
class NodeKind:
    """A topology class and the kinds of its GPUs by bit."""

    topology: TopologyClass
    gpus: tuple[GpuKind, ...]

    @staticmethod
    def of(kind: TopologyClass, offered: NDArray[np.int32]) -> "NodeKind":
        """Return the kind of a node whose GPUs offer so many MiB, shape (16,)."""
        gib = (offered // MIB_PER_GIB).tolist()
        return NodeKind(kind, tuple(GpuKind(kind.models[bit], gib[bit]) for bit in range(kind.size)))


def supply_of(view: View) -> dict[GpuKind, int]:
    """Count the healthy GPUs of a view by kind."""
    rows = np.nonzero((view.class_index >= 0) & (view.usable > 0))[0]
    nodes = Counter((int(view.class_index[row]), view.offered[row].tobytes()) for row in rows.tolist())
    found: Counter[GpuKind] = Counter()
    for (number, offered), count in nodes.items():
        for gpu in NodeKind.of(view.classes[number], np.frombuffer(offered, np.int32)).gpus:
            found[gpu] += count
    return dict(found)


def kinds_of(view: View) -> list[NodeKind]:
    """Return the kind of the first node of each class: in a few numpy calls, and nearly always all kinds that there are."""
    numbers, rows = np.unique(view.class_index, return_index=True)
    return [NodeKind.of(view.classes[number], view.offered[row]) for number, row in zip(numbers.tolist(), rows.tolist(), strict=True) if number >= 0]


class Expectation:
    """The target workload and the GPUs that it meets, by kind, with what follows from the two for all nodes."""

    def __init__(self, target: Target, supply: Mapping[GpuKind, int], prices: Prices | None = None) -> None:
        self.target = target
        self.prices = Prices() if prices is None else prices
        self.supply = dict(supply)
        sized = {kind: count for kind, count in supply.items() if kind.gib}
        self.average_gib = sum(kind.gib * count for kind, count in sized.items()) / max(1, sum(sized.values()))  # 0.0 where no size is known
        # CPU that classes ask for, ascending, (B - 1,): between two of them the same classes fit.
        self.cpus = np.array(sorted({one.cpu_milli for one in target}), np.int64)

    @cached_property
    def whole_share(self) -> float:
        """Which share of the GPUs that M asks for it asks for as whole ones, 1.0 where nothing is known."""
        whole = sum(one.popularity * one.gpus for one in self.target if not one.is_share)
        shares = sum(one.popularity * one.gpus * self.part_of_average(one) for one in self.target if one.is_share)
        return whole / (whole + shares) if whole + shares else 1.0

    def size(self, kind: GpuKind) -> float:
        """Return what a GPU counts, in average GPUs: for demands of whole GPUs all count alike, for shares by memory."""
        by_memory = kind.gib / self.average_gib if kind.gib and self.average_gib else 1.0
        return self.whole_share + (1.0 - self.whole_share) * by_memory

    def part_of_average(self, one: DemandClass) -> float:
        """Return how much of the average GPU a share of a class is."""
        return _gib(one) / self.average_gib if self.average_gib else 1.0

    @cached_property
    def scarcity(self) -> dict[GpuKind, float]:
        """Demand for what each kind of GPU counts, 1.0 on average, when each class spreads evenly over the GPUs that accept it.

        Shares spread by memory and whole GPUs by number, so that kinds of GPUs which everybody accepts are equally scarce, whatever their size.
        """
        demand = dict.fromkeys(self.supply, 0.0)
        for one in self.target:
            weights = {kind: float(kind.gib) if one.is_share else 1.0 for kind in self.supply if kind.accepts(one)}
            room = sum(weight * self.supply[kind] for kind, weight in weights.items())
            amount = one.popularity * one.gpus * (self.part_of_average(one) if one.is_share else 1.0)
            for kind, weight in weights.items():
                demand[kind] += amount * weight / room / self.size(kind)
        average = sum(demand[kind] * count for kind, count in self.supply.items()) / max(1, sum(self.supply.values()))
        return {kind: found / average if average > 0 else 1.0 for kind, found in demand.items()}

    def cpu_per_milli(self, size: float, gib: float) -> float:
        """Return r, CPU for each milli of GPU, on nodes whose GPUs count ``size`` and give away ``gib``, by the classes that fit there; 0.0 where M says nothing of it."""
        fitting = [one for one in self.target if one.gpus and _gib(one) <= gib]
        milli = sum(one.popularity * one.gpus * size * MILLI * (_gib(one) / gib if one.is_share else 1.0) for one in fitting)
        return sum(one.popularity * one.cpu_milli for one in fitting) / milli if milli else 0.0

    def fits_cpu(self, classes: Sequence[DemandClass]) -> NDArray[np.bool_]:
        """Return in which bands the CPU of each class suffices, shape (B, classes)."""
        first = np.searchsorted(self.cpus, np.array([one.cpu_milli for one in classes], np.int64), side="right")
        return np.asarray(np.arange(len(self.cpus) + 1)[:, None] >= first[None, :])


@dataclass(frozen=True, slots=True)
class GpuTables:
    """Of one kind of GPU by level, L = gib + 2: 0 to gib whole GiB left, and the last one an idle GPU.

    ``price`` (L,): milli that it is worth by the classes of one GPU; ``lost`` (B, L): milli of it that M cannot use, by band of CPU left, before `NodeTables.useful` is taken off.
    """

    price: NDArray[np.float64]
    lost: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NodeTables:
    """Of one kind of node: ``useful`` (columns, 2**n) milli of the idle GPUs of a mask that sets of a size can use, ``shares`` (B, columns) the popularity of such sets.

    ``cpu_per_milli``: r, CPU that M's pods ask for with a milli of GPU; ``scarcity`` of its models.
    """

    shares: NDArray[np.float64]
    useful: NDArray[np.float64]
    cpu_per_milli: float
    scarcity: float


def gpu_tables(kind: GpuKind, expected: Expectation) -> GpuTables:
    """Work out the tables of a kind of GPU."""
    size = expected.size(kind)
    left = np.append(np.arange(kind.gib + 1), kind.gib)
    milli = size * MILLI * left / max(1, kind.gib)
    milli[-1] = size * MILLI
    idle = np.arange(kind.gib + 2) == kind.gib + 1
    singles = [one for one in expected.target if kind.accepts(one) and (one.gpus == 1 or one.is_share)]
    enough = np.array([left >= _gib(one) if one.is_share else idle for one in singles], np.float64).reshape(len(singles), len(left))
    popular = np.array([one.popularity for one in singles]) * expected.fits_cpu(singles)  # (B, singles)
    lost = milli * (sum(one.popularity for one in expected.target) - popular @ enough)
    question = question_of(kind, expected.target)
    rest = np.zeros(1) if question is None else expected.prices.worth(question)  # by level, (L,), in GPUs of its kind
    return GpuTables(size * MILLI * np.append(rest, 1.0), lost)


def question_of(kind: GpuKind, target: Target) -> Question | None:
    """Return what the worth of a GPU's parts depends on, None for one that gives away none."""
    if not kind.gib:
        return None
    counts: dict[int, float] = {}
    for one in target:
        if one.gpus > 0 and _gib(one) <= kind.gib:  # of any model: what is cut from the others is cut from these in the same way
            size = _gib(one) or kind.gib
            counts[size] = counts.get(size, 0.0) + one.popularity * one.gpus
    sizes = tuple(sorted(counts, reverse=True))
    return sizes, tuple(counts[size] for size in sizes), kind.gib


def node_tables(kind: NodeKind, expected: Expectation) -> NodeTables:
    """Work out the tables of a kind of node."""
    sets: dict[tuple[int, int], list[DemandClass]] = {}
    for one in expected.target:
        if one.gpus > 1 and not one.is_share:
            accepting = {gpu for gpu in set(kind.gpus) if gpu.accepts(one)}
            mask = sum(1 << bit for bit, gpu in enumerate(kind.gpus) if gpu in accepting)
            if mask.bit_count() >= one.gpus:
                sets.setdefault((one.gpus, mask), []).append(one)
    size = _mean([expected.size(gpu) for gpu in kind.gpus])
    masks = np.arange(1 << kind.topology.size)
    columns = [size * MILLI * _useful(kind.topology, k)[masks & accepted] for k, accepted in sets]
    shares = [expected.fits_cpu(classes) @ np.array([one.popularity for one in classes]) for classes in sets.values()]
    return NodeTables(
        shares=np.array(shares).reshape(len(columns), len(expected.cpus) + 1).T,
        useful=np.array(columns).reshape(len(columns), len(masks)),
        cpu_per_milli=expected.cpu_per_milli(size, _mean([float(gpu.gib) for gpu in kind.gpus])),
        scarcity=_mean([expected.scarcity.get(gpu, 1.0) for gpu in kind.gpus]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 1.0


def _useful(kind: TopologyClass, k: int) -> NDArray[np.float64]:
    """Return how many GPUs of each mask disjoint sets of ``k`` can use, shape (2**n,): a set counts by its bandwidth over the best that the empty machine gives."""
    best = float(kind.best_bandwidths(k)[-1])
    if best > 0:
        # Packings are whole kB/s: rounded, so that equal sets are equal whatever their rate.
        return np.asarray(np.round(kind.packed(k) / best, 5))
    return np.asarray(np.bitwise_count(np.arange(1 << kind.size)) // k * k, np.float64)


def _gib(one: DemandClass) -> int:
    """Return GiB of a share, rounded up as what is left is rounded down; 0 for whole GPUs."""
    return -(-one.mib // MIB_PER_GIB)
