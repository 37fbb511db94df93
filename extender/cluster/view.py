"""What readers of the state get: read-only arrays of one generation, with the tentative holds of that moment.

Made by `state`, read by `placement`, `scoring`, `explain`. A view never changes after it was handed out, so a decision and its explanation speak
of the same cluster, however much later the explanation is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from extender.cluster.columns import KubeletRefusal, NodeGpus
from extender.cluster.name_table import UNKNOWN_ROW, NameTable
from extender.demand import Shape
from extender.node_names import NodeNames
from topology.topology_class import TopologyClass


@dataclass(frozen=True, slots=True)
class TentativeHold:
    """What a scored pod will most likely take; it counts until its bind arrives or ``until`` (monotonic seconds) has passed.

    ``mask``: every GPU of it; ``shares``: (bit, MiB) of those that it takes a part of.
    """

    uid: str
    row: int
    mask: int
    until: float
    shares: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Room:
    """What one node has to give: bits of GPUs that nobody holds, and by bit the MiB that shares may take of each GPU, of those that it offers in all."""

    idle: int
    left: tuple[int, ...] = ()
    offered: tuple[int, ...] = ()

    def without(self, hold: TentativeHold) -> "Room":
        """Return what would be left if a scored pod had taken its GPUs."""
        left = list(self.left)
        shares = dict(hold.shares)
        for bit in range(len(left)):
            if hold.mask >> bit & 1:
                left[bit] = max(0, left[bit] - shares[bit]) if bit in shares else 0
        return Room(self.idle & ~hold.mask, tuple(left), self.offered)


@dataclass(frozen=True, slots=True)
class View:
    """One generation of the cluster. Arrays have one entry a row (a node) and cannot be written.

    CPU and memory are for scores alone, nothing here is feasible or not by them: kube-scheduler's NodeResourcesFit has looked at them before we are called.
    ``names``, ``row_of`` and ``name_table`` are shared with the live state, which only ever appends to them: rows from ``rows`` on are not this view's. When the rows
    of nodes that are gone are given up, the live state begins new ones; a row means something together with the view alone from which it comes.
    """

    generation: int
    taken_at: float  # monotonic seconds
    names: Sequence[str]
    row_of: Mapping[str, int]
    name_table: NameTable  # the same for many names at once
    gpus: Sequence[NodeGpus]
    closed_by: Sequence[str]
    classes: Sequence[TopologyClass]
    class_index: NDArray[np.int32]  # (rows,) position in classes, -1 for none
    usable: NDArray[np.uint32]  # (rows,) bits of healthy GPUs
    free: NDArray[np.uint32]  # (rows,) bits of healthy GPUs that nobody holds, not even in part
    offered: NDArray[np.int32]  # (rows, 16) MiB of each GPU that are given away in shares
    left: NDArray[np.int32]  # (rows, 16) MiB of each that shares may still take: 0 where it is held whole or not healthy
    closed: NDArray[np.int8]  # (rows,) Refusal
    row_generation: NDArray[np.int64]  # (rows,) last change of what fits there
    cpu_left: NDArray[np.int64]  # (rows,) millicores that pods have not requested; UNKNOWN where no Node tells
    memory_left: NDArray[np.int64]  # (rows,) MiB, as above; both are below 0 where pods request more than there is
    host_generation: NDArray[np.int64]  # (rows,) last change of anything, CPU and memory among it
    holds: tuple[TentativeHold, ...] = ()
    kubelet_refusals: Mapping[Shape, Mapping[int, KubeletRefusal]] = field(default_factory=dict)  # by row, what kubelet refused there lately

    @property
    def rows(self) -> int:
        """Number of nodes."""
        return len(self.closed)

    def rows_of(self, names: NodeNames) -> NDArray[np.int64]:
        """Return the row of each name, UNKNOWN_ROW for one that is not known (or came after this view)."""
        rows = self.name_table.rows_of(names)
        if len(self.names) > self.rows:
            rows[rows >= self.rows] = UNKNOWN_ROW
        return rows

    def offered_now(self) -> NDArray[np.int32]:
        """Return MiB of each healthy GPU that are given away in shares, shape (rows, 16): what `left` is where nobody holds anything."""
        healthy = self.usable[:, None] >> np.arange(self.offered.shape[1], dtype=np.uint32) & 1
        return np.where(healthy == 1, self.offered, 0)

    def offered_on(self, row: int) -> NDArray[np.int32]:
        """Return the same of one node, shape (16,)."""
        healthy = self.usable[row] >> np.arange(self.offered.shape[1], dtype=np.uint32) & 1
        return np.where(healthy == 1, self.offered[row], 0)

    def room(self, row: int) -> Room:
        """Return what a node has to give."""
        return Room(int(self.free[row]), tuple(self.left[row].tolist()), tuple(self.offered[row].tolist()))

    def rooms_beside(self, uid: str) -> dict[int, Room]:
        """Return what the nodes have to give on which other pods hold something tentatively, as if those had it already."""
        rooms: dict[int, Room] = {}
        for hold in self.holds:
            if hold.uid != uid:
                rooms[hold.row] = (rooms.get(hold.row) or self.room(hold.row)).without(hold)
        return rooms
