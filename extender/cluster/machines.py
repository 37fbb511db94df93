"""GPUTopologies of many equal machines, read once a kind: a cluster of thousands of nodes has a handful.

Called by `state` for every GPUTopology that a list or a watch shows. What of an object is the same on all nodes of a kind (everything in its spec but UUIDs and bus ids) is its key here: for a
known one only what is the node's own is checked, by the same rules (`topology.api`), and the rest is shared. Anything that is not as agents write it is read as a whole, which tells what is wrong.

A `NodeTopology` is what the state keeps of a node: UUIDs, health, holders, and the status as it came, as bytes, for people.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import orjson
from cachetools import LRUCache
from pydantic import ValidationError

from extender.cluster.columns import NodeGpus
from topology.api import ANOTHER_PLUGIN, HAND_OFF_REGISTERED, GpuStatus, GPUTopology, GPUTopologySpec, GPUTopologyStatus, ObjectMeta, read_gputopology
from topology.capacity import WHOLE
from topology.collective import Depth
from topology.inventory import Gpu
from topology.topology_class import TopologyClass, topology_class

PodName = tuple[str, str]  # namespace and name
_KINDS_KEPT: Final = 1024  # of machines; 10 kB each
_FIELDS: Final = frozenset(("apiVersion", "kind", "metadata", "spec", "status"))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
HolderKey = tuple[str, str, str]  # namespace, name, and UID: empty where the agent does not tell it


@dataclass(frozen=True, slots=True)
class Held:
    """What a pod holds as its node's agent observed it. ``parts``: container, UUID, and MiB or `WHOLE`, where any is held in part; else empty."""

    uuids: frozenset[str]
    parts: tuple[tuple[str, str, int], ...] = ()


_NOBODY: Final[Mapping[HolderKey, Held]] = MappingProxyType({})


class Machine:
    """What nodes with equal hardware share; ``spec`` is that of the first one seen, with its UUIDs. Raises TopologyError where a spec cannot describe a node."""

    def __init__(self, key: bytes, topology: GPUTopology) -> None:
        self.key = key
        self.spec: Final[GPUTopologySpec] = topology.spec
        self.matrix = topology.matrix()
        self.inventory = topology.inventory()
        self.size = len(topology.spec.gpus)
        self.bus_ids = tuple(gpu.bus_id for gpu in topology.spec.gpus)
        self._class: TopologyClass | None = None
        self._gpus: dict[int, NodeGpus] = {}

    def gpus(self, reserve_mib: int) -> NodeGpus:
        """Return size and number of the GPUs, with the UUIDs of the first node seen."""
        if reserve_mib not in self._gpus:
            self._gpus[reserve_mib] = NodeGpus.of(self.inventory, reserve_mib)
        return self._gpus[reserve_mib]

    @cached_property
    def sliced(self) -> int:
        """Bits of the GPUs that are cut into MIG instances: none of them is anybody's whole GPU."""
        return sum(1 << bit for bit, gpu in enumerate(self.spec.gpus) if (gpu.mig_mode or "").lower() == "enabled")

    def topology_class(self, depth: Depth) -> TopologyClass:
        """Return the class, worked out to that depth or further."""
        known = self._class
        if known is None or known.next_depth is not None:  # else nobody can tell more of it
            known = self._class = topology_class(self.matrix, self.inventory, depth)
        return known

    def forget_class(self, but: AbstractSet[str]) -> None:
        """Let go of the class, unless its key is one of those."""
        if self._class is not None and self._class.key not in but:
            self._class = None


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """One node's GPUTopology: ``uuids`` by bit, ``unhealthy`` some of them, ``holders`` what its agent observed of each pod.

    ``owner``: UID of the Node that it belongs to, empty where it names none. ``registered``: False where its agent is to hand the GPUs over and kubelet does not know it.
    ``rejecting``: why kubelet rejects every pod with GPUs then, empty where it does not: by the plugin that is in the agent's way they get some.
    """

    name: str
    machine: Machine
    uuids: tuple[str, ...]
    bus_ids: tuple[str | None, ...]
    observed_at: datetime | None
    holders_observed: bool
    unhealthy: tuple[str, ...]
    holders: Mapping[HolderKey, Held]
    status: bytes
    owner: str = ""
    registered: bool = True
    rejecting: str = ""

    @staticmethod
    def of(topology: GPUTopology, key: bytes = b"", owner: str = "") -> "NodeTopology":
        """Return what matters of an object that was read as a whole."""
        machine = Machine(key, topology)
        own = _OwnParts(topology.name, key, tuple(gpu.uuid for gpu in topology.spec.gpus), machine.bus_ids, owner)
        return _with_status(own, machine, topology.status, topology.status.model_dump_json(by_alias=True, exclude_none=True).encode())

    def is_same_for_placement(self, other: "NodeTopology") -> bool:
        """Tell whether two differ in nothing that decides where pods fit: a heartbeat, or memory in use."""
        return (
            self._is_same_hardware(other)
            and (self.observed_at is None) == (other.observed_at is None)  # the first observation opens the node
            and self.holders_observed == other.holders_observed
            and self.rejecting == other.rejecting
            and self.unhealthy == other.unhealthy
            and self.holders == other.holders
        )

    def _is_same_hardware(self, other: "NodeTopology") -> bool:
        mine, theirs = self.machine, other.machine
        same = mine is theirs or (mine.key == theirs.key if mine.key else mine.spec == theirs.spec)
        return same and self.uuids == other.uuids and self.bus_ids == other.bus_ids

    def gpus(self, reserve_mib: int) -> NodeGpus:
        """Return identity and size of the GPUs; ``reserve_mib`` of each is not given away in shares."""
        return replace(self.machine.gpus(reserve_mib), uuids=self.uuids, bit_of={uuid: bit for bit, uuid in enumerate(self.uuids)})

    def named_gpus(self) -> Iterable[Gpu]:
        """Yield the GPUs of the node as its inventory tells them; of the node's own are UUID, minor number and what all of the kind have."""
        return (
            Gpu(index=gpu.index, uuid=uuid, minor=gpu.minor, memory_mib=gpu.memory_mib)
            for gpu, uuid in zip(self.machine.spec.gpus, self.uuids, strict=True)
        )

    def whole(self) -> GPUTopology:
        """Return the object for people, without the metadata that nobody here reads."""
        spec = self.machine.spec
        own = zip(spec.gpus, self.uuids, self.bus_ids, strict=True)
        gpus = tuple(gpu.model_copy(update={"uuid": uuid, "bus_id": bus_id}) for gpu, uuid, bus_id in own)
        status = GPUTopologyStatus.model_validate_json(self.status)
        return GPUTopology(metadata=ObjectMeta(name=self.name), spec=spec.model_copy(update={"gpus": gpus}), status=status)


