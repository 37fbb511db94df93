"""From the text of one matrix row to its cells, without ever shifting one.

`topo` calls `read_row` for each row, with the `Layout` that the whole matrix agrees on. A complete row, as many codes as devices and the X in its own
column, needs no layout: codes are read in order, whatever stands between them. An incomplete one is placed by tab cells or by header offsets where
the complete rows show that these can be trusted; else only those cells count whose distance from the X is certain. What remains is unknown (None)
and noted. Affinity cells come after the last code: all of them, or by the tab stops that the tool prints, or unknown.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from topology.links import LinkCode
from topology.nvidia_smi.failures import shortened
from topology.nvidia_smi.matrix_text import AFFINITY_COLUMNS, Header, Row
from topology.nvidia_smi.pieces import Piece, pieces

_AFFINITY_WORDS: Final = {key: name for name, key in AFFINITY_COLUMNS.items()}
_TAB: Final = 8  # a terminal's tab stops, which copies turn into blanks


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


def layout_of(rows: Sequence[Row], header: Header) -> Layout:
    """Return what can be trusted in this matrix. Rows with glued cells prove nothing: theirs stand elsewhere, the others' may be right."""
    whole = [row for row in rows if _is_complete(_body(row, header), row, header) and not any(piece.glued for piece in row.pieces)]
    with_tabs = [row for row in whole if "\t" in row.text]
    tab_cells = header.tab_cells is not False and bool(with_tabs or header.tab_cells) and all(_stands_in_tab_cells(row, header) for row in with_tabs)
    aligned = header.tab_cells is None and bool(whole) and not with_tabs and all(_stands_under_header(row, header) for row in whole)
    return Layout(tab_cells, aligned)


def _stands_in_tab_cells(row: Row, header: Header) -> bool:
    return _tab_cells(row.text)[: len(header.devices)] == [piece.text for piece in _body(row, header)]


def _stands_under_header(row: Row, header: Header) -> bool:
    # Exactly: in a text whose blanks were collapsed, words stand near their column by chance. The tool prints the X one blank further right.
    offsets = zip(_body(row, header), header.device_offsets, strict=True)
    return all(piece.at == offset or (piece.is_self and piece.at == offset + 1) for piece, offset in offsets)


def _tab_cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("\t")[1:]]


def _column_at(offset: int, header: Header) -> int | None:
    """Return the last column whose name begins at or before ``offset``; None left of all and under the affinities."""
    if header.affinity_offsets and offset >= header.affinity_offsets[0]:
        return None
    before = [k for k, start in enumerate(header.device_offsets) if start <= offset]
    return before[-1] if before else None


def _body(row: Row, header: Header) -> tuple[Piece, ...]:
    """Return the pieces that are device cells: up to the last code or X, and damaged words right behind it while cells are missing."""
    last = max((i for i, piece in enumerate(row.pieces) if piece.code or piece.is_self), default=-1)
    end = last + 1
    while end < min(len(header.devices), len(row.pieces)) and not row.pieces[end].is_affinity:
        end += 1
    return row.pieces[:end]


def _is_complete(body: Sequence[Piece], row: Row, header: Header) -> bool:
    if len(body) != len(header.devices):
        return False
    selves = [k for k, piece in enumerate(body) if piece.is_self]
    return selves == [row.own] or (not selves and body[row.own].code is None)


def read_row(row: Row, header: Header, layout: Layout) -> RowCells:
    """Read one row; what is not certain is None and noted."""
    body = _body(row, header)
    complete = _is_complete(body, row, header)
    if complete:
        placed: dict[int, Piece] = dict(enumerate(body))
    else:
        placed = _by_tab_cells(row, header, layout) or _by_offsets(row, body, header, layout) or _by_distance_from_self(row, body, header)
    placed = _without_half_code(placed, row)
    codes = tuple(placed[k].code if k in placed else None for k in range(len(header.devices)))
    notes = [
        f"the cell under {header.devices[k]} reads {shortened(piece.text, 20)!r}"
        for k, piece in placed.items()
        if not piece.code and not piece.is_self
    ]
    affinities, note = _affinities(row, body, header, layout, complete=complete)
    if note:
        notes.append(note)
    return RowCells(codes, affinities, tuple(notes), complete)


def _by_tab_cells(row: Row, header: Header, layout: Layout) -> dict[int, Piece] | None:
    if not layout.tab_cells or "\t" not in row.text:
        return None
    cells = _tab_cells(row.text)
    if any(piece.code or piece.is_self for cell in cells[len(header.devices) :] for piece in pieces(cell)):
        return None
    placed = {}
    for k, cell in enumerate(cells[: len(header.devices)]):
        parts = pieces(cell)
        if len(parts) > 1 or any(part.is_affinity for part in parts):
            return None
        if parts:
            placed[k] = parts[0]
    return _agreeing_with_self(placed, row, header)


def _by_offsets(row: Row, body: Sequence[Piece], header: Header, layout: Layout) -> dict[int, Piece] | None:
    if not layout.aligned or "\t" in row.text or any(piece.glued or piece.is_affinity for piece in body):
        return None
    placed: dict[int, Piece] = {}
    for piece in body:
        k = _column_at(piece.at, header)
        if k is None or k in placed:
            return None
        placed[k] = piece
    return _agreeing_with_self(placed, row, header)


def _agreeing_with_self(placed: dict[int, Piece], row: Row, header: Header) -> dict[int, Piece] | None:
    selves = [k for k, piece in placed.items() if piece.is_self]
    if selves not in ([], [row.own]) or (not selves and row.own in placed and placed[row.own].code):
        return None
    if len(header.devices) - 1 not in placed and not row.last_of_text:
        # Cut at its right edge, or one cell lost inside and the others moved up? Only what stands before the X is certain.
        return {k: piece for k, piece in placed.items() if k <= row.own} if selves else None
    return placed


