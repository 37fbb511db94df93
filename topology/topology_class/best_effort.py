"""The set that NVIDIA's device plugin would take: go-gpuallocator's best-effort rule, for clusters that must stay compatible with it.

`TopologyClass.allocator_set` asks this for pods with `policy: gpuallocator`. The rule counts links pair by pair and not what a set gets as a whole; that is why it is
not ours. A pair scores its PCIe level, SYS 10 to PIX 50, plus 100 for every NVLink that leads from one to the other (behind NVSwitch none does); a set the sum over
its pairs. All partitions of the free GPUs into sets of k compete by the sum over their sets, left-overs staying together in one smaller set. Of the best partition the
best set of k is taken. The first one met wins every tie; partitions are met in lexicographic order, each set opening with the lowest GPU that is not used yet.

The original walks through all partitions, 16 to 30 seconds on a large node (NVIDIA/k8s-device-plugin issues 448, 774). Here a table is filled, smaller masks first:
the best partition of a mask is one opening set and the best partition of the rest. All masks with equally many GPUs are looked at in one numpy step.

References
----------
NVIDIA/go-gpuallocator v0.6.0, besteffort_policy.go. One thing is left out: the original may answer with the smaller set of left-overs, as a set with holes.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topology.collective import MachineLinks
from topology.links import Distance
from topology.topology_class.subsets import over_pairs

PCIE_SCORE: Final = {Distance.SYS: 10, Distance.NODE: 20, Distance.PHB: 30, Distance.PXB: 40, Distance.PIX: 50}  # calculateGPUPairScore
NVLINK_SCORE: Final = 100  # of each link of the pair


def pair_scores(links: MachineLinks, *, numa_told: bool) -> NDArray[np.int64]:
    """Return the score of every pair, (n, n). The PCIe level of a pair with NVLinks, which `topo -m` hides, counts only where the NUMA node of every GPU is told.

    With them it is nearly known: SYS between nodes, NODE or nearer inside. Without them every level would be a guess. Behind NVSwitch the level is all there is.
    """
    levels = np.zeros(1 + max(PCIE_SCORE), dtype=np.int64)
    levels[list(PCIE_SCORE)] = list(PCIE_SCORE.values())
    # NVML names the far end of each link. Behind NVSwitch that is the switch, never the other GPU, and the rule counts no link.
    direct = np.where(links.nvswitch[:, None] & links.nvswitch[None, :], 0, links.nvlinks.astype(np.int64))
    scores = NVLINK_SCORE * direct + np.where((direct == 0) | numa_told, levels[links.pcie_distance], 0)
    np.fill_diagonal(scores, 0)
    return np.asarray(scores)


class BestEffort:
    """The rule on one machine; ``scores`` are those of the pairs, (n, n). Masks of one size are looked at when the first of them is asked for, and kept."""

    def __init__(self, scores: NDArray[np.int64]) -> None:
        self._size = len(scores)
        self._scores = scores.astype(np.int32)
        # By k: score of the best partition of every mask, and the set that opens it. A mask of up to k GPUs is one set: all of it, or all that is left over.
        self._tables = defaultdict[int, _Table](lambda: _Table(self._score.copy(), np.arange(1 << self._size, dtype=np.int32)))

    @cached_property
    def _score(self) -> NDArray[np.int32]:
        """(2**n,) score of every set."""
        table: NDArray[np.int32] = over_pairs(self._scores, np.add)
        return table

    def choose(self, free: int, k: int) -> int:
        """Return the set of ``k`` that the rule takes from a free mask of at least that many GPUs."""
        if k == 1:
            return free & -free  # single GPUs score nothing
        opening = self._filled(k, free.bit_count()).opening
        sets = []
        while free:
            sets.append(int(opening[free]))
            free &= ~sets[-1]
        return max((found for found in sets if found.bit_count() == k), key=lambda found: int(self._score[found]))

    def best_of(self, free: int, k: int, allowed: NDArray[np.int64]) -> int:
        """Return the one of the ``allowed`` sets of ``k`` inside a free mask that the rule would take first; they stand in lexicographic order, lowest GPUs first.

        That is what it takes, if that is allowed. Else the one in the best partition that has an allowed set; then the one that scores most; then the first.
        """
        chosen = self.choose(free, k)
        if bool((allowed == chosen).any()):
            return chosen
        if k == 1:
            return int(allowed[0])
        partition = self._score[allowed] + self._filled(k, free.bit_count()).best[free & ~allowed]
        return int(allowed[np.lexsort((-self._score[allowed], -partition))[0]])  # stable: the first among equals

    def _filled(self, k: int, size: int) -> "_Table":
        """Return the table of a set size with all masks of that many GPUs, and of all that their partitions leave, looked at."""
        table = self._tables[k]
        if size <= k or size in table.sizes:
            return table
        for left in {size - k, size - size % k} - {size}:
            self._filled(k, left)
        bits = (1 << np.array(list(combinations(range(self._size), size)))).astype(np.float32)
        sets = (bits @ _openings(size, k)).astype(
            np.int32
        )  # sums of powers of 2 below 2**16: exact, and a matrix product is the fastest way to add them
        masks = bits.sum(axis=1).astype(np.int32)
        total = self._score[sets] + table.best[masks[:, None] ^ sets]
        first_best = np.arange(len(masks)), total.argmax(axis=1)
        table.best[masks], table.opening[masks] = total[first_best], sets[first_best]
        table.sizes.add(size)
        return table


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    best: NDArray[np.int32]  # (2**n,)
    opening: NDArray[np.int32]  # (2**n,) masks
    sizes: set[int] = field(default_factory=set)  # numbers of GPUs for which it is filled


def _openings(size: int, k: int) -> NDArray[np.float32]:
    """Return which places among the GPUs of a mask (ascending) may open a partition: a column of zeros and ones each, in lexicographic order; (size, sets).

    >>> _openings(3, 2).T.tolist()  # the first with the second, the first with the third, or the first alone as what is left over
    [[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    companions = list(combinations(range(1, size), k - 1))
    if left_over := size % k:
        # An empty place sorts behind every GPU: a smaller set stands behind all that open with its members.
        companions += [(*chosen, *[size] * (k - left_over)) for chosen in combinations(range(1, size), left_over - 1)]
    places = np.array([(0, *chosen) for chosen in sorted(companions)])
    opening = np.zeros((1 + size, len(places)), dtype=np.float32)
    opening[places.T, np.arange(len(places))] = 1
    return opening[:size]
