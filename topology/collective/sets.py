"""`set_bandwidths`: GB/s of every set of GPUs of a machine, from the numbers of `machine_links`.

Called by `topology_class`, which keeps the figures as tables. Two GPUs get the better of their NVLinks and their PCIe path. Three or more form a ring,
and its slowest hop decides: the best NVLink ring, or, where there is none, the best order over PCIe.

That is the first version of the model: one ring. Packing several rings into the links of a set at once, which gives a DGX-1V quad 100 GB/s instead of 50,
takes its place behind this function and changes nothing else.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from topology.collective.machine_links import MachineLinks
from topology.errors import TopologyError

# 2**16 sets are 65,536 figures a table. The largest machine with one link matrix that is sold today is the DGX-2 with 16 GPUs.
MAX_GPUS: Final = 16


def set_bandwidths(links: MachineLinks) -> NDArray[np.float64]:
    """Return GB/s of every set of GPUs, shape (2**n,), indexed by the set's bits (bit i = GPU at position i); 0.0 for sets below two GPUs.

    Raises TopologyError above 16 GPUs.

    >>> from topology.collective import machine_links
    >>> from topology.matrix import from_codes
    >>> set_bandwidths(machine_links(from_codes(["X NV12".split(), "NV12 X".split()]))).tolist()
    [0.0, 0.0, 0.0, 300.0]
    """
    if links.size > MAX_GPUS:
        raise TopologyError(f"the machine has {links.size} GPUs in one link matrix; accepted: up to {MAX_GPUS}")
    nvlink_hop = links.nvlinks * links.nvlink_gb_per_s
    # A cycle of NVLinks is two directed rings, one each way round. Behind NVSwitch a cell shows all links of the GPU, which both rings share.
    each_way = np.where(links.nvswitch[:, None] & links.nvswitch[None, :], 1.0, 2.0)
    table = np.maximum(_best_rings(each_way * nvlink_hop), _best_rings(links.pcie_gb_per_s))
    i, j = np.triu_indices(links.size, 1)
    table[(1 << i) | (1 << j)] = np.maximum(nvlink_hop, links.pcie_gb_per_s)[i, j]
    return table


def _best_rings(hop: NDArray[np.float64]) -> NDArray[np.float64]:
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
