"""BestFit: the node with the least left afterwards, CPU and GPU weighed equally.

floor(100 x (1 - (cpu_left - cpu)/128000/2 - (gpu_left - gpu)/8000/2)), GPU summed over the node, both by the largest node's amount.
"""

import numpy as np
from numpy.typing import NDArray

from bench.openb.cluster import Rows
from bench.openb.policies.dotprod import LARGEST_CPU, LARGEST_GPU
from bench.openb.policies.scored import Scored
from bench.openb.trace import Demand


class BestFit(Scored):
    """Least weighed sum of what stays free."""

    def score(self, demand: Demand, rows: Rows) -> NDArray[np.float64]:
        """Return 0 to 100."""
        cpu = (self.cluster.cpu_left[rows] - demand.cpu_milli) / LARGEST_CPU
        gpu = (self.cluster.gpu_left[rows].sum(axis=1) - demand.total_gpu_milli) / LARGEST_GPU
        scores: NDArray[np.float64] = np.floor(100 * (1 - (cpu / 2 + gpu / 2)))
        return scores
