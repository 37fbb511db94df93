"""From the text of one matrix row to its cells, without ever shifting one.

`topo` calls `read_row` for each row, with the `Layout` that the whole matrix agrees on. A complete row, as many codes as devices and the X in its own
column, needs no layout: codes are read in order, whatever stands between them. An incomplete one is placed by tab cells or by header offsets where
the complete rows show that these can be trusted; else only those cells count whose distance from the X is certain. What remains is unknown (None)
and noted. Affinity cells come after the last code: all of them, or by the tab stops that the tool prints, or unknown.

Glued cells (`NODENODE`, `SYS0-23`) are split where there is one way to do so.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from topology.links import LinkCode

_CODES: Final = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
_AFFINITY: Final = re.compile(r"\d[\d,\-]*|N/A")
# `PHB` and `0-115`, of which a terminal wrap left `PH0-115`: the code is lost, the affinity behind it is whole. Not after NV, where digits go on.
_CUT_CODE_AND_AFFINITY: Final = re.compile(r"(?P<code>P|PI|PX|PH|N|NO|NOD|S|SY|SO)(?P<affinity>\d[\d,\-]*|N/A)")
_GLUE_LIMIT: Final = 400  # characters; a longer word is no row of cells
_TAB: Final = 8  # a terminal's tab stops, which copies turn into blanks


@dataclass(frozen=True, slots=True)
class Piece:
    """One word of a row, or one part of a word that was glued: its text and its distance from the left edge."""

    text: str
    at: int
    glued: bool = False

    @property
    def code(self) -> LinkCode | None:
        """The link code that the piece is."""
        return LinkCode.parse(self.text)

    @property
    def is_self(self) -> bool:
        """Whether it is the X of the diagonal."""
        return self.text == "X"

    @property
    def is_affinity(self) -> bool:
        """Whether it can be an affinity cell: `0-23,48-71`, `0`, `N/A`."""
        return _AFFINITY.fullmatch(self.text) is not None

    @property
    def end(self) -> int:
        """Offset of what follows."""
        return self.at + len(self.text)


def pieces(text: str, offset: int = 0) -> list[Piece]:
    """Split a row into words and glued words into their parts; ``offset`` is where ``text`` begins.

    >>> [piece.text for piece in pieces("NV12  NODENODE SYS0-23")]
    ['NV12', 'NODE', 'NODE', 'SYS', '0-23']
    """
    found: list[Piece] = []
    for match in re.finditer(r"\S+", text):
        at = offset + match.start()
        parts = _parts(match.group())
        for part in parts:
            found.append(Piece(part, at, glued=len(parts) > 1))
            at += len(part)
    return found


def _parts(word: str) -> tuple[str, ...]:
    if LinkCode.parse(word) or word == "X" or _AFFINITY.fullmatch(word) or len(word) > _GLUE_LIMIT:
        return (word,)
    cut = _CUT_CODE_AND_AFFINITY.fullmatch(word)
    if cut:
        return (cut["code"], cut["affinity"])
    only_codes, with_affinity = _splits(word)
    for ways in (only_codes, with_affinity):
        if ways:
            return ways[0] if len(ways) == 1 else (word,)
    return (word,)


def _splits(word: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Every way (two at most are told apart) to read the word as codes, and as codes followed by an affinity."""
    ways: list[list[tuple[str, ...]]] = [[] for _ in range(len(word) + 1)]
    ways[0] = [()]
    with_affinity: list[tuple[str, ...]] = []
    for start in range(len(word)):
        if not ways[start]:
            continue
        for code in _codes_at(word, start):
            ways[start + len(code)] = (ways[start + len(code)] + [(*way, code) for way in ways[start]])[:2]
        if start and _AFFINITY.fullmatch(word, start):
            with_affinity += [(*way, word[start:]) for way in ways[start]]
    return ways[len(word)], with_affinity


def _codes_at(word: str, start: int) -> list[str]:
    if word.startswith("NV", start):
        return [word[start:end] for end in (start + 3, start + 4) if end <= len(word) and LinkCode.parse(word[start:end])]
    return [code for code in (*_CODES, "X") if word.startswith(code, start)]


@dataclass(frozen=True, slots=True)
class Columns:
    """What the header says that a row needs: how many devices, which affinities, and the offsets of all names."""

    devices: int
    device_offsets: tuple[int, ...]
    affinities: tuple[str, ...]
    affinity_offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """What the complete rows of a matrix prove: one tab a cell, or every code under the name of its column."""

    tab_cells: bool = False
    aligned: bool = False


