"""LinkMatrix -> networkx graph: a vertex for every GPU and NIC, an edge for every link that was printed.

The rates come in as a value (`LinkRates`), because they depend on the whole machine (is it switched? which generation?) and the module that decides
this stands above the graph. Attributes of a vertex: ``kind`` ("gpu" or "nic"), ``label``, and for a GPU ``position``, ``index``, ``numa``, ``cpus``,
``model``, ``memory_mib``, ``nvswitch``, for a NIC ``position``, ``name``. Attributes of an edge: ``code``, ``nvlinks``, ``distance`` (a `Distance`),
``gb_per_s`` (one direction), ``assumed``, ``source``. A pair that was not printed has no edge.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import networkx as nx

from topology.inventory import Inventory
from topology.links import LinkCode, Rate
from topology.matrix import LinkMatrix

MachineGraph: TypeAlias = "nx.Graph[str]"  # the vertices are the labels of the matrix


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Rate of every pair: ``gpus[i, j]`` with i < j for two GPU positions, ``nics[i, k]`` for a GPU and a NIC position.

    ``nvswitch`` holds the positions of the GPUs whose NVLinks lead to an NVSwitch.
    """

    gpus: Mapping[tuple[int, int], Rate] = field(default_factory=dict)
    nics: Mapping[tuple[int, int], Rate] = field(default_factory=dict)
    nvswitch: frozenset[int] = frozenset()


def machine_graph(matrix: LinkMatrix, inventory: Inventory | None, rates: LinkRates) -> MachineGraph:
    """Return the graph of the machine; a pair without a rate has ``gb_per_s`` None.

    >>> from topology.matrix import from_codes
    >>> machine_graph(from_codes(["X NV2".split(), "NV2 X".split()]), None, LinkRates()).edges["GPU0", "GPU1"]["nvlinks"]
    2
    """
    graph: nx.Graph[str] = nx.Graph()
    for position, row in enumerate(matrix.gpus):
        gpu = inventory.by_index(row.index) if inventory else None
        graph.add_node(
            row.label,
            kind="gpu",
            label=row.label,
            position=position,
            index=row.index,
            numa=row.numa,
            cpus=row.cpus,
            model=gpu.model if gpu else None,
            memory_mib=gpu.memory_mib if gpu else None,
            nvswitch=position in rates.nvswitch,
        )
    for position, nic in enumerate(matrix.nics):
        graph.add_node(nic.label, kind="nic", label=nic.label, position=position, name=nic.name)
    _add_links(graph, matrix, rates)
    return graph


def _add_links(graph: MachineGraph, matrix: LinkMatrix, rates: LinkRates) -> None:
    for i, j, code in matrix.pairs():
        if code is not None:
            graph.add_edge(matrix.gpus[i].label, matrix.gpus[j].label, **_link(code, rates.gpus.get((i, j))))
    for i, gpu in enumerate(matrix.gpus):
        for k, nic in enumerate(matrix.nics):
            cell = matrix.nic_cells[i][k]
            if cell is not None:
                graph.add_edge(gpu.label, nic.label, **_link(cell, rates.nics.get((i, k))))


def _link(code: LinkCode, rate: Rate | None) -> dict[str, Any]:
    return {
        "code": code.text,
        "nvlinks": code.nvlinks,
        "distance": code.distance,
        "gb_per_s": rate.gb_per_s if rate else None,
        "assumed": rate.assumed if rate else False,
        "source": rate.source if rate else None,
    }
