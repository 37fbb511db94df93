"""What kube-scheduler is told of each node that does not fit: a number a row, kept by shape and looked at again only for the rows that changed, and the sentences by number.

`verbs.filter` asks `Placement.told`. Most reasons have no numbers of a node in their sentence; three have: the best bandwidth there is, which follows from class and mask, the
largest GPU, which follows from the hardware, and the minute before which kubelet is not tried again. `groups` makes one sentence for all nodes that share theirs.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.cluster import View
from extender.demand import Shape
from extender.placement.fits import usable_mask
from extender.reasons import NodeNumbers, Refusal, minute_after
from topology.capacity import hosts

Rows = NDArray[np.int64]
HAVE_NUMBERS: Final = frozenset((Refusal.BANDWIDTH, Refusal.GPU_TOO_SMALL, Refusal.KUBELET_REFUSED))  # of a node, in the sentence for kube-scheduler
NO_NUMBERS: Final = NodeNumbers(0, 0, 0)
_KEY_BITS = 32  # of a mask
_MOST_SENTENCES = 1000  # of one shape; then those of former times are forgotten


class Told:
    """Sentences of one shape, as of one generation."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self.generation = -1
        self.numbers = np.zeros(0, np.int16)  # (rows,) position in `sentences`
        self.sentences = [""]  # the first is for rows that fit
        self._number_of = {"": 0}

    def grow_to(self, view: View) -> Rows:
        """Take the generation of a view, and return the rows that have changed since the last."""
        if len(self.sentences) > _MOST_SENTENCES:
            self._forget()
        anew = np.flatnonzero(view.row_generation > self.generation)
        if len(self.numbers) < view.rows:
            self.numbers = np.concatenate([self.numbers, np.zeros(view.rows - len(self.numbers), np.int16)])
        elif len(self.numbers) > view.rows:  # rows were numbered anew, and each counts as changed
            self.numbers = self.numbers[: view.rows].copy()
        self.generation = view.generation
        return anew

    def put(self, rows: Rows, sentence: str) -> None:
        """Tell that of those rows."""
        number = self._number_of.setdefault(sentence, len(self.sentences))
        if number == len(self.sentences):
            self.sentences.append(sentence)
        self.numbers[rows] = number


def groups(shape: Shape, view: View, rows: Rows, refusal: Refusal) -> Iterator[Rows]:
    """Yield positions in ``rows``, all refused for that reason, by sentence: nodes of equal numbers together."""
    if refusal is Refusal.BANDWIDTH:
        classes = view.class_index[rows].astype(np.int64)
        wanted = np.array([usable_mask(shape, kind) for kind in view.classes], np.uint32)[classes]
        hosting, leading = view.free[rows] & wanted, shape.leading
        if leading.is_share:
            hosting = hosts(leading.mib, hosting, view.left[rows]) & wanted
        yield from _alike(classes << _KEY_BITS | hosting)
    elif refusal is Refusal.GPU_TOO_SMALL:
        hardware = np.column_stack((view.class_index[rows], view.usable[rows].astype(np.int32), view.offered[rows]))
        number_of: dict[bytes, int] = {}
        yield from _alike(np.array([number_of.setdefault(row.tobytes(), len(number_of)) for row in hardware]))
    elif refusal is Refusal.KUBELET_REFUSED:
        yield from _alike(np.array([minute_after(view.kubelet_refusals[shape][row].until).timestamp() for row in rows.tolist()]).astype(np.int64))
    else:
        yield np.arange(len(rows))


def _alike(keys: NDArray[np.int64]) -> Iterator[Rows]:
    _, back = np.unique(keys, return_inverse=True)
    yield from np.split(np.argsort(back, kind="stable"), np.cumsum(np.bincount(back))[:-1])