@dataclass(frozen=True, slots=True)
class RowCells:
    """One row: a code per device (None: the X, blank or unreadable), an affinity per column, and notes on what could not be read."""

    codes: tuple[LinkCode | None, ...]
    affinities: dict[str, str | None]
    notes: tuple[str, ...] = ()
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row to be read: which device it is, its text, where that begins and where its label begins, and whether nothing follows it."""

    own: int
    text: str
    offset: int
    label_offset: int
    pieces: tuple[Piece, ...]
    last_of_text: bool


def layout_of(rows: Sequence[Row], columns: Columns, *, header_tab_cells: bool | None) -> Layout:
    """Return what can be trusted in this matrix; ``header_tab_cells`` as in `matrix_text.Header`."""
    whole = [row for row in rows if _is_complete(_body(row, columns), row, columns)]
    with_tabs = [row for row in whole if "\t" in row.text]
    tab_cells = header_tab_cells is not False and bool(with_tabs or header_tab_cells) and all(_stands_in_tab_cells(row, columns) for row in with_tabs)
    aligned = header_tab_cells is None and bool(whole) and not with_tabs and all(_stands_under_header(row, columns) for row in whole)
    return Layout(tab_cells, aligned)


def _stands_in_tab_cells(row: Row, columns: Columns) -> bool:
    return _tab_cells(row.text)[: columns.devices] == [piece.text for piece in _body(row, columns)]


def _stands_under_header(row: Row, columns: Columns) -> bool:
    return [_column_at(piece.at, columns) for piece in _body(row, columns)] == list(range(columns.devices))


def _tab_cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("\t")[1:]]


def _column_at(offset: int, columns: Columns) -> int | None:
    """The last column whose name begins at or before ``offset``; None left of all and under the affinities."""
    if columns.affinity_offsets and offset >= columns.affinity_offsets[0]:
        return None
    before = [k for k, start in enumerate(columns.device_offsets) if start <= offset]
    return before[-1] if before else None


def _body(row: Row, columns: Columns) -> tuple[Piece, ...]:
    """The pieces that are device cells: up to the last code or X, and damaged words right behind it while cells are missing."""
    last = max((i for i, piece in enumerate(row.pieces) if piece.code or piece.is_self), default=-1)
    end = last + 1
    while end < min(columns.devices, len(row.pieces)) and not row.pieces[end].is_affinity:
        end += 1
    return row.pieces[:end]


def _is_complete(body: Sequence[Piece], row: Row, columns: Columns) -> bool:
    if len(body) != columns.devices:
        return False
    selves = [k for k, piece in enumerate(body) if piece.is_self]
    return selves == [row.own] or (not selves and body[row.own].code is None)


def read_row(row: Row, columns: Columns, layout: Layout) -> RowCells:
    """Read one row; what is not certain is None and noted."""
    body = _body(row, columns)
    complete = _is_complete(body, row, columns)
    if complete:
        placed: dict[int, Piece] = dict(enumerate(body))
    else:
        placed = _by_tab_cells(row, columns, layout) or _by_offsets(row, body, columns, layout) or _by_distance_from_self(row, body, columns)
        placed = _without_cut_end(placed, row)
    codes = tuple(placed[k].code if k in placed else None for k in range(columns.devices))
    notes = [f"the cell of column {k + 1} reads {piece.text!r}" for k, piece in placed.items() if not piece.code and not piece.is_self]
    affinities, note = _affinities(row, body, columns, layout, complete=complete)
    if note:
        notes.append(note)
    return RowCells(codes, affinities, tuple(notes), complete)


def _by_tab_cells(row: Row, columns: Columns, layout: Layout) -> dict[int, Piece] | None:
    if not layout.tab_cells or "\t" not in row.text:
        return None
    cells = _tab_cells(row.text)
    beyond = [piece for cell in cells[columns.devices :] for piece in pieces(cell)]
    if any(piece.code or piece.is_self for piece in beyond):
        return None
    placed = {}
    for k, cell in enumerate(cells[: columns.devices]):
        parts = pieces(cell)
        if len(parts) > 1 or any(part.is_affinity for part in parts):
            return None
        if parts:
            placed[k] = parts[0]
    while cells and not cells[-1]:
        cells.pop()
    return _agreeing_with_self(placed, row, columns, cells_seen=len(cells))


def _by_offsets(row: Row, body: Sequence[Piece], columns: Columns, layout: Layout) -> dict[int, Piece] | None:
    if not layout.aligned or "\t" in row.text or any(piece.glued or piece.is_affinity for piece in body):
        return None
    placed: dict[int, Piece] = {}
    for piece in body:
        k = _column_at(piece.at, columns)
        if k is None or k in placed:
            return None
        placed[k] = piece
    return _agreeing_with_self(placed, row, columns, cells_seen=max(placed, default=-1) + 1)


def _agreeing_with_self(placed: dict[int, Piece], row: Row, columns: Columns, *, cells_seen: int) -> dict[int, Piece] | None:
    selves = [k for k, piece in placed.items() if piece.is_self]
    if selves not in ([], [row.own]) or (not selves and row.own in placed and placed[row.own].code):
        return None
    if cells_seen < columns.devices and not row.last_of_text:
        # Cut at its right edge, or one cell lost inside? Only what stands before the X is certain.
        return {k: piece for k, piece in placed.items() if k <= row.own} if selves else None
    return placed


def _by_distance_from_self(row: Row, body: Sequence[Piece], columns: Columns) -> dict[int, Piece]:
    selves = [k for k, piece in enumerate(body) if piece.is_self]
    cut_here = row.last_of_text and len(body) == len(row.pieces)
    if not selves:
        return dict(enumerate(body)) if cut_here and len(body) <= row.own else {}
    if len(selves) > 1:
        return {}
    at = selves[0]
    placed = dict(enumerate(body[: at + 1])) if at == row.own else {}
    right = body[at + 1 :]
    if len(right) == columns.devices - 1 - row.own or (at == row.own and cut_here and len(right) < columns.devices - 1 - row.own):
        placed.update(enumerate(right, start=row.own + 1))
    return placed


def _without_cut_end(placed: dict[int, Piece], row: Row) -> dict[int, Piece]:
    """Drop the last cell where the text stops right behind it and it may be half a cell: `NV1` of `NV12`."""
    if not row.last_of_text or not placed or not row.pieces or row.text != row.text.rstrip():
        return placed
    last = max(placed)
    end = placed[last]
    may_go_on = end.code is None or re.fullmatch(r"NV\d", end.text)
    return {k: piece for k, piece in placed.items() if k != last} if may_go_on and not end.is_self else placed


# Positions of the affinity columns among the tab cells behind the last code, by the number of columns. The tool prints GPU NUMA ID behind two tabs,
# some 535 drivers NUMA Affinity as well; hand-made tables have one tab everywhere.
_TAIL_POSITIONS: Final = {1: ((0,),), 2: ((0, 1), (0, 2)), 3: ((0, 1, 3), (0, 2, 4), (0, 1, 2))}


def _affinities(row: Row, body: Sequence[Piece], columns: Columns, layout: Layout, *, complete: bool) -> tuple[dict[str, str | None], str | None]:
    blank: dict[str, str | None] = dict.fromkeys(columns.affinities)
    tail = _joined_lists(row.pieces[len(body) :])
    if not tail or not columns.affinities:
        return blank, f"{_words(tail)} stands behind the last column" if tail else None
    if len(tail) == len(columns.affinities):
        return dict(zip(columns.affinities, (piece.text for piece in tail), strict=True)), None
    found = None
    if complete and "\t" in row.text:
        found = _by_positions(_tail_cells(row, body), columns) if layout.tab_cells else None
    elif complete:
        found = _by_agreement(_under_affinity_names(tail, columns), _by_positions(_unexpanded(row, body, tail), columns))
    if found is None:
        return blank, f"{_words(tail)} cannot be told to be {' or '.join(columns.affinities)}"
    return found, None


def _words(tail: Sequence[Piece]) -> str:
    return " ".join(repr(piece.text) for piece in tail)


def _joined_lists(tail: Sequence[Piece]) -> list[Piece]:
    """Join `0-23,` and `48-71`, which somebody parted by a blank."""
    joined: list[Piece] = []
    for piece in tail:
        if joined and joined[-1].text.endswith(",") and piece.is_affinity:
            joined[-1] = replace(joined[-1], text=joined[-1].text + piece.text)
        else:
            joined.append(piece)
    return joined


def _tail_cells(row: Row, body: Sequence[Piece]) -> list[str]:
    return [cell.strip() for cell in row.text[body[-1].end - row.offset :].split("\t")[1:]]


def _by_positions(cells: list[str] | None, columns: Columns) -> dict[str, str | None] | None:
    if cells is None:
        return None
    filled = {k for k, cell in enumerate(cells) if cell}
    layouts = [at for at in _TAIL_POSITIONS.get(len(columns.affinities), ()) if filled <= set(at)]
    layouts.sort(key=lambda at: len(cells) != at[-1] + 1)
    if not layouts:
        return None
    return {key: (cells[k] or None) if k < len(cells) else None for key, k in zip(columns.affinities, layouts[0], strict=True)}


def _unexpanded(row: Row, body: Sequence[Piece], tail: Sequence[Piece]) -> list[str] | None:
    """Undo a terminal's expansion of tabs: the cells between the last code and the end of the row, None where the words do not stand on tab stops."""
    cells: list[str] = []
    position = body[-1].end - row.label_offset
    for piece in tail:
        start = piece.at - row.label_offset
        tabs = start // _TAB - position // _TAB
        if start % _TAB or tabs < 1:
            return None
        cells += [""] * (tabs - 1) + [piece.text]
        position = start + len(piece.text)
    return cells


def _under_affinity_names(tail: Sequence[Piece], columns: Columns) -> dict[str, str | None] | None:
    """Assign each word to the column whose name begins exactly above it."""
    by_offset = dict(zip(columns.affinity_offsets, columns.affinities, strict=True))
    if len({piece.at for piece in tail} & set(by_offset)) != len(tail):
        return None
    found: dict[str, str | None] = dict.fromkeys(columns.affinities)
    return found | {by_offset[piece.at]: piece.text for piece in tail}


def _by_agreement(first: dict[str, str | None] | None, second: dict[str, str | None] | None) -> dict[str, str | None] | None:
    if first is None or second is None:
        return first or second
    return first if first == second else None
