"""Where everything stands: boxes of NUMA nodes, GPUs, NICs, and the heights at which lines run. No colours, no text.

A row of GPUs has an outer side (arcs between GPUs that are not neighbours, then NICs, then the header) and an inner side (PCIe brackets, then the
middle of the machine, where an NVSwitch or the links to the other row run). The upper row's inner side is below it, the lower row's above it.
`arrangement` has decided who stands where; `columns` has placed them across; here the bands are stacked. `drawing` paints what is placed here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from topology.graph import nic_places
from topology.graph.arrangement import Arrangement, NicCluster, Part, arrange, nic_clusters
from topology.graph.bracket_levels import Band, Level, bracket_levels, steps
from topology.graph.columns import GPU_GAP, GPU_WIDTH, PADDING, Columns, columns
from topology.graph.devices import MachineGraph
from topology.graph.nic_places import Grid, Shares
from topology.graph.pcie_tree import Bracket, brackets
from topology.graph.svg import Box

GPU_HEIGHT: Final = 58.0
HEADER: Final = 30.0
STEP: Final = 26.0  # between two PCIe brackets
WIRE: Final = 26.0  # from a NIC grid to what is below it; holds the code
NOTE: Final = 15.0  # the words over a NIC grid without wires
NOTE_GAP: Final = 8.0
NVSWITCH: Final = 38.0
SWITCH_LINK: Final = 34.0  # from a box to the NVSwitch
CROSSING: Final = 72.0  # between the rows where NVLinks cross
APART: Final = 26.0  # between the rows where nothing crosses


@dataclass(frozen=True, slots=True)
class PlacedCluster:
    """NICs on the sheet, the chips placed absolutely. ``wired``: lines lead to the GPUs of the cluster, else words tell."""

    cluster: NicCluster
    box: Box
    chips: tuple[tuple[str, Box], ...]
    wired: bool


@dataclass(frozen=True, slots=True)
class PlacedBracket:
    """A PCIe bracket: the height of its line, and the (x, y) where each of its parts comes from."""

    bracket: Bracket
    y: float
    drops: tuple[tuple[float, float], ...]

    @property
    def middle(self) -> float:
        """Horizontal middle of the line."""
        return (min(x for x, _ in self.drops) + max(x for x, _ in self.drops)) / 2


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """The box of a NUMA node, and whether its header stands at the foot."""

    part: Part
    box: Box
    header_below: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """The whole machine, placed."""

    width: float
    height: float
    plan: Arrangement
    gpus: dict[str, Box]
    parts: tuple[PlacedPart, ...]
    clusters: tuple[PlacedCluster, ...]
    brackets: tuple[PlacedBracket, ...]
    nvswitch: Box | None

    def inner(self, gpu: str) -> float:
        """Return y of the GPU's edge towards the middle of the machine."""
        return self.gpus[gpu].bottom if self.plan.row_of()[gpu] == 0 else self.gpus[gpu].y

    def outer(self, gpu: str) -> float:
        """Return y of the GPU's edge away from the middle."""
        return self.gpus[gpu].y if self.plan.row_of()[gpu] == 0 else self.gpus[gpu].bottom


def arc_height(span: int) -> float:
    """Return how far an arc over ``span`` seats stands out of its row."""
    return 12.0 + 14.0 * span


@dataclass(frozen=True, slots=True)
class _Bands:
    """Outer side of one row: heights from the GPUs outwards, and the grids in it."""

    arcs: float
    wired: tuple[tuple[tuple[float, Grid], ...], ...]
    local: tuple[tuple[Part, tuple[Grid, ...]], ...]
    header: float

    def wired_heights(self) -> list[float]:
        return [WIRE + max(one.height for _, one in level) for level in self.wired]

    def local_height(self) -> float:
        return max((sum(NOTE + one.height + NOTE_GAP for one in grids) for _, grids in self.local), default=0.0)

    def height(self) -> float:
        return max(self.arcs + sum(self.wired_heights()) + self.local_height(), 4.0) + self.header


