"""What disjoint sets of k GPUs are worth together inside every mask: the tables that the worth of a remainder is a sum of.

`tables` asks for one size after the other and keeps them. Up to 8 GPUs a table takes a fifth of a millisecond, for 16 GPUs up to 80. They follow from the bandwidths
alone, so where those are worked out in another process (`apart`) these come with them (`Tables`), and until then `at_most` stands in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topology.collective import Depth, MachineLinks, SetRates, set_rates
from topology.topology_class.subsets import best_inside, packed

QUICK_UP_TO: Final = 8  # GPUs
KB_PER_GB: Final = 1_000_000

Packing = NDArray[np.int64]  # (2**n,) GPU x kB/s: whole numbers, so that the order in which they are added decides nothing


def packing(bandwidth: NDArray[np.float64], k: int) -> Packing:
    """Return the best that disjoint sets of ``k`` GPUs can be worth together inside every mask; ``bandwidth`` (2**n,) is GB/s of every set.

    >>> packing(np.array([0.0, 0.0, 0.0, 5.0]), 2).tolist()
    [0, 0, 0, 10000000]
    """
    sizes = _sizes(bandwidth)
    return packed(_own(bandwidth, k), sizes, k)


def at_most(bandwidth: NDArray[np.float64], k: int) -> Packing:
    """Return a bound from above of `packing`: as many sets as there are GPUs for, all as good as the best one inside the mask."""
    sizes = _sizes(bandwidth)
    return np.asarray(best_inside(np.where(sizes == k, _own(bandwidth, k), 0)) * (sizes // k))


def is_quick(bandwidth: NDArray[np.float64]) -> bool:
    """Tell whether no packing takes a while: on a small machine, and where all sets of a size are alike, as behind NVSwitch."""
    sizes = _sizes(bandwidth)
    size = int(sizes[-1])
    return size <= QUICK_UP_TO or all(np.ptp(bandwidth[sizes == k]) == 0 for k in range(2, size // 2 + 1))


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """All of a class that takes a while to work out: the figures of its sets and, on machines of more than `QUICK_UP_TO` GPUs, packings by the size of their sets."""

    rates: SetRates
    packings: Mapping[int, Packing]

    @staticmethod
    def of(links: MachineLinks, depth: Depth) -> "Tables":
        """Work them out to that depth."""
        rates = set_rates(links, depth)
        sizes = range(2, links.size // 2 + 1) if links.size > QUICK_UP_TO else ()  # larger ones fit only once, which is quick
        return Tables(rates, {k: packing(rates.gb_per_s, k) for k in sizes})


def _own(bandwidth: NDArray[np.float64], k: int) -> Packing:
    return np.asarray(np.rint(bandwidth * KB_PER_GB).astype(np.int64) * k)


def _sizes(bandwidth: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.asarray(np.bitwise_count(np.arange(len(bandwidth))))
