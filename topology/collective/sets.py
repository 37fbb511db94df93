"""`set_bandwidths`: GB/s of every set of GPUs of a machine, from the numbers of `machine_links`.

Called by `topology_class`, which keeps the figures as tables. Two GPUs get the better of their NVLinks and their PCIe path. Three or more form rings: as many at
once as their NVLinks carry (`rings`), or, where they have no NVLink ring, one over PCIe whose slowest hop decides (`pcie`).

Sets are looked at all together: which have a ring, and how fast their best single one is, comes from one recurrence over all of them; only those that have one and
are irregular cost a linear program. NVSwitch has a closed form: all links of one GPU, for every set.
"""

from itertools import combinations
from typing import Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from topology.collective.machine_links import MachineLinks
from topology.collective.pcie import pcie_rings, pcie_tree
from topology.collective.rings import EXACT_UP_TO, packed_rate
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
    behind_switch = links.nvswitch[:, None] & links.nvswitch[None, :]
    table = np.maximum(_packed(_best_rings(np.where(behind_switch, 1.0, 2.0) * nvlink_hop), nvlink_hop, links.nvswitch), _over_pcie(links))
    i, j = np.triu_indices(links.size, 1)
    table[(1 << i) | (1 << j)] = np.maximum(nvlink_hop, links.pcie_gb_per_s)[i, j]
    return table


def _over_pcie(links: MachineLinks) -> NDArray[np.float64]:
    """Rate of the best ring over PCIe of every set, shape (2**n,)."""
    tree = pcie_tree(links.pcie_distance)
    # Without a hierarchy (a driver's mistake, or paths that lead through the host for want of peer access) every hop is as fast as it is printed.
    return _best_rings(links.pcie_gb_per_s) if tree is None else pcie_rings(tree, links.slot_gb_per_s)


def _packed(single: NDArray[np.float64], hop: NDArray[np.float64], nvswitch: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return ``single`` (rate of the best ring of every set) with the sets of meshes packed: those of a mesh of up to `EXACT_UP_TO` joined GPUs."""
    table = single.copy()
    for mesh in _meshes(hop > 0, nvswitch):
        known: dict[bytes, float] = {}
        for mask in (sum(1 << i for i in chosen) for size in range(3, len(mesh) + 1) for chosen in combinations(mesh, size)):
            if single[mask] > 0:
                chosen = [i for i in mesh if mask >> i & 1]
                own = _in_common_order(hop[np.ix_(chosen, chosen)])
                key = own.tobytes()
                if key not in known:
                    known[key] = packed_rate(own)
                table[mask] = known[key]
    return table


def _in_common_order(hop: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the set's GPUs in an order that sets of equal shape often share: by what each one's links carry, and then its neighbours'."""
    carried = np.round(hop.sum(axis=1), 6)
    order = np.lexsort((np.round(hop @ carried, 6), carried))
    return np.ascontiguousarray(hop[np.ix_(order, order)])


def _meshes(linked: NDArray[np.bool_], nvswitch: NDArray[np.bool_]) -> list[list[int]]:
    """Return the groups of GPUs that NVLinks join without a switch, where packing them exactly is affordable."""
    groups = nx.connected_components(nx.from_numpy_array(linked & ~nvswitch[:, None] & ~nvswitch[None, :]))
    return [sorted(group) for group in groups if 3 <= len(group) <= EXACT_UP_TO]


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
