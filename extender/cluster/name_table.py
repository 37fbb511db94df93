"""Which row each name of a call has: a hash table in numpy, asked for thousands of names at once.

`Columns` keeps one beside its dict of names, `View.rows_of` asks it, and answers are written from its `cells`. A name's cell (`extender.node_names`) is hashed to a slot, the slot names a row, and
the row's own cell is compared in full: a found row is always the right one. Names that share a slot are looked up in a second table with another hash. 5,000 names of 30 to 40
bytes take a third of what a dict takes, mostly because no string is made of any of them.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.node_names import WIDEST, Cells, NodeNames
from extender.text_columns import NameText, blank_padded

UNKNOWN_ROW: Final = -1
_SLOTS_A_NAME: Final = 32  # in a table that is half full of names; one of 64 shares its slot then
_CROWDED: Final = -1  # in a slot of several names
_FEWEST_BITS: Final = 6


class NameTable:
    """Rows by name for a list of names that only grows: the row of a name is its position."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._cells: Cells = np.zeros((0, 1), np.uint64)  # (capacity, words)
        self._lengths = np.zeros(0, np.int64)  # (capacity,)
        self._text = self._cells  # the same, padded with blanks
        self._count = 0
        self._slots = _Slots.of(self._cells, np.zeros(0, np.int64), 0)

    def text_of(self, asked: NodeNames, rows: NDArray[np.int64]) -> NameText:
        """Return names of a call as text for its answer; ``rows`` are what `rows_of` found."""
        if len(rows) and int(rows.min()) >= 0:
            return NameText(self._text, rows)
        return NameText(blank_padded(asked.cells), np.arange(len(asked)))

    def rows_of(self, asked: NodeNames) -> NDArray[np.int64]:
        """Return the row of each name, shape (n,), UNKNOWN_ROW for one that is not in the list."""
        if self._count < len(self._names):
            self._catch_up()
        if not self._count or not len(asked):
            return np.full(len(asked), UNKNOWN_ROW, np.int64)
        rows = self._slots.rows_of(asked.cells)
        # A cell ends with its closing quote: of equal length, and equal in all words that both have, are equal names alone.
        own, found = asked.cells, self._cells.take(rows, axis=0, mode="clip")
        is_other = found != own if found.shape == own.shape else _cut_alike(found, own)
        is_longer = self._lengths.take(rows, mode="clip") != asked.lengths
        if is_other.any() or is_longer.any():
            rows[is_other.any(axis=1) | is_longer] = UNKNOWN_ROW
        return rows

    def _catch_up(self) -> None:
        """Take the names that have come since."""
        added = NodeNames.of(self._names[self._count :])
        count, words = self._count + len(added), added.cells.shape[1]
        if count > len(self._cells) or words > self._cells.shape[1]:
            self._grow(max(2 * len(self._cells), count), max(self._cells.shape[1], words))
        self._cells[self._count : count, :words] = added.cells
        self._lengths[self._count : count] = added.lengths
        self._count = count
        self._text = blank_padded(self._cells)
        self._slots = _Slots.of(self._cells, np.arange(count), 0)

    def _grow(self, capacity: int, words: int) -> None:
        cells, lengths = np.zeros((capacity, words), np.uint64), np.zeros(capacity, np.int64)
        cells[: self._count, : self._cells.shape[1]] = self._cells[: self._count]
        lengths[: self._count] = self._lengths[: self._count]
        self._cells, self._lengths = cells, lengths


def _cut_alike(found: Cells, own: Cells) -> NDArray[np.bool_]:
    words = min(found.shape[1], own.shape[1])
    is_other: NDArray[np.bool_] = found[:, :words] != own[:, :words]
    return is_other


class _Slots:
    """One table: a row a slot, and another table for the names that share one."""

    def __init__(self, rows: NDArray[np.int32], shift: int, depth: int) -> None:
        self._rows = rows
        self._shift = np.uint64(shift)
        self._depth = depth
        self._crowded: _Slots | None = None

    @staticmethod
    def of(cells: Cells, rows: NDArray[np.int64], depth: int) -> "_Slots":
        """Make the table for some rows of the cells of all."""
        bits = max(_FEWEST_BITS, (len(rows) * _SLOTS_A_NAME - 1).bit_length()) if len(rows) else _FEWEST_BITS
        made = _Slots(np.zeros(1 << bits, np.int32), 64 - bits, depth)
        at = made._slots_of(cells[rows])
        made._rows[at] = rows
        is_crowded = np.bincount(at, minlength=1 << bits)[at] > 1 if len(rows) else np.zeros(0, bool)
        if is_crowded.any():
            made._rows[at[is_crowded]] = _CROWDED
            made._crowded = _Slots.of(cells, rows[is_crowded], depth + 1)
        return made

    def rows_of(self, cells: Cells) -> NDArray[np.int64]:
        """Return the only row that each name can have, shape (n,): that it has it is not said."""
        rows = self._rows.take(self._slots_of(cells), mode="clip").astype(np.int64)
        if self._crowded is not None:
            again = np.flatnonzero(rows == _CROWDED)
            if len(again):
                rows[again] = self._crowded.rows_of(cells[again])
        return rows

    def _slots_of(self, cells: Cells) -> NDArray[np.int64]:
        """Hash cells: sums of odd multiples of their words, whose upper bits depend on every bit below. Zeros add nothing, so that the width does not matter."""
        hashed = cells @ _multipliers(self._depth)[: cells.shape[1]]
        hashed >>= self._shift
        slots: NDArray[np.int64] = hashed.view(np.int64)
        return slots


@cache
def _multipliers(depth: int) -> NDArray[np.uint64]:
    """Return odd numbers, one a word of the widest cell, others for every table."""
    return np.random.default_rng(depth).integers(2**62, 2**63, WIDEST // 8, np.uint64) * np.uint64(2) + np.uint64(1)
