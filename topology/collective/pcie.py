"""`pcie_rings`: GB/s of a ring over PCIe through every set of GPUs of a machine. Called by `sets`, which takes the better of this and NVLink.

PIX, PXB, PHB, NODE and SYS are levels of one hierarchy: switches, host bridges, NUMA nodes, sockets. It is rebuilt as a tree, and a ring visits each subtree once,
as NCCL's do. So every uplink carries one hop out and one hop in, no two hops share it, and a full-duplex link gives both its whole rate. A second ring the other way
round would share all of them and bring nothing.

Where all slots are alike, the slowest hop is one that crosses where the set first splits: the level of the smallest subtree that holds the whole set. Where slots
differ, it matters which GPUs stand at the ends of a subtree's stretch of the ring, and the best ends are found by a recurrence over the tree, all sets at once.
Codes that contradict each other form no tree; `sets` then takes every hop as it is printed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from topology.links import PCIE_PATH_SHARE, Distance

Rates = NDArray[np.float64]  # (2**n,) GB/s


@dataclass(frozen=True, slots=True)
class Subtree:
    """GPUs below one point of the hierarchy: their bits, how far apart its parts are, and the parts; a single GPU has no parts."""

    mask: int
    level: Distance
    parts: tuple["Subtree", ...] = ()

    def subtrees(self) -> Iterator["Subtree"]:
        """Yield all that have parts, smaller ones before those that hold them."""
        for part in self.parts:
            yield from part.subtrees()
        if self.parts:
            yield self


def pcie_tree(distance: NDArray[np.int8]) -> Subtree | None:
    """Return the hierarchy that the PCIe distances (n, n) of a machine imply; None where they contradict each other, or without GPUs.

    >>> tree = pcie_tree(np.array([[0, 1, 5], [1, 0, 5], [5, 5, 0]], np.int8))
    >>> [(bin(part.mask), part.level.name) for part in tree.subtrees()]
    [('0b11', 'PIX'), ('0b111', 'SYS')]
    """
    held = [Subtree(1 << gpu, Distance.NVLINK) for gpu in range(len(distance))]
    for level in PCIE_PATH_SHARE:
        near = distance <= level
        merged: list[Subtree] = []
        for mask in dict.fromkeys(_bits(row) for row in near):
            parts = tuple(part for part in held if part.mask & mask)
            # "Within a level of each other" splits the GPUs of a hierarchy into groups, and groups of one level lie inside those of the next.
            if sum(part.mask for part in parts) != mask or any(_bits(near[gpu]) != mask for gpu in range(len(distance)) if mask >> gpu & 1):
                return None
            merged.append(parts[0] if len(parts) == 1 else Subtree(mask, level, parts))
        held = merged
    return held[0] if len(held) == 1 else None


def _bits(row: NDArray[np.bool_]) -> int:
    return sum(1 << int(gpu) for gpu in np.flatnonzero(row))


def pcie_rings(tree: Subtree, slot_gb_per_s: NDArray[np.float64]) -> Rates:
    """Return GB/s of the best ring that visits each subtree once, for every set, shape (2**n,); 0.0 below two GPUs.

    ``slot_gb_per_s`` (n,) is the line rate of each GPU's slot, one direction; a path of some level leaves a share of the slower of its ends
    (`links.PCIE_PATH_SHARE`). Two GPUs are a ring of one path.

    >>> tree = pcie_tree(np.array([[0, 1, 5], [1, 0, 5], [5, 5, 0]], np.int8))
    >>> pcie_rings(tree, np.full(3, 100.0)).round(6).tolist()
    [0.0, 0.0, 0.0, 85.0, 0.0, 58.0, 58.0, 58.0]
    """
    masks = np.arange(1 << len(slot_gb_per_s))
    rings = np.zeros(len(masks))
    alike = bool((slot_gb_per_s == slot_gb_per_s[0]).all())
    stretch = _stretches(masks, slot_gb_per_s)
    done = np.bitwise_count(masks) < 2
    for subtree in tree.subtrees():
        first_split_here = ((masks & ~subtree.mask) == 0) & ~done
        done |= first_split_here
        if alike:
            rings[first_split_here] = PCIE_PATH_SHARE[subtree.level].share * slot_gb_per_s[0]
        else:
            slowest = np.minimum.reduce([stretch(part, subtree.level, subtree.level) for part in subtree.parts])
            rings[first_split_here] = slowest[first_split_here]
    return rings


def _stretches(masks: NDArray[np.int64], slot_gb_per_s: NDArray[np.float64]) -> Callable[[Subtree, Distance, Distance], Rates]:
    """Return the function (subtree, level of one end's outer hop, of the other's) -> GB/s of the best stretch of a ring through it, (2**n,).

    A hop is as slow as the slower of its two ends, so each GPU answers for its own half. Sets that do not touch the subtree have infinity there.
    """

    @cache
    def stretch(subtree: Subtree, one: Distance, other: Distance) -> Rates:
        if not subtree.parts:
            gpu = subtree.mask.bit_length() - 1
            return np.where(masks & subtree.mask, PCIE_PATH_SHARE[max(one, other)].share * slot_gb_per_s[gpu], np.inf)
        touched = [(masks & part.mask) > 0 for part in subtree.parts]
        here = subtree.level
        # An end is never faster than the same part between two others, so the ends may be counted again in the middle.
        middle = np.minimum.reduce([stretch(part, here, here) for part in subtree.parts])
        best = np.where(masks & subtree.mask, 0.0, np.inf)
        for at, first in enumerate(subtree.parts):
            alone = touched[at] & (np.sum(touched, axis=0) == 1)
            best[alone] = stretch(first, one, other)[alone]
            for last_at, last in enumerate(subtree.parts):
                if last_at != at:
                    both = touched[at] & touched[last_at]
                    ends = np.minimum(stretch(first, one, here), stretch(last, here, other))
                    best[both] = np.maximum(best, np.minimum(ends, middle))[both]
        return best

    return stretch
