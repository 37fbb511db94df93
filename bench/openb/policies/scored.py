"""A placer that scores every node, and keeps each score until the node changes.

A score depends on the demand and on one node's state only. So of each demand ever seen the scores of all nodes are kept; when it comes again, only the rows that changed
since are scored anew, together. The first best row wins: rows stand in the run's random order.
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from bench.openb.cluster import Placement, Rows, fitting_gpus
from bench.openb.replay import Surroundings
from bench.openb.trace import Demand, Pod

REFUSED = -1.0


class Scored(ABC):
    """Base of the policies: a subclass says how it scores nodes and, if it differs, which GPUs it takes there."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings
        self.cluster = surroundings.cluster
        self._kept: dict[Demand, tuple[int, NDArray[np.float64]]] = {}  # (changes seen, scores of all rows)

    @abstractmethod
    def score(self, demand: Demand, rows: Rows) -> NDArray[np.float64]:
        """Return the scores of the rows, shape (n), greater is better; what it says of rows without room does not matter."""

    def gpus(self, demand: Demand, row: int) -> tuple[int, ...]:
        """Return the GPUs that the pod gets on the chosen node."""
        return fitting_gpus(self.cluster.gpu_left[row], demand)

    def place(self, pod: Pod) -> Placement | None:
        """Return the first row of the best score."""
        scores = self.scores(pod.demand)
        row = int(scores.argmax())
        return None if scores[row] == REFUSED else Placement(row, self.gpus(pod.demand, row))

    def leave(self, pod: Pod) -> None:  # noqa: B027 - of interest to placers with a state of their own alone
        """Do nothing: the cluster says which rows changed."""

    def scores(self, demand: Demand) -> NDArray[np.float64]:
        """Return the scores of all rows, brought up to date; `REFUSED` where the pod does not fit."""
        changed = self.cluster.changed
        seen, scores = self._kept.get(demand, (-1, np.empty(0)))
        if seen < 0:
            scores = np.where(self.cluster.feasible(demand), self.score(demand, slice(None)), REFUSED)
        elif seen < len(changed):
            rows = np.array(list(set(changed[seen:])))
            scores[rows] = np.where(self.cluster.feasible(demand, rows), self.score(demand, rows), REFUSED)
        self._kept[demand] = (len(changed), scores)
        return scores
