"""The names of a call with whole Node objects, read by a typed decoder that makes no objects of anything else.

Used by `bench.echo` and `bench.nodes_form`. msgspec skips what its types do not name without building it; where it is not installed, pydantic's JSON reader, which parses everything in Rust and builds
Python objects of the names alone, stands in for it: the slower of the two, so the figure says which one was measured.
"""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict


@dataclass(frozen=True, slots=True)
class TypedDecoder:
    """A decoder under its name for tables."""

    title: str
    names: Callable[[bytes], list[str]]


def typed_decoder() -> TypedDecoder:
    """Return msgspec's decoder, or pydantic's where msgspec is not installed."""
    return _of_msgspec() if importlib.util.find_spec("msgspec") else _of_pydantic()


def _of_msgspec() -> TypedDecoder:
    msgspec: Any = importlib.import_module("msgspec")
    metadata = msgspec.defstruct("Metadata", [("name", str)])
    node: Any = msgspec.defstruct("Node", [("metadata", metadata)])
    node_list = msgspec.defstruct("NodeList", [("items", list[node])])
    decoder = msgspec.json.Decoder(msgspec.defstruct("Call", [("Nodes", node_list)]))
    return TypedDecoder("msgspec", lambda body: [item.metadata.name for item in decoder.decode(body).Nodes.items])


class _Metadata(TypedDict):
    name: str


class _Node(TypedDict):
    metadata: _Metadata


class _NodeList(TypedDict):
    items: list[_Node]


class _Call(TypedDict):
    Nodes: _NodeList


def _of_pydantic() -> TypedDecoder:
    from pydantic import TypeAdapter

    adapter = TypeAdapter(_Call)
    return TypedDecoder("pydantic", lambda body: [item["metadata"]["name"] for item in adapter.validate_json(body)["Nodes"]["items"]])
