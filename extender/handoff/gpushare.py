"""The hand-off to gpushare's stock device plugin: annotations of a pod, numbers of a Node, and the plugin's names for GPUs.

`binding` encodes the decision into the Binding's annotations, beside `native`; `cluster` decodes what bound pods carry, also those that the original
extender placed. The plugin names a GPU by the minor number of /dev/nvidiaN and counts memory in units, all GPUs of a node alike; here units become MiB, and
minor numbers UUIDs. What does not decode raises with a sentence, and closes its node. When a pod may be bound at all, so that the plugin cannot
mistake it for another, is the business of `gpushare_order`.
"""

import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from extender.requests import quantity
from topology.api import annotations as keys
from topology.errors import AllocationError, InputError, TopologyError
from topology.inventory import Gpu

MOST_MINOR: Final = 254  # 255 is /dev/nvidiactl
_MOST_GPUS: Final = 255  # of a node as the plugin counts them; how many can be placed is not its business
MOST_UNITS: Final = 2**31 - 1  # of a node, in MiB that would be 2 PiB
MOST_NS: Final = 2**63 - 1  # the plugin reads the time as a uint64, whoever wrote it as an int64: the year 2262
_MIB_FROM: Final = 1000  # units a GPU above which a unit is a MiB: no GPU has 1,000 GiB, none worth sharing has less than 1,000 MiB
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_ASSIGNED: Final = {"false": False, "true": True}  # the plugin compares exact strings
_ACCEPTED: Final = {
    keys.GPUSHARE_IDX: f"the minor number of a GPU, 0 to {MOST_MINOR}",
    keys.GPUSHARE_POD: "the units of the pod, a whole number from 1",
    keys.GPUSHARE_DEV: "the units of one GPU, a whole number from 1",
    keys.GPUSHARE_ASSIGNED: "false or true",
    keys.GPUSHARE_ASSUME_TIME: "nanoseconds since 1970, a whole number",
}


@dataclass(frozen=True, slots=True)
class Share:
    """A pod's share of one GPU as the plugin's annotations tell it.

    ``index`` is the minor number of /dev/nvidiaN, ``units`` what the pod takes, ``gpu_units`` what the plugin gives every GPU of the node,
    ``assume_time`` Unix nanoseconds; ``assigned`` once the plugin has handed the GPU to a container.
    """

    index: int
    units: int
    gpu_units: int
    assume_time: int
    assigned: bool = False

    @property
    def mib(self) -> int:
        """The share in MiB, by the unit of the node on which it was taken."""
        return self.units * mib_of_unit(self.gpu_units)


def encode(share: Share) -> dict[str, str]:
    """Return the annotations that travel in the Binding."""
    return {
        keys.GPUSHARE_IDX: str(share.index),
        keys.GPUSHARE_POD: str(share.units),
        keys.GPUSHARE_DEV: str(share.gpu_units),
        keys.GPUSHARE_ASSIGNED: "true" if share.assigned else "false",
        keys.GPUSHARE_ASSUME_TIME: str(share.assume_time),
    }


def carries(annotations: Mapping[str, Any]) -> bool:
    """Tell whether a pod carries any annotation of gpushare; then `decode` has to make sense of them."""
    return any(key in annotations for key in keys.GPUSHARE_WRITTEN)


def decode(annotations: Mapping[str, Any]) -> Share:
    """Read the annotations of a pod; raises AllocationError with a sentence that names the first that cannot be read."""
    share = Share(
        index=_number(annotations, keys.GPUSHARE_IDX, 0, MOST_MINOR),
        units=_number(annotations, keys.GPUSHARE_POD, 1, MOST_UNITS),
        gpu_units=_number(annotations, keys.GPUSHARE_DEV, 1, MOST_UNITS),
        assume_time=_number(annotations, keys.GPUSHARE_ASSUME_TIME, 0, MOST_NS),
        assigned=_assigned(annotations),
    )
    if share.units > share.gpu_units:
        raise AllocationError(f"{keys.GPUSHARE_POD}={share.units} is more than one GPU has by {keys.GPUSHARE_DEV}={share.gpu_units}")
    return share


def _number(annotations: Mapping[str, Any], key: str, least: int, most: int) -> int:
    value = annotations.get(key)
    if not isinstance(value, str) or not _NUMBER.fullmatch(value) or not least <= int(value) <= most:
        raise _unreadable(annotations, key)
    return int(value)


def _assigned(annotations: Mapping[str, Any]) -> bool:
    value = annotations.get(keys.GPUSHARE_ASSIGNED)
    if not isinstance(value, str) or value not in _ASSIGNED:
        raise _unreadable(annotations, keys.GPUSHARE_ASSIGNED)
    return _ASSIGNED[value]


def _unreadable(annotations: Mapping[str, Any], key: str) -> AllocationError:
    said = f"{key}={_short(annotations[key])} cannot be read" if key in annotations else f"{key} is missing beside others of gpushare"
    return AllocationError(f"{said}; accepted: {_ACCEPTED[key]}")


# --- units ----------------------------------------------------------------------------------------------------------


def mib_of_unit(gpu_units: int) -> int:
    """Return the MiB of a unit where every GPU has that many: the plugin counts GiB, or MiB by a flag, and tells nobody which.

    >>> mib_of_unit(23), mib_of_unit(23028)
    (1024, 1)
    """
    return 1 if gpu_units > _MIB_FROM else 1024


