"""The machine as a graph, and its drawings.

`machine_graph` turns a link matrix with its rates into a networkx graph: a vertex a device, an edge a link. `to_dot` writes it for graphviz;
`draw_machine` draws it as an SVG fragment that `standalone` and `side_by_side` make files of. Called by `topology.inspection` and by the demo.
What a set of GPUs gets over these links is `collective`'s business, which stands above.
"""

from topology.graph.devices import LinkRates, MachineGraph, machine_graph
from topology.graph.dot import to_dot
from topology.graph.drawing import Marks, Words, draw_machine, machine_title
from topology.graph.sheet import Panel, side_by_side, standalone
from topology.graph.svg import Fragment

__all__ = [
    "Fragment",
    "LinkRates",
    "MachineGraph",
    "Marks",
    "Panel",
    "Words",
    "draw_machine",
    "machine_graph",
    "machine_title",
    "side_by_side",
    "standalone",
    "to_dot",
]
