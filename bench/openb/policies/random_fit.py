"""Random: any node that fits, and for a part of a GPU any GPU there with enough left."""

import random

import numpy as np
from numpy.typing import NDArray

from bench.openb.cluster import Placement, Rows
from bench.openb.policies.scored import Scored
from bench.openb.replay import Surroundings
from bench.openb.trace import WHOLE, Demand, Pod


class RandomFit(Scored):
    """Uniform over the nodes that fit."""

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._draws = random.Random(f"random {surroundings.seed}")

    def score(self, demand: Demand, rows: Rows) -> NDArray[np.float64]:
        """Return the same for all."""
        del demand
        return np.zeros(len(self.cluster.cpu_left[rows]))

    def gpus(self, demand: Demand, row: int) -> tuple[int, ...]:
        """Return any GPU with enough left; of whole ones the first."""
        if demand.gpus == 1 and demand.gpu_milli < WHOLE:
            return (int(self._draws.choice(np.flatnonzero(self.cluster.gpu_left[row] >= demand.gpu_milli).tolist())),)
        return super().gpus(demand, row)

    def place(self, pod: Pod) -> Placement | None:
        """Return any node that fits."""
        rows = np.flatnonzero(self.scores(pod.demand) == 0)
        if not len(rows):
            return None
        row = int(rows[self._draws.randrange(len(rows))])
        return Placement(row, self.gpus(pod.demand, row))
