"""The words of a matrix row: link codes, the X, affinities, and what a terminal wrap glued together.

The smallest step of reading a matrix; `matrix_text` uses it to tell rows from headers, `cells` to place the cells. Cells that lost the blank between
them (`NODENODE`, `SYS0-23`) are split where there is one way to do so, else left as one word that is no code: a guess could shift a row.
"""

import re
from dataclasses import dataclass
from typing import Final

from topology.links import LinkCode

_CODES: Final = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
_AFFINITY: Final = re.compile(r"\d[\d,\-]*|N/A")
# `PHB` and `0-115`, of which a terminal wrap left `PH0-115`: the code is lost, the affinity behind it is whole. Not after NV, where digits go on.
_CUT_CODE_AND_AFFINITY: Final = re.compile(r"(?P<code>P|PI|PX|PH|N|NO|NOD|S|SY|SO)(?P<affinity>\d[\d,\-]*|N/A)")
_GLUE_LIMIT: Final = 400  # characters; a longer word is no row of cells


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
