"""`nvidia-smi topo -m` (and `-mp`) to a `LinkMatrix`, whatever driver printed it and whatever happened to the text since.

Called by `linkwise inspect`, by the agent's probe and by the tests. The text is cut into blocks of a header and rows (`matrix_text`), each row into
cells (`cells`), and the cells are put together here: GPUs in the order of the header, a GPU-NIC cell from the row of either device. Nothing is lost
silently: what is missing, damaged or contradictory becomes a warning of the matrix, and a text without a matrix an `NvidiaSmiError` (`failures`
for the tool's own sentences, `sniff` for other outputs). What the codes are worth is decided in `topology.links` and `topology.collective`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from topology.errors import NvidiaSmiError, NvidiaSmiFailure
from topology.links import LinkCode, weaker
from topology.matrix import GpuRow, LinkMatrix, NicColumn
from topology.nvidia_smi.cells import RowCells, layout_of, read_row
from topology.nvidia_smi.failures import failure_in, shortened
from topology.nvidia_smi.matrix_text import Block, gpu_index, matrix_blocks, rows_without_header
from topology.nvidia_smi.p2p import holds_p2p_rows
from topology.nvidia_smi.plain_text import ends_inside_a_line, plain_lines
from topology.nvidia_smi.sniff import vendor_error
from topology.nvidia_smi.unreadable import no_answer

MOST_GPUS: Final = 64  # four times what any machine has today; more is damage
MOST_NICS: Final = 256
_WANTED: Final = "wanted: the output of `nvidia-smi topo -m`"
_PCI_ONLY: Final = re.compile(r"\btopo\s+(?:-mp|--matrix_pci)\b")


def read_topology(text: str) -> LinkMatrix:
    r"""Read the link matrix of one machine.

    GPUs and NICs stand in the order of the header, indices come from the labels; affinity cells are verbatim, None where blank or without a column.
    A truncated or damaged matrix gives what is certain, with warnings. Raises NvidiaSmiError, its ``kind`` telling which way the text fails.

    >>> read_topology("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-23\nGPU1\tNV4\t X \t0-23\n").between(0, 1).text
    'NV4'
    """
    lines = plain_lines(text)
    plain = "\n".join(lines)
    if not plain.strip():
        raise NvidiaSmiError(NvidiaSmiFailure.EMPTY, f"the text is empty; {_WANTED}")
    foreign = vendor_error(plain)
    if foreign:
        raise foreign
    blocks = [block for block in matrix_blocks(lines, open_end=ends_inside_a_line(text)) if block.gpu_rows()]
    matrices = [block for block in blocks if not holds_p2p_rows(block)]
    if not matrices:
        raise _no_matrix(lines, plain, is_p2p=bool(blocks))
    _refuse_absurd(matrices[0])
    return _matrix(matrices[0], [*_about_text(plain), *_about_more(matrices)])


def _no_matrix(lines: Sequence[str], plain: str, *, is_p2p: bool) -> NvidiaSmiError:
    if is_p2p:
        return NvidiaSmiError(NvidiaSmiFailure.BAD_ARGUMENTS, f"this is the output of `nvidia-smi topo -p2p`, which names no links; {_WANTED}")
    failure = failure_in(plain)
    if failure:
        return failure
    headers = matrix_blocks(lines)
    if headers:
        count = len(headers[0].header.gpu_labels)
        return NvidiaSmiError(
            NvidiaSmiFailure.PARTIAL, f"the text has the header of a link matrix (GPUs: {count}) but no readable row of a GPU; {_WANTED}, whole"
        )
    if rows_without_header(lines):
        return NvidiaSmiError(
            NvidiaSmiFailure.PARTIAL, f"the text has rows of a link matrix but not the header line that names their columns; {_WANTED}, whole"
        )
    return no_answer(plain, _WANTED)


def _refuse_absurd(block: Block) -> None:
    gpus, nics = block.header.gpu_labels, block.header.nic_labels
    label, count = Counter(block.header.devices).most_common(1)[0]
    if count > 1:
        raise NvidiaSmiError(NvidiaSmiFailure.UNKNOWN, f"the header names {shortened(label, 20)} {count} times; accepted: each GPU and NIC once")
    if len(gpus) > MOST_GPUS or len(nics) > MOST_NICS:
        raise NvidiaSmiError(
            NvidiaSmiFailure.UNKNOWN,
            f"the header names {len(gpus)} GPUs and {len(nics)} NICs; accepted: at most {MOST_GPUS} GPUs and {MOST_NICS} NICs in a machine",
        )


def _about_text(plain: str) -> Iterator[str]:
    if _PCI_ONLY.search(plain):
        yield "the text was made by `nvidia-smi topo -mp`, which hides NVLinks; `nvidia-smi topo -m` shows them"
    failure = failure_in(plain)
    if failure:
        yield f"beside the matrix, {failure}"


def _about_more(matrices: Sequence[Block]) -> Iterator[str]:
    if len(matrices) > 1:
        yield f"the text holds {len(matrices)} link matrices; the first one was read"


@dataclass(frozen=True, slots=True)
class _Reading:
    """A block and the cells of its rows by label."""

    block: Block
    rows: dict[str, RowCells]

    def cell(self, row: str, column: str) -> LinkCode | None:
        """Return the code in one row and column, None where it was not printed or cannot be read."""
        return self.rows[row].codes[self.block.columns[column]] if row in self.rows and row != column else None

    def nic_cell(self, gpu: str, nic: str) -> LinkCode | None:
        """Return the link between a GPU and a NIC, from the row of either one; the weaker where they differ."""
        here, there = self.cell(gpu, nic), self.cell(nic, gpu)
        return weaker(here, there) if here and there else here or there


def _matrix(block: Block, warnings: list[str]) -> LinkMatrix:
    header = block.header
    layout = layout_of(list(block.rows.values()), header)
    rows = {label: read_row(row, header, layout) for label, row in block.rows.items()}
    _forget_half_affinity(block, rows)
    reading = _Reading(block, rows)
    matrix = LinkMatrix(
        gpus=tuple(_gpu(label, rows.get(label)) for label in header.gpu_labels),
        nics=tuple(_nic(label, block.nic_names) for label in header.nic_labels),
        gpu_cells=tuple(tuple(reading.cell(row, column) for column in header.gpu_labels) for row in header.gpu_labels),
        nic_cells=tuple(tuple(reading.nic_cell(gpu, nic) for nic in header.nic_labels) for gpu in header.gpu_labels),
    )
    about = [_about_header(block), _about_rows(reading), _about_missing_rows(block), _about_nic_cells(reading), _about_pairs(matrix)]
    return replace(matrix, warnings=(*warnings, *(warning for part in about for warning in part)))


def _forget_half_affinity(block: Block, rows: dict[str, RowCells]) -> None:
    """Drop the affinity at which the text was cut where another row shows that it goes on: `0-23,4` beside `0-23,48-71`."""
    for label in [row.label for row in block.rows.values() if row.open_end and row.text == row.text.rstrip()]:
        read = rows[label]
        printed = [(key, value) for key, value in read.affinities.items() if value is not None]
        if not printed:
            return
        key, value = printed[-1]
        others = [other.affinities.get(key) or "" for at, other in rows.items() if at != label]
        if value.endswith((",", "-")) or any(other != value and other.startswith(value) for other in others):
            note = f"its last cell {value!r} is cut off"
            rows[label] = replace(read, affinities=read.affinities | {key: None}, notes=(*read.notes, note))


def _gpu(label: str, cells: RowCells | None) -> GpuRow:
    return GpuRow(gpu_index(label), **(cells.affinities if cells else {}))


def _nic(label: str, names: Mapping[str, str]) -> NicColumn:
    # Drivers up to 470 name the columns by device; `NIC0` is a name of the tool and means nothing without its legend.
    return NicColumn(label, names.get(label) if re.fullmatch(r"NIC\d+", label) else label)


def _about_header(block: Block) -> Iterator[str]:
    if block.header.unknown_columns:
        yield f"the header names a column that is not known, {shortened(block.header.unknown_columns)!r}; it was not read"
    unknown = sorted(block.nic_names.keys() - set(block.header.nic_labels))
    if unknown:
        yield f"the NIC legend names {_listed(unknown)}, without a column in the matrix"


def _about_rows(reading: _Reading) -> Iterator[str]:
    for label in reading.block.header.devices:
        if label in reading.rows:
            yield from _about_row(label, reading.rows[label])
    block = reading.block
    if block.repeated:
        yield f"{_rows_of(block.repeated)} there again; the first one was read"
    if block.strangers:
        yield f"{_rows_of(block.strangers)} without a column in the header, and not read"
    if block.loose_lines:
        yield f'lines of link codes without a label were not read: {len(block.loose_lines)}, the first "{shortened(block.loose_lines[0], 60)}"'
    yield from _about_open_end(block)


def _about_open_end(block: Block) -> Iterator[str]:
    """Warn of a last cell that may be half a cell: the text stops without a line break before all rows are there."""
    is_cut = any(label not in block.rows for label in block.header.devices)
    for row in block.rows.values():
        if row.open_end and is_cut and row.text == row.text.rstrip():
            yield f"the text stops right behind a cell of the row of {row.label}, {shortened(row.pieces[-1].text, 40)!r}; more of it may be missing"


def _about_row(label: str, cells: RowCells) -> Iterator[str]:
    said = list(cells.notes)
    if not cells.complete:
        certain = sum(code is not None for code in cells.codes)
        said.insert(0, f"{certain} of its {len(cells.codes) - 1} links are certain")
    if said:
        yield f"the row of {label} is cut or damaged: {'; '.join(said)}"


def _about_missing_rows(block: Block) -> Iterator[str]:
    gpus = [label for label in block.header.gpu_labels if label not in block.rows]
    if gpus:
        yield f"the header names {len(block.header.gpu_labels)} GPUs, but {_rows_of(gpus)} missing; their links are known from the other rows only"
    nics = [label for label in block.header.nic_labels if label not in block.rows]
    # Without any NIC row somebody has filtered the text for GPUs; with some of them it was cut.
    if nics and len(nics) < len(block.header.nic_labels):
        yield f"the header names {len(block.header.nic_labels)} NICs, but {_rows_of(nics)} missing"


def _rows_of(labels: Sequence[str]) -> str:
    return f"the row of {shortened(labels[0], 20)} is" if len(labels) == 1 else f"the rows of {_listed(labels)} are"


def _listed(labels: Sequence[str]) -> str:
    short = [shortened(label, 20) for label in (labels if len(labels) <= 3 else [*labels[:2], labels[-1]])]
    return ", ".join(short) if len(labels) <= 3 else f"{short[0]}, {short[1]} … {short[2]}"


def _about_nic_cells(reading: _Reading) -> Iterator[str]:
    for gpu in reading.block.header.gpu_labels:
        for nic in reading.block.header.nic_labels:
            here, there = reading.cell(gpu, nic), reading.cell(nic, gpu)
            if here and there and here != there:
                yield _contradiction(gpu, nic, here, there)


def _about_pairs(matrix: LinkMatrix) -> Iterator[str]:
    for i, j in matrix.asymmetric():
        here, there = matrix.gpu_cells[i][j], matrix.gpu_cells[j][i]
        if here and there:
            yield _contradiction(matrix.gpus[i].label, matrix.gpus[j].label, here, there)
    missing = matrix.missing()
    if missing:
        i, j = missing[0]
        more = f" and {len(missing) - 1} more pairs" if len(missing) > 1 else ""
        yield f"no link is known between {matrix.gpus[i].label} and {matrix.gpus[j].label}{more}: no direction can be read"


def _contradiction(a: str, b: str, here: LinkCode, there: LinkCode) -> str:
    return f"{a} and {b} are linked by {here} in the row of {a} but by {there} in the row of {b}; {weaker(here, there)}, the weaker, counts"
