"""The picture of the README: the stream's first pod on its machine, by plain counting and by Linkwise, with the GB/s of both.

Called by `extender.cli` for `linkwise demo --svg`. Everything in it comes from the tour: which GPUs were taken, what they get, what ran there before. That
pod comes first and its node is fixed, so both sides found the same machine in the same state, and the picture is the same for every seed.
"""

from typing import Final

from extender.demo.tour import Tour, Walk
from extender.explain import index_list
from extender.reasons import gb_per_s
from extender.sample_machines import SAMPLE_MACHINES
from topology.api import Allocation
from topology.api.annotations import ALLOCATION
from topology.errors import InternalError
from topology.graph import Marks, Panel, Words, draw_machine, side_by_side, standalone
from topology.inspection import machine_of
from topology.topology_class import members

_BY_COUNTING: Final = "#c2410c"  # rust: works, slowly
_BY_LINKS: Final = "#15803d"  # the green of NVLink


def picture(tour: Tour) -> str:
    """Return the SVG file."""
    pod = tour.pods[0]
    title = f"The same {pod.total}-GPU pod on the same machine"
    panels = [
        _panel(tour, tour.plain, f"Counting free GPUs: the lowest {pod.total}", _BY_COUNTING),
        _panel(tour, tour.linkwise, f"Linkwise: the best linked {pod.total}", _BY_LINKS),
    ]
    node = _node(tour)
    machine = SAMPLE_MACHINES[node.rsplit("-", 1)[0]]
    foot = f"{machine.title}. Large figures: GB/s at which the pod's GPUs all-reduce together, nominal, one direction."
    spoken = f"{title}: {', '.join(f'{panel.caption}, {panel.figure}' for panel in panels)}"
    return standalone(side_by_side(panels, title, foot), spoken)


def _panel(tour: Tour, walk: Walk, caption: str, colour: str) -> Panel:
    pod, node = tour.pods[0], _node(tour)
    placed, figures = walk.placed[pod.name], tour.figures(walk, pod)
    assert figures is not None
    topology = tour.hardware[node].topology
    marks = Marks(dict.fromkeys(members(placed.union), colour), _taken(tour, node))
    drawing = draw_machine(machine_of(topology.matrix(), topology.inventory()).graph, Words(title=""), marks, nics=False, legend=True)
    way = "a ring over NVLink" if figures.on_nvlink else f"no ring over NVLink, so over PCIe ({figures.worst})"
    return Panel(
        drawing, caption, f"{gb_per_s(figures.gb_per_s)} GB/s", f"GPUs {index_list(tour.hardware[node].indices(placed.union))}: {way}", colour
    )


def _node(tour: Tour) -> str:
    node = tour.pods[0].node
    if node is None or {walk.placed[tour.pods[0].name].node for walk in (tour.plain, tour.linkwise)} != {node}:
        raise InternalError("the first pod of the demo is not on the node that it selects")
    return node


def _taken(tour: Tour, node: str) -> frozenset[int]:
    """Positions that pods held before the first one came."""
    allocations = (Allocation.decode(pod["metadata"]["annotations"][ALLOCATION]) for pod in tour.scene.running)
    uuids = {uuid for allocation in allocations if allocation.node == node for uuid in allocation.uuids()}
    return frozenset(position for position, uuid in enumerate(tour.hardware[node].uuids) if uuid in uuids)
