"""What a placement costs the pods to come: the worth of what is left on a node before, less that after, and the fragmentation that it adds.

`scoring` asks `cost` for the nodes that it compares; `shares` asks `cost_of_shares` which GPU of a node gives a share. Both are sums over a target workload M of demand
classes (`extender.demand_class`) and follow from plain arrays of what is idle and left; nothing here knows a pod. Decision 16 tells how the formula was found.

    W = scarcity of the model x min(CPU left / r, sum over GPUs of U(left))    what the node can still serve; U in `prices`, r is M's CPU per GPU
    F = what of its idle GPUs the classes of M cannot use                      FGD's fragmentation, with the sets that links allow (`lost`, `useful` in `outlook_tables`)
    cost = W before - W after + weight x (F after - F before)                  F for pods with GPUs alone

All are in milli of an average GPU of the cluster. The weight of F grows when the cluster is nearly full: as long as there is room, what counts is into what all GPUs can be
cut; then, whether the next pod finds a place as things stand.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.cluster import Room, View
from extender.demand_class import SEED_TARGET, Target
from extender.placement.outlook_tables import Expectation, GpuKind, NodeKind, gpu_tables, kinds_of, node_tables, question_of
from extender.placement.prices import Prices, Question
from extender.placement.shares import DIGITS, Rooms, rounded
from topology.capacity import MIB_PER_GIB, MOST_GPUS
from topology.topology_class import TopologyClass

FULL_FROM: Final = 0.8  # of the cluster's GPUs are taken
WEIGHT_WITH_ROOM: Final = 0.1  # of F
WEIGHT_WHEN_FULL: Final = 1.0
WEIGHT_INSIDE: Final = 0.3  # for the GPUs of one node; it makes no difference there, and plans must not depend on how full other nodes are
_BITS: Final = np.arange(MOST_GPUS)


@dataclass(frozen=True, slots=True)
class State:
    """What is left on n nodes, before or after a placement: CPU in milli (n,), bits of idle GPUs (n,), MiB of each GPU (n, 16).

    A GPU that is held whole is neither idle nor has anything left; of an idle one all is left, whatever ``left`` says.
    """

    cpu: NDArray[np.int64]
    idle: NDArray[np.int64]
    left: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class NodeState:
    """`State` for one node: numbers of Python, and instead of what is left of each GPU its level in the tables (`Outlook.levels`), by bit."""

    cpu: int
    idle: int
    levels: Sequence[int]


class Outlook:
    """The costs under one target workload; tables of the kinds of nodes are made when they are first asked about, and kept."""

    def __init__(self, target: Target = SEED_TARGET, supply: Mapping[GpuKind, int] | None = None, prices: Prices | None = None) -> None:
        self.target = target
        self._expected = Expectation(target, supply or {}, prices)
        self.prices = self._expected.prices
        self._foreseen: set[GpuKind] = set()
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._numbers_of_rooms: dict[tuple[str, tuple[int, ...]], int] = {}
        self._kinds: list[NodeKind] = []
        self._tables: _Tables | None = None

    def under(self, target: Target, supply: Mapping[GpuKind, int]) -> "Outlook":
        """Return the outlook under another target workload, with what is known of prices."""
        found = Outlook(target, supply, self.prices)
        found._foreseen = self._met()
        return found

    def foresee(self, view: View) -> None:
        """Note the kinds of GPUs of a view, before the first call about it."""
        self._foreseen |= {gpu for kind in kinds_of(view) for gpu in kind.gpus}

    def questions(self, target: Target) -> set[Question]:
        """Return what must be known of prices to judge the kinds of GPUs that were met, or foreseen, under a target."""
        return {question for gpu in self._met() if (question := question_of(gpu, target)) is not None}

    def _met(self) -> set[GpuKind]:
        return {*self._foreseen, *self._expected.supply, *(gpu for kind in self._kinds for gpu in kind.gpus)}

    def __len__(self) -> int:
        """Return how many kinds of nodes have tables."""
        return len(self._kinds)

    def numbers(self, kinds: Sequence[TopologyClass], class_index: NDArray[np.int32], offered: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return by which tables each of n nodes is judged, shape (n,); ``class_index`` (n,) into ``kinds``, ``offered`` (n, 16) MiB."""
        rows = zip(class_index.tolist(), offered, strict=True)
        return np.fromiter((self._number(kinds[at], row) for at, row in rows), np.int64, len(class_index))

    def _number(self, kind: TopologyClass, offered: NDArray[np.int32]) -> int:
        key = (kind.version, offered.tobytes())
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self._kinds)
            self._kinds.append(NodeKind.of(kind, offered))
            self._tables = None
        return known

    def cost(self, numbers: NDArray[np.int64], before: State, after: State, weight: float) -> NDArray[np.float64]:
        """Return what it costs that n nodes go from one state to the other, shape (n,), less is better; ``weight`` of F, 0.0 for a pod without GPUs."""
        if not len(numbers):
            return np.zeros(0)  # perhaps no node has a class, and then there are no tables
        cpu, idle = np.concatenate((before.cpu, after.cpu)), np.concatenate((before.idle, after.idle))
        both = State(cpu, idle, np.concatenate((before.left, after.left)))
        value = self._made().value(np.concatenate((numbers, numbers)), both, weight)
        return np.round(value[: len(numbers)] - value[len(numbers) :], DIGITS)

    def by_gpus(self, numbers: NDArray[np.int64], state: State) -> NDArray[np.float64]:
        """Return what the GPUs of n nodes could still serve, whatever their CPU, shape (n,)."""
        if not len(numbers):
            return np.zeros(0)
        return self._made().by_gpus(numbers, state)

    def cost_of_cpu(self, numbers: NDArray[np.int64], by_gpus: NDArray[np.float64], cpu: NDArray[np.int64], cpu_milli: int) -> NDArray[np.float64]:
        """Return what `cost` does for a pod that takes so much of the ``cpu`` that is left, and nothing else; ``by_gpus`` as above."""
        if not len(numbers):
            return np.zeros(0)
        tables = self._made()
        return np.round(tables.worth(numbers, cpu, by_gpus) - tables.worth(numbers, cpu - cpu_milli, by_gpus), DIGITS)

    def cost_of_shares(self, kind: TopologyClass, rooms: Rooms, mib: int) -> NDArray[np.float64]:
        """Return the cost of a share of ``mib`` on each GPU of n nodes of a class, shape (n, 16), for the choice among the GPUs of one node: CPU plays no part.

        What it says of GPUs without room does not matter.
        """
        if not len(rooms.idle):
            return np.zeros(rooms.left.shape)
        if (rooms.offered == rooms.offered[0]).all():
            number = self._number(kind, rooms.offered[0])
            return self._made().cost_of_shares(number, rooms, mib)
        cost = np.empty(rooms.left.shape)
        for row in range(len(rooms.idle)):
            own = rooms.take(np.array([row]))
            cost[row] = self.cost_of_shares(kind, own, mib)[0]
        return cost

    def costs_on(self, kind: TopologyClass, room: Room, mib: int) -> list[float]:
        """Return what `cost_of_shares` does for one node, a number a bit of the class."""
        key = (kind.version, room.offered)
        if key not in self._numbers_of_rooms:
            self._numbers_of_rooms[key] = self._number(kind, np.array(room.offered, np.int32))
        return self.costs_at(self._numbers_of_rooms[key], room, self._made().levels_of(room), mib)

    def costs_at(self, number: int, room: Room, levels: Sequence[int], mib: int) -> list[float]:
        """Return the same where the number and the levels are known."""
        return self._made().costs_at(number, room, levels, mib)

    def levels(self, idle: NDArray[np.int64], left: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the level of each GPU of n nodes, shape (n, 16): whole GiB left, or that it is idle."""
        return self._made().levels(idle, left)

    def level(self, left: int) -> int:
        """Return the level of a GPU that is not idle."""
        return self._made().level(left)

    def value_of(self, number: int, state: NodeState, weight: float) -> float:
        """Return W - ``weight`` x F of one node: a placement costs what it takes of it, `rounded`."""
        return self._made().value_of(number, state, weight)

    def _made(self) -> "_Tables":
        if self._tables is None:
            self._tables = _Tables(self._kinds, self._expected)
        return self._tables


def weight_of_fragmentation(taken: float) -> float:
    """Return the weight of F in a cluster of whose GPUs that share is taken, 0.0 to 1.0. A step, as costs are kept between calls."""
    return WEIGHT_WHEN_FULL if taken >= FULL_FROM else WEIGHT_WITH_ROOM


@dataclass(frozen=True, slots=True)
class _InPlenty:
    """Of one kind of node with as much CPU as any class asks for: ``value`` (16, L) of each GPU by level, ``used`` (2**n,) of its idle GPUs by the classes of several."""

    value: NDArray[np.float64]
    used: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Few:
    """What one node at a time needs as lists: GPUs of each kind of node, CPU of the bands."""

    gpus: list[list[int]]
    cpus: list[int]


class _Tables:
    """The tables of all kinds of nodes and GPUs side by side, so that nodes of all kinds are looked up together. K kinds of nodes, G of GPUs, B bands of CPU, L levels.

    A level is the whole GiB left of a GPU, the last one an idle GPU.
    """

    def __init__(self, kinds: Sequence[NodeKind], expected: Expectation) -> None:
        gpus = {gpu: number for number, gpu in enumerate(dict.fromkeys(gpu for kind in kinds for gpu in kind.gpus))}
        of_gpus, of_nodes = [gpu_tables(gpu, expected) for gpu in gpus], [node_tables(kind, expected) for kind in kinds]
        levels = max((len(one.price) for one in of_gpus), default=2)
        columns = max((1, *(len(one.useful) for one in of_nodes)))
        self._idle = levels - 1
        self._cpus = expected.cpus
        self._gpu = np.array([[gpus[gpu] for gpu in kind.gpus] + [0] * (MOST_GPUS - len(kind.gpus)) for kind in kinds])  # (K, 16)
        self._price = _exact(np.array([_widened(one.price, levels) for one in of_gpus]).reshape(-1, levels))  # (G, L) milli
        self._lost = _exact(np.array([_widened(one.lost, levels) for one in of_gpus]).reshape(-1, len(self._cpus) + 1, levels))  # (G, B, L) milli
        self._shares = _exact(np.array([np.pad(one.shares, ((0, 0), (0, columns - len(one.useful)))) for one in of_nodes]))  # (K, B, columns)
        # One after the other, not in one array: machines of 16 GPUs have 256 times the masks of those of 8.
        self._useful = _exact(np.concatenate([np.pad(one.useful, ((0, columns - len(one.useful)), (0, 0))).ravel() for one in of_nodes]), 2.0**8)
        masks = np.array([one.useful.shape[1] for one in of_nodes])
        self._at = (columns * (np.cumsum(masks) - masks))[:, None] + np.arange(columns) * masks[:, None]  # (K, columns)
        self._bits = np.array([(1 << kind.topology.size) - 1 for kind in kinds])  # (K,)
        self._cpu_per_milli = np.array([one.cpu_per_milli for one in of_nodes])  # (K,)
        self._plenty: dict[int, _InPlenty] = {}
        self._used: dict[tuple[int, int], NDArray[np.float64]] = {}
        self._asks_cpu = bool((self._cpu_per_milli > 0).all())
        self._scarcity = np.array([one.scarcity for one in of_nodes])  # (K,)
        self._few = _Few([self._gpu[at, : len(kind.gpus)].tolist() for at, kind in enumerate(kinds)], self._cpus.tolist())

    def value(self, numbers: NDArray[np.int64], state: State, weight: float) -> NDArray[np.float64]:
        """Return W - ``weight`` x F, shape (n,)."""
        gpu, levels = self._gpu[numbers], self.levels(state.idle, state.left)
        worth = self.worth(numbers, state.cpu, self._price[gpu, levels].sum(axis=1))
        if not weight:
            return worth
        bands = np.searchsorted(self._cpus, state.cpu, side="right")
        fragmentation = self._lost[gpu, bands[:, None], levels].sum(axis=1) - self._used_by_sets(numbers, bands, state.idle)
        return np.asarray(worth - weight * fragmentation)

    def by_gpus(self, numbers: NDArray[np.int64], state: State) -> NDArray[np.float64]:
        """Return what the GPUs of a node could still serve, whatever its CPU, shape (n,)."""
        return np.asarray(self._price[self._gpu[numbers], self.levels(state.idle, state.left)].sum(axis=1))

    def worth(self, numbers: NDArray[np.int64], cpu: NDArray[np.int64], by_gpus: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return W, shape (n,)."""
        if self._asks_cpu:
            return np.asarray(self._scarcity[numbers] * np.minimum(np.maximum(cpu, 0) / self._cpu_per_milli[numbers], by_gpus))
        per_milli = self._cpu_per_milli[numbers]
        by_cpu = np.where(per_milli > 0, np.maximum(cpu, 0) / np.where(per_milli > 0, per_milli, 1.0), np.inf)
        return np.asarray(self._scarcity[numbers] * np.minimum(by_cpu, by_gpus))

    def _used_by_sets(self, numbers: NDArray[np.int64], bands: NDArray[np.int64], idle: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what the classes of several whole GPUs can use of the idle ones, shape (n,)."""
        useful = self._useful[self._at[numbers] + (idle & self._bits[numbers])[:, None]]
        return np.asarray((self._shares[numbers, bands] * useful).sum(axis=1))

    def cost_of_shares(self, number: int, rooms: Rooms, mib: int) -> NDArray[np.float64]:
        """Return the cost of a share on each GPU of nodes of one kind, shape (n, 16), with as much CPU as any class asks for."""
        tables = self._in_plenty(number)
        before = self.levels(rooms.idle, rooms.left)
        held = np.where(before == self._idle, rooms.offered, rooms.left) - mib
        after = np.clip(held // MIB_PER_GIB, 0, self._idle - 1)
        idle = rooms.idle & self._bits[number]
        broken = tables.used[idle][:, None] - tables.used[idle[:, None] & ~(1 << _BITS)]
        cost: NDArray[np.float64] = np.round(tables.value[_BITS, before] - tables.value[_BITS, after] + WEIGHT_INSIDE * broken, DIGITS)
        return cost

    def _in_plenty(self, number: int) -> "_InPlenty":
        """Return what `cost_of_shares` goes by, made when it is first asked for."""
        if number not in self._plenty:
            gpu, band = self._gpu[number], len(self._cpus)
            value = self._scarcity[number] * self._price[gpu] - WEIGHT_INSIDE * self._lost[gpu, band]
            self._plenty[number] = _InPlenty(value, self._used_in_band(number, band))
        return self._plenty[number]

    def _used_in_band(self, number: int, band: int) -> NDArray[np.float64]:
        """Return `_used_by_sets` of every mask of one kind of node in one band of CPU, shape (2**n,), made when it is first asked for."""
        known = self._used.get((number, band))
        if known is None:
            masks = np.arange(int(self._bits[number]) + 1)
            known = self._used[number, band] = self._used_by_sets(np.full(len(masks), number), np.full(len(masks), band), masks)
        return known

    # --- the same for one node at a time: for a few rows, what numpy costs per operation is more than the work

    def value_of(self, number: int, state: NodeState, weight: float) -> float:
        """Return what `value` does for one node, to the last bit: sums of what the tables hold are exact, in whatever order (`_exact`)."""
        gpus, levels = self._few.gpus[number], state.levels
        by_gpus = sum(map(self._price.item, gpus, levels))
        per_milli = self._cpu_per_milli.item(number)
        by_cpu = max(state.cpu, 0) / per_milli if per_milli > 0 else math.inf
        worth: float = self._scarcity.item(number) * min(by_cpu, by_gpus)
        if not weight:
            return worth
        band, lost = bisect_right(self._few.cpus, state.cpu), self._lost.item
        idle = state.idle & self._bits.item(number)
        used = self._used_in_band(number, band).item(idle)
        return worth - weight * (sum(map(lost, gpus, repeat(band), levels)) - used)

    def costs_at(self, number: int, room: Room, levels: Sequence[int], mib: int) -> list[float]:
        """Return what `cost_of_shares` does for one node, a number a bit of its kind."""
        tables = self._in_plenty(number)
        idle, value, used = room.idle & self._bits.item(number), tables.value.item, tables.used.item
        costs = []
        for bit, before in zip(range(len(self._few.gpus[number])), levels, strict=False):
            held = (room.offered[bit] if before == self._idle else room.left[bit]) - mib
            cost = value(bit, before) - value(bit, self.level(max(held, 0)))
            costs.append(rounded(cost + WEIGHT_INSIDE * (used(idle) - used(idle & ~(1 << bit)))))
        return costs

    def levels_of(self, room: Room) -> list[int]:
        """Return what `levels` does for one node."""
        return [self._idle if room.idle >> bit & 1 else self.level(left) for bit, left in enumerate(room.left)]

    def level(self, left: int) -> int:
        """Return the level of a GPU that is not idle."""
        return min(left // MIB_PER_GIB, self._idle - 1)

    def levels(self, idle: NDArray[np.int64], left: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the level of each GPU, shape (n, 16)."""
        return np.asarray(np.where(idle[:, None] >> _BITS & 1, self._idle, np.minimum(left // MIB_PER_GIB, self._idle - 1)))


def _exact(table: NDArray[np.float64], parts: float = 2.0**20) -> NDArray[np.float64]:
    """Return a table in whole multiples of a power of two: sums and products of them stay below 53 bits, so they are the same in whatever order they are made."""
    return np.asarray(np.rint(table * parts) / parts)


def _widened(table: NDArray[np.float64], levels: int) -> NDArray[np.float64]:
    """Return a table by level with room for larger GPUs than its own: the last entry, an idle GPU's, stays the last."""
    room = [(0, 0)] * (table.ndim - 1) + [(0, levels - table.shape[-1])]
    return np.concatenate([np.pad(table[..., :-1], room, mode="edge"), table[..., -1:]], axis=-1)