def layout(graph: MachineGraph, *, nics: bool, least_width: float = 0.0) -> Layout:
    """Place every device of the machine; ``nics`` False leaves the NICs out; the result is at least ``least_width`` wide."""
    plan = arrange(graph)
    across = columns(plan, least_width)
    levels = bracket_levels(list(brackets(graph)), plan)
    shares = nic_places.share_out(nic_clusters(graph) if nics else [], plan)
    bands = [_bands(graph, plan, across, shares, row) for row in range(len(plan.rows))]
    rows = _stack(graph, plan, levels, bands)
    gpus = {gpu: Box(across.gpus[gpu], rows.gpu_y[row], GPU_WIDTH, GPU_HEIGHT) for gpu, row in plan.row_of().items()}
    parts = tuple(_part_boxes(plan, across, rows))
    clusters = [
        cluster
        for row, band in enumerate(bands)
        for cluster in (*_wired_clusters(band, row, rows.gpu_y[row]), *_local_clusters(band, row, rows.gpu_y[row], parts))
    ]
    far, end = _far_clusters(graph, shares.far, across.width, rows.end)
    return Layout(
        width=across.width,
        height=end,
        plan=plan,
        gpus=gpus,
        parts=parts,
        clusters=(*clusters, *far),
        brackets=tuple(_placed_brackets(levels, gpus, plan, rows)),
        nvswitch=_nvswitch(graph, gpus, rows),
    )


def _bands(graph: MachineGraph, plan: Arrangement, across: Columns, shares: Shares, row: int) -> _Bands:
    rows, seats = plan.row_of(), plan.seat_of()
    spans = [
        abs(seats[a] - seats[b])
        for a, b, data in graph.edges(data=True)
        if data["nvlinks"] and rows[a] == rows[b] == row and not graph.nodes[a]["nvswitch"] and abs(seats[a] - seats[b]) > 1
    ]
    wired = [
        (_middle(across, cluster.gpus), nic_places.grid(graph, cluster, len(cluster.gpus) * (GPU_WIDTH + GPU_GAP) - 8))
        for cluster in shares.wired
        if rows[cluster.gpus[0]] == row
    ]
    local = []
    for part, (left, right) in zip(plan.rows[row], across.parts[row], strict=True):
        grids = tuple(nic_places.grid(graph, cluster, right - left - 2 * PADDING) for cluster, home in shares.local if home is part)
        local.append((part, grids))
    lower_half = plan.shared and row == 1
    return _Bands(
        arcs=arc_height(max(spans)) if spans else 0.0,
        wired=tuple(tuple(level) for level in nic_places.levels_without_overlap(wired)),
        local=tuple(local),
        header=PADDING if lower_half else HEADER,
    )


