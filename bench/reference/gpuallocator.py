"""NVIDIA's best-effort choice, as in go-gpuallocator and so in NVIDIA's device plugin for Kubernetes: the best partition of all free GPUs.

The rule, as documented for v0.6.0. A pair scores its PCIe level, SYS 10 to PIX 50, plus 100 for every NVLink; a set the sum over its pairs. All partitions of the
free GPUs into groups of k compete by the sum over their groups; left-overs stay together in one smaller group. Of the best partition the best group is taken.
The first one met wins every tie, and partitions are met in lexicographic order, each group opening with the lowest GPU not used yet.

The original walks all partitions; here a recurrence over masks finds the same one. One bug of the original is left out: it may return the smaller group of
left-overs, as an answer with holes. And where the matrix hides the PCIe level behind `NV#`, a pair scores its NVLinks only.
"""

from functools import lru_cache
from itertools import combinations
from typing import Final

from bench.reference.link_table import LinkTable, mask_of, members

_PCIE: Final = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50}  # go-gpuallocator besteffort_policy.go, calculateGPUPairScore
_NVLINK: Final = 100
_EMPTY: Final = 1 << 30  # the index of an empty place


def choose(table: LinkTable, free: int, k: int, _sensitive: bool = False) -> int | None:
    """Return the set of ``k`` free GPUs that best effort takes, None where fewer are free."""
    if free.bit_count() < k:
        return None
    if k == 1:
        return free & -free
    return _partitions(table).choose(free, k)


def score(table: LinkTable, mask: int) -> int:
    """Return the score of a set: the sum over its pairs."""
    return sum(_pair(table, a, b) for a, b in combinations(members(mask), 2))


def _pair(table: LinkTable, a: int, b: int) -> int:
    nvlinks = table.nvlinks(a, b)
    level = table.codes[a][b] if not nvlinks else None if table.pcie is None else table.pcie[a][b]
    return _NVLINK * nvlinks + (0 if level is None else _PCIE[level])


@lru_cache(maxsize=16)
def _partitions(table: LinkTable) -> "_Partitions":
    return _Partitions(table)


class _Partitions:
    """The best partitions of the masks of one machine, kept as they are found."""

    def __init__(self, table: LinkTable) -> None:
        pairs = [[_pair(table, a, b) if a != b else 0 for b in range(table.size)] for a in range(table.size)]
        self._score = lru_cache(maxsize=None)(lambda mask: sum(pairs[a][b] for a, b in combinations(members(mask), 2)))
        self._best: dict[tuple[int, int], tuple[int, int]] = {}

    def choose(self, free: int, k: int) -> int:
        groups = []
        while free:
            _, group = self._opening(free, k)
            groups.append(group)
            free &= ~group
        return max((group for group in groups if group.bit_count() == k), key=self._score)

    def _opening(self, free: int, k: int) -> tuple[int, int]:
        """Return the sum of scores of the best partition of a mask, and that partition's first group."""
        if not free:
            return 0, 0
        if (free, k) not in self._best:
            lowest, *others = members(free)
            found = [
                (self._score(group) + self._opening(free & ~group, k)[0], group)
                for group in (mask_of((lowest, *rest)) for rest in _in_order(others, k, left_over=free.bit_count() % k))
            ]
            self._best[free, k] = max(found, key=lambda option: option[0])
        return self._best[free, k]


def _in_order(others: list[int], k: int, left_over: int) -> list[tuple[int, ...]]:
    """Return the companions of the lowest GPU in lexicographic order: k - 1 of them, or the ``left_over`` - 1 of the smaller group.

    An empty place sorts behind every GPU, so that a smaller group stands behind all groups that open with its members.
    """
    whole = list(combinations(others, k - 1))
    if not left_over:
        return whole
    return sorted([*whole, *combinations(others, left_over - 1)], key=lambda chosen: (*chosen, _EMPTY))
