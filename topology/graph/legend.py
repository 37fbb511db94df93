"""The legend of a drawing: one sample a class of links, with its GB/s and how many pairs have it. Called by `drawing`."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from topology.graph import palette
from topology.graph.devices import MachineGraph
from topology.graph.pcie_tree import gpu_labels
from topology.graph.svg import Box, Fragment, Pen, line, rect, text, width_of
from topology.links import LinkCode

_SAMPLE: Final = 30.0
_ROW: Final = 24.0
_ASSUMED: Final = "≈ assumed: the input does not tell the generation"


@dataclass(frozen=True, slots=True)
class LinkClass:
    """All GPU pairs with one code; ``rates`` are the lowest and the highest GB/s, None where no rate is known."""

    code: LinkCode
    pairs: int
    rates: tuple[float, float] | None
    assumed: bool


def link_classes(graph: MachineGraph) -> list[LinkClass]:
    """Return the classes of links between GPUs, the strongest first."""
    gpus = set(gpu_labels(graph))
    found: dict[str, list[dict[str, object]]] = {}
    for a, b, data in graph.edges(data=True):
        if a in gpus and b in gpus:
            found.setdefault(data["code"], []).append(data)
    classes = [_link_class(LinkCode(code), links) for code, links in found.items()]
    return sorted(classes, key=lambda one: one.code.weakness())


def _link_class(code: LinkCode, links: list[dict[str, object]]) -> LinkClass:
    known = [rate for link in links if isinstance(rate := link["gb_per_s"], float)]
    return LinkClass(code, len(links), (min(known), max(known)) if known else None, any(link["assumed"] for link in links))


def least_width(graph: MachineGraph) -> float:
    """Return the width that the legend needs at least, 0 where there is nothing to explain."""
    classes = link_classes(graph)
    wanted = [_SAMPLE + 8 + width_of(_words(one, drawn=False), palette.LEGEND.size) for one in classes]
    if any(one.assumed for one in classes):
        wanted.append(width_of(_ASSUMED, palette.LEGEND_NOTE.size))
    return max(wanted, default=0.0)


def draw_legend(graph: MachineGraph, width: float, drawn: Collection[str], *, nics: bool) -> Fragment:
    """Draw the legend within ``width``; entries wrap into rows. ``drawn`` are the PCIe codes that the picture shows, ``nics`` tells whether it shows NICs."""
    entries = [(_sample(one), _words(one, drawn=bool(one.code.nvlinks) or one.code.text in drawn)) for one in link_classes(graph)]
    if nics and any(data["kind"] == "nic" for _, data in graph.nodes(data=True)):
        entries.append((rect(Box(4, -12, _SAMPLE - 8, 14), palette.NIC_CHIP), "NIC, at the GPUs nearest to it"))
    body, x, y = "", 0.0, 14.0
    for sample, words in entries:
        used = _SAMPLE + 8 + width_of(words, palette.LEGEND.size)
        if x and x + used > width:
            x, y = 0.0, y + _ROW
        body += f'<g transform="translate({x:.0f} {y:.0f})">{sample}{text(_SAMPLE + 8, 0, words, palette.LEGEND)}</g>'
        x += used + 24
    if any(one.assumed for one in link_classes(graph)):
        y += _ROW if entries else 0.0
        body += text(0, y, _ASSUMED, palette.LEGEND_NOTE)
    return Fragment(width, y + 6 if body else 0.0, body)


def _sample(one: LinkClass) -> str:
    fastest = one.rates[1] if one.rates else None
    pen = palette.nvlink_pen(one.code.nvlinks, fastest) if one.code.nvlinks else palette.pcie_pen(one.code.distance)
    return line((pen.width / 2, -4), (_SAMPLE - pen.width / 2, -4), Pen(pen.colour, pen.width, 1.0, pen.dash))


def _words(one: LinkClass, *, drawn: bool) -> str:
    pairs = f"{one.pairs} pair{'' if one.pairs == 1 else 's'}{'' if drawn else ', not drawn'}"
    if one.rates is None:
        return f"{one.code} · {pairs}"
    low, high = (f"{rate:.3g}" for rate in one.rates)
    return f"{one.code} · {'≈ ' if one.assumed else ''}{low if low == high else f'{low} to {high}'} GB/s · {pairs}"
