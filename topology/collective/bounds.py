"""What rings carry through a mesh of NVLinks at least and at most: two figures for every set of its GPUs, all sets together and without a linear program.

Called by `mesh`, which packs rings only where the two differ: in MAPA's 16-GPU cube mesh for 116 of 2,687 sets. `sets` takes `best_rings` for PCIe too.

At least: the best single ring, both ways round; or, where all pairs are linked, all rings alike as far as the weakest pair allows, and the best single ring over
what that leaves. At most: what the links of one GPU carry, since every ring comes in over one of them and leaves over another. None of the three knows how GPUs
are numbered.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rates = NDArray[np.float64]  # (2**n,) GB/s of every set


def ring_bounds(hop: Rates) -> tuple[Rates, Rates]:
    """Return what rings through all GPUs of every set carry at least and at most, GB/s, (2**n,) each; both are 0.0 where there is no ring.

    ``hop`` (n, n), symmetric: GB/s of each pair's NVLinks, one direction, 0.0 without.

    >>> lower, upper = ring_bounds(25.0 * (np.ones((4, 4)) - np.eye(4)))
    >>> lower[0b1111], upper[0b1111], lower[0b0011]
    (np.float64(75.0), np.float64(75.0), np.float64(0.0))
    """
    lower = best_rings(2.0 * hop)
    upper = np.where(lower > 0, _most_of_the_gpus(hop), 0.0)
    sizes = np.bitwise_count(np.arange(len(lower)))
    weakest = weakest_pairs(hop)
    for rate in np.unique(weakest[(lower > 0) & (lower < upper) & (weakest > 0)]).tolist():
        # Using all rings of k GPUs alike fills every pair: k * sum(x) = rate * k * (k - 1) / 2.
        alike = (sizes - 1.0) * rate + best_rings(2.0 * np.where(hop > rate, hop - rate, 0.0))
        lower = np.where((lower > 0) & (weakest >= rate), np.maximum(lower, alike), lower)
    return lower, upper


def over_members(values: Iterable[float], combine: Callable[[Any, Any], Any], of_none: float) -> Rates:
    """Return the combination of the members' ``values`` (n,) for every set, (2**n,).

    >>> over_members([5.0, 7.0], np.add, 0.0).tolist()
    [0.0, 5.0, 7.0, 12.0]
    """
    table = np.array([of_none])
    for value in values:
        table = np.concatenate([table, combine(table, value)])
    return table


def weakest_pairs(hop: Rates) -> Rates:
    """GB/s of the weakest pair of every set, (2**n,); infinite below two members."""
    table = np.array([np.inf])
    for gpu, links in enumerate(hop):
        table = np.concatenate([table, np.minimum(table, over_members(links[:gpu], np.minimum, np.inf))])
    return table


def _most_of_the_gpus(hop: Rates) -> Rates:
    """Return what the GPU carries that carries least, for every set, (2**n,): its links to the others, and never more than twice those besides the widest one."""
    masks = np.arange(1 << len(hop))
    least = np.full(len(masks), np.inf)
    for gpu, links in enumerate(hop):
        together, widest = over_members(links, np.add, 0.0), over_members(links, np.maximum, 0.0)
        own = np.minimum(together, 2.0 * (together - widest))
        least = np.where(masks >> gpu & 1, np.minimum(least, own), least)
    return least


def best_rings(hop: Rates) -> Rates:
    """Rate of the slowest hop of the best ring through all members of every set, shape (2**n,); 0.0 where there is none and below three GPUs.

    ``hop`` (n, n): GB/s between two neighbours in the ring, 0.0 where they cannot be. Exact: the bottleneck travelling salesman by Held and Karp's
    recurrence over (set, last GPU), each set entered at its lowest member. 2**n * n**2 steps on ranks of rates (one byte each), done set size by set size.

    References
    ----------
    M. Held, R. M. Karp, "A dynamic programming approach to sequencing problems", J. SIAM 10 (1962) 196-210.
    """
    count = len(hop)
    masks = np.arange(1 << count)
    sizes = np.bitwise_count(masks)
    if count < 3:
        return np.zeros(1 << count)
    rates = np.unique(np.append(hop, 0.0))  # at most 121 for 16 GPUs: a rank fits in a byte, rank 0 is "no hop"
    rank = np.searchsorted(rates, hop).astype(np.uint8)
    bits = 1 << np.arange(count)
    path = np.zeros((1 << count, count), dtype=np.uint8)  # rank of the slowest hop of the best path from the lowest member to the last one
    path[bits, np.arange(count)] = 255  # no hop yet
    for size in range(2, count + 1):
        level = masks[sizes == size]
        # For a last GPU outside the set, ``^`` looks up a larger set that is still all zero: no path, as it should be.
        before = path[level[:, None] ^ bits]  # (sets, last, last but one)
        longer = np.minimum(before, rank).max(axis=2)
        longer[bits == (level & -level)[:, None]] = 0  # a path does not return to its start
        path[level] = longer
    start = np.bitwise_count((masks & -masks) - 1)  # position of the lowest member
    ring = np.minimum(path, rank[start]).max(axis=1)
    return np.where(sizes >= 3, rates[ring], 0.0)
