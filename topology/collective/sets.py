"""`set_bandwidths`: GB/s of every set of GPUs of a machine, from the numbers of `machine_links`.

Called by `topology_class`, which keeps the figures as tables. Two GPUs get the better of their NVLinks and their PCIe path. Three or more form rings: as many at
once as their NVLinks carry (`rings`), or, where they have no NVLink ring, one over PCIe whose slowest hop decides (`pcie`).

NVSwitch and uniform meshes have a closed form. In other meshes, which sets have a ring and how fast their best single one is comes from one recurrence over all
sets together; only those that have one cost a linear program. So a table comes in depths: what is known at once, and what takes a while. Each depth is a lower
bound of the next, and `depths` tells which there are for a machine.
"""

from enum import IntEnum
from typing import Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from topology.collective.machine_links import MachineLinks
from topology.collective.pcie import pcie_rings, pcie_tree
from topology.collective.rings import EXACT_UP_TO, is_uniform, packed_rate
from topology.errors import TopologyError


class Depth(IntEnum):
    """How much of a table is worked out; a figure never falls from one to the next."""

    AT_ONCE = 0  # closed forms, pairs and PCIe; of irregular meshes of up to 8 GPUs the best single ring: about a millisecond
    UP_TO_8 = 1  # sets of up to 8 GPUs are exact, the best single ring of larger ones: 0.2 s for 8 GPUs, below 1 s for 16
    FULL = 2  # larger sets are packed too, within the bounds of `rings`: about 15 s for a mesh of 16 GPUs


# 2**16 sets are 65,536 figures a table. The largest machine with one link matrix that is sold today is the DGX-2 with 16 GPUs.
MAX_GPUS: Final = 16
# Linear programs for one mesh, each of some 6 ms: half a minute. MAPA's 16-GPU cube mesh needs 2,536.
MOST_PACKED: Final = 4096


def depths(links: MachineLinks) -> tuple[Depth, ...]:
    """Return the depths of the machine's table that tell more than the one before, AT_ONCE first."""
    meshes = _meshes(links)
    if not any(_is_irregular(_hops(links), mesh) for mesh in meshes):
        return (Depth.AT_ONCE,)
    return (Depth.AT_ONCE, Depth.UP_TO_8, Depth.FULL) if max(map(len, meshes)) > EXACT_UP_TO else (Depth.AT_ONCE, Depth.UP_TO_8)


def set_bandwidths(links: MachineLinks, depth: Depth = Depth.FULL) -> NDArray[np.float64]:
    """Return GB/s of every set of GPUs, shape (2**n,), indexed by the set's bits (bit i = GPU at position i); 0.0 for sets below two GPUs.

    Raises TopologyError above 16 GPUs.

    >>> from topology.collective import machine_links
    >>> from topology.matrix import from_codes
    >>> set_bandwidths(machine_links(from_codes(["X NV12".split(), "NV12 X".split()]))).tolist()
    [0.0, 0.0, 0.0, 300.0]
    """
    if links.size > MAX_GPUS:
        raise TopologyError(f"the machine has {links.size} GPUs in one link matrix; accepted: up to {MAX_GPUS}")
    table = _over_pcie(links)
    np.maximum(table, _through_nvswitch(links), out=table)
    for mesh in _meshes(links):
        _raise_to_mesh(table, _hops(links), mesh, depth)
    i, j = np.triu_indices(links.size, 1)
    table[(1 << i) | (1 << j)] = np.maximum(_hops(links), links.pcie_gb_per_s)[i, j]
    return table


def _hops(links: MachineLinks) -> NDArray[np.float64]:
    """(n, n) GB/s of the NVLinks of each pair, one direction."""
    return np.asarray(links.nvlinks * links.nvlink_gb_per_s)


def _through_nvswitch(links: MachineLinks) -> NDArray[np.float64]:
    """Rate of every set of GPUs behind NVSwitch, shape (2**n,), 0.0 for others: a cell shows all links of a GPU, which rings of both directions share."""
    behind = links.nvswitch[:, None] & links.nvswitch[None, :]
    hop = np.where(behind, _hops(links), 0.0)
    own = hop.max(axis=1, initial=0.0)
    if not np.array_equal(hop, np.where(behind & ~np.eye(links.size, dtype=np.bool_), np.minimum(own[:, None], own[None, :]), 0.0)):
        return _best_rings(hop)  # a pair that sees less than both its ends: not every order of the ring is alike
    slowest = np.full(1 << links.size, np.inf)
    for gpu in range(links.size):
        slowest[1 << gpu : 2 << gpu] = np.minimum(slowest[: 1 << gpu], own[gpu])
    slowest[np.bitwise_count(np.arange(len(slowest))) < 3] = 0.0
    return slowest


