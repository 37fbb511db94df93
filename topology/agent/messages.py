"""Protobuf messages of kubelet's sockets, declared as tables and built when a module is loaded: no generated code, no compiler.

Used by `pod_resources` and `handoff.wire`, which hold the tables and their sources. A pool of its own for each, since others in the process may know the
same names. Fields that a table leaves out are skipped in what is read, as protobuf does.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto

Fields = tuple[tuple[str, int, str], ...]  # (field, number, type), see `message_classes`

_SCALARS: Final = {
    "": _Field.TYPE_STRING,
    "string": _Field.TYPE_STRING,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "bool": _Field.TYPE_BOOL,
}
_REPEATED: Final = "repeated "
_ONE: Final = "one "
_TEXT_MAP: Final = "map of strings"


def message_classes(package: str, messages: Mapping[str, Fields]) -> dict[str, Any]:
    """Return the class of each message of a package.

    A type is a scalar ("" is a string), ``repeated string``, ``map of strings`` (to strings), the name of a message for a list of them, or ``one NAME``.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"linkwise/{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            _declare(message, package, (field, number, kind))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _declare(message: descriptor_pb2.DescriptorProto, package: str, field: tuple[str, int, str]) -> None:
    name, number, kind = field
    if kind == _TEXT_MAP:
        entry = f"{''.join(part.capitalize() for part in name.split('_'))}Entry"  # the name that protobuf demands
        nested = message.nested_type.add(name=entry, options=descriptor_pb2.MessageOptions(map_entry=True))
        for key, at in (("key", 1), ("value", 2)):
            nested.field.add(name=key, number=at, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
        message.field.add(
            name=name, number=number, label=_Field.LABEL_REPEATED, type=_Field.TYPE_MESSAGE, type_name=f".{package}.{message.name}.{entry}"
        )
        return
    scalar = _SCALARS.get(kind.removeprefix(_REPEATED))
    is_list = kind.startswith(_REPEATED) or (scalar is None and not kind.startswith(_ONE))
    message.field.add(
        name=name,
        number=number,
        label=_Field.LABEL_REPEATED if is_list else _Field.LABEL_OPTIONAL,
        type=_Field.TYPE_MESSAGE if scalar is None else scalar,
        type_name=None if scalar is not None else f".{package}.{kind.removeprefix(_ONE)}",
    )


def serialized(message: Any) -> bytes:
    """Return a message as it goes over the wire."""
    return bytes(message.SerializeToString())
