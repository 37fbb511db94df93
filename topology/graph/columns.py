"""Horizontal places: left and right edges of the NUMA boxes, and the x of every GPU within them. The first half of `layout`."""

from dataclasses import dataclass
from typing import Final

from topology.graph.arrangement import Arrangement, Part
from topology.graph.svg import width_of

# Pixels; a sheet with eight GPUs comes out about 700 x 560, which scales to a slide or half of one.
GPU_WIDTH: Final = 116.0
GPU_GAP: Final = 38.0
PADDING: Final = 20.0
PART_GAP: Final = 28.0
PART_LEAST: Final = 200.0


@dataclass(frozen=True, slots=True)
class Columns:
    """``parts`` are (left, right) edges row by row; ``gpus`` the left edge of every GPU."""

    width: float
    parts: tuple[tuple[tuple[float, float], ...], ...]
    gpus: dict[str, float]


def columns(plan: Arrangement, least: float) -> Columns:
    """Place the boxes of every row side by side, at least ``least`` wide in all.

    Two rows of equally many boxes share their columns; a narrower row is centred; boxes that are alone in their row fill it.
    """
    widths = [[part_width(part) for part in parts] for parts in plan.rows]
    if len(widths) == 2 and len(widths[0]) == len(widths[1]):
        common = [max(pair) for pair in zip(*widths, strict=True)]
        widths = [common, common]
    if all(len(row) == 1 for row in widths):
        widths = [[max(row[0], least)] for row in widths]
    totals = [sum(row) + PART_GAP * (len(row) - 1) for row in widths]
    total = max([*totals, least])
    edges, gpus = [], {}
    for parts, row, used in zip(plan.rows, widths, totals, strict=True):
        x = (total - used) / 2
        row_edges = []
        for part, width in zip(parts, row, strict=True):
            row_edges.append((x, x + width))
            gpus.update(_gpus_within(part, x + width / 2))
            x += width + PART_GAP
        edges.append(tuple(row_edges))
    return Columns(total, tuple(edges), gpus)


def part_width(part: Part) -> float:
    """Return how wide the box of a NUMA node is: room for its GPUs and for a readable header."""
    return max(PART_LEAST, _gpus_width(part) + 2 * PADDING, width_of(header(part)[0], 12) + 2 * PADDING)


def header(part: Part) -> tuple[str, str]:
    """Return the header of a NUMA node's box: its name, and its CPUs or nothing."""
    name = "NUMA node not told" if part.numa is None else f"NUMA {part.numa}"
    return name, f"CPUs {part.cpus}" if part.cpus else ""


def _gpus_width(part: Part) -> float:
    return len(part.gpus) * (GPU_WIDTH + GPU_GAP) - GPU_GAP


def _gpus_within(part: Part, middle: float) -> dict[str, float]:
    left = middle - _gpus_width(part) / 2
    return {gpu: left + at * (GPU_WIDTH + GPU_GAP) for at, gpu in enumerate(part.gpus)}
