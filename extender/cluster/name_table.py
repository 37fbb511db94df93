"""Which row each name of a call has: a hash table in numpy, asked for thousands of names at once.

`Columns` keeps one beside its dict of names, `View.rows_of` asks it. A name's cell (`extender.node_names`) is hashed to a slot, the slot names a row, and the row's own cell is compared in full: a
found row is always the right one. Names that share a slot are looked up in a second table with another hash. 5,000 names of 30 to 40 bytes take a third of what a dict
takes, mostly because no string is made of any of them.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.node_names import BLANKS, WIDEST, Cells, NodeNames

UNKNOWN_ROW: Final = -1
_SLOTS_A_NAME: Final = 32  # in a table that is half full of names; one of 64 shares its slot then
_CROWDED: Final = -1  # in a slot of several names


class NameTable:
    """Rows by name for a list of names that only grows: the row of a name is its position."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._cells: Cells = np.zeros((0, 1), np.uint64)  # (capacity, words)
        self._count = 0
        self._slots = _Slots.of(self._cells, np.zeros(0, np.int64), 0)

    def rows_of(self, asked: NodeNames) -> NDArray[np.int64]:
        """Return the row of each name, shape (n,), UNKNOWN_ROW for one that is not in the list."""
        if self._count < len(self._names):
            self._catch_up()
        if not self._count or not len(asked):
            return np.full(len(asked), UNKNOWN_ROW, np.int64)
        rows = self._slots.rows_of(asked.cells)
        # The closing quote is part of a cell: where all words are equal that both have, the names are.
        words = min(self._cells.shape[1], asked.cells.shape[1])
        own, found = asked.cells, self._cells.take(rows, axis=0)
        is_other = found != own if words == found.shape[1] == own.shape[1] else found[:, :words] != own[:, :words]
        if is_other.any():
            rows[is_other.any(axis=1)] = UNKNOWN_ROW
        return rows

    def _catch_up(self) -> None:
        """Take the names that have come since."""
        added = NodeNames.of(self._names[self._count :]).cells
        count = self._count + len(added)
        if count > len(self._cells) or added.shape[1] > self._cells.shape[1]:
            grown = np.full((max(2 * len(self._cells), count), max(self._cells.shape[1], added.shape[1])), BLANKS, np.uint64)
            grown[: self._count, : self._cells.shape[1]] = self._cells[: self._count]
            self._cells = grown
        self._cells[self._count : count, : added.shape[1]] = added
        self._count = count
        self._slots = _Slots.of(self._cells[:count], np.arange(count), 0)


class _Slots:
    """One table: a row a slot, and another table for the names that share one."""

    def __init__(self, rows: NDArray[np.int32], shift: int, depth: int, crowded: "_Slots | None") -> None:
        self._rows = rows
        self._shift = np.uint64(shift)
        self._depth = depth
        self._crowded = crowded

    @staticmethod
    def of(cells: Cells, rows: NDArray[np.int64], depth: int) -> "_Slots":
        """Make the table for some rows of the cells of all."""
        bits = max(6, (len(rows) * _SLOTS_A_NAME - 1).bit_length()) if len(rows) else 6
        made = _Slots(np.zeros(1 << bits, np.int32), 64 - bits, depth, None)
        at = made._slots_of(cells[rows])
        made._rows[at] = rows
        is_crowded = np.bincount(at, minlength=1 << bits)[at] > 1 if len(rows) else np.zeros(0, bool)
        if is_crowded.any():
            made._rows[at[is_crowded]] = _CROWDED
            made._crowded = _Slots.of(cells, rows[is_crowded], depth + 1)
        return made

    def rows_of(self, cells: Cells) -> NDArray[np.int64]:
        """Return the only row that each name can have, shape (n,): that it has it is not said."""
        rows = self._rows.take(self._slots_of(cells)).astype(np.int64)
        if self._crowded is not None:
            again = np.flatnonzero(rows == _CROWDED)
            if len(again):
                rows[again] = self._crowded.rows_of(cells[again])
        return rows

    def _slots_of(self, cells: Cells) -> NDArray[np.int64]:
        """Hash cells: sums of odd multiples of their words, whose upper bits depend on every bit below. The blanks of a wider cell are added, so that the width does not matter."""
        words = cells.shape[1]
        hashed = cells @ _multipliers(self._depth)[:words]
        hashed += _blanks_after(self._depth, words)
        return (hashed >> self._shift).astype(np.int64)


@cache
def _multipliers(depth: int) -> NDArray[np.uint64]:
    """Return odd numbers, one a word of the widest cell, others for every table."""
    return np.random.default_rng(depth).integers(2**62, 2**63, WIDEST // 8, np.uint64) * np.uint64(2) + np.uint64(1)


@cache
def _blanks_after(depth: int, words: int) -> np.uint64:
    """Return what blank words add to the hash of the widest cell."""
    return np.uint64(sum(_multipliers(depth)[words:].tolist()) * BLANKS % 2**64)