def _raise_to_mesh(table: NDArray[np.float64], hop: NDArray[np.float64], mesh: list[int], depth: Depth) -> None:
    """Raise the figures of the sets inside one mesh of GPUs to what its rings carry, as far as that depth goes."""
    inside = hop[np.ix_(mesh, mesh)]
    if is_uniform(inside):
        sizes = np.bitwise_count(np.arange(1 << len(mesh)))
        rates = np.where(sizes >= 3, inside[0, 1] * (sizes - 1.0), 0.0)
    elif len(mesh) > EXACT_UP_TO and depth is Depth.AT_ONCE:
        return  # which sets have a ring takes a tenth of a second
    else:
        rates = _best_rings(2.0 * inside)  # a cycle of NVLinks is two directed rings, one each way round
        _pack(rates, inside, depth)
    masks = np.zeros(len(rates), dtype=np.int64)
    for at, gpu in enumerate(mesh):
        masks[1 << at : 2 << at] = masks[: 1 << at] | 1 << gpu
    table[masks] = np.maximum(table[masks], rates)


def _pack(rates: NDArray[np.float64], hop: NDArray[np.float64], depth: Depth) -> None:
    """Raise the rates of the sets of a mesh from their best single ring to their packing, smaller sets first, as far as that depth goes."""
    sizes = np.bitwise_count(np.arange(len(rates)))
    most = {Depth.AT_ONCE: 0, Depth.UP_TO_8: EXACT_UP_TO, Depth.FULL: len(hop)}[depth]
    known: dict[bytes, float] = {}
    for mask in sorted(np.flatnonzero(rates).tolist(), key=lambda mask: (sizes[mask], mask)):
        chosen = [at for at in range(len(hop)) if mask >> at & 1]
        own = hop[np.ix_(chosen, chosen)]
        if is_uniform(own):
            rates[mask] = packed_rate(own)
        elif len(chosen) <= most and len(known) < MOST_PACKED:
            rates[mask] = max(rates[mask], _packed(own, known))


def _packed(own: NDArray[np.float64], known: dict[bytes, float]) -> float:
    """Return the packed rate of a set; ``known`` are those of the mesh's sets before it."""
    shape = _in_common_order(own)
    key = shape.tobytes()
    if key not in known:
        known[key] = packed_rate(shape)
    return known[key]


def _over_pcie(links: MachineLinks) -> NDArray[np.float64]:
    """Rate of the best ring over PCIe of every set, shape (2**n,)."""
    tree = pcie_tree(links.pcie_distance)
    # Without a hierarchy (a driver's mistake, or paths that lead through the host for want of peer access) every hop is as fast as it is printed.
    rates = _best_rings(links.pcie_gb_per_s) if tree is None else pcie_rings(tree, links.slot_gb_per_s)
    if np.array_equal(links.pcie_wires, links.pcie_distance):
        return rates
    # What the driver forbids takes no uplink away: no ring is faster than one that may use all paths.
    wires = pcie_tree(links.pcie_wires)
    return rates if wires is None else np.minimum(rates, pcie_rings(wires, links.slot_gb_per_s))


def _in_common_order(hop: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the set's GPUs in an order that sets of equal shape often share: by what each one's links carry, and then its neighbours'."""
    carried = np.round(hop.sum(axis=1), 6)
    order = np.lexsort((np.round(hop @ carried, 6), carried))
    return np.ascontiguousarray(hop[np.ix_(order, order)])


def _meshes(links: MachineLinks) -> list[list[int]]:
    """Return the groups of three and more GPUs that NVLinks join without a switch."""
    linked = (links.nvlinks > 0) & ~links.nvswitch[:, None] & ~links.nvswitch[None, :]
    return [sorted(group) for group in nx.connected_components(nx.from_numpy_array(linked)) if len(group) >= 3]


def _is_irregular(hop: NDArray[np.float64], mesh: list[int]) -> bool:
    return not is_uniform(hop[np.ix_(mesh, mesh)])


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
