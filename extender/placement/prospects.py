"""What a demand would get, and cost, on every mask of a topology class that was ever looked at: the numbers that `extender.scoring` compares.

Kept by `placement` per shape and class. A cluster has few distinct masks a class, so after a short while scoring is array lookups alone.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from extender.demand import Shape
from extender.placement.plan import Plan
from topology.topology_class import TopologyClass

IMPOSSIBLE = -1.0


class Prospects:
    """Four tables by mask, shape (2**n,); an entry counts once `look_at` has seen its mask.

    ``bandwidth`` GB/s of the plan, IMPOSSIBLE where there is none; ``worth_lost`` what the node's remainder loses by it; ``broken`` NVLink islands and
    cores that were whole and are not afterwards, as `TopologyClass.whole_islands` counts them; ``left`` GPUs free afterwards.
    """

    def __init__(self, shape: Shape, kind: TopologyClass, planner: Callable[[Shape, TopologyClass, int], Plan | None]) -> None:
        self._shape = shape
        self._kind = kind
        self._planner = planner
        masks = 1 << kind.size
        self._seen = np.zeros(masks, bool)
        self.bandwidth: NDArray[np.float64] = np.full(masks, IMPOSSIBLE)
        self.worth_lost: NDArray[np.float64] = np.full(masks, np.inf)
        self.broken: NDArray[np.int16] = np.zeros(masks, np.int16)
        self.left: NDArray[np.int8] = np.zeros(masks, np.int8)

    def look_at(self, masks: NDArray[np.int64]) -> None:
        """Fill the entries of those masks that are missing."""
        for mask in np.unique(masks[~self._seen[masks]]).tolist():
            found = self._planner(self._shape, self._kind, mask)
            self._seen[mask] = True
            if found is not None:
                rest = mask & ~found.union
                self.bandwidth[mask] = found.bandwidth
                self.worth_lost[mask] = float(self._kind.worth[mask]) - float(self._kind.worth[rest])
                self.broken[mask] = self._kind.islands_broken(mask, found.union)
                self.left[mask] = rest.bit_count()
