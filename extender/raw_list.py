"""A list of objects as an API server or kubectl writes it, read in slices: its bytes go in, a few objects at a time come out.

`kube.watch` hands the bytes of a list over as they come (`ListReader`), so that no list is ever in memory as a whole and calls are answered between two slices; `snapshot_file` has a whole
file (`read_list`), and its objects are never in memory all at once. Slices are quicker than the whole as well: what was read is still in the processor's cache when it is looked at.

Where one object ends and the next begins is guessed from how the first one begins, and then proved: a slice counts only if it is JSON by itself, and text between two places of an array that
is whole values can only have been cut at whole values. A wrong guess costs time, never an object. Whatever does not end as such lists do, or cannot be sliced, is read as a whole.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

JsonObject = dict[str, Any]

SLICE: Final = 32 * 1024  # bytes that are read together: a tenth of a millisecond, and well inside a processor's cache
_ITEMS: Final = re.compile(rb'"items"\s*:\s*\[')
_FIRST: Final = re.compile(rb'(\s*)(\{\s*"(?:[^"\\]|\\.)*"\s*:)')  # the blanks before an object, and how it begins
# The end of the items and what may stand behind them: nothing where the API server has a type for the list, kind and metadata where it has none, or where kubectl prints it.
_END: Final = re.compile(rb'\}\s*(\](?:\s*,\s*"\w+"\s*:\s*(?:"[^"\\]*"|\{(?:[^{}\[\]"\\]|"[^"\\]*")*\}))*\s*\}\s*)\Z')
_LONGEST_END: Final = 4096


@dataclass(frozen=True, slots=True)
class RawList:
    """A list: ``head`` is all of it but its ``items``, which `slices` yields."""

    head: JsonObject
    _data: bytes
    _start: int = 0  # of the text between the brackets of the items
    _end: int = 0
    _between: bytes = b""  # what stands between two items, empty where they were read already
    _read: tuple[Any, ...] = ()

    @property
    def is_sliced(self) -> bool:
        """True where the items are read as they are asked for, False where all were read to know what this is."""
        return bool(self._between)

    def slices(self) -> Iterator[list[Any]]:
        """Yield the items in their order, a few at a time; raises ValueError where the text is no JSON."""
        if not self._between:
            yield list(self._read)
            return
        at, wanted, yielded = self._start, SLICE, 0
        while at < self._end:
            cut = self._data.find(self._between, at + wanted, self._end)
            found = _values(self._data[at : self._end if cut < 0 else cut + 1])
            if found is not None:
                yield found
                yielded += len(found)
                at, wanted = self._end if cut < 0 else cut + 2, SLICE
            elif cut < 0:
                yield self._rest(yielded)
                return
            else:
                wanted = 2 * (cut - at)  # it was cut inside an object

    def _rest(self, yielded: int) -> list[Any]:
        """Return the items that were not yielded yet by reading the whole: what cannot be sliced may be JSON all the same, with two `items` for example."""
        whole = orjson.loads(self._data)
        items: list[Any] = whole.pop("items") or []
        if whole != self.head:
            raise ValueError("a list has arrays behind its items, where no API server has any")
        return items[yielded:]


def _values(text: bytes) -> list[Any] | None:
    try:
        found: list[Any] = orjson.loads(b"[%b]" % text)
    except orjson.JSONDecodeError:
        return None
    return found


def read_list(data: bytes) -> RawList | None:
    """Return the list that some bytes are, None for any other JSON; raises ValueError where they are none.

    >>> page = read_list(b'{"kind": "PodList", "metadata": {"continue": "x"}, "items": [{"a": 1}, {"a": 2}]}')
    >>> page.head, list(page.slices())
    ({'kind': 'PodList', 'metadata': {'continue': 'x'}}, [[{'a': 1}, {'a': 2}]])
    """
    sliced = _sliced(data)
    if sliced is not None:
        return sliced
    whole = orjson.loads(data)
    if not isinstance(whole, dict) or not isinstance(whole.get("items", 0), list | None):
        return None
    return RawList(whole, b"", _read=tuple(whole.pop("items") or ()))  # Go prints an empty list as null


def _sliced(data: bytes) -> RawList | None:
    """Return the list with its items unread, None where it must be read as a whole to know what it is."""
    opening, ending = _ITEMS.search(data), _END.search(data, max(0, len(data) - _LONGEST_END))
    first = None if opening is None else _FIRST.match(data, opening.end())
    if opening is None or ending is None or first is None or ending.start(1) < first.end():
        return None
    end = ending.start(1)
    try:
        head = orjson.loads(data[: opening.end()] + data[end:])
    except orjson.JSONDecodeError:
        return None
    # Anywhere deeper, or twice: then these brackets are not those of the list.
    if not isinstance(head, dict) or head.pop("items", None) != []:
        return None
    blanks, begins = first.groups()
    between = next((text for text in (b"}," + blanks + begins, b"}, " + begins) if data.find(text, opening.end(), end) >= 0), b"}," + begins)
    return RawList(head, data, opening.end(), end, between)


@dataclass(slots=True)
class ListReader:
    """A list that comes in pieces, as API servers write them: `take` each piece, then `end`. What the pieces hold of the list before its end is not kept."""

    _text: bytearray = field(default_factory=bytearray)  # what has come and is not read yet
    _before: bytes = b""  # what stands before the items, once they have begun
    _between: bytes = b""
    _wanted: int = field(default_factory=lambda: SLICE)
    _is_whole: bool = False  # it cannot be told where its items begin: it is read at its end

    def take(self, piece: bytes) -> Iterator[list[Any]]:
        """Yield the items that are there as a whole by now, a few at a time; go through all of them before the next piece."""
        self._text += piece
        if not self._between and not self._begin():
            return
        at = 0
        while (cut := self._text.find(self._between, at + self._wanted)) >= 0:
            found = _values(bytes(self._text[at : cut + 1]))
            if found is None:
                self._wanted = 2 * (cut - at)  # it was cut inside an object
            else:
                yield found
                at, self._wanted = cut + 2, SLICE
        del self._text[:at]

    def end(self) -> tuple[JsonObject, list[Any]]:
        """Return all of the list but its items, and the items that have not been yielded; raises ValueError where it is no list, or breaks off."""
        data = bytes(self._text)
        if not self._between:
            found = read_list(data)
            if found is None:
                raise ValueError("what was read is no list of objects")
            return found.head, [item for some in found.slices() for item in some]
        ending = _END.search(data, max(0, len(data) - _LONGEST_END))
        items = None if ending is None else _values(data[: ending.start(1)])
        if ending is None or items is None:
            raise ValueError("the list breaks off, or has arrays behind its items, where no API server has any")
        head: JsonObject = orjson.loads(self._before + data[ending.start(1) :])
        del head["items"]
        return head, items

    def _begin(self) -> bool:
        """Find where the items begin, and what stands between two of them; tells whether both are known."""
        opening = None if self._is_whole or len(self._text) < SLICE else _ITEMS.search(self._text)
        first = None if opening is None else _FIRST.match(self._text, opening.end())
        if opening is None or first is None:
            return False
        before = bytes(self._text[: opening.end()])
        if _values(before + b"]}") is None:
            self._is_whole = True  # these are the items of something deeper
            return False
        blanks, begins = first.groups()
        likely = (b"}," + blanks + begins, b"}, " + begins)
        self._before, self._between = before, next((text for text in likely if text in self._text), likely[0])
        del self._text[: opening.end()]
        return True
