"""DotProd: the alignment of Tetris (SIGCOMM'14), turned round by the FGD paper: nodes with little left of what the pod asks come first.

floor(100 x (1 - (cpu_left/128000 x cpu/128000 + gpu_left/8000 x gpu/8000) / 2)), GPU summed over the node, both by the largest node's amount.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.openb.cluster import Rows
from bench.openb.policies.scored import Scored
from bench.openb.trace import Demand

LARGEST_CPU: Final = 128_000  # milli, of one node
LARGEST_GPU: Final = 8_000


class DotProduct(Scored):
    """Least dot product of what is left and what is asked."""

    def score(self, demand: Demand, rows: Rows) -> NDArray[np.float64]:
        """Return 0 to 100."""
        cpu = self.cluster.cpu_left[rows] / LARGEST_CPU * (demand.cpu_milli / LARGEST_CPU)
        gpu = self.cluster.gpu_left[rows].sum(axis=1) / LARGEST_GPU * (demand.total_gpu_milli / LARGEST_GPU)
        scores: NDArray[np.float64] = np.floor(100 * (1 - (cpu + gpu) / 2))
        return scores
