"""Where the matrices are in a text of `nvidia-smi topo -m`: header, rows and NIC legend of each, still as strings.

`topo` asks for the blocks of a text and turns each row into cells with `cells`. Here it is decided what a line *is*: a header names GPUs and holds
no link code, a row has a link code or an X after its label (the header may begin with `GPU0` exactly as a row does). The names of the affinity
columns contain blanks, so they are taken out of the header before it is split. Titles, prompts, legends and prose are passed over.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from topology.nvidia_smi.pieces import Piece, pieces
from topology.nvidia_smi.plain_text import DECOR

_FIRST_GPU: Final = re.compile(rf"(?P<decor>{DECOR})(?=GPU\d)")
_LABEL: Final = re.compile(rf"{DECOR}(?P<label>[A-Za-z][\w.\-]*)")
_GPU_ROW: Final = re.compile(rf"{DECOR}(?P<label>GPU\d+)(?=\s|$|[A-Z])")
_GPU: Final = re.compile(r"GPU(\d{1,9})")
# A device is a word with a digit in it: GPU0, NIC0, mlx5_0, mlx5_bond_0, rocep4s0f0, hfi1_0.
_DEVICE: Final = re.compile(r"[A-Za-z][\w.\-]*")
# Labels whose end is known, so that a terminal wrap that glued them (`NIC8NIC9`) can be undone.
_GLUED_DEVICES: Final = re.compile(r"(?:(?:GPU|NIC)\d+|mlx\d+_(?:bond_)?\d+){2,}")
_ONE_OF_GLUED: Final = re.compile(r"(?:GPU|NIC)\d+|mlx\d+_(?:bond_)?\d+")
_LEGEND: Final = re.compile(rf"{DECOR}(?P<label>NIC\d+)\s*:\s*(?P<name>[^\s:]+)\s*")

# Field of `GpuRow` by the name printed. Drivers up to 440 print the first, 470 two, 535 and later all three.
AFFINITY_COLUMNS: Final = {"GPU NUMA ID": "gpu_numa", "CPU Affinity": "cpus", "NUMA Affinity": "numa"}
_AFFINITY_PATTERNS: Final = tuple((re.compile(name.replace(" ", r"\s*"), re.IGNORECASE), key) for name, key in AFFINITY_COLUMNS.items())


@dataclass(frozen=True, slots=True)
class Header:
    """The header line: its devices and affinity columns in printed order, each with the offset of its name from the left edge.

    ``tab_cells`` is True where a single tab stands between any two devices, False where tabs stand otherwise, None where there is none.
    """

    devices: tuple[str, ...]
    device_offsets: tuple[int, ...]
    affinities: tuple[str, ...]  # fields of GpuRow
    affinity_offsets: tuple[int, ...]
    tab_cells: bool | None
    unknown_columns: str = ""

    @property
    def gpu_labels(self) -> tuple[str, ...]:
        """The labels that are GPUs."""
        return tuple(label for label in self.devices if _GPU.fullmatch(label))

    @property
    def nic_labels(self) -> tuple[str, ...]:
        """All other labels."""
        return tuple(label for label in self.devices if not _GPU.fullmatch(label))


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its label and that one's place among the devices of the header (-1: not there), and the text after it with its words.

    Offsets count from the left edge. ``last_of_text``: no line follows; ``open_end``: nor does a line break, so that the last cell may be half a cell.
    """

    label: str
    own: int
    label_offset: int
    text: str
    offset: int
    pieces: tuple[Piece, ...]
    last_of_text: bool = False
    open_end: bool = False


@dataclass(slots=True)
class Block:
    """One matrix of a text: a header and what follows it up to the next one."""

    header: Header
    columns: dict[str, int]  # place of each label among the devices
    rows: dict[str, Row] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    nic_names: dict[str, str] = field(default_factory=dict)
    loose_lines: list[str] = field(default_factory=list)

    def gpu_rows(self) -> list[Row]:
        """Return the rows of GPUs, in the order of the header."""
        return [self.rows[label] for label in self.header.gpu_labels if label in self.rows]


def gpu_index(label: str) -> int:
    """Return the number in a GPU's label.

    >>> gpu_index("GPU3")
    3
    """
    match = _GPU.fullmatch(label)
    if match is None:
        raise ValueError(f"{label!r} is no label of a GPU")
    return int(match.group(1))


