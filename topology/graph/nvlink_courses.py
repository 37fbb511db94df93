"""The course of every NVLink through a drawing: straight to a neighbour, straight to the other row, or an arc over the GPUs between.

The ends of a GPU's links are spread along its edge in an order in which they do not cross there. Used by `drawing`; `layout` has left room for the arcs.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from topology.graph.layout import Layout, arc_height
from topology.graph.svg import number

MOST_APART: Final = 22.0  # two ends at one GPU
CORNER: Final = 14.0  # no end nearer to a corner
# A cubic curve reaches 3/4 of the height of its handles; 0.9 leaves the thick lines their own half width.
HANDLE: Final = 4 / 3 * 0.9


def nvlink_courses(placed: Layout, links: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the path commands of every link, both GPUs placed."""
    ends = _ends(placed, links)
    return {(a, b): _course(placed, a, b, ends) for a, b in links}


def _ends(placed: Layout, links: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """Return x of the end at the first GPU towards the second; links between neighbours have none, they leave by the side."""
    rows = placed.plan.row_of()
    strands: dict[tuple[str, bool], list[str]] = {}
    for one, two in links:
        for gpu, other in ((one, two), (two, one)):
            if not _neighbours(placed, gpu, other):
                strands.setdefault((gpu, rows[gpu] == rows[other]), []).append(other)
    found = {}
    for (gpu, same_row), others in strands.items():
        box = placed.gpus[gpu]
        order = [other for _, other in sorted((_rank(placed, gpu, other, arc=same_row), other) for other in others)]
        apart = min(MOST_APART, (box.width - 2 * CORNER) / max(1, len(order) - 1))
        for at, other in enumerate(order):
            found[gpu, other] = box.middle + (at - (len(order) - 1) / 2) * apart
    return found


def _neighbours(placed: Layout, a: str, b: str) -> bool:
    rows, seats = placed.plan.row_of(), placed.plan.seat_of()
    return rows[a] == rows[b] and abs(seats[a] - seats[b]) == 1


def _rank(placed: Layout, gpu: str, other: str, *, arc: bool) -> float:
    """Order of ends from the left: by the goal; arcs nest, so of two in one direction the longer starts farther from its goal."""
    if not arc:
        return placed.gpus[other].middle
    seats = placed.plan.seat_of()
    span = seats[other] - seats[gpu]
    return -span if span < 0 else 1000.0 - span


def _course(placed: Layout, a: str, b: str, ends: Mapping[tuple[str, str], float]) -> str:
    rows, seats = placed.plan.row_of(), placed.plan.seat_of()
    if _neighbours(placed, a, b):
        left, right = sorted((placed.gpus[a], placed.gpus[b]), key=lambda box: box.x)
        y = number(left.y + left.height / 2)
        return f"M{number(left.right)} {y}L{number(right.x)} {y}"
    from_x, to_x = number(ends[a, b]), number(ends[b, a])
    if rows[a] != rows[b]:
        return f"M{from_x} {number(placed.inner(a))}L{to_x} {number(placed.inner(b))}"
    edge = placed.outer(a)
    away = -1 if rows[a] == 0 else 1
    reach = number(edge + away * HANDLE * arc_height(abs(seats[a] - seats[b])))
    return f"M{from_x} {number(edge)}C{from_x} {reach} {to_x} {reach} {to_x} {number(edge)}"
