r"""The names in a list of whole Node objects, without decoding what is known already: the `Nodes` form of filter and prioritize.

`protocol` asks `NodeObjects.read` about the bytes of a call and answers from slices of them. Reading 5,000 Nodes of 7 kB into Python objects takes half a second, for 5,000 names; and
kube-scheduler sends the same Nodes again and again, in another order and few of them changed. So each Node's bytes are remembered with its name. A call is read from item to item: what
begins at this place is compared with what began like that before, and equal bytes have the same name and end at the same place; no more than comparing memory. Bytes that are new
are decoded, alone.

Where a new item ends is a guess, and needs no more than that, because every piece that is taken is one whole JSON value to orjson itself: JSON that falls into whole values with commas between
is that list of values and no other. The same for what surrounds the list: it is decoded with a marker in the place of the items, and the marker must turn up as the one item of `Nodes`.
Thus a name is never wrong, however odd the input: nested "name" keys, repeated keys, escapes, any order. Where this reader is not sure (another layout than Go's, a damaged body) it returns None, and
the caller decodes the whole body, with every error told as before.
"""

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

_LIST: Final = re.compile(rb'"[Nn]odes"[ \t\r\n]*:[ \t\r\n]*\{')
_ITEMS: Final = re.compile(rb'"[Ii]tems"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*')
_AFTER_ITEM: Final = re.compile(rb"[ \t\r\n]*([,\]])[ \t\r\n]*")
_FIRST_KEY: Final = re.compile(rb'\{[ \t\r\n]*"[A-Za-z]+"')
_MARKER: Final = secrets.token_hex()  # nobody can have written it into a call
_MARKED: Final = orjson.dumps([_MARKER])
_BEGINNING: Final = 96  # bytes that tell Nodes apart: in Go's JSON the name and the UID, and not yet the resource version
_GUESSES: Final = 8  # at the end of a new item
MOST_BYTES: Final = 256 * 1024 * 1024  # of remembered Nodes: 35,000 of 7 kB


@dataclass(frozen=True, slots=True)
class NodesBody:
    """A call in the `Nodes` form; ``fields`` is the decoded body without the items, as if that list were empty.

    ``names`` and ``spans`` have an entry an item, in order: item i is ``body[spans[i][0]:spans[i][1]]``, its bytes as they were sent.
    """

    fields: dict[str, Any]
    names: list[str]
    spans: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Known:
    text: bytes
    name: str


class NodeObjects:
    """What is remembered from call to call; ``most_bytes`` bounds it, the oldest go first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._known: dict[bytes, _Known] = {}  # by the bytes that the Node begins with
        self.bytes = 0

    def read(self, body: bytes) -> NodesBody | None:
        """Return names and places of the Nodes in a filter or prioritize call, None where only decoding the whole body can tell."""
        found = _LIST.search(body)
        opening = found and _ITEMS.search(body, found.end())
        if not opening:
            return None
        names: list[str] = []
        spans: list[tuple[int, int]] = []
        end = self._read_items(body, opening.end(), names, spans)
        if end is None:
            return None
        fields = _surroundings(body[: opening.start()], body[opening.start() : opening.end()], body[end:])
        return None if fields is None else NodesBody(fields, names, spans)

    def _read_items(self, body: bytes, at: int, names: list[str], spans: list[tuple[int, int]]) -> int | None:
        """Read items from the first one on; returns where the list has ended, behind its bracket, None where not sure."""
        if body[at : at + 1] == b"]":
            return at + 1
        known = self._known
        while True:
            item = known.get(body[at : at + _BEGINNING])
            if item is None or not body.startswith(item.text, at):
                item = self._learn(body, at)
                if item is None:
                    return None
            end = at + len(item.text)
            names.append(item.name)
            spans.append((at, end))
            if body.startswith(b",{", end):  # as Go writes it
                at = end + 1
                continue
            after = _AFTER_ITEM.match(body, end)
            if after is None:
                return None
            if after[1] == b"]":
                return after.end()
            at = after.end()

    def _learn(self, body: bytes, at: int) -> _Known | None:
        """Decode the item that begins there and remember it; None where no guess at its end makes it a Node."""
        for end in _ends(body, at):
            text = body[at:end]
            try:
                node = orjson.loads(text)
            except orjson.JSONDecodeError:
                continue
            metadata = node.get("metadata") if isinstance(node, dict) else None
            name = metadata.get("name") if isinstance(metadata, dict) else None
            if not isinstance(name, str):
                return None
            item = _Known(text, name)
            self._remember(body[at : at + _BEGINNING], item)
            return item
        return None

    def _remember(self, beginning: bytes, item: _Known) -> None:
        before = self._known.pop(beginning, None)
        self.bytes += len(item.text) - (len(before.text) if before else 0)
        self._known[beginning] = item
        while self.bytes > self._most:
            oldest = next(iter(self._known))
            self.bytes -= len(self._known.pop(oldest).text)


def _ends(body: bytes, at: int) -> Iterator[int]:
    """Yield places where an item may end: before one that begins with the same key, then before the end of a list that ends an object."""
    key = _FIRST_KEY.match(body, at)
    if key is None:
        return
    for separator, behind in ((b"}," + key[0], 1), (b"}]}", 1)):
        found = at
        for _ in range(_GUESSES):
            found = body.find(separator, found + 1)
            if found < 0:
                break
            yield found + behind


def _surroundings(before: bytes, opening: bytes, after: bytes) -> dict[str, Any] | None:
    """Decode what is around the items; None where it is no JSON object, or the list that was read is not `Nodes.items`."""
    try:
        fields = orjson.loads(before + opening[: opening.index(b"[")] + _MARKED + after)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, dict):
        return None
    lists = [value for key, value in fields.items() if key.lower() == "nodes"]
    nodes = lists[0] if len(lists) == 1 and isinstance(lists[0], dict) else {}
    keys = [key for key in nodes if key.lower() == "items"]
    if len(keys) != 1 or nodes[keys[0]] != [_MARKER]:
        return None
    nodes[keys[0]] = []
    return fields
