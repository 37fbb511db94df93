"""Arithmetic over all subsets of a few items at once: plain functions of tables with one entry a mask, shape (2**n,).

A mask is an int whose bit i says that item i is in. `tables` fills itself with these; they know no GPU, no link and no unit. All are exact, take whole
blocks of masks per numpy step, and read only masks that are finished: a mask's parts are always smaller numbers than the mask.
"""

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Number = TypeVar("_Number", np.int64, np.float64)


def members(mask: int) -> tuple[int, ...]:
    """Return the positions in a mask, lowest first.

    >>> members(0b1010)
    (1, 3)
    """
    bits = int(mask)  # a mask read from a table is a numpy integer
    return tuple(i for i in range(bits.bit_length()) if bits >> i & 1)


def union(masks: Iterable[int]) -> int:
    """Return the mask of all members of some masks.

    >>> bin(union([0b1010, 0b0011]))
    '0b1011'
    """
    together = 0
    for mask in masks:
        together |= mask
    return together


def over_pairs(values: NDArray[Any], combine: Callable[[Any, Any], Any]) -> NDArray[Any]:
    """Return the combination of ``values[i, j]`` (n, n) over all pairs inside every mask, shape (2**n,); 0 below two members.

    >>> over_pairs(np.array([[0, 5, 7], [5, 0, 1], [7, 1, 0]]), np.add).tolist()
    [0, 0, 0, 5, 0, 7, 1, 13]
    """
    count = len(values)
    table = np.zeros(1 << count, dtype=values.dtype)
    for top in range(count):  # every mask whose highest member is ``top``: the pairs without it, and those with it
        with_top = np.zeros(1 << top, dtype=values.dtype)
        for j in range(top):
            with_top[1 << j : 2 << j] = combine(with_top[: 1 << j], values[top, j])
        table[1 << top : 2 << top] = combine(table[: 1 << top], with_top)
    return table


def best_inside(own: NDArray[_Number]) -> NDArray[_Number]:
    """Return for every mask the greatest entry of ``own`` (2**n,) among the mask and all sets inside it.

    >>> best_inside(np.array([-1.0, -1.0, -1.0, 5.0])).tolist()
    [-1.0, -1.0, -1.0, 5.0]
    """
    best = own.copy()
    for bit in range(len(own).bit_length() - 1):
        split = best.reshape(-1, 2, 1 << bit)  # [:, 0] without that GPU, [:, 1] with it
        np.maximum(split[:, 1], split[:, 0], out=split[:, 1])
    return best


def packed(own: NDArray[np.int64], sizes: NDArray[np.uint8], k: int) -> NDArray[np.int64]:
    """Return the best sum of ``own`` (2**n,) over disjoint sets of k members inside every mask; ``sizes`` (2**n,) are the members of each mask.

    Exact. The highest GPU of a mask is either in no set, or in one of the sets of k that hold it; what is left has a lower highest GPU and is known by
    then. Masks below 2k hold one set at most, so that only C(n, k) numpy steps over larger and larger masks remain.

    >>> packed(np.array([0, 0, 0, 5, 0, 7, 1, 0]), np.bitwise_count(np.arange(8)), 2).tolist()
    [0, 0, 0, 5, 0, 7, 1, 7]
    """
    count = len(own).bit_length() - 1
    best = best_inside(np.where(sizes == k, own, 0))
    if k > count or np.ptp(own[sizes == k]) == 0:
        return np.asarray(best * (sizes // k))  # all alike: as many as there are members for
    for top in range(2 * k - 1, count):
        large = np.flatnonzero(sizes[1 << top : 2 << top] >= 2 * k) + (1 << top)
        best[large] = np.maximum(best[large], best[large ^ (1 << top)])
        for others in combinations(range(top), k - 1):
            chosen = (1 << top) | sum(1 << i for i in others)
            holding = large[(large & chosen) == chosen]
            best[holding] = np.maximum(best[holding], own[chosen] + best[holding ^ chosen])
    return best
