"""The node names of a call as one array, a cell of one width each: five thousand of them are found, compared and written by numpy, not one by one.

`protocol` reads them from the bytes of a call and writes them into answers, `cluster.name_table` finds their rows. A cell is the name as JSON writes it, quotes
included, and blanks up to the common width, of which there is always one: JSON allows them, so an answer is made of cells without moving a byte. Nobody needs the names as text but explain (`texts`).

`find` reads only what is plain: ASCII names in a compact list, as Go's encoding/json writes every name that Kubernetes allows. It answers None for everything else, right or wrong, and the
caller decodes it properly; so it has to be sure of what it reads, and whoever changes it keeps the property test that compares the two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import orjson
from numpy.typing import NDArray

Cells = NDArray[np.uint64]  # (names, width / 8)

WIDEST: Final = 512  # bytes of a cell; a name in Kubernetes has 253 characters at most
_WORD: Final = 8
_QUOTE: Final = ord('"')
_COMMA: Final = ord(",")
_BLANK: Final = ord(" ")
_COMMAS: Final = int.from_bytes(b"," * _WORD, "little")
BLANKS: Final = int.from_bytes(b" " * _WORD, "little")  # a word of them
_HIGH: Final = int.from_bytes(b"\x80" * _WORD, "little")
_LOW: Final = int.from_bytes(b"\x7f" * _WORD, "little")
_PLACES: Final = int.from_bytes(bytes(range(7, -1, -1)), "little")  # times 256 ** k, its highest byte is k
_PADDING: Final = b" " * (WIDEST + _WORD)


@dataclass(frozen=True, slots=True)
class NodeNames:
    """Names in the order of a call."""

    cells: Cells
    lengths: NDArray[np.int64] | None = None  # of what stands between two commas, (names,); None where every cell is known to be a name

    @staticmethod
    def of(names: Sequence[str]) -> "NodeNames":
        """Take names as text; raises ValueError for one that does not fit into `WIDEST` bytes."""
        encoded = [orjson.dumps(name) for name in names]
        longest = max(map(len, encoded), default=0)
        if longest >= WIDEST:
            raise ValueError(f"a name takes {longest} bytes as JSON; accepted: less than {WIDEST}")
        width = _width(longest)
        text = np.array(encoded, f"S{width}").view(np.uint8).reshape(len(names), width)
        return NodeNames(np.maximum(text, _BLANK).view(np.uint64))  # text, as JSON writes it, has nothing below a blank

    @staticmethod
    def find(listed: bytes) -> "NodeNames | None":
        """Read the inside of a JSON list of names, `"a","b"`; None where it is not as plain as that."""
        if listed[:1] != b'"' or listed[-1:] != b'"':
            return None
        padded = listed + _PADDING[len(listed) % _WORD :]
        words = np.frombuffer(padded, np.uint64, len(listed) // _WORD + 1)
        # What names, quotes and commas are made of has one bit in common; backslashes, upper case and control characters lack it. Above ASCII there is another.
        if int(np.bitwise_and.reduce(words)) & BLANKS != BLANKS or int(np.bitwise_or.reduce(words)) & _HIGH:
            return None
        bounds = np.empty(len(listed) + 2, np.int64)  # before the first name, between two, and after the last: where commas stand or could
        count = _commas(words, bounds[1:]) + 1
        bounds[0], bounds[count] = -1, len(listed)
        starts = bounds[:count] + 1
        lengths = bounds[1 : count + 1] - starts
        longest = int(lengths.max())
        if longest >= WIDEST:
            return None
        cells = _windows(padded, len(listed) + 1, _width(longest))[starts].view(np.uint64).reshape(count, -1)
        cells &= _masks(cells.shape[1]).take(lengths, axis=0)
        cells |= np.uint64(BLANKS)
        return NodeNames(cells, lengths)

    def are_names(self, at: NDArray[np.int64]) -> bool:
        """Tell whether those cells are what `find` took them for: text in quotes. Whoever knows the cell of a name need not ask about cells that equal it."""
        if self.lengths is None:
            return True
        text, lengths = self.cells[at].view(np.uint8), self.lengths[at]
        inside = np.count_nonzero(text == _QUOTE, axis=1) == 2
        return bool(((lengths >= 2) & inside & (text[:, 0] == _QUOTE) & (text[np.arange(len(at)), lengths - 1] == _QUOTE)).all())

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.cells)

    def texts(self, at: NDArray[np.int64] | slice = slice(None)) -> list[str]:
        """Return those of them as text."""
        text = self.cells[at].copy()
        text.view(np.uint8)[:, -1] = _COMMA
        found: list[str] = orjson.loads(b"[%b]" % text.tobytes()[:-1])
        return found


def _commas(words: Cells, places: NDArray[np.int64]) -> int:
    """Write where in those words, all of whose bytes are ASCII, commas stand, and return how many do."""
    is_comma = words ^ np.uint64(_COMMAS)
    is_comma += np.uint64(_LOW)  # sets the highest bit of every byte but 0
    is_comma &= np.uint64(_HIGH)
    at = np.flatnonzero(is_comma != _HIGH)
    found = is_comma[at] ^ np.uint64(_HIGH)
    if (found & (found - np.uint64(1))).any():
        at = np.flatnonzero(words.view(np.uint8) == _COMMA)  # names so short that two commas stand in one word
        places[: len(at)] = at
        return len(at)
    found >>= np.uint64(7)
    found *= np.uint64(_PLACES)
    found >>= np.uint64(56)
    at *= _WORD
    np.add(at, found.view(np.int64), out=places[: len(at)])
    return len(at)


def _width(longest: int) -> int:
    """Return the width of cells, of which the longest takes so many bytes: whole words, and a byte left for what follows the name in an answer."""
    return (longest // _WORD + 1) * _WORD


def _windows(padded: bytes, count: int, width: int) -> NDArray[np.void]:
    """Return what stands from each of the first ``count`` bytes on, shape (count,), without copying it."""
    return np.ndarray((count,), f"V{width}", padded, strides=(1,))


@cache
def _masks(words: int) -> Cells:
    """Return by length, shape (8 x words + 1, words), which bits of a cell are its own."""
    lengths = np.arange(words * _WORD + 1)
    is_own = np.arange(words * _WORD) < lengths[:, None]
    return np.where(is_own, np.uint8(0xFF), np.uint8(0)).view(np.uint64)
