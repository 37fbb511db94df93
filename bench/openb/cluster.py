"""What is left on every node, as arrays of a row a node.

Rows stand in a random order, drawn once a run: it is the order in which equal scores are broken, so the first best row is the answer. `replay` owns one cluster a run
and alone changes it; placers read it, and learn from `changed` which rows are no longer what they were.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.openb.trace import WHOLE, Demand, Node

SLOTS = 8  # GPUs of the largest node
KINDS = ("part", 1, 2, 4, 8)  # what pods ask for, as the clustering policy tells them apart

Rows = NDArray[np.intp] | slice


@dataclass(frozen=True, slots=True)
class Placement:
    """A node by its row, and the GPUs there by their index; none for a pod without GPUs."""

    row: int
    gpus: tuple[int, ...]


class Cluster:
    """Nodes in a seed's order, and what is left on them; N nodes, all amounts int64.

    cpu_left (N) milli; memory_left (N) MiB; gpu_left (N, SLOTS) milli, 0 where a node has fewer GPUs; model (N) index into ``models``;
    of_kind (N, 5) pods placed there by `KINDS`; changed: rows in the order in which they were written to, the latest last.
    """

    def __init__(self, nodes: Sequence[Node], seed: int) -> None:
        order = list(nodes)
        random.Random(f"nodes {seed}").shuffle(order)
        self.nodes = tuple(order)
        self.models = tuple(sorted({node.model for node in order}))
        self.cpu_left = np.array([node.cpu_milli for node in order])
        self.memory_left = np.array([node.memory_mib for node in order])
        self.gpu_left = np.array([[WHOLE] * node.gpus + [0] * (SLOTS - node.gpus) for node in order])
        self.model = np.array([self.models.index(node.model) for node in order])
        self.of_kind = np.zeros((len(order), len(KINDS)), dtype=np.int64)
        self.capacity_milli = int(self.gpu_left.sum())
        self.changed: list[int] = []
        self._hosts: dict[tuple[str, ...], NDArray[np.bool_]] = {}

    def feasible(self, demand: Demand, rows: Rows = slice(None)) -> NDArray[np.bool_]:
        """Return which of the rows have room: CPU, memory, model, and enough GPUs with as much left as each must give."""
        room = (self.cpu_left[rows] >= demand.cpu_milli) & (self.memory_left[rows] >= demand.memory_mib)
        if demand.gpus == 1:
            room &= self.gpu_left[rows].max(axis=1) >= demand.gpu_milli
        elif demand.gpus:
            room &= (self.gpu_left[rows] >= demand.gpu_milli).sum(axis=1) >= demand.gpus
        if demand.models:
            room &= self._hosting(demand.models)[rows]
        return room

    def _hosting(self, models: tuple[str, ...]) -> NDArray[np.bool_]:
        if models not in self._hosts:
            self._hosts[models] = np.array([node.model in models for node in self.nodes])
        return self._hosts[models]

    def take(self, demand: Demand, placement: Placement) -> None:
        """Place a pod. Raises ValueError where it does not fit there: a placer that errs must not go on."""
        row, gpus = placement.row, list(placement.gpus)
        left = self.gpu_left[row, gpus]
        if not self.feasible(demand, np.array([row]))[0] or len(set(gpus)) != demand.gpus or (left < demand.gpu_milli).any():
            raise ValueError(f"{demand} does not fit on {self.nodes[row]}, GPUs {gpus}")
        self._charge(demand, placement, 1)

    def give_back(self, demand: Demand, placement: Placement) -> None:
        """Take back what a pod had that leaves; undo of `take`."""
        self._charge(demand, placement, -1)

    def _charge(self, demand: Demand, placement: Placement, times: int) -> None:
        row, gpus = placement.row, list(placement.gpus)
        self.cpu_left[row] -= times * demand.cpu_milli
        self.memory_left[row] -= times * demand.memory_mib
        self.gpu_left[row, gpus] -= times * demand.gpu_milli
        if demand.gpus:
            self.of_kind[row, kind(demand)] += times
        self.changed.append(row)


def kind(demand: Demand) -> int:
    """Return the index in `KINDS` of a demand with GPUs; odd numbers of GPUs count as the next larger kind."""
    if demand.gpu_milli < WHOLE:
        return 0
    return next(at for at in range(1, len(KINDS)) if demand.gpus <= int(KINDS[at]))


def fitting_gpus(gpu_left: NDArray[np.int64], demand: Demand) -> tuple[int, ...]:
    """Return the GPUs of one node that a pod gets: of whole ones the first, of parts the one with the least left that is enough."""
    if demand.gpus == 0:
        return ()
    enough = np.flatnonzero(gpu_left >= demand.gpu_milli)
    if demand.gpu_milli == WHOLE:
        return tuple(int(gpu) for gpu in enough[: demand.gpus])
    return (int(enough[gpu_left[enough].argmin()]),)
