"""Machines written down by us, and every way in which a text of nvidia-smi may show them; strategies that draw random ones.

The renderings follow the tool (tabs, ` X `, two tabs before GPU NUMA ID) and what copies do to it. `expected` is what each must read back to.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from topology.links import LinkCode
from topology.matrix import GpuRow, LinkMatrix, NicColumn

CODES = ("PIX", "PXB", "PHB", "NODE", "SYS")
AFFINITY_NAMES = {"cpus": "CPU Affinity", "numa": "NUMA Affinity", "gpu_numa": "GPU NUMA ID"}
LEGEND = (
    "",
    "Legend:",
    "",
    "  X    = Self",
    "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)",
    "  PIX  = Connection traversing at most a single PCIe bridge",
    "  NV#  = Connection traversing a bonded set of # NVLinks",
)


@dataclass(frozen=True)
class Machine:
    """Labels of GPUs and NICs, the code of each ordered pair of devices, and the affinity cells of each GPU by column, None where blank."""

    gpus: tuple[int, ...]
    nics: tuple[str, ...]
    codes: tuple[tuple[str, ...], ...]
    affinities: tuple[dict[str, str | None], ...]
    columns: tuple[str, ...]
    nic_names: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        return (*(f"GPU{index}" for index in self.gpus), *self.nics)

    def row_cells(self, row: int) -> list[str]:
        return [" X " if row == column else self.codes[row][column] for column in range(len(self.labels))]

    def expected(self, warnings: tuple[str, ...] = ()) -> LinkMatrix:
        n, m = len(self.gpus), len(self.nics)
        return LinkMatrix(
            gpus=tuple(GpuRow(index, **self.affinities[i]) for i, index in enumerate(self.gpus)),
            nics=tuple(NicColumn(label, self.nic_names[k] if self.nic_names else label) for k, label in enumerate(self.nics)),
            gpu_cells=tuple(tuple(LinkCode.parse(self.codes[i][j]) if i != j else None for j in range(n)) for i in range(n)),
            nic_cells=tuple(tuple(LinkCode.parse(self.codes[i][n + k]) for k in range(m)) for i in range(n)),
            warnings=warnings,
        )


def machine(*rows: str, numa: Sequence[str] = (), cpus: Sequence[str] = (), nics: Sequence[str] = (), nic_names: Sequence[str] = ()) -> Machine:
    """Write a machine down: `machine("X NV4", "NV4 X", cpus=["0-23", "0-23"])`; NIC rows follow the GPU rows."""
    codes = tuple(tuple(row.split()) for row in rows)
    count = len(rows) - len(nics)
    columns = (("cpus",) if cpus else ()) + (("numa",) if numa else ())
    affinities = tuple(({"cpus": cpus[i]} if cpus else {}) | ({"numa": numa[i]} if numa else {}) for i in range(count))
    return Machine(tuple(range(count)), tuple(nics), codes, affinities, columns, tuple(nic_names))


# --- renderings ------------------------------------------------------------------------------------------------------


def tab_lines(m: Machine) -> list[str]:
    """As the tool prints: the header begins with a tab, GPU NUMA ID stands behind two, NIC rows are padded."""
    lines = ["\t" + "\t".join([*m.labels, *(AFFINITY_NAMES[column] for column in m.columns)])]
    for row, label in enumerate(m.labels):
        cells = [label, *m.row_cells(row)]
        for column in m.columns:
            cells += ([""] if column == "gpu_numa" else []) + [(m.affinities[row][column] or "") if row < len(m.gpus) else ""]
        lines.append("\t".join(cells))
    return lines


def tail_lines(m: Machine) -> list[str]:
    legend = ["", "NIC Legend:", "", *(f"  {label}: {name}" for label, name in zip(m.nics, m.nic_names, strict=True))] if m.nic_names else []
    return [*LEGEND, *legend]


def joined(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def as_printed(m: Machine) -> str:
    return joined(tab_lines(m) + tail_lines(m))


def _with_header(m: Machine, change: Callable[[str], str]) -> str:
    header, *rows = tab_lines(m)
    return joined([change(header), *rows, *tail_lines(m)])


def _hand_aligned(m: Machine) -> str:
    """Every cell below the name of its column: what somebody makes of it who lays it out again."""
    header = [*m.labels, *(AFFINITY_NAMES[column] for column in m.columns)]
    rows = [
        [*m.row_cells(row), *(((m.affinities[row][column] or "") if row < len(m.gpus) else "") for column in m.columns)]
        for row in range(len(m.labels))
    ]
    widths = [max(len(name), *(len(row[k]) for row in rows)) + 2 for k, name in enumerate(header)]
    lines = [" " * 10 + "".join(name.ljust(width) for name, width in zip(header, widths, strict=True)).rstrip()]
    lines += [
        label.ljust(10) + "".join(cell.strip().ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for label, row in zip(m.labels, rows, strict=True)
    ]
    return joined(lines + tail_lines(m))


def _markdown_table(m: Machine) -> str:
    header = ["", *m.labels, *(AFFINITY_NAMES[column] for column in m.columns)]
    rows = [
        [label, *m.row_cells(row), *(((m.affinities[row][column] or "") if row < len(m.gpus) else "") for column in m.columns)]
        for row, label in enumerate(m.labels)
    ]
    return joined([f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)] + tail_lines(m))


# Renderings in which every cell is told apart, also blank ones.
EXACT: dict[str, Callable[[Machine], str]] = {
    "as the tool prints it": as_printed,
    "with a coloured header": lambda m: _with_header(m, lambda h: f"\t\x1b[4m{h[1:]}\x1b[0m"),
    "with the escape codes before the tab": lambda m: _with_header(m, lambda h: f"\x1b[4m{h}\x1b[0m"),
    "with escape codes that lost their ESC byte": lambda m: _with_header(m, lambda h: f"\t[4m{h[1:]}[0m"),
    "with escape codes in caret notation": lambda m: _with_header(m, lambda h: f"\t^[[4m{h[1:]}^[[0m"),
    "with a header that lost its tab": lambda m: _with_header(m, lambda h: h[1:]),
    "with a header indented by two blanks": lambda m: _with_header(m, lambda h: f"  {h}"),
    "after a title": lambda m: "GPU Topology:\n" + as_printed(m),
    "after a prompt": lambda m: "user@node:~$ nvidia-smi topo -m\n" + as_printed(m),
    "commented out": lambda m: "".join(f"# {line}\n" for line in as_printed(m).splitlines()),
    "quoted": lambda m: "".join(f"> {line}\n" for line in as_printed(m).splitlines()),
    "indented by three blanks": lambda m: "".join(f"   {line}\n" for line in as_printed(m).splitlines()),
    "indented by eight blanks": lambda m: "".join(f"        {line}\n" for line in as_printed(m).splitlines()),
    "on one line with <br>": lambda m: as_printed(m).replace("\n", "<br>"),
    "with CRLF": lambda m: as_printed(m).replace("\n", "\r\n"),
    "without a legend": lambda m: joined([*tab_lines(m), *(tail_lines(m)[len(LEGEND) :])]),
    "as a Markdown table": _markdown_table,
    "laid out by hand": _hand_aligned,
}

# Renderings that cannot tell which of several cells is blank; what they read must still be right.
BLANKED: dict[str, Callable[[Machine], str]] = {
    "with tabs expanded by a terminal": lambda m: as_printed(m).expandtabs(8),
    "with tabs expanded and indented": lambda m: "".join(f"    {line}\n" for line in as_printed(m).expandtabs(8).splitlines()),
    "with single blanks": lambda m: joined([re.sub(r"[\t ]+", " ", line) for line in as_printed(m).splitlines()]),
    "with some tabs doubled": lambda m: joined([line.replace("\t", "\t\t", 3) for line in tab_lines(m)] + tail_lines(m)),
}


# --- random machines --------------------------------------------------------------------------------------------------

codes = st.one_of(st.sampled_from(CODES), st.integers(1, 18).map(lambda n: f"NV{n}"))
cpus = st.sampled_from(["0-23", "0-23,48-71", "0,2,4,6,8,10", "0", "56-111,168-223", "0-0,8-8,16-16,24-24,32-32,40-40", "N/A"])
numas = st.sampled_from(["0", "1", "0-3", "0,5-11", "8", "N/A"])
gpu_numas = st.sampled_from(["N/A", "N/A", "2", "10"])


@st.composite
def machines(draw: st.DrawFn, *, blanks: bool = True, most_gpus: int = 8, most_nics: int = 5) -> Machine:
    """Draw a machine: symmetric links, any column set, blank affinity cells if wanted, NICs by number or by device name."""
    indices = tuple(draw(st.lists(st.integers(0, 15), min_size=1, max_size=most_gpus, unique=True)))
    named = draw(st.booleans())
    nic_count = draw(st.integers(0, most_nics))
    nics = tuple(f"NIC{k}" if named else f"mlx5_{k}" for k in range(nic_count))
    size = len(indices) + nic_count
    grid = [["X"] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1, size):
            grid[i][j] = grid[j][i] = draw(codes if j < len(indices) else st.sampled_from(CODES))
    columns = tuple(AFFINITY_NAMES)[: draw(st.integers(0, 3))]

    def cell(values: st.SearchStrategy[str], *, may_be_blank: bool) -> str | None:
        return draw(st.none() | values if blanks and may_be_blank else values)

    strategies = {"cpus": cpus, "numa": numas, "gpu_numa": gpu_numas}
    affinities = tuple({column: cell(strategies[column], may_be_blank=column != "gpu_numa") for column in columns} for _ in indices)
    names = tuple(f"mlx5_{k + 3}" for k in range(nic_count)) if named else ()
    return Machine(indices, nics, tuple(tuple(row) for row in grid), affinities, columns, names)
