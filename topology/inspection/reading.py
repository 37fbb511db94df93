"""From one text to one `Report`: read the matrix, compute links and sets, collect every warning on the way.

Called by `topology.cli` once an input. An input that cannot be read is a report too, with the error in it, so that many files can be looked at in one
call and none stops the others.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from topology.errors import NvidiaSmiError, NvidiaSmiFailure
from topology.inspection.machine import Machine, machine_of
from topology.inspection.peer_access import with_peer_access
from topology.inspection.report import Problem, Report, ReportedLink, ReportedSet
from topology.inventory import Inventory
from topology.matrix import LinkMatrix
from topology.nvidia_smi import P2pMatrix, read_topology
from topology.topology_class import TopologyClass, members

WhichSets = Literal["best", "all"]


def inspect(
    source: str,
    text: str,
    inventory: Inventory | None = None,
    sets: WhichSets = "best",
    free: frozenset[int] | None = None,
    p2p: P2pMatrix | None = None,
) -> Report:
    """Return what the text says about a machine; never raises for what the text holds.

    ``source`` names the input. ``inventory`` adds models, memory and slots by GPU index. ``sets``: the best set of every size, or every set of two or more;
    ``free``: among the GPUs of these indices only. ``p2p`` tells which pairs the driver lets use their links.
    """
    try:
        printed = read_topology(text)
    except NvidiaSmiError as error:
        return unreadable(source, str(error), error.kind)
    matrix, lowered = (printed, []) if p2p is None else with_peer_access(printed, p2p)
    machine = machine_of(matrix, inventory)
    mask = sum(1 << at for at, gpu in enumerate(matrix.gpus) if free is None or gpu.index in free)
    strangers = sorted((free or frozenset()) - {gpu.index for gpu in matrix.gpus})
    if strangers:
        told = f"there is no GPU {', '.join(map(str, strangers))} in it; accepted: {', '.join(str(gpu.index) for gpu in matrix.gpus)}"
        return unreadable(source, told, NvidiaSmiFailure.BAD_ARGUMENTS)
    bounds = _bounds(machine.sets, mask) if machine.sets else ()
    return Report(
        source=source,
        machine=machine,
        links=tuple(_links(machine, printed)),
        sets=tuple(_sets(machine.sets, matrix, sets, mask)) if machine.sets else (),
        warnings=tuple(dict.fromkeys([*lowered, *_warnings(machine), *bounds])),
        free=None if free is None else tuple(sorted(free)),
    )


def unreadable(source: str, message: str, kind: NvidiaSmiFailure = NvidiaSmiFailure.UNKNOWN) -> Report:
    """Return the report of an input that could not be read."""
    return Report(source, None, error=Problem(str(kind), message))


def _links(machine: Machine, printed: LinkMatrix) -> Iterator[ReportedLink]:
    """Yield every pair with the code that was printed, and the rate at which it may be used."""
    matrix, rates = machine.matrix, machine.rates
    for i, j, code in printed.pairs():
        rate = rates.gpus.get((i, j))
        yield ReportedLink(matrix.gpus[i].label, matrix.gpus[j].label, code.text if code else None, rate.gb_per_s if rate else None)
    for i, gpu in enumerate(matrix.gpus):
        for k, nic in enumerate(matrix.nics):
            cell, rate = matrix.nic_cells[i][k], rates.nics.get((i, k))
            yield ReportedLink(gpu.label, nic.label, cell.text if cell else None, rate.gb_per_s if rate else None)


def _sets(tables: TopologyClass, matrix: LinkMatrix, which: WhichSets, free: int) -> Iterator[ReportedSet]:
    for k in range(2, free.bit_count() + 1):
        if which == "best":
            best = tables.best_set(free, k)
            masks = [best.mask] if best else []
        else:
            masks = [int(mask) for mask in tables.sets(free, k)]
        for mask in masks:
            positions = members(mask)
            gpus = tuple(matrix.gpus[at].index for at in positions)
            yield ReportedSet(positions, gpus, float(tables.bandwidth[mask]), tables.worst_code(mask))


def _warnings(machine: Machine) -> Iterator[str]:
    matrix, inventory = machine.matrix, machine.inventory
    yield from matrix.warnings
    unprinted = [
        f"{gpu.label} and {nic.label}" for i, gpu in enumerate(matrix.gpus) for k, nic in enumerate(matrix.nics) if matrix.nic_cells[i][k] is None
    ]
    if unprinted:
        more = f" and {len(unprinted) - 1} more pairs" if len(unprinted) > 1 else ""
        yield f"no link is known between {unprinted[0]}{more}: no cell can be read"
    if inventory is not None:
        yield from inventory.warnings
        strangers = [gpu.label for gpu in matrix.gpus if inventory.by_index(gpu.index) is None]
        if strangers:
            yield f"the inventory does not list {', '.join(strangers)}; model, memory and slot stay unknown there"
    yield from machine.links.assumptions
    if machine.no_sets:
        yield f"no sets of GPUs: {machine.no_sets}"


def _bounds(tables: TopologyClass, free: int) -> Iterator[str]:
    """Say so where packing all rings takes longer than anybody waits at a prompt."""
    inexact = [mask for mask in np.flatnonzero(~tables.exact).tolist() if mask & ~free == 0]
    if inexact:
        sizes = sorted({mask.bit_count() for mask in inexact})
        which = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        yield f"some GB/s of sets of {which} GPUs are lower bounds, as NVLinks form more rings than can be packed at a prompt; there may be better sets than told"
