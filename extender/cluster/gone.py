"""When the columns are worth shrinking: rows of nodes that are gone for good, and classes of which no node is.

Asked by `state` between calls, about once a second. A cluster that scales by itself sees thousands of node names a day that never come again, and one with failing links hundreds of
kinds of machines; both would be kept for ever. A row is not given to another node: whoever remembers a row (views, holds, kept answers) would take the one for the other. Instead all
rows are numbered anew once those that are gone are half of all and many, so that each event pays for it with a constant amount, and a cluster that only breathes never does.
Where the rows are counted is cheap, numpy over all of them; nodes are looked at one by one only when that is promising.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.cluster.columns import NO_CLASS, NOT_TOLD, Columns
from extender.reasons import Refusal

FEWEST_ROWS: Final = 256  # that are gone before any is given up; what is kept of so many is less than a page of a list
FEWEST_CLASSES: Final = 32  # as above; 60 kB each with 8 GPUs, some MB with 16


class Gone:
    """Rows and classes that may go."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._in_vain = 0  # rows that seemed to be gone when most of them were not
        self._used = 0  # classes when they were last counted

    def too_many_classes(self, fewest: int = FEWEST_CLASSES) -> bool:
        """Tell whether more than half of the classes, and ``fewest`` at least, have no node."""
        if len(self._columns.classes) < 2 * self._used + fewest:
            return False
        self._used = len(set(self._columns.class_index[: self._columns.count].tolist()) - {NO_CLASS})
        return len(self._columns.classes) >= 2 * self._used + fewest

    def rows(self, is_gone: Callable[[str], bool], held: AbstractSet[int], fewest: int = FEWEST_ROWS) -> list[int]:
        """Return the rows to give up, none while that is not worth it, for which ``fewest`` have to be gone.

        ``is_gone`` is asked by name; rows that are ``held``, or remembered for a refusal, stay.
        """
        columns, n = self._columns, self._columns.count
        is_blank = (columns.class_index[:n] == NO_CLASS) & (columns.closed[:n] == Refusal.NO_TOPOLOGY) & (columns.heard_us[:n] == NOT_TOLD)
        blank = np.flatnonzero(is_blank)
        if len(blank) < max(fewest, self._in_vain) or 2 * len(blank) < n:
            return []
        stay = set(held).union(*columns.kubelet_refusals.values())
        gone = [row for row in blank.tolist() if row not in stay and is_gone(columns.names[row])]
        is_enough = len(gone) >= fewest and 2 * len(gone) >= n
        self._in_vain = 0 if is_enough else max(fewest, n // 2) + len(blank) - len(gone)  # not the same look again in a second
        return gone if is_enough else []

    def take_out(self, rows: list[int]) -> NDArray[np.int64]:
        """Give up those rows; returns the old numbers of the others, in the order of their new ones."""
        is_kept = np.ones(self._columns.count, np.bool_)
        is_kept[rows] = False
        kept = np.flatnonzero(is_kept)
        self._columns.keep(kept)
        return kept