def matrix_blocks(lines: Sequence[str], *, open_end: bool = False) -> list[Block]:
    """Return every header of the text with its rows, in order; a block without rows is one whose header stands alone.

    ``open_end``: the text stops without a line break.
    """
    blocks: list[Block] = []
    last = max((i for i, line in enumerate(lines) if line.strip()), default=-1)
    for number, line in enumerate(lines):
        block = blocks[-1] if blocks else None
        row = _row(line, block)
        if row is not None:
            if block is not None:
                _take_row(block, replace(row, last_of_text=number == last, open_end=open_end and number == last))
            continue
        header = header_of(line)
        if header is not None and not _is_bare_row(header, block):
            blocks.append(Block(header, {label: k for k, label in enumerate(header.devices)}))
        elif block is not None:
            _take_other(block, line)
    return blocks


def rows_without_header(lines: Iterable[str]) -> bool:
    """Tell whether some line is a row of a GPU."""
    return any(_row(line, None) is not None for line in lines)


def _take_row(block: Block, row: Row) -> None:
    if row.own < 0:
        block.strangers.append(row.label)
    elif row.label in block.rows:
        block.repeated.append(row.label)
    else:
        block.rows[row.label] = row


def _take_other(block: Block, line: str) -> None:
    legend = _LEGEND.fullmatch(line)
    if legend:
        block.nic_names.setdefault(legend["label"], legend["name"])
        return
    words = pieces(line)
    if words and any(word.code for word in words) and all(word.code or word.is_self or word.is_affinity for word in words):
        block.loose_lines.append(line.strip())


def _row(line: str, block: Block | None) -> Row | None:
    match = _GPU_ROW.match(line)
    if match is None and block is not None:
        match = _LABEL.match(line)
        if match is None or match["label"] not in block.columns:
            return None
    if match is None:
        return None
    text, offset = line[match.end() :], match.end()
    found = pieces(text, offset)
    if not any(piece.code or piece.is_self for piece in found):
        return None
    own = block.columns.get(match["label"], -1) if block else -1
    return Row(match["label"], own, match.start("label"), text, offset, tuple(found))


def _is_bare_row(header: Header, block: Block | None) -> bool:
    # A row cut right after its label looks like the header of a machine with one GPU.
    return block is not None and len(header.devices) == 1 and not header.affinities and header.devices[0] in block.columns


def header_of(line: str) -> Header | None:
    """Return the header that a line is, None for any other line."""
    match = _FIRST_GPU.match(line)
    if match is None:
        return None
    rest, affinities = _without_affinity_names(line)
    words = [(m.group(), m.start()) for m in re.finditer(r"\S+", rest) if m.start() >= match.end()]
    devices: list[tuple[str, int]] = []
    while words and _is_device(words[0][0]):
        word, at = words.pop(0)
        devices.extend((part.group(), at + part.start()) for part in _device_parts(word))
    cut = _cut_affinity_name(words)
    if cut:
        affinities.append(cut)
        words = []
    if not devices or not _GPU.fullmatch(devices[0][0]) or (words and not affinities and not _is_cut_device(words)):
        return None
    affinities.sort(key=lambda found: found[1])
    return Header(
        devices=tuple(label for label, _ in devices),
        device_offsets=tuple(at for _, at in devices),
        affinities=tuple(key for key, _ in affinities),
        affinity_offsets=tuple(at for _, at in affinities),
        tab_cells=_tab_cells(line[match.end() : devices[-1][1]]),
        unknown_columns=" ".join(word for word, _ in words),
    )


def _without_affinity_names(line: str) -> tuple[str, list[tuple[str, int]]]:
    found = []
    for pattern, key in _AFFINITY_PATTERNS:
        match = pattern.search(line)
        if match:
            found.append((key, match.start()))
            line = line[: match.start()] + " " * (match.end() - match.start()) + line[match.end() :]
    return line, found


def _is_device(word: str) -> bool:
    return bool(_DEVICE.fullmatch(word)) and any(c.isdigit() for c in word)


def _device_parts(word: str) -> Iterable[re.Match[str]]:
    glued = _GLUED_DEVICES.fullmatch(word)
    return (_ONE_OF_GLUED if glued else re.compile(r".+")).finditer(word)


def _cut_affinity_name(words: list[tuple[str, int]]) -> tuple[str, int] | None:
    # A header that stops inside the name of its next column: `CPU Aff`. A lone `GPU` may be the next GPU as well and is not guessed.
    said = " ".join(word for word, _ in words)
    known = [key for name, key in AFFINITY_COLUMNS.items() if name.startswith(said)] if said and said != "GPU" else []
    return (known[0], words[0][1]) if known else None


def _is_cut_device(words: list[tuple[str, int]]) -> bool:
    return len(words) == 1 and any(kind.startswith(words[0][0]) for kind in ("GPU", "NIC"))


def _tab_cells(between: str) -> bool | None:
    if "\t" not in between:
        return None
    return bool(re.fullmatch(r"[^\s]+(?: *\t *[^\s]+)*(?: *\t *)?", between))
