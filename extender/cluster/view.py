"""What readers of the state get: read-only arrays of one generation, with the tentative holds of that moment.

Made by `state`, read by `placement`, `scoring`, `explain`. A view never changes after it was handed out, so a decision and its explanation speak
of the same cluster, however much later the explanation is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.cluster.columns import NodeGpus
from topology.topology_class import TopologyClass


@dataclass(frozen=True, slots=True)
class TentativeHold:
    """The set that a scored pod will most likely take; it counts until its bind arrives or ``until`` (monotonic seconds) has passed."""

    uid: str
    row: int
    mask: int
    until: float


@dataclass(frozen=True, slots=True)
class View:
    """One generation of the cluster. Arrays have one entry a row (a node) and cannot be written.

    CPU and memory are for scores alone, nothing here is feasible or not by them: kube-scheduler's NodeResourcesFit has looked at them before we are called.
    ``names`` and ``row_of`` are shared with the live state, which only ever appends to them: rows from ``rows`` on are not this view's.
    """

    generation: int
    taken_at: float  # monotonic seconds
    names: Sequence[str]
    row_of: Mapping[str, int]
    gpus: Sequence[NodeGpus]
    closed_by: Sequence[str]
    classes: Sequence[TopologyClass]
    class_index: NDArray[np.int32]  # (rows,) position in classes, -1 for none
    usable: NDArray[np.uint32]  # (rows,) bits of healthy GPUs
    free: NDArray[np.uint32]  # (rows,) bits of healthy GPUs that nobody holds
    closed: NDArray[np.int8]  # (rows,) Refusal
    row_generation: NDArray[np.int64]  # (rows,) last change of what fits there
    cpu_left: NDArray[np.int64]  # (rows,) millicores that pods have not requested; UNKNOWN where no Node tells
    memory_left: NDArray[np.int64]  # (rows,) MiB, as above; both are below 0 where pods request more than there is
    host_generation: NDArray[np.int64]  # (rows,) last change of anything, CPU and memory among it
    holds: tuple[TentativeHold, ...] = ()

    @property
    def rows(self) -> int:
        """Number of nodes."""
        return len(self.closed)

    def rows_of(self, names: Sequence[str]) -> NDArray[np.int32]:
        """Return the row of each name, -1 for one that is not known (or came after this view)."""
        rows = np.fromiter(map(self.row_of.get, names, [-1] * len(names)), np.int32, len(names))
        rows[rows >= self.rows] = -1
        return rows

    def held_by_others(self, uid: str) -> dict[int, int]:
        """Return row -> bits that other pods hold tentatively."""
        held: dict[int, int] = {}
        for hold in self.holds:
            if hold.uid != uid:
                held[hold.row] = held.get(hold.row, 0) | hold.mask
        return held
