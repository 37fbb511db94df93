"""What costs need to know of every row of a view, brought up to date only for the rows that changed: by which tables it is judged, how full it is, and the supply of GPUs.

Kept by `placement`, which asks before it judges. The supply moves in steps, as weights do: a node more or less among many changes no table.
"""

import operator
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.cluster import View
from extender.placement.outlook import Outlook, State
from extender.placement.outlook_tables import GpuKind, supply_of
from topology.capacity import MOST_GPUS

_PARTS: Final = 2**20  # of a GPU
_FEW: Final = 3  # rows up to which one at a time is faster
_FEW_NAMES: Final = 64  # new ones that find their place one by one
_BITS: Final = np.left_shift(np.uint32(1), np.arange(MOST_GPUS, dtype=np.uint32))
STEP: Final = 0.05  # of the cluster's nodes are of other classes than before


class RowFacts:
    """The facts of the last view that was looked at."""

    def __init__(self) -> None:
        self.supply: Mapping[GpuKind, int] = {}
        self.taken = 0.0  # share of the cluster's healthy GPUs, parts of a GPU as such
        self._generation = -1
        self._free = np.zeros(0)  # (rows,) GPUs that are left, parts of a GPU as such
        self._left = 0.0  # their sum
        self._numbers = np.zeros(0, np.int64)  # (rows,) tables of the outlook
        self._numbered_at = -1  # generation of these
        self.values: dict[int, tuple[int, float, float]] = {}  # of `Judge`, for the views themselves
        self._by_gpus = np.zeros(0)  # (rows,) milli that the GPUs of each could still serve
        self._by_gpus_at = -1  # generation of these
        self._ranks = np.zeros(0, np.int64)  # (rows,) places of the names among all
        self._sorted: list[str] = []  # the names
        self._names: object = ()  # as the view had them: others where rows were numbered anew
        self._nodes: Mapping[str, float] = {}  # share of nodes by key of their class, when the supply was counted
        self._hardware: tuple[object, ...] = ()  # of the view that was looked at last
        self._healthy = 0

    def follow(self, view: View) -> bool:
        """Look at a view; tells whether the supply has moved."""
        if view.generation == self._generation:
            return False
        if self._generation > view.generation or len(self._free) != view.rows:
            self._free, self._left, self._generation = np.zeros(view.rows), 0.0, -1
        rows = np.nonzero(view.row_generation > self._generation)[0]
        left = gpus_left(view, rows)
        self._left += float(np.sum(left - self._free[rows]))
        self._free[rows] = left
        self._generation = view.generation
        hardware = (view.class_index, view.usable, view.offered, *view.classes)  # the same objects as long as pods alone come and go
        is_known = len(hardware) == len(self._hardware) and all(map(operator.is_, hardware, self._hardware))
        if not is_known:
            self._hardware, self._healthy = hardware, int(np.bitwise_count(view.usable).sum())
            self.values = {}
        self.taken = 1.0 - self._left / self._healthy if self._healthy else 0.0
        return False if is_known else self._follow_supply(view)

    def _follow_supply(self, view: View) -> bool:
        counts = np.bincount(view.class_index[view.usable > 0].astype(np.int64) + 1, minlength=len(view.classes) + 1)[1:]
        shares = counts / max(1, counts.sum())
        now = {kind.key: share for kind, share in zip(view.classes, shares.tolist(), strict=True) if share}
        if sum(abs(now.get(key, 0.0) - self._nodes.get(key, 0.0)) for key in sorted(now.keys() | self._nodes.keys())) / 2 < STEP:
            return False
        self._nodes = now
        supply = supply_of(view)
        moved = supply != self.supply
        self.supply = supply
        return moved

    def numbers(self, view: View, outlook: Outlook) -> NDArray[np.int64]:
        """Return by which tables each row is judged, shape (rows,); -1 for rows without a class. Asked about the view that was followed last."""
        if self._numbered_at == view.generation:
            return self._numbers
        later = self._numbered_at < view.generation and len(self._numbers) <= view.rows
        before = self._numbers if later else self._numbers[:0]
        if len(before) < view.rows:
            self._numbers = np.full(view.rows, -1, np.int64)
            self._numbers[: len(before)] = before
        anew = view.row_generation > (self._numbered_at if later else -1)
        self._numbers[anew & (view.class_index < 0)] = -1
        rows = np.nonzero(anew & (view.class_index >= 0))[0]
        self._numbers[rows] = outlook.numbers(view.classes, view.class_index[rows], view.offered[rows])
        self._numbered_at = view.generation
        return self._numbers

    def by_gpus(self, view: View, outlook: Outlook) -> NDArray[np.float64]:
        """Return what the GPUs of each row could still serve, whatever its CPU, shape (rows,); 0 for rows without a class. Asked about the view that was followed last."""
        numbers = self.numbers(view, outlook)
        later = self._by_gpus_at <= view.generation and len(self._by_gpus) == view.rows
        if not later:
            self._by_gpus = np.zeros(view.rows)
        self._by_gpus[numbers < 0] = 0.0
        rows = np.nonzero((numbers >= 0) & (view.row_generation > (self._by_gpus_at if later else -1)))[0]
        if len(rows):
            self._by_gpus[rows] = outlook.by_gpus(numbers[rows], State(view.cpu_left[rows], view.free[rows].astype(np.int64), view.left[rows]))
        self._by_gpus_at = view.generation
        return self._by_gpus

    def name_ranks(self, view: View) -> NDArray[np.int64]:
        """Return the place of each row's name among those of all rows, shape (rows,). Rows are only added, as long as the names are the same object."""
        if view.names is not self._names:
            self._names, self._ranks, self._sorted = view.names, self._ranks[:0], []
        known = len(self._ranks)
        if 0 <= view.rows - known <= _FEW_NAMES and known:
            for name in view.names[known : view.rows]:
                place = bisect_left(self._sorted, name)
                self._sorted.insert(place, name)
                self._ranks = np.append(self._ranks + (self._ranks >= place), place)
        elif known != view.rows:
            names = view.names[: view.rows]
            self._sorted = sorted(names)
            self._ranks = np.empty(view.rows, np.int64)
            self._ranks[sorted(range(view.rows), key=names.__getitem__)] = np.arange(view.rows)
        return self._ranks

    def forget_numbers(self) -> None:
        """Let the rows be numbered anew next time: another outlook has other tables."""
        self.values = {}
        self._numbered_at = -1
        self._by_gpus_at = -1
        self._by_gpus = np.zeros(0)


def gpus_left(view: View, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how many GPUs are left on those rows, parts of a GPU as such, shape (n,): whole multiples of 1 / `_PARTS`, so that sums are exact in any order."""
    if len(rows) <= _FEW:
        return np.array([_gpus_left_on(view, row) for row in rows.tolist()], np.float64)
    left, offered = view.left[rows].astype(np.int64), view.offered[rows].astype(np.int64)
    parts = (left * _PARTS // np.maximum(offered, 1)).sum(axis=1) / _PARTS
    return np.asarray(parts + np.bitwise_count(view.free[rows] & ((offered == 0) @ _BITS)))


def _gpus_left_on(view: View, row: int) -> float:
    """Return the same for one row: for a few, what numpy costs per operation is more than the work."""
    parts, unknown = 0, 0
    for bit, (left, offered) in enumerate(zip(view.left[row].tolist(), view.offered[row].tolist(), strict=True)):
        if offered:
            parts += left * _PARTS // offered
        else:
            unknown |= 1 << bit
    return parts / _PARTS + (view.free.item(row) & unknown).bit_count()
