"""What a demand would get, and cost: the numbers that `extender.scoring` compares.

Whole GPUs: `Prospects`, on every mask of a topology class that was ever looked at, kept by `placement` per shape and class. A cluster has few distinct masks a class, so
after a short while scoring is array lookups alone. Shares: `RoomProspects`, of the nodes asked about; what is left of their GPUs is rarely the same.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.cluster import Room
from extender.demand import Demand, Shape
from extender.placement.plan import Plan
from extender.placement.shares import Preference, Rooms, best_gpus, is_one_share
from topology.topology_class import TopologyClass

Planner = Callable[[Shape, TopologyClass, Room], Plan | None]

IMPOSSIBLE = -1.0


class Prospects:
    """Five tables by mask, shape (2**n,); an entry counts once `look_at` has seen its mask.

    ``bandwidth`` GB/s of the plan, IMPOSSIBLE where there is none; ``worth_lost`` what the node's remainder loses by it; ``broken`` NVLink islands and
    cores that were whole and are not afterwards, as `TopologyClass.whole_islands` counts them; ``left`` GPUs free afterwards; ``union`` bits of the GPUs that the pod would get.
    """

    def __init__(self, shape: Shape, kind: TopologyClass, planner: Planner) -> None:
        self._shape = shape
        self._kind = kind
        self._planner = planner
        masks = 1 << kind.size
        self._seen = np.zeros(masks, bool)
        self.bandwidth: NDArray[np.float64] = np.full(masks, IMPOSSIBLE)
        self.worth_lost: NDArray[np.float64] = np.full(masks, np.inf)
        self.broken: NDArray[np.int16] = np.zeros(masks, np.int16)
        self.left: NDArray[np.int8] = np.zeros(masks, np.int8)
        self.union: NDArray[np.int64] = np.zeros(masks, np.int64)

    def look_at(self, masks: NDArray[np.int64]) -> None:
        """Fill the entries of those masks that are missing."""
        for mask in np.unique(masks[~self._seen[masks]]).tolist():
            self.look_at_one(mask)

    def look_at_one(self, mask: int) -> None:
        """Fill the entry of that mask if it is missing."""
        if not self._seen[mask]:
            found = self._planner(self._shape, self._kind, Room(mask))
            self._seen[mask] = True
            if found is not None:
                rest = mask & ~found.union
                self.bandwidth[mask] = found.bandwidth
                self.worth_lost[mask] = float(self._kind.worth[mask]) - float(self._kind.worth[rest])
                self.broken[mask] = self._kind.islands_broken(mask, found.union)
                self.left[mask] = rest.bit_count()
                self.union[mask] = found.union


@dataclass(frozen=True, slots=True)
class RoomProspects:
    """The same five numbers of n nodes, shape (n,), ``union`` 0 where there is no plan, and ``taken`` (n, 16): MiB of each GPU that the pod would take.

    ``left`` is MiB here, of all GPUs of the node before.
    """

    bandwidth: NDArray[np.float64]
    worth_lost: NDArray[np.float64]
    broken: NDArray[np.int16]
    left: NDArray[np.int64]
    union: NDArray[np.int64]
    taken: NDArray[np.int32]

    @staticmethod
    def of(shape: Shape, kind: TopologyClass, rooms: Rooms, planner: Planner, preference: Preference) -> "RoomProspects":
        """Look at those nodes of a class: all at once for one share of one GPU, one by one for anything else."""
        taken = np.zeros(rooms.left.shape, np.int32)
        if is_one_share(shape):
            best = best_gpus(kind, rooms, shape.parts[0].mib, preference)
            union = np.where(best < 0, 0, np.left_shift(1, np.maximum(best, 0)))
            bandwidth = np.where(best < 0, IMPOSSIBLE, 0.0)
            taken[np.arange(len(best)), best] = np.where(best < 0, 0, shape.parts[0].mib)
        else:
            plans = [planner(shape, kind, room) for room in rooms]
            union = np.array([0 if found is None else found.union for found in plans], np.int64)
            bandwidth = np.array([IMPOSSIBLE if found is None else found.bandwidth for found in plans])
            for position, found in enumerate(plans):
                if found is not None:
                    taken[position] = _taken(shape, rooms.left[position], found)
        rest = rooms.idle & ~union
        return RoomProspects(
            bandwidth=bandwidth,
            worth_lost=kind.worth[rooms.idle] - kind.worth[rest],
            broken=kind.whole_islands[rooms.idle] - kind.whole_islands[rest],
            left=rooms.left.sum(axis=1, dtype=np.int64),
            union=union,
            taken=taken,
        )


def _taken(shape: Shape, left: NDArray[np.int32], found: Plan) -> NDArray[np.int32]:
    """Return MiB of each GPU that a plan takes: of whole ones all that is left."""
    shares = dict(Demand(shape).shares(found.masks))
    return np.array([shares.get(bit, int(left[bit]) if found.union >> bit & 1 else 0) for bit in range(len(left))], np.int32)
