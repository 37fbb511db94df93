"""The picture of one machine: GPUs by NUMA node, NVLinks as thick as they are fast, PCIe in grey, NICs where they belong, a legend.

`draw_machine` is what `linkwise inspect --output svg` and the demo call; it gives a fragment that `sheet` makes a file of, alone or beside another.
`layout` has placed everything; here it is painted, back to front: boxes, PCIe brackets, NIC wires, NVLinks, GPUs, NICs, words. A machine behind
NVSwitch gets one bar and a line a GPU: n * (n - 1) / 2 lines would show what is not there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from topology.graph import palette
from topology.graph.columns import header
from topology.graph.devices import MachineGraph
from topology.graph.layout import Layout, PlacedBracket, PlacedCluster, PlacedPart, layout
from topology.graph.legend import draw_legend, least_width
from topology.graph.nic_places import CHIP_TYPE, chip_name
from topology.graph.nvlink_courses import nvlink_courses
from topology.graph.pcie_tree import gpu_labels
from topology.graph.svg import Box, Fragment, Paint, Pen, Type, clipped, line, moved, number, path, rect, text, width_of

FADED: Final = 0.22  # links that the chosen set does not use
MOST_WIDTH: Final = 1100.0  # that words may ask for; longer ones are cut


@dataclass(frozen=True, slots=True)
class Marks:
    """What a drawing points at: GPU positions with a colour (a pod's set), and positions that others hold."""

    chosen: Mapping[int, str] = field(default_factory=dict)
    taken: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Words:
    """Head of a drawing; ``title`` None gives the number and the models of the GPUs, an empty one none."""

    title: str | None = None
    subtitle: str = ""


def draw_machine(graph: MachineGraph, words: Words | None = None, marks: Marks | None = None, *, nics: bool = True, legend: bool = True) -> Fragment:
    """Draw the machine; with ``marks`` the chosen GPUs stand out and the links between them keep their strength."""
    words = words or Words()
    title = machine_title(graph) if words.title is None else words.title
    wanted = [width_of(title, palette.TITLE.size) * 1.06, width_of(words.subtitle, palette.SUBTITLE.size), least_width(graph) if legend else 0.0]
    least = min(MOST_WIDTH, max(wanted))
    placed = layout(graph, nics=nics, least_width=least)
    head = (34.0 if title else 0.0) + (22.0 if words.subtitle else 0.0)
    body = moved("".join(_Painter(graph, placed, marks or Marks()).back_to_front()), 0, head)
    height = head + placed.height
    if title:
        body += text(0, 20, clipped(title, palette.TITLE.size, placed.width), palette.TITLE)
    if words.subtitle:
        body += text(0, head - 12, clipped(words.subtitle, palette.SUBTITLE.size, placed.width), palette.SUBTITLE)
    if legend:
        key = draw_legend(graph, placed.width, {bracket.bracket.code for bracket in placed.brackets}, nics=nics)
        body += moved(key.body, 0, height + 20) if key.body else ""
        height += 20 + key.height if key.body else 0.0
    return Fragment(placed.width, height, body)


def machine_title(graph: MachineGraph) -> str:
    """Return the GPUs in words: `8 × NVIDIA A100-SXM4-80GB`, or their number where no model is known."""
    models = Counter(graph.nodes[gpu]["model"] for gpu in gpu_labels(graph))
    if not models:
        return "No GPU"
    if set(models) == {None}:
        count = models[None]
        return f"{count} GPU{'' if count == 1 else 's'}"
    return ", ".join(f"{count} × {model or 'GPU'}" for model, count in models.items())


class _Painter:
    """Paints one placed machine; each method yields the elements of one layer."""

    def __init__(self, graph: MachineGraph, placed: Layout, marks: Marks) -> None:
        self.graph = graph
        self.placed = placed
        self.marks = marks
        self.rows = placed.plan.row_of()
        self.uniform = len({(graph.nodes[gpu]["model"]) for gpu in self.rows}) == 1

    def back_to_front(self) -> Iterator[str]:
        for part in self.placed.parts:
            yield from self._part(part)
        for bracket in self.placed.brackets:
            yield from self._bracket(bracket)
        for cluster in self.placed.clusters:
            yield from self._wires(cluster)
        yield from self._nvlinks()
        yield from self._nvswitch()
        for bracket in self.placed.brackets:
            yield from self._bracket_label(bracket)
        for gpu, box in self.placed.gpus.items():
            yield from self._gpu(gpu, box)
        for cluster in self.placed.clusters:
            yield from self._cluster(cluster)

    # --- NUMA nodes and PCIe ---

    def _part(self, part: PlacedPart) -> Iterator[str]:
        box = part.box
        name, cpus = header(part.part)
        yield rect(box, palette.NUMA_BOX, f"{name} {cpus}".strip())
        y = box.bottom - 11 if part.header_below else box.y + 19
        yield text(box.x + 14, y, name, palette.NUMA_NAME)
        used = width_of(name, palette.NUMA_NAME.size) * 1.06 + 24
        if cpus:
            yield text(box.x + used, y, clipped(cpus, palette.NUMA_CPUS.size, box.width - used - 12), palette.NUMA_CPUS)

    def _bracket(self, bracket: PlacedBracket) -> Iterator[str]:
        pen = self._faded(palette.pcie_pen(bracket.bracket.distance), strong=False)
        xs = [x for x, _ in bracket.drops]
        hint = f"{', '.join(bracket.bracket.gpus())}: {_bracket_words(bracket)}"
        for x, y in bracket.drops:
            yield line((x, y), (x, bracket.y), pen)
        yield line((min(xs), bracket.y), (max(xs), bracket.y), pen, hint)

    def _bracket_label(self, bracket: PlacedBracket) -> Iterator[str]:
        words = _bracket_words(bracket)
        width = width_of(words, 11) + 12
        inside = any(part.box.x <= bracket.middle <= part.box.right and part.box.y <= bracket.y <= part.box.bottom for part in self.placed.parts)
        ground = palette.NUMA_BOX.fill if inside else palette.SHEET.fill
        yield rect(Box(bracket.middle - width / 2, bracket.y - 8, width, 16), Paint(ground, radius=8))
        yield text(bracket.middle, bracket.y + 4, words, Type(11, palette.INK_SOFT, anchor="middle"))

    # --- NVLinks ---

    def _nvlinks(self) -> Iterator[str]:
        links = [
            (a, b, data)
            for a, b, data in self.graph.edges(data=True)
            if data["nvlinks"] and not (self.graph.nodes[a]["nvswitch"] and self.graph.nodes[b]["nvswitch"])
        ]
        courses = nvlink_courses(self.placed, [(a, b) for a, b, _ in links])
        for a, b, data in sorted(links, key=lambda link: (link[2]["nvlinks"], link[0], link[1])):
            pen = self._faded(palette.nvlink_pen(data["nvlinks"], data["gb_per_s"]), strong=self._chosen(a) and self._chosen(b))
            yield path(courses[a, b], pen, _link_words(a, b, data))

    def _nvswitch(self) -> Iterator[str]:
        bar = self.placed.nvswitch
        if bar is None:
            return
        behind = [gpu for gpu in self.rows if self.graph.nodes[gpu]["nvswitch"]]
        for gpu in behind:
            count, rate, _ = self._to_nvswitch(gpu)
            pen = self._faded(palette.nvlink_pen(count, rate), strong=self._chosen(gpu))
            x = self.placed.gpus[gpu].middle
            yield line((x, self.placed.inner(gpu)), (x, bar.y + bar.height / 2), pen, f"{gpu}: {count} NVLinks to the NVSwitch, {_rate_words(rate)}")
        rates = [self._to_nvswitch(gpu) for gpu in behind]
        about = "≈ " if any(assumed for _, _, assumed in rates) else ""
        best = max((rate for _, rate, _ in rates if rate is not None), default=None)
        words = "NVSwitch" if best is None else f"NVSwitch · {about}{best:.3g} GB/s per GPU"
        yield rect(bar, palette.NVSWITCH_BOX)
        yield text(bar.middle, bar.y + bar.height / 2 + 5, words, Type(15, "#ffffff", bold=True, anchor="middle"))

    def _to_nvswitch(self, gpu: str) -> tuple[int, float | None, bool]:
        """NVLinks of the GPU, their GB/s together, and whether that is assumed."""
        links = [data for _, _, data in self.graph.edges(gpu, data=True) if data["nvlinks"]]
        best = max(links, key=lambda data: data["nvlinks"], default=None)
        return (0, None, False) if best is None else (best["nvlinks"], best["gb_per_s"], best["assumed"])

    # --- GPUs and NICs ---

    def _gpu(self, gpu: str, box: Box) -> Iterator[str]:
        data = self.graph.nodes[gpu]
        colour = self.marks.chosen.get(data["position"])
        taken = data["position"] in self.marks.taken
        paint = Paint(colour, edge=colour, edge_width=1.6, radius=8) if colour else palette.GPU_TAKEN if taken else palette.GPU_BOX
        ink = "#ffffff" if colour else palette.INK_FAINT if taken else palette.INK
        memory = f"{data['memory_mib'] / 1024:.0f} GiB" if data["memory_mib"] else ""
        model = (data["model"] or "").removeprefix("NVIDIA ").removeprefix("GeForce ")
        facts = [fact for fact in ("" if self.uniform else model, "in use" if taken and not colour else memory) if fact]
        yield rect(box, paint, " · ".join(part for part in (gpu, data["model"], memory) if part))
        top = box.y + box.height / 2 + 5 - 8.5 * len(facts)
        yield text(box.middle, top, gpu, Type(15, ink, bold=True, anchor="middle"))
        for at, fact in enumerate(facts):
            how = Type(11, "#ffffff" if colour else palette.INK_SOFT, anchor="middle")
            yield text(box.middle, top + 17 + 14 * at, clipped(fact, 11, box.width - 10), how)

    def _wires(self, cluster: PlacedCluster) -> Iterator[str]:
        if not cluster.wired:
            return
        start = cluster.box.bottom if self.rows[cluster.cluster.gpus[0]] == 0 else cluster.box.y
        for gpu in cluster.cluster.gpus:
            x = self.placed.gpus[gpu].middle
            within = min(max(x, cluster.box.x + 10), cluster.box.right - 10)
            end = self.placed.outer(gpu)
            half = start + (13 if end > start else -13)
            yield path(
                f"M{number(within)} {number(start)}L{number(within)} {number(half)}L{number(x)} {number(half)}L{number(x)} {number(end)}",
                palette.NIC_WIRE,
            )

    def _cluster(self, cluster: PlacedCluster) -> Iterator[str]:
        box = cluster.box
        if len(cluster.chips) > 1:
            yield rect(box, palette.NIC_GRID)
        for nic, chip in cluster.chips:
            yield rect(chip, palette.NIC_CHIP, f"{nic} {self.graph.nodes[nic]['name'] or ''}".strip())
            yield text(chip.middle, chip.y + 12.5, clipped(chip_name(self.graph, nic), CHIP_TYPE, chip.width), palette.NIC_NAME)
        if not cluster.wired:
            yield text(box.x + 2, box.y - 5, self._cluster_words(cluster), palette.NIC_NOTE)
            return
        y = box.bottom + 17 if self.rows[cluster.cluster.gpus[0]] == 0 else box.y - 9
        code = cluster.cluster.code or ""
        width = width_of(code, 10) + 8
        yield rect(Box(box.middle - width / 2, y - 10.5, width, 14), Paint(palette.NUMA_BOX.fill, radius=7))
        yield text(box.middle, y, code, Type(10, palette.NIC_INK, anchor="middle"))

    def _cluster_words(self, cluster: PlacedCluster) -> str:
        near, code = cluster.cluster.gpus, cluster.cluster.code
        if code is None:
            return "no link printed"
        if len(near) == len(self.rows):
            return f"{code} from every GPU" if len(near) > 1 else f"{code} from {near[0]}"
        if any(set(near) == set(part.part.gpus) for part in self.placed.parts):
            return f"{code} from all {len(near)} GPUs here" if len(near) > 1 else f"{code} from {near[0]}"
        return f"{code} from {', '.join(near)}" if len(near) <= 4 else f"{code} from {len(near)} GPUs: {', '.join(near)}"

    # --- marks ---

    def _chosen(self, gpu: str) -> bool:
        return self.graph.nodes[gpu]["position"] in self.marks.chosen

    def _faded(self, pen: Pen, *, strong: bool) -> Pen:
        if not self.marks.chosen or strong:
            return pen
        return Pen(pen.colour, pen.width, FADED, pen.dash)


def _rate_words(gb_per_s: float | None) -> str:
    return "rate not known" if gb_per_s is None else f"{gb_per_s:.3g} GB/s"


def _link_words(a: str, b: str, data: Mapping[str, object]) -> str:
    rate = data["gb_per_s"]
    return f"{a} to {b}: {data['code']}, {_rate_words(rate if isinstance(rate, float) else None)}"


def _bracket_words(bracket: PlacedBracket) -> str:
    rates = bracket.bracket.rates
    if rates is None:
        return bracket.bracket.code
    about = "≈ " if bracket.bracket.assumed else ""
    low, high = (f"{rate:.3g}" for rate in rates)
    return f"{bracket.bracket.code} · {about}{low if low == high else f'{low} to {high}'} GB/s"
