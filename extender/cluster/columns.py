"""One row a node: the numbers that a decision reads, as numpy arrays that grow by doubling.

Written only by `state` and `ledger`; `view` takes read-only copies. What cannot be a number (UUIDs, names) stands beside the arrays in
lists (`pieces`). Every write stamps its row with a new generation, so that cached results are recomputed for the rows that changed since, and no others. What changes
of CPU and memory alone stamps another array: it moves scores, never what fits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.cluster.name_table import NameTable
from extender.cluster.pieces import Pieces
from extender.demand import Shape
from extender.reasons import Refusal
from topology.capacity import MOST_GPUS, offered_mib
from topology.inventory import Inventory
from topology.topology_class import TopologyClass, union

NO_CLASS = -1
UNKNOWN: Final = 2**62  # of CPU or memory left, where no Node was seen that tells; no sum comes near it
NOT_TOLD: Final = -(2**62)  # of the time at which an agent looked
_FIRST_CAPACITY = 64


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of one node by bit: bit i of every mask of this node is ``uuids[i]``.

    ``offered_mib`` is what each gives away in shares: whole GiB of its size, less ``reserve_mib``. ``plugin_gpus``: how many GPUs gpushare's device plugin serves on
    the node, 0 where it does not.
    """

    uuids: tuple[str, ...]
    indices: tuple[int, ...]
    memory_mib: tuple[int | None, ...]
    bit_of: Mapping[str, int]
    offered_mib: tuple[int, ...] = ()
    plugin_gpus: int = 0
    reserve_mib: int = 0

    @staticmethod
    def of(inventory: Inventory, reserve_mib: int = 0) -> "NodeGpus":
        """Take identity and size from an inventory in published order; ``reserve_mib`` of each GPU is not given away in shares."""
        uuids = tuple(gpu.uuid or "" for gpu in inventory.gpus)
        return NodeGpus(
            uuids,
            tuple(gpu.index if gpu.index is not None else bit for bit, gpu in enumerate(inventory.gpus)),
            tuple(gpu.memory_mib for gpu in inventory.gpus),
            {uuid: bit for bit, uuid in enumerate(uuids)},
            tuple(offered_mib(gpu.memory_mib, reserve_mib) for gpu in inventory.gpus),
            reserve_mib=reserve_mib,
        )

    def mask_of(self, uuids: Iterable[str]) -> int:
        """Return the bits of those UUIDs that the node has."""
        mask = 0
        for uuid in uuids:
            bit = self.bit_of.get(uuid)
            if bit is not None:
                mask |= 1 << bit
        return mask


NO_GPUS = NodeGpus((), (), (), {})

# Every array, with what stands in a row that nobody has written yet.
_EMPTY: Final = {
    "class_index": NO_CLASS,
    "usable": 0,
    "held": 0,
    "offered": 0,
    "left": 0,
    "closed": 0,
    "row_generation": 0,
    "cpu_left": UNKNOWN,
    "memory_left": UNKNOWN,
    "host_generation": 0,
    "heard_us": NOT_TOLD,
    "silent": False,
}


@dataclass(frozen=True, slots=True)
class Taken:
    """What pods hold on one node: the bits of whole GPUs, and MiB in shares by bit."""

    whole: int
    shares: Mapping[int, int]

    @property
    def bits(self) -> int:
        """Every GPU of which anything is held."""
        return union((self.whole, *(1 << bit for bit in self.shares))) if self.shares else self.whole


@dataclass(frozen=True, slots=True)
class KubeletRefusal:
    """What kubelet's topology manager refused on a node: a ``pod`` as people name it; such pods are not sent there before ``until``, which is ``ends`` in monotonic seconds."""

    pod: str
    until: datetime
    ends: float


