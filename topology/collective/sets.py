"""`set_rates`: GB/s of every set of GPUs of a machine, from the numbers of `machine_links`.

Called by `topology_class`, which keeps the figures as tables. Two GPUs get the better of their NVLinks and their PCIe path. Three or more form rings: as many at
once as their NVLinks carry, or, where they have no NVLink ring, one over PCIe whose slowest hop decides (`pcie`).

Here the parts are put together. NVSwitch has a closed form; what the rings of a mesh carry is worked out in `mesh`, to a `Depth`: what is known at once, and what
takes a while.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topology.collective.bounds import Rates, best_rings, over_members, weakest_pairs
from topology.collective.machine_links import MachineLinks
from topology.collective.mesh import EXACT_UP_TO, Depth, mesh_rates
from topology.collective.pcie import pcie_rings, pcie_tree
from topology.errors import TopologyError

# 2**16 sets are 65,536 figures a table. The largest machine with one link matrix that is sold today is the DGX-2 with 16 GPUs.
MAX_GPUS: Final = 16
_CLOSE: Final = 1e-6  # GB/s, as in `mesh`


@dataclass(frozen=True, slots=True, eq=False)
class SetRates:
    """Figures of every set of GPUs, (2**n,) each, indexed by the set's bits (bit i = GPU at position i).

    ``gb_per_s`` is 0.0 for sets below two GPUs; where ``exact`` is false it is a lower bound.
    """

    gb_per_s: Rates
    exact: NDArray[np.bool_]


def set_bandwidths(links: MachineLinks, depth: Depth = Depth.FULL) -> Rates:
    """Return GB/s of every set of GPUs, shape (2**n,), indexed by the set's bits (bit i = GPU at position i); 0.0 for sets below two GPUs.

    Raises TopologyError above 16 GPUs.

    >>> from topology.collective import machine_links
    >>> from topology.matrix import from_codes
    >>> set_bandwidths(machine_links(from_codes(["X NV12".split(), "NV12 X".split()]))).tolist()
    [0.0, 0.0, 0.0, 300.0]
    """
    return set_rates(links, depth).gb_per_s


def set_rates(links: MachineLinks, depth: Depth = Depth.FULL) -> SetRates:
    """Return what every set of GPUs gets, as far as that depth goes; raises TopologyError above 16 GPUs."""
    if links.size > MAX_GPUS:
        raise TopologyError(f"the machine has {links.size} GPUs in one link matrix; accepted: up to {MAX_GPUS}")
    table, most = np.zeros(1 << links.size), np.zeros(1 << links.size)
    for masks, rates, at_most in _ways(links, depth):
        table[masks], most[masks] = np.maximum(table[masks], rates), np.maximum(most[masks], at_most)
    exact = most <= table + _CLOSE
    i, j = np.triu_indices(links.size, 1)
    table[(1 << i) | (1 << j)] = np.maximum(_hops(links), links.pcie_gb_per_s)[i, j]
    return SetRates(table, exact)


def _ways(links: MachineLinks, depth: Depth) -> Iterator[tuple[slice | NDArray[np.int64], Rates, Rates]]:
    """Yield what rings carry in each way: for which masks, and GB/s that these sets get at least and at most; 0.0 for those below three GPUs."""
    everything = slice(None)
    yield everything, *_over_pcie(links, depth)
    # A cell behind NVSwitch shows all links of a GPU, which rings of both directions share.
    behind = links.nvswitch[:, None] & links.nvswitch[None, :]
    yield everything, *_single_rings(np.where(behind, _hops(links), 0.0), depth)
    for mesh in _meshes(links):
        masks = over_members([1 << gpu for gpu in mesh], np.add, 0).astype(np.int64)
        yield masks, *mesh_rates(_hops(links)[np.ix_(mesh, mesh)], depth)


def _hops(links: MachineLinks) -> NDArray[np.float64]:
    """(n, n) GB/s of the NVLinks of each pair, one direction."""
    return np.asarray(links.nvlinks * links.nvlink_gb_per_s)


def _over_pcie(links: MachineLinks, depth: Depth) -> tuple[Rates, Rates]:
    """Rate of the best ring over PCIe of every set, at least and at most."""
    tree = pcie_tree(links.pcie_distance)
    if tree is None:
        # Without a hierarchy (a driver's mistake, or paths that lead through the host for want of peer access) every hop is as fast as it is printed.
        lower, upper = _single_rings(links.pcie_gb_per_s, depth)
    else:
        lower = upper = pcie_rings(tree, links.slot_gb_per_s)
    wires = None if np.array_equal(links.pcie_wires, links.pcie_distance) else pcie_tree(links.pcie_wires)
    if wires is None:
        return lower, upper
    # What the driver forbids takes no uplink away: no ring is faster than one that may use all paths.
    most = pcie_rings(wires, links.slot_gb_per_s)
    return np.minimum(lower, most), np.minimum(upper, most)


def _single_rings(hop: Rates, depth: Depth) -> tuple[Rates, Rates]:
    """Rate of the best single ring of every set, at least and at most: a ring meets no slower pair than the weakest, and comes in to every GPU."""
    lower, upper = weakest_pairs(hop), over_members(hop.max(axis=1, initial=0.0), np.minimum, np.inf)
    lower[np.bitwise_count(np.arange(len(lower))) < 3] = upper[np.bitwise_count(np.arange(len(upper))) < 3] = 0.0
    # The two are one behind NVSwitch, also where some GPUs have lost links. Else the order of the ring counts, which takes a tenth of a second for 16 GPUs.
    if np.array_equal(lower, upper) or (depth is Depth.AT_ONCE and len(hop) > EXACT_UP_TO):
        return lower, upper
    rings = best_rings(hop)
    return rings, rings


def _meshes(links: MachineLinks) -> list[list[int]]:
    """Return the groups of three and more GPUs that NVLinks join without a switch."""
    linked = (links.nvlinks > 0) & ~links.nvswitch[:, None] & ~links.nvswitch[None, :]
    return [group for group in _joined(linked) if len(group) >= 3]


def _joined(linked: NDArray[np.bool_]) -> list[list[int]]:
    """Return the groups of GPUs that paths of links join, (n, n), each ascending, by their lowest members.

    A graph library does the same, and takes every start of the extender and of the agent a tenth of a second to load; `graph`, which draws, has one.
    """
    lowest = np.arange(len(linked))  # number of the lowest GPU that each is known to be joined with
    for _ in range(len(linked)):  # no path has more links
        lowest = np.where(linked, lowest, lowest[:, None]).min(axis=1, initial=len(linked))
    return [np.flatnonzero(lowest == gpu).tolist() for gpu in range(len(linked)) if lowest[gpu] == gpu]
