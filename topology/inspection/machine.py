"""One machine with everything that is computed from it: matrix, inventory, numbers of its links, tables of its sets, graph.

`machine_of` is the one place where the layers meet for display: `collective` gives the numbers, `links` their sources, `graph` takes both. Called by
`reading` for a report and by the demo for its picture. Machines with more GPUs than the tables hold have no `sets`, but links and pictures all the same.
"""

from dataclasses import dataclass
from functools import cached_property

from topology.collective import Depth, MachineLinks, machine_links, matched_gpus, slot_of
from topology.errors import TopologyError
from topology.graph import LinkRates, MachineGraph, machine_graph
from topology.inventory import Gpu, Inventory
from topology.links import PCIE_LANE_GB_PER_S, Distance, LinkCode, Rate, nvlink_rate, pcie_rate
from topology.matrix import LinkMatrix
from topology.topology_class import TopologyClass, topology_class


@dataclass(frozen=True)
class Machine:
    """A machine ready to be shown. ``sets`` is None where the machine has too many GPUs for tables; ``no_sets`` then says so."""

    matrix: LinkMatrix
    inventory: Inventory | None
    links: MachineLinks
    rates: LinkRates
    sets: TopologyClass | None
    no_sets: str | None = None

    @cached_property
    def graph(self) -> MachineGraph:
        """Devices and links as `topology.graph` describes them."""
        return machine_graph(self.matrix, self.inventory, self.rates)

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """What the inventory tells of every GPU, in the order of the matrix."""
        return matched_gpus(self.matrix, self.inventory)


def machine_of(matrix: LinkMatrix, inventory: Inventory | None = None) -> Machine:
    """Return the machine of a matrix; ``inventory`` adds models, memory and slots, matched by GPU index.

    >>> from topology.matrix import from_codes
    >>> machine_of(from_codes(["X NV12".split(), "NV12 X".split()])).graph.edges["GPU0", "GPU1"]["gb_per_s"]
    300.0
    """
    links = machine_links(matrix, inventory)
    rates = link_rates(matrix, matched_gpus(matrix, inventory), links)
    try:
        # Beyond that depth a dense mesh of 16 GPUs takes minutes; nobody waits for that at a prompt.
        return Machine(matrix, inventory, links, rates, topology_class(matrix, inventory, Depth.SOON))
    except TopologyError as error:
        return Machine(matrix, inventory, links, rates, None, str(error))


def link_rates(matrix: LinkMatrix, gpus: tuple[Gpu, ...], links: MachineLinks) -> LinkRates:
    """Return the rate of every printed pair of GPUs and of every GPU and NIC, with its source."""
    pairs = {}
    for i, j, code in matrix.pairs():
        if code is not None:
            pairs[i, j] = _nvlinks_rate(i, j, gpus, links) if code.nvlinks else _path_rate(code.distance, (gpus[i], gpus[j]))
    return LinkRates(pairs, _nic_rates(matrix.nic_cells, gpus), frozenset(int(i) for i in links.nvswitch.nonzero()[0]))


def _nic_rates(cells: tuple[tuple[LinkCode | None, ...], ...], gpus: tuple[Gpu, ...]) -> dict[tuple[int, int], Rate]:
    """Take the GPU's slot for both ends: the NIC's own is never told, and NICs for GPUs are built with the same."""
    return {
        (i, k): _path_rate(code.distance, (gpus[i],))
        for i, row in enumerate(cells)
        for k, code in enumerate(row)
        if code is not None and not code.nvlinks
    }


def _nvlinks_rate(i: int, j: int, gpus: tuple[Gpu, ...], links: MachineLinks) -> Rate:
    """All NVLinks of a pair together. The number is `collective`'s; the source is that of the end which decided it."""
    count, one = int(links.nvlinks[i, j]), float(links.nvlink_gb_per_s[i, j])
    ends = [nvlink_rate(gpus[at].model, count, count, gpus[at].nvlink_gb_per_s) for at in (i, j)]
    if any(end.assumed for end in ends):
        return Rate(count * one, assumed=True, source=f"assumed: {one:g} GB/s a link, the slowest generation that has so many")
    decided = next((end for end in ends if end.gb_per_s == one), ends[0])
    return Rate(count * one, assumed=False, source=decided.source)


def _path_rate(distance: Distance, ends: tuple[Gpu, ...]) -> Rate:
    rates = [pcie_rate(distance, *slot_of(gpu)) for gpu in ends]
    slowest = min(rates, key=lambda rate: rate.gb_per_s)
    told = all(gpu.pcie_generation in PCIE_LANE_GB_PER_S and gpu.pcie_width for gpu in ends)
    return slowest if told else Rate(slowest.gb_per_s, assumed=True, source=f"assumed: {slowest.source}")