def _by_distance_from_self(row: Row, body: Sequence[Piece], header: Header) -> dict[int, Piece]:
    selves = [k for k, piece in enumerate(body) if piece.is_self]
    cut_here = row.last_of_text and len(body) == len(row.pieces)
    if not selves:
        return dict(enumerate(body)) if cut_here and len(body) <= row.own else {}
    if len(selves) > 1:
        return {}
    at = selves[0]
    placed = dict(enumerate(body[: at + 1])) if at == row.own else {}
    right = body[at + 1 :]
    if len(right) == len(header.devices) - 1 - row.own or (at == row.own and cut_here and len(right) < len(header.devices) - 1 - row.own):
        placed.update(enumerate(right, start=row.own + 1))
    return placed


def _without_half_code(placed: dict[int, Piece], row: Row) -> dict[int, Piece]:
    """Drop the last cell where the text stops right behind it and it may be half a code: `NV1` of `NV12`."""
    if not row.open_end or not placed or row.text != row.text.rstrip():
        return placed
    last = max(placed)
    is_half = placed[last].text == row.pieces[-1].text and re.fullmatch(r"NV\d", placed[last].text)
    return {k: piece for k, piece in placed.items() if k != last} if is_half else placed


# Positions of the affinity columns among the tab cells behind the last code, by the number of columns. The tool prints GPU NUMA ID behind two tabs,
# some 535 drivers NUMA Affinity as well; hand-made tables have one tab everywhere.
_TAIL_POSITIONS: Final = {1: ((0,),), 2: ((0, 1), (0, 2)), 3: ((0, 1, 3), (0, 2, 4), (0, 1, 2))}


def _affinities(row: Row, body: Sequence[Piece], header: Header, layout: Layout, *, complete: bool) -> tuple[dict[str, str | None], str | None]:
    blank: dict[str, str | None] = dict.fromkeys(header.affinities)
    tail = _joined_lists(row.pieces[len(body) :])
    if not tail or not header.affinities:
        return blank, f"{_words(tail)} stands behind the last column" if tail else None
    # Where a code is lost or in excess, the first of these words may be a damaged code as well.
    found = _affinities_of(row, body, tail, header, layout) if complete else None
    if found is None:
        return blank, f"{_words(tail)} cannot be told to be {' or '.join(_AFFINITY_WORDS[key] for key in header.affinities)}"
    return found, None


def _affinities_of(row: Row, body: Sequence[Piece], tail: Sequence[Piece], header: Header, layout: Layout) -> dict[str, str | None] | None:
    if header.unknown_columns:
        return None
    if len(tail) == len(header.affinities):
        return dict(zip(header.affinities, (piece.text for piece in tail), strict=True))
    if tail[0].glued or not (body[-1].code or body[-1].is_self):
        return None  # what was lost there may have been the place of an empty cell
    if "\t" in row.text:
        return _by_positions(_tail_cells(row, body), header) if layout.tab_cells else None
    return _by_agreement(_under_affinity_names(tail, header) if layout.aligned else None, _by_positions(_unexpanded(row, body, tail), header))


def _words(tail: Sequence[Piece]) -> str:
    return shortened(" ".join(repr(piece.text) for piece in tail), 60)


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
    first, *others = row.text[body[-1].end - row.offset :].split("\t")
    return ([first.strip()] if first.strip() else []) + [cell.strip() for cell in others]


def _by_positions(cells: list[str] | None, header: Header) -> dict[str, str | None] | None:
    if cells is None:
        return None
    filled = {k for k, cell in enumerate(cells) if cell}
    possible = [at for at in _TAIL_POSITIONS.get(len(header.affinities), ()) if filled <= set(at)]
    # The last column is the one that is never blank, so the layout that ends where the cells end is the right one.
    found = [
        {key: (cells[k] or None) if k < len(cells) else None for key, k in zip(header.affinities, at, strict=True)}
        for at in [at for at in possible if at[-1] == max(filled)] or possible
    ]
    return found[0] if found and all(one == found[0] for one in found) else None


def _unexpanded(row: Row, body: Sequence[Piece], tail: Sequence[Piece]) -> list[str] | None:
    """Undo a terminal's expansion of tabs: the cells between the last code and the end of the row, None where the words do not stand on tab stops."""
    if any((piece.at - row.label_offset) % _TAB not in ((0, 1) if piece.is_self else (0,)) for piece in row.pieces):
        return None
    cells: list[str] = []
    position = body[-1].end - row.label_offset
    for piece in tail:
        start = piece.at - row.label_offset
        tabs = start // _TAB - position // _TAB
        if tabs < 1:
            return None
        cells += [""] * (tabs - 1) + [piece.text]
        position = start + len(piece.text)
    return cells


def _under_affinity_names(tail: Sequence[Piece], header: Header) -> dict[str, str | None] | None:
    """Assign each word to the column whose name begins exactly above it."""
    by_offset = dict(zip(header.affinity_offsets, header.affinities, strict=True))
    if len({piece.at for piece in tail} & set(by_offset)) != len(tail):
        return None
    found: dict[str, str | None] = dict.fromkeys(header.affinities)
    return found | {by_offset[piece.at]: piece.text for piece in tail}


def _by_agreement(first: dict[str, str | None] | None, second: dict[str, str | None] | None) -> dict[str, str | None] | None:
    if first is None or second is None:
        return first or second
    return first if first == second else None
