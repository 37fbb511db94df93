"""What a placement costs the pods to come: the worth of what is left on a node before, less that after, and the fragmentation that it adds.

`scoring` asks `cost` for the nodes that it compares; `shares` asks `cost_of_shares` which GPU of a node gives a share. Both are sums over a target workload M of demand
classes (`extender.demand_class`) and follow from plain arrays of what is idle and left; nothing here knows a pod. Decision 16 tells how the formula was found.

    W = scarcity of the model x min(CPU left / r, sum over GPUs of U(left))    what the node can still serve; U in `prices`, r is M's CPU per GPU
    F = what of its idle GPUs the classes of M cannot use                      FGD's fragmentation, with the sets that links allow (`lost`, `useful` in `outlook_tables`)
    cost = W before - W after + weight x (F after - F before)                  F for pods with GPUs alone

All are in milli of an average GPU of the cluster. The weight of F grows when the cluster is nearly full: as long as there is room, what counts is into what all GPUs can be
cut; then, whether the next pod finds a place as things stand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.demand_class import SEED_TARGET, Target
from extender.placement.outlook_tables import Expectation, GpuKind, NodeKind, gpu_tables, node_tables
from extender.placement.shares import Rooms
from topology.capacity import MIB_PER_GIB, MOST_GPUS
from topology.topology_class import TopologyClass

FULL_FROM: Final = 0.8  # of the cluster's GPUs are taken
WEIGHT_WITH_ROOM: Final = 0.1  # of F
WEIGHT_WHEN_FULL: Final = 1.0
WEIGHT_INSIDE: Final = 0.3  # for the GPUs of one node; it makes no difference there, and plans must not depend on how full other nodes are
DIGITS: Final = 6  # equal hardware must compare equal, whatever the order in which its costs were added up
_BITS: Final = np.arange(MOST_GPUS)


@dataclass(frozen=True, slots=True)
class State:
    """What is left on n nodes, before or after a placement: CPU in milli (n,), bits of idle GPUs (n,), MiB of each GPU (n, 16).

    A GPU that is held whole is neither idle nor has anything left; of an idle one all is left, whatever ``left`` says.
    """

    cpu: NDArray[np.int64]
    idle: NDArray[np.int64]
    left: NDArray[np.int32]


class Outlook:
    """The costs under one target workload; tables of the kinds of nodes are made when they are first asked about, and kept."""

    def __init__(self, target: Target = SEED_TARGET, supply: Mapping[GpuKind, int] | None = None) -> None:
        self.target = target
        self._expected = Expectation(target, supply or {})
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._kinds: list[NodeKind] = []
        self._tables: _Tables | None = None

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
        tables = self._made()
        return np.round(tables.value(numbers, before, weight) - tables.value(numbers, after, weight), DIGITS)

    def cost_of_shares(self, kind: TopologyClass, rooms: Rooms, mib: int) -> NDArray[np.float64]:
        """Return the cost of a share of ``mib`` on each GPU of n nodes of a class, shape (n, 16), for the choice among the GPUs of one node: CPU plays no part.

        What it says of GPUs without room does not matter.
        """
        numbers = self.numbers([kind], np.zeros(len(rooms.idle), np.int32), rooms.offered)
        return self._made().cost_of_shares(numbers, rooms, mib)

    def _made(self) -> "_Tables":
        if self._tables is None:
            self._tables = _Tables(self._kinds, self._expected)
        return self._tables


def weight_of_fragmentation(taken: float) -> float:
    """Return the weight of F in a cluster of whose GPUs that share is taken, 0.0 to 1.0. A step, as costs are kept between calls."""
    return WEIGHT_WHEN_FULL if taken >= FULL_FROM else WEIGHT_WITH_ROOM


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
        self._price = np.array([_widened(one.price, levels) for one in of_gpus]).reshape(-1, levels)  # (G, L) milli
        self._lost = np.array([_widened(one.lost, levels) for one in of_gpus]).reshape(-1, len(self._cpus) + 1, levels)  # (G, B, L) milli
        self._shares = np.array([np.pad(one.shares, ((0, 0), (0, columns - len(one.useful)))) for one in of_nodes])  # (K, B, columns)
        # One after the other, not in one array: machines of 16 GPUs have 256 times the masks of those of 8.
        self._useful = np.concatenate([np.pad(one.useful, ((0, columns - len(one.useful)), (0, 0))).ravel() for one in of_nodes])
        masks = np.array([one.useful.shape[1] for one in of_nodes])
        self._at = (columns * (np.cumsum(masks) - masks))[:, None] + np.arange(columns) * masks[:, None]  # (K, columns)
        self._bits = np.array([(1 << kind.topology.size) - 1 for kind in kinds])  # (K,)
        self._cpu_per_milli = np.array([one.cpu_per_milli for one in of_nodes])  # (K,)
        self._scarcity = np.array([one.scarcity for one in of_nodes])  # (K,)

    def value(self, numbers: NDArray[np.int64], state: State, weight: float) -> NDArray[np.float64]:
        """Return W - ``weight`` x F, shape (n,)."""
        gpu, levels = self._gpu[numbers], self._levels(state.idle, state.left)
        per_milli = self._cpu_per_milli[numbers]
        by_cpu = np.where(per_milli > 0, np.maximum(state.cpu, 0) / np.where(per_milli > 0, per_milli, 1.0), np.inf)
        worth = self._scarcity[numbers] * np.minimum(by_cpu, self._price[gpu, levels].sum(axis=1))
        if not weight:
            return np.asarray(worth)
        bands = np.searchsorted(self._cpus, state.cpu, side="right")
        fragmentation = self._lost[gpu, bands[:, None], levels].sum(axis=1) - self._used_by_sets(numbers, bands, state.idle)
        return np.asarray(worth - weight * fragmentation)

    def _used_by_sets(self, numbers: NDArray[np.int64], bands: NDArray[np.int64], idle: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what the classes of several whole GPUs can use of the idle ones, shape (n,)."""
        useful = self._useful[self._at[numbers] + (idle & self._bits[numbers])[:, None]]
        return np.asarray((self._shares[numbers, bands] * useful).sum(axis=1))

    def cost_of_shares(self, numbers: NDArray[np.int64], rooms: Rooms, mib: int) -> NDArray[np.float64]:
        """Return the cost of a share on each GPU, shape (n, 16), with as much CPU as any class asks for."""
        bands = np.full(len(numbers), len(self._cpus))
        gpu, before = self._gpu[numbers], self._levels(rooms.idle, rooms.left)
        held = np.where(rooms.idle[:, None] >> _BITS & 1, rooms.offered, rooms.left) - mib
        after = np.clip(held // MIB_PER_GIB, 0, self._idle - 1)
        worth = self._scarcity[numbers][:, None] * (self._price[gpu, before] - self._price[gpu, after])
        lost = self._lost[gpu, bands[:, None], after] - self._lost[gpu, bands[:, None], before]
        idle = (rooms.idle & self._bits[numbers])[:, None]
        rest = np.concatenate([idle, idle & ~(1 << _BITS)], axis=1)  # (n, 17) all idle ones, and those without each
        useful = self._useful[self._at[numbers][:, None, :] + rest[:, :, None]]
        used = (self._shares[numbers, bands][:, None, :] * useful).sum(axis=2)
        broken = used[:, :1] - used[:, 1:]
        cost: NDArray[np.float64] = np.round(worth + WEIGHT_INSIDE * (lost + broken), DIGITS)
        return cost

    def _levels(self, idle: NDArray[np.int64], left: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the level of each GPU, shape (n, 16)."""
        return np.asarray(np.where(idle[:, None] >> _BITS & 1, self._idle, np.minimum(left // MIB_PER_GIB, self._idle - 1)))


def _widened(table: NDArray[np.float64], levels: int) -> NDArray[np.float64]:
    """Return a table by level with room for larger GPUs than its own: the last entry, an idle GPU's, stays the last."""
    room = [(0, 0)] * (table.ndim - 1) + [(0, levels - table.shape[-1])]
    return np.concatenate([np.pad(table[..., :-1], room, mode="edge"), table[..., -1:]], axis=-1)
