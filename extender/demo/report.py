"""What the demo prints: GB/s of every pod by counting and by Linkwise, the sums of all sides, and one refusal in the extender's own words.

Called by `extender.cli`. Every line is the same on every machine but the one of `time_line`. Readable at 80 columns and without colour. Means are taken over
the pods that all sides placed, so that none gains by refusing the hard ones; who found no node is told beside them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from extender.demo.scene import NODES_OF_A_KIND
from extender.demo.stream import NAMESPACE, StreamPod
from extender.demo.tour import Tour, Walk
from extender.explain import index_list, text
from extender.reasons import gb_per_s
from extender.sample_machines import SAMPLE_MACHINES
from topology.api.annotations import GPU_MODEL, MAX_DISTANCE, MIN_BANDWIDTH

MOST_ROWS: Final = 40
_BETTER: Final = "bold green"
_MISSED: Final = "red"
_HEAD: Final = "bold"

_WISHES: Final = ((MIN_BANDWIDTH, "≥ {} GB/s"), (MAX_DISTANCE, "≤ {}"), (GPU_MODEL, "{}"))


def for_people(tour: Tour) -> RenderableType:
    """Return everything that is printed but the time."""
    return Group(_opening(tour), "", _pods(tour), *_cut(tour), "", _sums(tour), "", *_refusal(tour))


def time_line(tour: Tour) -> str:
    """Return the one line that differs from run to run."""
    return f"Time: {tour.seconds * 1000:.1f} ms a pod (filter, prioritize and bind over HTTP; median of {tour.decisions})"


def _opening(tour: Tour) -> Text:
    kinds = [f"  {kind:<9} {machine.title}" for kind, machine in SAMPLE_MACHINES.items()]
    lines = [
        f"{len(tour.scene.nodes)} nodes with {tour.scene.gpus} GPUs, {NODES_OF_A_KIND} of each kind:",
        *kinds,
        f"{len(tour.pods)} pods come, some finish in between. The same stream is placed",
        "  by plain counting  on the node with the largest share of free GPUs, there on",
        "                     the lowest free ones, whatever their links",
        "  with best sets     on those same nodes, but there on the best set: all that a",
        "                     device plugin which knows links could add",
        "  by Linkwise        the extender over HTTP, called as kube-scheduler calls it",
        "",
        "GB/s: at which the GPUs of a pod (of its largest container) all-reduce together,",
        "nominal, one direction.",
    ]
    return Text("\n".join(lines))


def _several(tour: Tour) -> list[StreamPod]:
    """Return the pods with links of their own."""
    return [pod for pod in tour.pods if pod.largest > 1]


def _cut(tour: Tour) -> list[str]:
    more = len(_several(tour)) - MOST_ROWS
    return [f"… and {more} more pods"] if more > 0 else []


# --- pod by pod -----------------------------------------------------------------------------------------------------


def _pods(tour: Tour) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style=_HEAD)
    for name in ("pod", "GPUs", "asks"):
        table.add_column(name, no_wrap=True)
    for side in ("plain counting", "Linkwise"):
        table.add_column("GB/s", justify="right", no_wrap=True)
        table.add_column(side, no_wrap=True)
    for pod in _several(tour)[:MOST_ROWS]:
        table.add_row(pod.name, "+".join(map(str, pod.gpus)), _asks(pod), *_cells(tour, tour.plain, pod), *_cells(tour, tour.linkwise, pod))
    return table


def _asks(pod: StreamPod) -> str:
    wishes = [form.format(value) for key, form in _WISHES if (value := pod.wish(key)) is not None]
    return ", ".join([*wishes, *([pod.node] if pod.node else [])])


def _cells(tour: Tour, walk: Walk, pod: StreamPod) -> tuple[Text, str]:
    """GB/s and place on one side."""
    placed, figures = walk.placed.get(pod.name), tour.figures(walk, pod)
    if placed is None or figures is None:
        return Text("-"), "waits"
    other = tour.figures(tour.plain, pod) if walk is tour.linkwise else None
    better = other is not None and figures.gb_per_s > other.gb_per_s
    style = _BETTER if better else _MISSED if tour.kept(walk, pod) is False else ""
    node = tour.hardware[placed.node]
    return Text(gb_per_s(figures.gb_per_s), style), f"{placed.node} {'+'.join(index_list(node.indices(mask)) for mask in placed.masks)}"


# --- the sums -------------------------------------------------------------------------------------------------------


def _sums(tour: Tour) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style=_HEAD)
    table.add_column("pods placed by all")
    for side in ("plain counting", "best sets", "Linkwise"):
        table.add_column(side, justify="right")
    pods = tour.compared()
    for size in sorted({pod.largest for pod in pods}):
        of_size = [pod for pod in pods if pod.largest == size]
        _add(table, tour, f"mean GB/s, {size} GPUs together ({len(of_size)} pod{'s' if len(of_size) > 1 else ''})", of_size, _mean)
    _add(table, tour, f"mean GB/s, all {len(pods)}", pods, _mean)
    _add(table, tour, "over NVLink", pods, _over_nvlink)
    _add(table, tour, "floor or ceiling kept", pods, _kept)
    _add(table, tour, "no node found (all pods)", tour.pods, _without_node)
    return table


def _add(table: Table, tour: Tour, label: str, pods: Sequence[StreamPod], figure: Callable[[Tour, Walk, Sequence[StreamPod]], str]) -> None:
    table.add_row(label, *(figure(tour, walk, pods) for walk in (tour.plain, tour.best_sets, tour.linkwise)))


def _mean(tour: Tour, walk: Walk, pods: Sequence[StreamPod]) -> str:
    return gb_per_s(tour.mean_gb_per_s(walk, pods))


def _over_nvlink(tour: Tour, walk: Walk, pods: Sequence[StreamPod]) -> str:
    found = [tour.figures(walk, pod) for pod in pods]
    return f"{sum(figures is not None and figures.on_nvlink for figures in found)} of {len(pods)}"


def _kept(tour: Tour, walk: Walk, pods: Sequence[StreamPod]) -> str:
    found = [kept for pod in pods if (kept := tour.kept(walk, pod)) is not None]
    return f"{sum(found)} of {len(found)}"


def _without_node(_: Tour, walk: Walk, pods: Sequence[StreamPod]) -> str:
    return str(sum(pod.name not in walk.placed for pod in pods))


# --- the no ---------------------------------------------------------------------------------------------------------


def _refusal(tour: Tour) -> Iterator[RenderableType]:
    """Tell of the last pod: what the extender says, and what counting made of it."""
    pod = tour.pods[-1]
    yield Text(f"Why {pod.name} waits (linkwise explain pod {NAMESPACE}/{pod.name}):", style=_HEAD)
    yield Text(text(tour.refusal))
    figures, placed = tour.figures(tour.plain, pod), tour.plain.placed.get(pod.name)
    if figures is not None and placed is not None:
        yield Text(f"Plain counting cannot say no: it gave the pod {gb_per_s(figures.gb_per_s)} GB/s on {placed.node}.")
