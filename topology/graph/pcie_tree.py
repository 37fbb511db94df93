"""Which GPUs sit behind one PCIe bridge, host bridge or NUMA node, as a tree read from the link codes alone.

Codes say how far two GPUs are apart, not what lies between. GPUs that reach each other within some distance form a component; components merge as the
distance grows, and every merging is a `Bracket`: "here two parts meet, over PHB". GPUs joined by NVLink count as one part from the start, since their
cell hides the PCIe path. Used by `arrangement` (neighbours stand together) and `layout` (the grey brackets of a drawing).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import networkx as nx

from topology.graph.devices import MachineGraph
from topology.links import Distance


@dataclass(frozen=True, slots=True)
class Bracket:
    """Parts that meet at ``distance``; a part is another bracket, or GPUs (labels) that no bracket holds together.

    ``rates`` are the lowest and the highest GB/s between the parts, None where unknown.
    """

    distance: Distance
    code: str
    parts: tuple["Bracket | tuple[str, ...]", ...]
    rates: tuple[float, float] | None
    assumed: bool

    def gpus(self) -> tuple[str, ...]:
        """Labels of all GPUs below."""
        return tuple(gpu for part in self.parts for gpu in _gpus_of(part))


def _gpus_of(part: "Bracket | tuple[str, ...]") -> tuple[str, ...]:
    return part.gpus() if isinstance(part, Bracket) else part


def gpu_labels(graph: MachineGraph) -> list[str]:
    """Labels of the GPUs in matrix order."""
    gpus = [(data["position"], label) for label, data in graph.nodes(data=True) if data["kind"] == "gpu"]
    return [label for _, label in sorted(gpus)]


def components(graph: MachineGraph, within: Distance) -> dict[str, tuple[str, ...]]:
    """Return for every GPU the GPUs that it reaches over links of at most that distance, itself included, in matrix order."""
    order = {label: position for position, label in enumerate(gpu_labels(graph))}
    near: nx.Graph[str] = nx.Graph()
    near.add_nodes_from(order)
    near.add_edges_from((a, b) for a, b, data in graph.edges(data=True) if a in order and b in order and data["distance"] <= within)
    found = {}
    for part in nx.connected_components(near):
        members = tuple(sorted(part, key=order.__getitem__))
        found.update(dict.fromkeys(members, members))
    return found


def brackets(graph: MachineGraph) -> Iterator[Bracket]:
    """Yield every merging of components, nearest first; none where NVLink holds all GPUs together.

    >>> from topology.matrix import from_codes
    >>> from topology.graph.devices import LinkRates, machine_graph
    >>> matrix = from_codes(["X PIX SYS".split(), "PIX X SYS".split(), "SYS SYS X".split()])
    >>> [(b.code, b.gpus()) for b in brackets(machine_graph(matrix, None, LinkRates()))]
    [('PIX', ('GPU0', 'GPU1')), ('SYS', ('GPU0', 'GPU1', 'GPU2'))]
    """
    held: dict[tuple[str, ...], Bracket | tuple[str, ...]] = {part: part for part in _distinct(components(graph, Distance.NVLINK).values())}
    for distance in list(Distance)[1:]:
        merged: dict[tuple[str, ...], Bracket | tuple[str, ...]] = {}
        for members in _distinct(components(graph, distance).values()):
            parts = tuple(part for key, part in held.items() if set(key) <= set(members))
            if len(parts) == 1:
                merged[members] = parts[0]
                continue
            merged[members] = bracket = _bracket(graph, distance, parts)
            yield bracket
        held = merged


def _distinct(groups: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(groups))


def _bracket(graph: MachineGraph, distance: Distance, parts: tuple[Bracket | tuple[str, ...], ...]) -> Bracket:
    links = [
        graph.edges[a, b]
        for one, other in combinations(parts, 2)
        for a in _gpus_of(one)
        for b in _gpus_of(other)
        if graph.has_edge(a, b) and graph.edges[a, b]["distance"] is distance
    ]
    known = [link["gb_per_s"] for link in links if link["gb_per_s"] is not None]
    rates = (min(known), max(known)) if known else None
    return Bracket(distance, links[0]["code"], parts, rates, assumed=any(link["assumed"] for link in links))
