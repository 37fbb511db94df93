"""Which sentence each refused node gets: made once for all nodes that share its numbers, and kept for the next pod that asks the same.

`verbs.filter` asks `Placement.sentences`, reason by reason. Most reasons have no numbers of a node in their sentence; two have: the best bandwidth there is, which follows from
class and mask, and the largest GPU, which follows from the hardware.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from extender.cluster import View
from extender.demand import Shape
from extender.placement.fits import usable_mask
from extender.reasons import Refusal
from topology.capacity import hosts

Rows = NDArray[np.int64]
_KEY_BITS = 32  # of a mask


def groups(shape: Shape, view: View, rows: Rows, refusal: Refusal) -> Iterator[tuple[Rows, int | bytes | None]]:
    """Yield positions in ``rows`` whose nodes share a sentence, and what they share: None where all do."""
    if refusal is Refusal.BANDWIDTH:
        yield from _by_mask(shape, view, rows)
    elif refusal is Refusal.GPU_TOO_SMALL:
        yield from _by_hardware(view, rows)
    else:
        yield np.arange(len(rows)), None


def _by_mask(shape: Shape, view: View, rows: Rows) -> Iterator[tuple[Rows, int]]:
    classes = view.class_index[rows].astype(np.int64)
    wanted = np.array([usable_mask(shape, kind) for kind in view.classes], np.uint32)[classes]
    hosting, leading = view.free[rows] & wanted, shape.leading
    if leading.is_share:
        hosting = hosts(leading.mib, hosting, view.left[rows]) & wanted
    keys, back = np.unique(classes << _KEY_BITS | hosting, return_inverse=True)
    order = np.argsort(back, kind="stable")
    yield from zip(np.split(order, np.cumsum(np.bincount(back))[:-1]), keys.tolist(), strict=True)


def _by_hardware(view: View, rows: Rows) -> Iterator[tuple[Rows, bytes]]:
    told = np.column_stack((view.class_index[rows], view.usable[rows].astype(np.int32), view.offered[rows]))
    positions: dict[bytes, list[int]] = {}
    for position, row in enumerate(told):
        positions.setdefault(row.tobytes(), []).append(position)
    for key, at in positions.items():
        yield np.array(at), key