def _middle(across: Columns, gpus: Sequence[str]) -> float:
    return sum(across.gpus[gpu] + GPU_WIDTH / 2 for gpu in gpus) / len(gpus)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Heights: upper edges of the GPU rows, the middle of the machine from ``middle_top`` to ``middle_bottom``, the end of everything."""

    gpu_y: tuple[float, ...]
    middle_top: float
    middle_bottom: float
    beyond: tuple[int, ...]
    end: float

    @property
    def two(self) -> bool:
        return len(self.gpu_y) == 2


def _stack(graph: MachineGraph, plan: Arrangement, levels: Sequence[Level], bands: Sequence[_Bands]) -> _Rows:
    inside = [PADDING + STEP * steps(levels, Band.INSIDE, row) for row in range(len(bands))]
    beyond = tuple(steps(levels, Band.BEYOND, row) for row in range(len(bands)))
    first = bands[0].height()
    middle_top = first + GPU_HEIGHT + inside[0]
    middle_bottom = middle_top + _room(graph, plan, beyond, steps(levels, Band.JOINT, 0))
    if len(bands) == 1:
        return _Rows((first,), middle_top, middle_bottom, beyond, middle_bottom)
    second = middle_bottom + inside[1]
    return _Rows((first, second), middle_top, middle_bottom, beyond, second + GPU_HEIGHT + bands[1].height())


def _room(graph: MachineGraph, plan: Arrangement, beyond: Sequence[int], joint: int) -> float:
    """Height of the middle of the machine."""
    two = len(plan.rows) == 2
    rows = plan.row_of()
    if any(graph.nodes[gpu]["nvswitch"] for gpu in rows):
        return SWITCH_LINK + NVSWITCH + (SWITCH_LINK if two else 0.0) + STEP * (sum(beyond) + joint)
    crossing = any(data["nvlinks"] and rows[a] != rows[b] for a, b, data in graph.edges(data=True))
    least = (CROSSING if crossing else APART) if two else 0.0
    return least + STEP * (sum(beyond) + joint)


def _part_boxes(plan: Arrangement, across: Columns, rows: _Rows) -> Iterator[PlacedPart]:
    if plan.shared:
        left, right = across.parts[0][0][0], across.parts[0][0][1]
        both = Part(plan.rows[0][0].numa, plan.rows[0][0].cpus, tuple(gpu for parts in plan.rows for part in parts for gpu in part.gpus))
        yield PlacedPart(both, Box(left, 0.0, right - left, rows.end), header_below=False)
        return
    for row, parts in enumerate(plan.rows):
        top, bottom = (0.0, rows.middle_top) if row == 0 else (rows.middle_bottom, rows.end)
        for part, (left, right) in zip(parts, across.parts[row], strict=True):
            yield PlacedPart(part, Box(left, top, right - left, bottom - top), header_below=row == 1)


def _outwards(row: int, gpu_y: float, offset: float, height: float) -> float:
    """Return the upper edge of something that stands ``offset`` away from the GPUs of the row, on their outer side."""
    return gpu_y - offset - height if row == 0 else gpu_y + GPU_HEIGHT + offset


def _at(one: Grid, x: float, y: float, *, wired: bool) -> PlacedCluster:
    chips = tuple((nic, Box(x + chip.x, y + chip.y, chip.width, chip.height)) for nic, chip in one.chips)
    return PlacedCluster(one.cluster, Box(x, y, one.width, one.height), chips, wired)


def _wired_clusters(bands: _Bands, row: int, gpu_y: float) -> Iterator[PlacedCluster]:
    offset = bands.arcs
    for level, height in zip(bands.wired, bands.wired_heights(), strict=True):
        for middle, one in level:
            yield _at(one, middle - one.width / 2, _outwards(row, gpu_y, offset + WIRE, one.height), wired=True)
        offset += height


def _local_clusters(bands: _Bands, row: int, gpu_y: float, parts: Sequence[PlacedPart]) -> Iterator[PlacedCluster]:
    for part, grids in bands.local:
        left = next((placed.box.x for placed in parts if placed.part is part), 0.0)
        offset = bands.arcs + sum(bands.wired_heights())
        for one in grids:
            yield _at(one, left + PADDING, _outwards(row, gpu_y, offset + (NOTE_GAP if row == 0 else NOTE + 2), one.height), wired=False)
            offset += NOTE + one.height + NOTE_GAP


def _far_clusters(graph: MachineGraph, far: Sequence[NicCluster], width: float, end: float) -> tuple[list[PlacedCluster], float]:
    placed = []
    for cluster in far:
        one = nic_places.grid(graph, cluster, width)
        placed.append(_at(one, 0.0, end + PADDING + NOTE, wired=False))
        end += PADDING + NOTE + one.height
    return placed, end


def _placed_brackets(levels: Sequence[Level], gpus: dict[str, Box], plan: Arrangement, rows: _Rows) -> Iterator[PlacedBracket]:
    row_of = plan.row_of()
    done: dict[int, PlacedBracket] = {}
    for level in levels:
        drops: list[tuple[float, float]] = []
        for part in level.bracket.parts:
            if isinstance(part, Bracket):
                drops.append((done[id(part)].middle, done[id(part)].y))
            else:
                drops += [(gpus[gpu].middle, gpus[gpu].bottom if row_of[gpu] == 0 else gpus[gpu].y) for gpu in part]
        done[id(level.bracket)] = placed = PlacedBracket(level.bracket, _bracket_y(level, levels, rows), tuple(drops))
        yield placed


def _bracket_y(level: Level, levels: Sequence[Level], rows: _Rows) -> float:
    down = 1 if level.row == 0 else -1
    if level.band is Band.INSIDE:
        edge = rows.gpu_y[level.row] + (GPU_HEIGHT if level.row == 0 else 0.0)
        return edge + down * (STEP - 2 + STEP * level.step)
    if level.band is Band.BEYOND:
        return (rows.middle_top if level.row == 0 else rows.middle_bottom) + down * (STEP - 6 + STEP * level.step)
    top = rows.middle_top + STEP * rows.beyond[0]
    bottom = rows.middle_bottom - STEP * rows.beyond[-1]
    count = steps(levels, Band.JOINT, 0)
    return (top + bottom) / 2 + (level.step - (count - 1) / 2) * STEP


def _nvswitch(graph: MachineGraph, gpus: dict[str, Box], rows: _Rows) -> Box | None:
    behind = [box for gpu, box in gpus.items() if graph.nodes[gpu]["nvswitch"]]
    if not behind:
        return None
    left, right = min(box.x for box in behind), max(box.right for box in behind)
    y = (rows.middle_top + rows.middle_bottom - NVSWITCH) / 2 if rows.two else rows.middle_top + SWITCH_LINK
    return Box(left, y, right - left, NVSWITCH)