@dataclass(slots=True)
class Columns:
    """The arrays; ``count`` rows of them are in use. A node that is gone keeps its row, closed, until `keep` numbers the others anew.

    Names, their table, and both lists are replaced then and not written: a view that was handed out goes on with those that it has.
    """

    count: int = 0
    generation: int = 0
    names: list[str] = field(default_factory=list)
    row_of: dict[str, int] = field(default_factory=dict)
    name_table: NameTable = field(init=False)  # `row_of` for many names at once
    gpus: Pieces[NodeGpus] = field(default_factory=Pieces)
    closed_by: Pieces[str] = field(default_factory=Pieces)  # the detail behind `closed`, for explain
    classes: list[TopologyClass] = field(default_factory=list)
    class_index: NDArray[np.int32] = field(default_factory=lambda: np.full(_FIRST_CAPACITY, NO_CLASS, np.int32))  # (capacity,)
    usable: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(_FIRST_CAPACITY, np.uint32))  # (capacity,) bits of healthy GPUs
    held: NDArray[np.uint32] = field(
        default_factory=lambda: np.zeros(_FIRST_CAPACITY, np.uint32)
    )  # (capacity,) bits that some pod holds, whole or in part
    offered: NDArray[np.int32] = field(default_factory=lambda: np.zeros((_FIRST_CAPACITY, MOST_GPUS), np.int32))  # (capacity, 16) MiB
    left: NDArray[np.int32] = field(
        default_factory=lambda: np.zeros((_FIRST_CAPACITY, MOST_GPUS), np.int32)
    )  # (capacity, 16) MiB that shares may take
    closed: NDArray[np.int8] = field(default_factory=lambda: np.zeros(_FIRST_CAPACITY, np.int8))  # (capacity,) Refusal, FITS where open
    row_generation: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_FIRST_CAPACITY, np.int64))  # (capacity,)
    cpu_left: NDArray[np.int64] = field(default_factory=lambda: np.full(_FIRST_CAPACITY, UNKNOWN, np.int64))  # (capacity,) millicores
    memory_left: NDArray[np.int64] = field(default_factory=lambda: np.full(_FIRST_CAPACITY, UNKNOWN, np.int64))  # (capacity,) MiB
    host_generation: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_FIRST_CAPACITY, np.int64))  # (capacity,) never before row_generation
    heard_us: NDArray[np.int64] = field(
        default_factory=lambda: np.full(_FIRST_CAPACITY, NOT_TOLD, np.int64)
    )  # (capacity,) Unix time of the agent's last look
    silent: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(_FIRST_CAPACITY, np.bool_))  # (capacity,) closed for that it is long ago
    kubelet_refusals: Mapping[Shape, Mapping[int, KubeletRefusal]] = field(default_factory=dict)  # by row; replaced as a whole, never written
    _class_of_key: dict[str, int] = field(default_factory=dict)
    hardware_writes: int = 0  # how often a node was added or got other GPUs
    closed_writes: int = 0  # how often a node was added, opened or closed
    gpu_writes: int = 0  # how often anything changed of what fits on some node: all else is CPU and memory

    def __post_init__(self) -> None:
        """Look names up in the list that grows here."""
        self.name_table = NameTable(self.names)

    def row(self, name: str) -> int:
        """Return the row of that node, a new one at its first mention."""
        known = self.row_of.get(name)
        if known is not None:
            return known
        if self.count == len(self.closed):
            self._double()
        row = self.count
        self.count += 1
        self.row_of[name] = row
        self.names.append(name)
        self.gpus.append(NO_GPUS)
        self.closed_by.append("")
        self.closed[row] = Refusal.NO_TOPOLOGY
        self.hardware_writes += 1
        self.closed_writes += 1
        self.touch(row)
        return row

    def touch(self, row: int) -> None:
        """Stamp a row as changed in anything."""
        self.touch_host(row)
        self.gpu_writes += 1
        self.row_generation[row] = self.generation

    def touch_host(self, row: int) -> None:
        """Stamp a row as changed in CPU or memory alone: what fits there is as before."""
        self.generation += 1
        self.host_generation[row] = self.generation

    def set_gpus(self, row: int, gpus: NodeGpus) -> None:
        """Replace the identities and sizes of a node's GPUs; its class and which of them are usable are written beside this."""
        self.hardware_writes += 1
        self.gpus[row] = gpus
        self.offered[row] = gpus.offered_mib + (0,) * (MOST_GPUS - len(gpus.offered_mib))

    def left_of(self, row: int, taken: "Taken") -> tuple[int, ...]:
        """Return MiB that shares may still take of each GPU of a node where that much is taken; 0 of one that is held whole or not usable."""
        usable = self.usable.item(row) & ~taken.whole
        left = [0] * MOST_GPUS
        for bit, offered in enumerate(self.gpus[row].offered_mib):
            if usable >> bit & 1:
                left[bit] = offered
        for bit, mib in taken.shares.items():
            left[bit] = max(0, left[bit] - mib)
        return tuple(left)

    def set_closed(self, row: int, refusal: Refusal, detail: str) -> None:
        """Close a node with a reason and what is behind it, or open it (FITS)."""
        self.closed_writes += 1
        self.closed[row] = refusal
        self.closed_by[row] = detail

    def class_number(self, topology_class: TopologyClass) -> int:
        """Return the number of a class, a new one at its first mention."""
        number = self._class_of_key.get(topology_class.key)
        if number is None:
            number = len(self.classes)
            self._class_of_key[topology_class.key] = number
            self.classes.append(topology_class)
        return number

    def deepen(self, topology_class: TopologyClass) -> list[int]:
        """Replace the tables of a class by deeper ones; returns the rows of its nodes, none where no class of that key is known any more."""
        number = self._class_of_key.get(topology_class.key)
        if number is None:
            return []
        self.classes[number] = topology_class
        return [int(row) for row in np.flatnonzero(self.class_index[: self.count] == number)]

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Give up all rows but these, ascending, which are numbered anew in that order.

        Each of them counts as changed, so that nobody who remembers answers by row takes one for what another was. Who remembers rows across views must be told.
        """
        count, new_row = len(rows), {old: new for new, old in enumerate(rows.tolist())}
        capacity = max(_FIRST_CAPACITY, 1 << (count - 1).bit_length() if count else 0)
        for name, empty in _EMPTY.items():
            old = getattr(self, name)
            kept = np.full((capacity, *old.shape[1:]), empty, old.dtype)
            kept[:count] = old[rows]
            setattr(self, name, kept)
        self.names = [self.names[row] for row in new_row]
        self.row_of = {name: row for row, name in enumerate(self.names)}
        self.name_table = NameTable(self.names)
        self.gpus = Pieces.of([self.gpus[row] for row in new_row])
        self.closed_by = Pieces.of([self.closed_by[row] for row in new_row])
        by_shape = {
            shape: {new_row[row]: found for row, found in by_row.items() if row in new_row} for shape, by_row in self.kubelet_refusals.items()
        }
        self.kubelet_refusals = {shape: by_row for shape, by_row in by_shape.items() if by_row}
        self.count = count
        self.hardware_writes += 1
        self.closed_writes += 1
        self.gpu_writes += 1
        self.generation += 1
        self.row_generation[:count] = self.host_generation[:count] = self.generation

    def drop_unused_classes(self) -> None:
        """Forget the classes of which no node is any more; the others are numbered anew, which no reader sees: a view has its own numbers beside its own classes."""
        used = np.unique(self.class_index[: self.count])
        used = used[used != NO_CLASS]
        new_number = np.full(len(self.classes) + 1, NO_CLASS, np.int32)  # the last one stands for NO_CLASS
        new_number[used] = np.arange(len(used))
        self.class_index = new_number[self.class_index]
        self.classes = [self.classes[number] for number in used.tolist()]
        self._class_of_key = {kind.key: number for number, kind in enumerate(self.classes)}
        self.hardware_writes += 1
        self.generation += 1

    def _double(self) -> None:
        for name, empty in _EMPTY.items():
            old = getattr(self, name)
            grown = np.full((2 * len(old), *old.shape[1:]), empty, old.dtype)
            grown[: len(old)] = old
            setattr(self, name, grown)
