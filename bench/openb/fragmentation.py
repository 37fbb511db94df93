"""F: how much idle GPU the expected pods cannot use.

F_n(M) = sum over the classes m of M of popularity(m) x f_n(m), in milli. f_n(m) is all idle GPU of node n if m asks for no GPU, or if m does not fit there (CPU, number of
GPUs with enough left, model); else the idle GPU on those GPUs which have less left than m asks of each (ATC'23, section 3; memory is no part of it).

No sum over M is needed for each node. What fits by CPU and model depends on the node's *band*: its model, and between which two CPU demands of M its CPU left lies. In a
band, with T idle in all, g_i on GPU i, and w GPUs wholly idle,

    F = T x (1 - popularity of the single-GPU classes that fit) - whole[band, w] + sum_i part[band, g_i]

as a single-GPU class loses each GPU on its own (where no GPU has enough it loses all of them: T), and a class of several whole GPUs loses T, less 1000 w where w are enough.
`tests/bench` holds the sum written out, to compare. Read by `replay` (to record) and by the FGD policy.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.openb.cluster import SLOTS, Cluster, Rows
from bench.openb.trace import WHOLE
from bench.openb.workload import PodClass


class Fragmentation:
    """F under one target workload M, for nodes of the given models; B bands."""

    def __init__(self, target: Sequence[PodClass], models: Sequence[str]) -> None:
        self._cpus = np.array(sorted({one.cpu_milli for one in target}))  # (C) milli, ascending
        self._per_model = len(self._cpus) + 1
        bands = len(models) * self._per_model
        self.of_idle = np.ones(bands)  # (B) share of all idle GPU that counts as such
        self.whole = np.zeros((bands, SLOTS + 1))  # (B, wholly idle GPUs) milli
        self.part = np.zeros((bands, WHOLE + 1))  # (B, milli left of one GPU) milli
        for one in target:
            if one.gpus:
                self._add(one, models)

    def _add(self, one: PodClass, models: Sequence[str]) -> None:
        left, idle = np.arange(WHOLE + 1), np.arange(SLOTS + 1)
        enough = int(np.searchsorted(self._cpus, one.cpu_milli, side="right"))
        for at, model in enumerate(models):
            if one.models and model not in one.models:
                continue
            bands = slice(at * self._per_model + enough, (at + 1) * self._per_model)
            if one.gpus == 1:
                self.of_idle[bands] -= one.popularity
                self.part[bands] += one.popularity * np.where(left < one.gpu_milli, left, 0)
            else:
                self.whole[bands] += one.popularity * np.where(idle >= one.gpus, WHOLE * idle, 0)

    def bands(self, cpu_left: NDArray[np.int64], model: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the band of each node, shape (n)."""
        return model * self._per_model + np.searchsorted(self._cpus, cpu_left, side="right")

    def of_nodes(self, cluster: Cluster, rows: Rows = slice(None)) -> NDArray[np.float64]:
        """Return F of each of the rows, milli, shape (n)."""
        gpu_left = cluster.gpu_left[rows]
        bands = self.bands(cluster.cpu_left[rows], cluster.model[rows])
        wholly_idle = (gpu_left == WHOLE).sum(axis=1)
        found: NDArray[np.float64] = (
            gpu_left.sum(axis=1) * self.of_idle[bands] - self.whole[bands, wholly_idle] + self.part[bands[:, None], gpu_left].sum(axis=1)
        )
        return found
