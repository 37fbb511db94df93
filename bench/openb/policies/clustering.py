"""Clustering: pods of one kind together (Gandiva, OSDI'18, as the FGD paper has it); kinds are a part of a GPU, and 1, 2, 4, 8 whole ones.

A node with pods of this kind only 75, of this and others 50, without pods that have GPUs 25, of other kinds only 0; plus floor(25 x (8000 - gpu_left) / 8000), GPU summed
over the node. Pods without GPUs: 0 everywhere.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.openb.cluster import Rows, kind
from bench.openb.policies.dotprod import LARGEST_GPU
from bench.openb.policies.scored import Scored
from bench.openb.trace import Demand

ONLY_THIS: Final = 75
THIS_AND_OTHERS: Final = 50
EMPTY: Final = 25
OTHERS: Final = 0


class Clustering(Scored):
    """Nodes of the pod's kind first, the fuller the better."""

    def score(self, demand: Demand, rows: Rows) -> NDArray[np.float64]:
        """Return 0 to 100."""
        present = self.cluster.of_kind[rows] > 0
        if not demand.gpus:
            return np.zeros(len(present))
        kinds, this = present.sum(axis=1), present[:, kind(demand)]
        base = np.where(this, np.where(kinds == 1, ONLY_THIS, THIS_AND_OTHERS), np.where(kinds == 0, EMPTY, OTHERS))
        scores: NDArray[np.float64] = base + 25.0 * (LARGEST_GPU - self.cluster.gpu_left[rows].sum(axis=1)) // LARGEST_GPU
        return scores
