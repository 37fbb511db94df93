"""The machine as graphviz text, for `dot -Tsvg` or any other layout engine.

GPUs stand in one cluster a NUMA node. The pen is as wide as the link is fast. PCIe paths are grey and dashed, and of a NIC only the nearest ones are
drawn: all of them would be a hedge. Nothing is lost by that: `inspect --output json` lists every pair.
"""

from collections.abc import Iterator

from topology.graph import palette
from topology.graph.arrangement import nic_clusters
from topology.graph.devices import MachineGraph
from topology.graph.pcie_tree import gpu_labels


def to_dot(graph: MachineGraph, name: str = "machine") -> str:
    """Return the graph in graphviz's language, ending in a newline."""
    return "\n".join(["graph " + quoted(name) + " {", *(f"  {line}" for line in _statements(graph)), "}"]) + "\n"


def quoted(text: str) -> str:
    r"""Return the text as a graphviz string.

    >>> print(quoted('a "b" \\ c'))
    "a \"b\" \\ c"
    """
    lines = ["".join(letter if letter.isprintable() else "?" for letter in line) for line in text.split("\n")]
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'


def _statements(graph: MachineGraph) -> Iterator[str]:
    yield 'graph [fontname="Helvetica", overlap="false", splines="true"]'
    yield 'node [fontname="Helvetica", shape="box", style="rounded"]'
    yield 'edge [fontname="Helvetica", fontsize="10"]'
    by_numa: dict[str | None, list[str]] = {}
    for gpu in gpu_labels(graph):
        by_numa.setdefault(graph.nodes[gpu]["numa"], []).append(gpu)
    for at, (numa, gpus) in enumerate(by_numa.items()):
        yield f"subgraph {quoted(f'cluster_{at}')} {{"
        yield f"  label={quoted('NUMA not told' if numa is None else f'NUMA {numa}')}"
        for gpu in gpus:
            yield f"  {_vertex(gpu, label=_gpu_text(graph, gpu))}"
        yield "}"
    for label, data in graph.nodes(data=True):
        if data["kind"] == "nic":
            text = f"{label}\n{data['name']}" if data["name"] and data["name"] != label else label
            yield _vertex(label, label=text, color=palette.NIC_INK, fontcolor=palette.NIC_INK)
    yield from _edges(graph)


def _vertex(device: str, **attributes: str) -> str:
    return f"{quoted(device)} [{_attributes(attributes)}]"


def _attributes(attributes: dict[str, str]) -> str:
    return ", ".join(f"{key}={quoted(value)}" for key, value in attributes.items())


def _gpu_text(graph: MachineGraph, gpu: str) -> str:
    data = graph.nodes[gpu]
    memory = f"{data['memory_mib'] / 1024:.0f} GiB" if data["memory_mib"] else None
    return "\n".join(part for part in (gpu, data["model"], memory) if part)


def _edges(graph: MachineGraph) -> Iterator[str]:
    gpus = set(gpu_labels(graph))
    for a, b, data in graph.edges(data=True):
        if a in gpus and b in gpus:
            yield _edge(a, b, data, palette.nvlink_colour(data["nvlinks"]) if data["nvlinks"] else palette.pcie_colour(data["distance"]))
    for cluster in nic_clusters(graph):
        for nic in cluster.nics:
            for gpu in cluster.gpus:
                yield _edge(gpu, nic, graph.edges[gpu, nic], palette.NIC_WIRE.colour)


def _edge(a: str, b: str, data: dict[str, object], colour: str) -> str:
    rate = data["gb_per_s"] if isinstance(data["gb_per_s"], float) else None
    attributes = {
        "label": str(data["code"]) if rate is None else f"{data['code']} {rate:.3g} GB/s",
        "color": colour,
        "penwidth": f"{palette.line_width(rate):.1f}",
        "style": "solid" if data["nvlinks"] else "dashed",
    }
    return f"{quoted(a)} -- {quoted(b)} [{_attributes(attributes)}]"