@dataclass(frozen=True, slots=True)
class PluginGpus:
    """What the plugin tells of a node: ``count`` GPUs, each with ``units`` of memory, whatever their sizes really are."""

    count: int
    units: int

    @property
    def mib_of_unit(self) -> int:
        """MiB of a unit on this node."""
        return mib_of_unit(self.units)

    @property
    def mib(self) -> int:
        """MiB that may be taken of each GPU: kubelet counts no more, even where the GPU has it."""
        return self.units * self.mib_of_unit


def read_plugin(node: Mapping[str, Any]) -> PluginGpus | None:
    """Read a Node; None where gpushare's plugin does not serve it (yet). Raises InputError with a sentence for amounts that cannot be."""
    metadata, status = (_mapping(node.get(key)) for key in ("metadata", "status"))
    allocatable = _mapping(status.get("allocatable"))
    if _mapping(metadata.get("labels")).get(keys.GPUSHARE_LABEL) != "true" or keys.GPUSHARE_MEMORY not in allocatable:
        return None
    count = _amount(allocatable, keys.GPUSHARE_COUNT, _MOST_GPUS)
    units = _amount(allocatable, keys.GPUSHARE_MEMORY, MOST_UNITS)
    if count == 0 and units:
        raise InputError(f"the Node has {units} {keys.GPUSHARE_MEMORY}, but status.allocatable[{keys.GPUSHARE_COUNT}] is 0 or missing")
    return PluginGpus(count, units // count) if count else None


def _amount(allocatable: Mapping[str, Any], name: str, most: int) -> int:
    value = allocatable.get(name, "0")
    amount = quantity(value)  # kubelet shortens counts as well: 320000 is "320k"
    if amount is None or amount > most:
        raise InputError(f"status.allocatable[{name}] of the Node is {_short(value)}; accepted: a whole number from 0 to {most}")
    return amount


# --- the plugin's names for GPUs ------------------------------------------------------------------------------------


def uuids_by_minor(gpus: Iterable[Gpu], count: int, unhealthy: int = 0) -> dict[int, str]:
    """Return the UUID of each minor number, by which alone the plugin knows a GPU; raises TopologyError where the two cannot be matched.

    ``count`` is how many GPUs the plugin sees, and it may miss the ``unhealthy`` ones: should it see others than the topology, no number is to be trusted.
    """
    found: dict[int, str] = {}
    for gpu in gpus:
        if gpu.minor is None or not gpu.uuid:
            raise TopologyError(f"GPU {gpu.uuid or gpu.index} has no minor number in the GPUTopology, and gpushare's plugin knows it by nothing else")
        if gpu.minor in found:
            raise TopologyError(f"GPUs {found[gpu.minor]} and {gpu.uuid} have the same minor number {gpu.minor} in the GPUTopology")
        found[gpu.minor] = gpu.uuid
    if not len(found) - unhealthy <= count <= len(found):
        raise TopologyError(f"the GPUTopology has {len(found)} GPUs, but {keys.GPUSHARE_COUNT} of the Node is {count}")
    return found


def stand_in_uuid(node: str, minor: int) -> str:
    """Name a GPU of a node that publishes no GPUTopology; no driver makes such a UUID.

    >>> stand_in_uuid("node-7", 2)
    'gpushare:node-7:2'
    """
    return f"{_STAND_IN}{node}:{minor}"


def is_stand_in(uuid: str) -> bool:
    """Tell whether a UUID only stands in for one that nobody has told."""
    return uuid.startswith(_STAND_IN)


def minor_of_stand_in(node: str, uuid: str) -> int | None:
    """Return the minor number behind a stand-in of that node, None for anything else."""
    own, _, minor = uuid.rpartition(":")
    return int(minor) if own == f"{_STAND_IN}{node}" and _NUMBER.fullmatch(minor) else None


_STAND_IN: Final = "gpushare:"


# --- the ConfigMap of unhealthy GPUs --------------------------------------------------------------------------------


def node_of_unhealthy(config_map: Mapping[str, Any]) -> str | None:
    """Return the node of whose unhealthy GPUs a ConfigMap tells, None for any other ConfigMap."""
    metadata = _mapping(config_map.get("metadata"))
    name = metadata.get("name")
    if metadata.get("namespace") != keys.GPUSHARE_NAMESPACE or not isinstance(name, str) or not name.startswith(keys.GPUSHARE_UNHEALTHY):
        return None
    return name.removeprefix(keys.GPUSHARE_UNHEALTHY) or None


def read_unhealthy(config_map: Mapping[str, Any]) -> frozenset[int]:
    """Return the minor numbers of the GPUs to skip, as ``gpus: "0,2"`` tells them; raises InputError for anything else, since one GPU of it is bad."""
    data = config_map.get("data")
    found = None if data is None else data.get("gpus") if isinstance(data, Mapping) else data
    if found is None or (isinstance(found, str) and not found.strip()):
        return frozenset()
    numbers = [number.strip() for number in found.split(",")] if isinstance(found, str) else [""]
    if not all(_NUMBER.fullmatch(number) and int(number) <= MOST_MINOR for number in numbers):
        name = _mapping(config_map.get("metadata")).get("name")
        raise InputError(f"ConfigMap {keys.GPUSHARE_NAMESPACE}/{name} has gpus={_short(found)}; accepted: minor numbers of GPUs, for example 0,2")
    return frozenset(map(int, numbers))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _short(value: object) -> str:
    text = value if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
