"""The node names of a call as one array, a cell of one width each: five thousand of them are found and compared by numpy, not one by one.

`protocol` reads them from the bytes of a call, `cluster.name_table` finds their rows. A cell is the name as JSON writes it, quotes included, and zeros up to the common width, of
which there is always one.

`find` looks for commas and nothing else. What stands between two of them is a name for whoever knows its cell already, as `name_table` does; of any other cell `are_names`
tells whether it is one, and where not, the call has to be decoded as any JSON. So nothing is looked at twice, and nothing is taken for a name that a decoder would not
take for the same one; whoever changes this keeps the property test that compares the two.
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
_COMMA: Final = ord(",")
_COMMAS: Final = int.from_bytes(b"," * _WORD, "little")
_HIGH: Final = int.from_bytes(b"\x80" * _WORD, "little")
_LOW: Final = int.from_bytes(b"\x7f" * _WORD, "little")
_PLACES: Final = int.from_bytes(bytes(range(7, -1, -1)), "little")  # times 256 ** k, its highest byte is k
_PADDING: Final = bytes(WIDEST + _WORD)
_FEW: Final = 256  # names that are looked at one by one


@dataclass(frozen=True, slots=True)
class NodeNames:
    """Names in the order of a call."""

    cells: Cells
    lengths: NDArray[np.int64]  # of each in bytes, quotes included
    are_sure: bool = True  # where not, each is only what stands between two commas

    @staticmethod
    def of(names: Sequence[str]) -> "NodeNames":
        """Take names as text; raises ValueError for one that does not fit into `WIDEST` bytes."""
        encoded = [orjson.dumps(name) for name in names]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        longest = int(lengths.max(initial=0))
        if longest >= WIDEST:
            raise ValueError(f"a name takes {longest} bytes as JSON; accepted: less than {WIDEST}")
        width = _width(longest)
        return NodeNames(np.array(encoded, f"S{width}").view(np.uint64).reshape(len(names), width // _WORD), lengths)

    @staticmethod
    def find(listed: memoryview) -> "NodeNames | None":
        """Cut the inside of a JSON list, `"a","b"`, at its commas; None where names of that kind cannot stand in it."""
        size = len(listed)
        padded = b"".join((listed, _PADDING[size % _WORD :]))
        words = np.frombuffer(padded, np.uint64, size // _WORD + 1)
        if not size or int(np.bitwise_or.reduce(words)) & _HIGH:
            return None
        bounds = np.empty(size + 2, np.int64)  # before the first name, between two, and after the last: where commas stand or could
        count = _commas(words, bounds[1:]) + 1
        bounds[0], bounds[count] = -1, size
        starts = bounds[:count] + 1
        lengths = bounds[1 : count + 1] - starts
        longest = int(lengths.max())
        if longest >= WIDEST:
            return None
        cells = _windows(padded, size + 1, _width(longest))[starts].view(np.uint64).reshape(count, -1)
        cells &= _masks(cells.shape[1]).take(lengths, axis=0, mode="clip")
        return NodeNames(cells, lengths, are_sure=False)

    def are_names(self, at: NDArray[np.int64]) -> bool:
        """Tell whether the cells at those positions are names, each written as JSON writes it; False as well where there are too many to look at one by one."""
        return self.are_sure or (len(at) <= _FEW and all(_is_name(text) for text in self._encoded(at)))

    def texts(self, at: NDArray[np.int64]) -> list[str]:
        """Return the names at those positions as text."""
        return [orjson.loads(text) for text in self._encoded(at)]

    def _encoded(self, at: NDArray[np.int64]) -> list[bytes]:
        return [self.cells[position].tobytes()[: self.lengths[position]] for position in at.tolist()]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.cells)


def _is_name(text: bytes) -> bool:
    try:
        name = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(name, str) and orjson.dumps(name) == text


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