class Machines:
    """The kinds of machines that were seen; reads GPUTopologies by them."""

    def __init__(self) -> None:
        self._known: LRUCache[bytes, Machine] = LRUCache(_KINDS_KEPT)

    def read(self, raw: Mapping[str, Any]) -> NodeTopology:
        """Read a raw GPUTopology; raises TopologyError with a sentence for anything that cannot describe a node."""
        own = _own_parts(raw)
        if own is not None:
            machine = self._known.get(own.key)
            if machine is not None:
                status = _read_status(raw)
                if status is not None:
                    return _with_status(own, machine, *status)
        found = NodeTopology.of(read_gputopology(raw), b"" if own is None else own.key, _owner(raw))
        if own is not None:
            self._known[own.key] = found.machine
        return found

    def forget_classes(self, but: AbstractSet[str]) -> None:
        """Let go of the tables of kinds of which no node is left, all but those keys; a node that comes makes them anew."""
        for machine in self._known.values():
            machine.forget_class(but)


@dataclass(frozen=True, slots=True)
class _OwnParts:
    name: str
    key: bytes  # all the rest of the spec
    uuids: tuple[str, ...]
    bus_ids: tuple[str | None, ...]
    owner: str


def _own_parts(raw: Mapping[str, Any]) -> _OwnParts | None:
    """Return what of a GPUTopology is the node's own, None where it is not as agents write it: then nothing is taken for known."""
    try:
        name, spec = raw["metadata"]["name"], raw["spec"]
        gpus = spec["gpus"]
        uuids = tuple([gpu["uuid"] for gpu in gpus])
        bus_ids = tuple([gpu.get("busID") for gpu in gpus])
        shared = [{**gpu, "uuid": "", "busID": ""} for gpu in gpus]
        key = orjson.dumps([raw["apiVersion"], raw["kind"], {**spec, "gpus": shared}])
    except (KeyError, TypeError, AttributeError):
        return None
    is_plain = raw.keys() <= _FIELDS and all(type(text) is str and text for text in (name, *uuids)) and len(set(uuids)) == len(uuids)
    is_plain = is_plain and all(bus is None or type(bus) is str for bus in bus_ids)
    return _OwnParts(name, key, uuids, bus_ids, _owner(raw)) if is_plain else None


def _read_status(raw: Mapping[str, Any]) -> tuple[GPUTopologyStatus, bytes] | None:
    """Return the status and the bytes of it, None where it cannot be read."""
    found = raw.get("status", {})
    try:
        return GPUTopologyStatus.model_validate(found), bytes(
            memoryview(orjson.dumps(found))
        )  # orjson's own bytes keep all that it had set aside, 4 kB
    except (ValidationError, TypeError):
        return None


def _with_status(own: _OwnParts, machine: Machine, status: GPUTopologyStatus, text: bytes) -> NodeTopology:
    unregistered = [condition for condition in status.conditions if condition.type == HAND_OFF_REGISTERED and condition.status != "True"]
    return NodeTopology(
        own.name,
        machine,
        own.uuids,
        machine.bus_ids if own.bus_ids == machine.bus_ids else own.bus_ids,
        status.observed_at,
        status.holders_observed,
        tuple([gpu.uuid for gpu in status.gpus if not gpu.healthy]),
        _holders(status.gpus),
        text,
        own.owner,
        registered=not unregistered,
        rejecting="; ".join(condition.message or "not told why" for condition in unregistered if condition.reason != ANOTHER_PLUGIN),
    )


def _owner(raw: Mapping[str, Any]) -> str:
    """Return the UID of the Node that owns a GPUTopology, empty where it names none."""
    metadata = raw.get("metadata")
    owners = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, Mapping) and owner.get("kind") == "Node" and isinstance(owner.get("uid"), str):
            return str(owner["uid"])
    return ""


def microseconds(time: datetime) -> int:
    """Return a time as whole microseconds since 1970; one without a zone is UTC."""
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def _holders(gpus: Iterable[GpuStatus]) -> Mapping[HolderKey, Held]:
    found: dict[HolderKey, list[tuple[str, str, int]]] = {}
    for gpu in gpus:
        for one in gpu.holders:
            found.setdefault((one.namespace, one.name, one.uid or ""), []).append((one.container or "", gpu.uuid, one.memory_mib or WHOLE))
    return {key: _held(parts) for key, parts in found.items()} if found else _NOBODY


def _held(parts: list[tuple[str, str, int]]) -> Held:
    return Held(frozenset([uuid for _, uuid, _ in parts]), tuple(sorted(parts)) if any(mib != WHOLE for _, _, mib in parts) else ())
