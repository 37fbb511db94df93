"""NICs of a drawing: which get wires, which are told in words, and how their chips are packed into grids.

A NIC belongs to the GPUs that it is nearest to. Wires to one GPU or to two neighbours say something; wires to more are a tangle, and a line of words
says it better ("NODE from these 4 GPUs"). Used by `layout`, which decides where the grids stand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from topology.graph.arrangement import Arrangement, NicCluster, Part
from topology.graph.devices import MachineGraph
from topology.graph.svg import Box, width_of
from topology.links import Distance, LinkCode

CHIP_HEIGHT: Final = 18.0
CHIP_GAP: Final = 4.0
CHIP_TYPE: Final = 10.0
PADDING: Final = 5.0


@dataclass(frozen=True, slots=True)
class Grid:
    """The chips of one cluster, packed; chips are placed relative to the grid's upper left corner."""

    cluster: NicCluster
    width: float
    height: float
    chips: tuple[tuple[str, Box], ...]


@dataclass(frozen=True, slots=True)
class Shares:
    """The clusters of a machine by how they are drawn: with wires, in words inside a NUMA node's box, in words below the machine."""

    wired: tuple[NicCluster, ...]
    local: tuple[tuple[NicCluster, Part], ...]
    far: tuple[NicCluster, ...]


def share_out(clusters: Sequence[NicCluster], plan: Arrangement) -> Shares:
    """Decide how every cluster is drawn."""
    seats, rows, parts = plan.seat_of(), plan.row_of(), plan.part_of()
    wired, local, far = [], [], []
    for cluster in clusters:
        homes = {(rows[gpu], parts[gpu].gpus): parts[gpu] for gpu in cluster.gpus}
        if len(homes) != 1:
            far.append(cluster)
        elif _deserves_wires(cluster, seats):
            wired.append(cluster)
        else:
            local.append((cluster, next(iter(homes.values()))))
    if plan.shared:  # the box has two rows, and what is near all of one row is not special to it
        far += [cluster for cluster, _ in local]
        local = []
    return Shares(tuple(wired), tuple(local), tuple(far))


def _deserves_wires(cluster: NicCluster, seats: Mapping[str, int]) -> bool:
    code = None if cluster.code is None else LinkCode.parse(cluster.code)
    if code is None or code.distance > Distance.PHB or len(cluster.gpus) > 2:
        return False
    return seats[cluster.gpus[-1]] - seats[cluster.gpus[0]] < 2


def chip_name(graph: MachineGraph, nic: str) -> str:
    """Return what stands on the chip: the device's name where it is known, else the label of the matrix."""
    return graph.nodes[nic]["name"] or nic


def grid(graph: MachineGraph, cluster: NicCluster, room: float) -> Grid:
    """Pack the chips of a cluster into rows no wider than ``room``, all chips as wide as the widest."""
    chip = max(width_of(chip_name(graph, nic), CHIP_TYPE) for nic in cluster.nics) + 10
    most = max(1, int((room - 2 * PADDING + CHIP_GAP) // (chip + CHIP_GAP)))
    rows = -(-len(cluster.nics) // most)
    columns = -(-len(cluster.nics) // rows)
    chips = tuple(
        (nic, Box(PADDING + (at % columns) * (chip + CHIP_GAP), PADDING + (at // columns) * (CHIP_HEIGHT + CHIP_GAP), chip, CHIP_HEIGHT))
        for at, nic in enumerate(cluster.nics)
    )
    width = 2 * PADDING + columns * (chip + CHIP_GAP) - CHIP_GAP
    return Grid(cluster, width, 2 * PADDING + rows * (CHIP_HEIGHT + CHIP_GAP) - CHIP_GAP, chips)


def levels_without_overlap(grids: Sequence[tuple[float, Grid]]) -> list[list[tuple[float, Grid]]]:
    """Stack grids, each with the x of its middle, so that no two of one level touch; the first level is nearest to the GPUs."""
    levels: list[list[tuple[float, Grid]]] = []
    for middle, one in sorted(grids, key=lambda item: (len(item[1].cluster.gpus), item[0])):
        free = (level for level in levels if all(abs(middle - other) >= (one.width + its.width) / 2 + 2 for other, its in level))
        chosen = next(free, None)
        if chosen is None:
            levels.append([(middle, one)])
        else:
            chosen.append((middle, one))
    return levels
