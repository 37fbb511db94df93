"""Heights of the PCIe brackets: in which band of the drawing each one runs, and at which step of that band.

Brackets within one NUMA box run inside it, near the GPUs. Those that join boxes of one row run just beyond the boxes; those that join both rows run in
the middle of the machine. Within a band the nearer distance is the nearer step. Used by `layout`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from topology.graph.arrangement import Arrangement
from topology.graph.pcie_tree import Bracket
from topology.links import Distance


class Band(Enum):
    """Where a bracket runs."""

    INSIDE = "inside one NUMA box"
    BEYOND = "between NUMA boxes of one row"
    JOINT = "between the rows"


@dataclass(frozen=True, slots=True)
class Level:
    """A bracket, its band (of row ``row``, 0 for JOINT) and its step in that band, 0 the nearest to the GPUs."""

    bracket: Bracket
    band: Band
    row: int
    step: int


def bracket_levels(brackets: Sequence[Bracket], plan: Arrangement) -> list[Level]:
    """Assign every bracket its band and step, in the order given."""
    banded = [(bracket, *_band(bracket, plan)) for bracket in brackets]
    found: dict[tuple[Band, int], set[Distance]] = {}
    for bracket, band, row in banded:
        found.setdefault((band, row), set()).add(bracket.distance)
    return [Level(bracket, band, row, sorted(found[band, row]).index(bracket.distance)) for bracket, band, row in banded]


def _band(bracket: Bracket, plan: Arrangement) -> tuple[Band, int]:
    rows, parts = plan.row_of(), plan.part_of()
    gpus = bracket.gpus()
    if len({rows[gpu] for gpu in gpus}) > 1:
        return Band.JOINT, 0
    same_part = len({parts[gpu].gpus for gpu in gpus}) == 1
    return (Band.INSIDE if same_part else Band.BEYOND), rows[gpus[0]]


def steps(levels: Sequence[Level], band: Band, row: int) -> int:
    """Return how many steps the band of that row has."""
    return max((level.step + 1 for level in levels if level.band is band and level.row == row), default=0)
