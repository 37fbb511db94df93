"""Text that is the same for thousands of rows but for a cell of each: written by numpy into one buffer, nothing copied twice.

`protocol` writes its answers with it. Everything is padded with blanks to whole words of eight bytes: JSON allows blanks between its tokens, and words are moved many times
faster than bytes. The last byte of the last row is the comma between rows, which is blanked out after the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_WORD: Final = 8
_BLANK: Final = ord(" ")


@dataclass(frozen=True, slots=True)
class NameText:
    """Names as JSON: those ``at`` so many places, (n,), of ``cells``, (any, words), whose last byte is a blank."""

    cells: NDArray[np.uint64]
    at: NDArray[np.int64]

    def __getitem__(self, positions: NDArray[np.int64]) -> "NameText":
        """Return those of them."""
        return NameText(self.cells, self.at.take(positions, mode="clip"))


@dataclass(frozen=True, slots=True)
class Column:
    """One row of text for each name: ``before``, the name with ``end`` as the last byte of its cell, and ``after`` or what ``each`` row has of its own, (n, words).

    ``before`` takes whole words. The row ends with a comma, which the last one loses.
    """

    names: NameText
    end: bytes
    before: bytes = b""
    after: bytes = b""
    each: NDArray[np.uint64] | None = None

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(self.names.at)

    @property
    def words(self) -> int:
        """How many words a row takes."""
        own = 0 if self.each is None else int(self.each.shape[1])
        return len(self.before) // _WORD + int(self.names.cells.shape[1]) + _words(self.after) + own

    def write(self, into: NDArray[np.uint64]) -> None:
        """Write the rows, ``into`` is (rows, words)."""
        first = len(self.before) // _WORD
        last = first + self.names.cells.shape[1]
        if last == into.shape[1]:
            self.names.cells.take(self.names.at, axis=0, out=into, mode="clip")
        else:
            into[:, first:last] = self.names.cells.take(self.names.at, axis=0, mode="clip")
        if first:
            into[:, :first] = np.frombuffer(self.before, np.uint64)
        into.view(np.uint8)[:, last * _WORD - 1] = self.end[0]
        if self.each is not None:
            into[:, last:] = self.each
        elif self.after:
            into[:, last:] = np.frombuffer(self.after[:-1].ljust(_words(self.after) * _WORD - 1) + self.after[-1:], np.uint64)


Text = bytes | Column


def written(parts: Sequence[Text]) -> bytes:
    """Write text and columns one after the other; between two columns a comma stands, after the last of several none."""
    sizes = [_words(part) if isinstance(part, bytes) else part.rows * part.words for part in parts]
    buffer = np.empty(sum(sizes), np.uint64)
    text = buffer.view(np.uint8)
    at = 0
    comma = -1  # where the last column ended
    for part, size in zip(parts, sizes, strict=True):
        if isinstance(part, bytes):
            if comma >= 0:
                text[comma] = _BLANK
                comma = -1
            text[at * _WORD : (at + size) * _WORD] = np.frombuffer(part.ljust(size * _WORD), np.uint8)
        elif part.rows:
            part.write(buffer[at : at + size].reshape(part.rows, part.words))
            comma = (at + size) * _WORD - 1
        at += size
    return text.tobytes()


def blank_padded(cells: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return cells with blanks for the zeros at their ends: text, as JSON writes it, has nothing below a blank."""
    return np.maximum(cells.view(np.uint8), np.uint8(_BLANK)).view(np.uint64)


def _words(text: bytes) -> int:
    return -(-len(text) // _WORD)
