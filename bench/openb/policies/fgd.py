"""FGD: fragmentation gradient descent, the paper's own policy. Where the cluster's F grows least, there the pod goes.

floor(100 x sigmoid((F_before - F_after) / 1000)), F in milli; for a part of a GPU the best over the node's GPUs, the first of equal ones. F is read from the tables of
`fragmentation`: only the node's band and the GPUs taken change.
"""

import numpy as np
from numpy.typing import NDArray

from bench.openb.cluster import Rows
from bench.openb.policies.scored import REFUSED, Scored
from bench.openb.trace import WHOLE, Demand


class FGD(Scored):
    """Steepest descent of F."""

    def score(self, demand: Demand, rows: Rows) -> NDArray[np.float64]:
        """Return 0 to 100."""
        before = self.surroundings.fragmentation.of_nodes(self.cluster, rows)
        if demand.gpus == 1 and demand.gpu_milli < WHOLE:
            best: NDArray[np.float64] = _scaled(before[:, None] - self._after_part(demand, rows)).max(axis=1)
            return best
        return _scaled(before - self._after_whole(demand, rows))

    def gpus(self, demand: Demand, row: int) -> tuple[int, ...]:
        """Return the GPU of the best score for a part, the first idle ones for whole GPUs."""
        if not (demand.gpus == 1 and demand.gpu_milli < WHOLE):
            return super().gpus(demand, row)
        rows = slice(row, row + 1)
        before = self.surroundings.fragmentation.of_nodes(self.cluster, rows)
        scores = np.where(self.cluster.gpu_left[row] >= demand.gpu_milli, _scaled(before - self._after_part(demand, rows)[0]), REFUSED)
        return (int(scores.argmax()),)

    def _after_whole(self, demand: Demand, rows: Rows) -> NDArray[np.float64]:
        """Return F with the pod on the node, shape (n): wholly idle GPUs leave no part behind."""
        measure, left = self.surroundings.fragmentation, self.cluster.gpu_left[rows]
        bands = measure.bands(self.cluster.cpu_left[rows] - demand.cpu_milli, self.cluster.model[rows])
        idle = np.maximum((left == WHOLE).sum(axis=1) - demand.gpus, 0)
        total = left.sum(axis=1) - demand.total_gpu_milli
        found: NDArray[np.float64] = total * measure.of_idle[bands] - measure.whole[bands, idle] + measure.part[bands[:, None], left].sum(axis=1)
        return found

    def _after_part(self, demand: Demand, rows: Rows) -> NDArray[np.float64]:
        """Return F with the pod on each GPU of the node, shape (n, SLOTS); infinite where that GPU has too little left."""
        measure, left = self.surroundings.fragmentation, self.cluster.gpu_left[rows]
        bands = measure.bands(self.cluster.cpu_left[rows] - demand.cpu_milli, self.cluster.model[rows])
        idle, after = left == WHOLE, left - demand.gpu_milli
        parts = measure.part[bands[:, None], left]
        total = (left.sum(axis=1) - demand.gpu_milli) * measure.of_idle[bands] + parts.sum(axis=1)
        found = (
            total[:, None]
            - measure.whole[bands[:, None], idle.sum(axis=1)[:, None] - idle]
            - parts
            + measure.part[bands[:, None], np.maximum(after, 0)]
        )
        return np.where(after >= 0, found, np.inf)


def _scaled(descent: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # a GPU without room descends by minus infinity: score 0
        return np.floor(100 / (1 + np.exp(-descent / 1000)))
