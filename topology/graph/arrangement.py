"""Who stands beside whom in the drawing: NUMA nodes as boxes, in one row or two, GPUs in an order that keeps neighbours together.

Up to four GPUs stand in one row; more stand in two, so that links between the halves run straight through the middle, where an NVSwitch or the socket
link is drawn. NICs stand at the GPUs that they are nearest to (`NicCluster`). Only names and order are decided here; `layout` adds coordinates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from topology.graph.devices import MachineGraph
from topology.graph.pcie_tree import components, gpu_labels
from topology.links import Distance

ONE_ROW: Final = 4  # GPUs; five in a row make a strip that no slide wants
_NEAREST_LAST: Final = (Distance.NODE, Distance.PHB, Distance.PXB, Distance.PIX, Distance.NVLINK)


@dataclass(frozen=True, slots=True)
class Part:
    """The GPUs of one NUMA node within one row. ``numa`` and ``cpus`` are the printed cells, None where they were not told or differ."""

    numa: str | None
    cpus: str | None
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One or two rows of parts; ``shared`` where both rows are one and the same NUMA node."""

    rows: tuple[tuple[Part, ...], ...]
    shared: bool

    def row_of(self) -> dict[str, int]:
        """Row of every GPU."""
        return {gpu: row for row, parts in enumerate(self.rows) for part in parts for gpu in part.gpus}

    def seat_of(self) -> dict[str, int]:
        """Place of every GPU within its row, from the left."""
        return {gpu: seat for parts in self.rows for seat, gpu in enumerate(gpu for part in parts for gpu in part.gpus)}

    def part_of(self) -> dict[str, Part]:
        """NUMA part of every GPU."""
        return {gpu: part for parts in self.rows for part in parts for gpu in part.gpus}


@dataclass(frozen=True, slots=True)
class NicCluster:
    """NICs that have the same nearest GPUs at the same distance; ``code`` is None where no cell of theirs was printed."""

    nics: tuple[str, ...]
    gpus: tuple[str, ...]
    code: str | None


def arrange(graph: MachineGraph) -> Arrangement:
    """Return rows of NUMA nodes for a machine of any size."""
    plan = _rows(graph, _parts(graph))
    held_by_nvlink = len(set(components(graph, Distance.NVLINK).values())) == 1
    return _untangled(graph, plan) if held_by_nvlink and len(plan.rows) == 2 else plan


def _rows(graph: MachineGraph, parts: list[Part]) -> Arrangement:
    count = sum(len(part.gpus) for part in parts)
    if count <= ONE_ROW:
        return Arrangement((tuple(parts),), shared=False)
    if len(parts) == 1:
        only = parts[0]
        half = _halfway(graph, only.gpus)
        return Arrangement(((Part(only.numa, only.cpus, only.gpus[:half]),), (Part(only.numa, only.cpus, only.gpus[half:]),)), shared=True)
    cut = min(range(1, len(parts)), key=lambda at: abs(count - 2 * sum(len(part.gpus) for part in parts[:at])))
    return Arrangement((tuple(parts[:cut]), tuple(parts[cut:])), shared=False)


def _halfway(graph: MachineGraph, gpus: tuple[str, ...]) -> int:
    """Return where to cut one NUMA node into two rows: near the middle, tearing as few PCIe components apart as possible."""
    middle = (len(gpus) + 1) // 2
    nearest = [components(graph, distance) for distance in reversed(_NEAREST_LAST)]

    def torn(cut: int) -> tuple[int, int]:
        return sum(level[gpus[cut - 1]] == level[gpus[cut]] for level in nearest), abs(middle - cut)

    return min((cut for cut in (middle - 1, middle, middle + 1) if 0 < cut < len(gpus)), key=torn)


def _untangled(graph: MachineGraph, plan: Arrangement) -> Arrangement:
    """Order the lower row by where its NVLinks come from, if that makes fewer of them cross; a cube mesh then shows its straight edges.

    Only for machines that NVLink holds together: elsewhere the PCIe brackets need the order that they have.
    """
    seats, rows = plan.seat_of(), plan.row_of()

    def above(gpu: str) -> float:
        ends = [seats[other] for other in graph[gpu] if other in seats and rows[other] == 0 and graph.edges[gpu, other]["nvlinks"]]
        return sum(ends) / len(ends) if ends else seats[gpu]

    lower = tuple(Part(part.numa, part.cpus, tuple(sorted(part.gpus, key=above))) for part in plan.rows[1])
    changed = Arrangement((plan.rows[0], lower), plan.shared)
    return changed if _crossings(graph, changed) < _crossings(graph, plan) else plan


def _crossings(graph: MachineGraph, plan: Arrangement) -> int:
    seats, rows = plan.seat_of(), plan.row_of()
    lines = [
        (seats[a], seats[b]) if rows[a] == 0 else (seats[b], seats[a])
        for a, b, data in graph.edges(data=True)
        if data["nvlinks"] and rows[a] != rows[b]
    ]
    return sum(1 for one, other in combinations(lines, 2) if (one[0] - other[0]) * (one[1] - other[1]) < 0)


def _parts(graph: MachineGraph) -> list[Part]:
    by_numa: dict[str | None, list[str]] = {}
    for label in sorted(gpu_labels(graph), key=_neighbours_first(graph)):
        by_numa.setdefault(_told(graph.nodes[label]["numa"]), []).append(label)
    parts = []
    for numa, gpus in by_numa.items():
        cpus = {_told(graph.nodes[gpu]["cpus"]) for gpu in gpus}
        parts.append(Part(numa, cpus.pop() if len(cpus) == 1 else None, tuple(gpus)))
    return parts


def _told(cell: str | None) -> str | None:
    return None if cell in (None, "", "N/A") else cell


def _neighbours_first(graph: MachineGraph) -> "Callable[[str], tuple[int, ...]]":
    """Return a sort key: matrix order, but GPUs that are near each other are not torn apart."""
    position = {label: at for at, label in enumerate(gpu_labels(graph))}
    levels = [components(graph, distance) for distance in _NEAREST_LAST]
    return lambda label: (*(position[level[label][0]] for level in levels), position[label])


def nic_clusters(graph: MachineGraph) -> list[NicCluster]:
    """Return the NICs by nearest GPUs, in the order of the matrix."""
    found: dict[tuple[tuple[str, ...], str | None], list[str]] = {}
    for label, data in graph.nodes(data=True):
        if data["kind"] == "nic":
            found.setdefault(_nearest(graph, label), []).append(label)
    return [NicCluster(tuple(nics), gpus, code) for (gpus, code), nics in found.items()]


def _nearest(graph: MachineGraph, nic: str) -> tuple[tuple[str, ...], str | None]:
    links = {gpu: graph.edges[gpu, nic] for gpu in gpu_labels(graph) if graph.has_edge(gpu, nic)}
    if not links:
        return (), None
    best = min(link["distance"] for link in links.values())
    near = tuple(gpu for gpu, link in links.items() if link["distance"] == best)
    return near, links[near[0]]["code"]
