"""Packing: partly used GPUs before idle ones, used nodes before idle ones (Antman, OSDI'20, as the FGD paper has it).

The pod's GPUs are those with the least left. All of them partly used: max(50, 100 - floor(sum of percent left on them / 10)). Else, on a node with a used GPU:
max(33, 50 - wholly idle ones taken). On a node with none: max(33 - its GPUs, its GPUs). Pods without GPUs: 0 everywhere.
"""

import numpy as np
from numpy.typing import NDArray

from bench.openb.cluster import SLOTS, Rows
from bench.openb.policies.scored import Scored
from bench.openb.trace import WHOLE, Demand


class Packing(Scored):
    """The fewest idle GPUs and nodes broken into."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._gpus = (self.cluster.gpu_left > 0).sum(axis=1)  # (nodes) as the run begins with all of them idle

    def score(self, demand: Demand, rows: Rows) -> NDArray[np.float64]:
        """Return 0 to 100."""
        left = self.cluster.gpu_left[rows]
        if not demand.gpus:
            return np.zeros(len(left))
        idle = (left == WHOLE).sum(axis=1)
        ascending = np.sort(np.where(left >= demand.gpu_milli, left, 2 * WHOLE), axis=1)[:, : demand.gpus]  # (n, gpus) milli left of those taken
        taken_idle = (ascending == WHOLE).sum(axis=1)
        partly = np.maximum(50, 100 - (ascending * 100 // WHOLE).sum(axis=1) // 10)
        used = np.maximum(33, 50 - taken_idle)
        fresh = np.maximum(33 - idle, idle)
        scores: NDArray[np.float64] = np.where(idle == self._gpus[rows], fresh, np.where(taken_idle > 0, used, partly)).astype(np.float64)
        return scores


assert SLOTS <= 33, "an idle node's score would pass that of a used one"
