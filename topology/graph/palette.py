"""Colours and line widths of the drawings, once.

The sheet brings its own light ground, so that one file reads on a white slide and on a dark page. Green is NVLink and nothing else; grey is PCIe;
violet is a NIC. Width grows with the square root of the rate: 450 GB/s beside 9 GB/s must both be seen.
"""

from itertools import pairwise
from math import log2, sqrt
from typing import Final

from topology.graph.svg import Paint, Pen, Type
from topology.links import Distance

INK: Final = "#1f2933"
INK_SOFT: Final = "#52606d"
INK_FAINT: Final = "#8a97a6"

SHEET: Final = Paint("#ffffff", edge="#d5dbe3", edge_width=1, radius=14)
NUMA_BOX: Final = Paint("#f3f6fa", edge="#cfd8e3", edge_width=1.2, radius=12)
GPU_BOX: Final = Paint("#ffffff", edge="#3e4c59", edge_width=1.6, radius=8)
GPU_TAKEN: Final = Paint("#e4e9f0", edge="#b6c1ce", edge_width=1.4, radius=8)
NIC_CHIP: Final = Paint("#f1ecfb", edge="#a893d8", edge_width=1, radius=4)
NIC_GRID: Final = Paint("#ffffff", edge="#d9cff1", radius=6)
NIC_INK: Final = "#5b3fa3"
NIC_WIRE: Final = Pen("#a893d8", 1.4, dash="3 3")
NVSWITCH_BOX: Final = Paint("#1c6b3f", radius=8)

TITLE: Final = Type(20, INK, bold=True)
SUBTITLE: Final = Type(13, INK_SOFT)
NUMA_NAME: Final = Type(12, INK_SOFT, bold=True)
NUMA_CPUS: Final = Type(11, INK_FAINT)
GPU_NAME: Final = Type(15, INK, bold=True, anchor="middle")
GPU_FACT: Final = Type(11, INK_SOFT, anchor="middle")
NIC_NAME: Final = Type(10, NIC_INK, anchor="middle")
NIC_NOTE: Final = Type(10, "#7c69ad")
LEGEND: Final = Type(12, INK)
LEGEND_NOTE: Final = Type(11, INK_FAINT)

_PCIE_COLOURS: Final = {
    Distance.PIX: "#5f7186",
    Distance.PXB: "#728399",
    Distance.PHB: "#8594a8",
    Distance.NODE: "#98a5b6",
    Distance.SYS: "#abb6c4",
}
# NVLinks a pair -> colour, from a blue to a deep green; between two of them the colour is mixed. NV1 and NV2 differ most, they meet in one machine.
_NVLINK_COLOURS: Final = ((1, (86, 180, 233)), (2, (22, 160, 110)), (4, (36, 138, 61)), (18, (20, 92, 46)))


def nvlink_colour(nvlinks: int) -> str:
    """Return the colour of a pair with so many NVLinks.

    >>> nvlink_colour(1), nvlink_colour(18)
    ('#56b4e9', '#145c2e')
    """
    count = min(max(nvlinks, _NVLINK_COLOURS[0][0]), _NVLINK_COLOURS[-1][0])
    (low, from_rgb), (high, to_rgb) = next(pair for pair in pairwise(_NVLINK_COLOURS) if count <= pair[1][0])
    part = log2(count / low) / log2(high / low)
    mixed = [round(a + (b - a) * part) for a, b in zip(from_rgb, to_rgb, strict=True)]
    return "#" + "".join(f"{value:02x}" for value in mixed)


def pcie_colour(distance: Distance) -> str:
    """Return the grey of a PCIe path: the longer, the fainter."""
    return _PCIE_COLOURS[distance]


def line_width(gb_per_s: float | None) -> float:
    """Return the width of a link in the drawing; GB/s that are not known are drawn as the thinnest."""
    return max(1.2, min(16.0, 0.62 * sqrt(gb_per_s or 0.0)))


def nvlink_pen(nvlinks: int, gb_per_s: float | None) -> Pen:
    """Return how an NVLink is drawn."""
    return Pen(nvlink_colour(nvlinks), line_width(gb_per_s))


def pcie_pen(distance: Distance) -> Pen:
    """Return how a PCIe path is drawn: thin, and dashed where it leaves the NUMA node."""
    return Pen(pcie_colour(distance), 1.6, dash="6 4" if distance is Distance.SYS else None)
