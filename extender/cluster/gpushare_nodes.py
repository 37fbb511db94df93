"""Nodes that gpushare's device plugin serves: what Nodes, GPUTopologies and ConfigMaps tell of them together.

Called by `state` with raw objects in any order; each call returns the nodes to look at again. A node that publishes no GPUTopology gets a stand-in: as many GPUs as
the plugin counts, all of one size, named `gpushare:NODE:MINOR`, with no links known (SYS). One that publishes its own keeps it, and minor numbers become its
UUIDs. Whatever does not fit together is a sentence that closes the node. What a pod's number means is one unit for the whole cluster, that of most nodes: a
node that counts in another one is closed too.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from extender.cluster.charges import Charges
from extender.cluster.columns import NodeGpus
from extender.cluster.machines import NodeTopology
from extender.handoff import gpushare
from extender.handoff.gpushare import PluginGpus
from topology.api import GpuSpec, GPUTopology, GPUTopologySpec, LinkRows, ObjectMeta, SourceSpec
from topology.api import annotations as keys
from topology.capacity import MOST_GPUS
from topology.errors import InputError

_NO_GPUS: Final = PluginGpus(0, 0)
_UNIT_NAMES: Final = {1: "MiB", 1024: "GiB"}


@dataclass(frozen=True, slots=True)
class Served:
    """How the plugin serves one node; ``problem`` is why it cannot be used, and then the rest may be empty."""

    gpus: PluginGpus = _NO_GPUS
    uuid_of: Mapping[int, str] = field(default_factory=dict)  # by minor number
    unhealthy: frozenset[str] = frozenset()  # UUIDs that the ConfigMap takes out
    problem: str = ""

    def minor_of(self, uuid: str) -> int:
        """Return the minor number of a GPU of the node."""
        return next(minor for minor, known in self.uuid_of.items() if known == uuid)

    def limit(self, gpus: NodeGpus, reserve_mib: int) -> NodeGpus:
        """Return the GPUs of the node with what the plugin can hand out of each: never more than kubelet counts, nor than the GPU has."""
        if not self.gpus.count or self.problem:
            return gpus
        sizes = (self.gpus.mib if size is None else size - reserve_mib for size in gpus.memory_mib)
        return replace(gpus, offered_mib=tuple(max(0, min(self.gpus.mib, size)) for size in sizes), plugin_gpus=self.gpus.count)


_NOT_SERVED: Final = Served()


class PluginNodes:
    """All nodes of the plugin, by name."""

    def __init__(self) -> None:
        self._plugins: dict[str, PluginGpus] = {}
        self._unreadable: dict[str, str] = {}  # Nodes whose amounts cannot be read -> sentence
        self._unhealthy: dict[str, frozenset[int] | str] = {}  # by node; a string is a sentence about a ConfigMap that cannot be read
        self._served: dict[str, Served] = {}
        self._minors: dict[str, dict[str, int]] = {}  # node -> UUID -> its minor number when it was last told
        self._nodes_of_unit: Counter[int] = Counter()  # MiB of a unit -> nodes that count so
        self.mib_of_unit = 1024  # MiB that one `aliyun.com/gpu-mem` of a pod means

    # --- Nodes ---

    def apply_node(self, name: str, raw: Mapping[str, Any]) -> set[str]:
        """Take in a Node; returns the nodes to look at again."""
        try:
            return self._set(name, gpushare.read_plugin(raw), "")
        except InputError as error:
            return self._set(name, None, str(error))

    def remove_node(self, name: str) -> set[str]:
        """Take out a Node that is gone; returns the nodes to look at again."""
        return self._set(name, None, "")

    def _set(self, name: str, gpus: PluginGpus | None, unreadable: str) -> set[str]:
        known = self._plugins.pop(name, None), self._unreadable.pop(name, "")
        if gpus is not None:
            self._plugins[name] = gpus
        if unreadable:
            self._unreadable[name] = unreadable
        if known == (gpus, unreadable):
            return set()
        self._count_unit(known[0], -1)
        self._count_unit(gpus, 1)
        return {name} | self._choose_unit()

    def _count_unit(self, gpus: PluginGpus | None, nodes: int) -> None:
        if gpus is not None and gpus.units:  # without any, the plugin is away and tells no unit
            self._nodes_of_unit[gpus.mib_of_unit] += nodes

    def _choose_unit(self) -> set[str]:
        """Take the unit of most nodes, GiB among equals, for that is the plugin's own default; returns the nodes that a change concerns."""
        chosen = 1 if self._nodes_of_unit[1] > self._nodes_of_unit[1024] else 1024
        if chosen == self.mib_of_unit:
            return set()
        self.mib_of_unit = chosen
        return set(self._plugins)

    # --- ConfigMaps of unhealthy GPUs ---

    def apply_config_map(self, raw: Mapping[str, Any]) -> set[str]:
        """Take in a ConfigMap; returns the nodes to look at again, none for one that tells of no node's GPUs."""
        node = gpushare.node_of_unhealthy(raw)
        if node is None:
            return set()
        found: frozenset[int] | str
        try:
            found = gpushare.read_unhealthy(raw)
        except InputError as error:
            found = str(error)
        if self._unhealthy.get(node) == found:
            return set()
        self._unhealthy[node] = found
        return {node}

    def remove_config_map(self, name: str) -> set[str]:
        """Take out a ConfigMap of that name that is gone; returns the nodes to look at again."""
        node = name.removeprefix(keys.GPUSHARE_UNHEALTHY)
        return {node} if node != name and self._unhealthy.pop(node, None) is not None else set()

    def config_maps(self) -> set[str]:
        """Return the names of the ConfigMaps that were taken in."""
        return {f"{keys.GPUSHARE_UNHEALTHY}{node}" for node in self._unhealthy}

    # --- one node ---

    def stand_in(self, node: str) -> GPUTopology | None:
        """Return a topology for a node that publishes none, None where the plugin does not serve it or cannot be understood."""
        gpus = self._plugins.get(node)
        if gpus is None or gpus.count > MOST_GPUS:
            return None
        rows = tuple(tuple("X" if i == j else "SYS" for j in range(gpus.count)) for i in range(gpus.count))
        specs = tuple(GpuSpec(index=minor, minor=minor, uuid=gpushare.stand_in_uuid(node, minor), memory_mib=gpus.mib) for minor in range(gpus.count))
        source = SourceSpec(quality="fallback", notes=("no GPUTopology is published: GPUs and sizes are those that gpushare's device plugin tells",))
        return GPUTopology(metadata=ObjectMeta(name=node), spec=GPUTopologySpec(gpus=specs, links=LinkRows(gpus=rows), source=source))

    def look_at(self, node: str, topology: NodeTopology | None) -> Served:
        """Work out how the plugin serves a node with that topology (a stand-in, perhaps), and keep it for `of`."""
        served = self._look(node, topology)
        if served is _NOT_SERVED:
            self._served.pop(node, None)  # most nodes: nothing is kept of them
        else:
            self._served[node] = served
        if served.uuid_of:
            self._minors.setdefault(node, {}).update({uuid: minor for minor, uuid in served.uuid_of.items() if not gpushare.is_stand_in(uuid)})
        return served

    def forget_node(self, node: str) -> None:
        """Forget the minor numbers of a node that is gone for good."""
        self._minors.pop(node, None)

    def of(self, node: str) -> Served:
        """Return how the plugin serves a node, as last looked at."""
        return self._served.get(node, _NOT_SERVED)

    def nodes(self) -> list[str]:
        """Return the nodes that the plugin serves, by name."""
        return sorted(self._plugins)

    def _look(self, node: str, topology: NodeTopology | None) -> Served:
        gpus = self._plugins.get(node)
        if gpus is None:
            unreadable = self._unreadable.get(node, "")
            return Served(problem=unreadable) if unreadable else _NOT_SERVED
        if gpus.count > MOST_GPUS:
            return Served(gpus, problem=f"{keys.GPUSHARE_COUNT} of the Node is {gpus.count}; accepted: at most {MOST_GPUS}")
        if gpus.units and gpus.mib_of_unit != self.mib_of_unit:
            units = f"the node counts {keys.GPUSHARE_MEMORY} in {_UNIT_NAMES[gpus.mib_of_unit]}, most others in {_UNIT_NAMES[self.mib_of_unit]}"
            return Served(gpus, problem=f"{units}, and a pod's number cannot mean both")
        if topology is None:
            return Served(gpus)
        try:
            uuid_of = gpushare.uuids_by_minor(topology.named_gpus(), gpus.count, len(topology.unhealthy))
            return Served(gpus, uuid_of, self._unhealthy_uuids(node, uuid_of))
        except InputError as error:
            return Served(gpus, problem=str(error))

    def _unhealthy_uuids(self, node: str, uuid_of: Mapping[int, str]) -> frozenset[str]:
        """Return the GPUs that the node's ConfigMap takes out; raises InputError where it names one that the node does not have."""
        minors = self._unhealthy.get(node, frozenset())
        if isinstance(minors, str):
            raise InputError(minors)
        unknown = sorted(minors - uuid_of.keys())
        if unknown:
            name = f"ConfigMap {keys.GPUSHARE_NAMESPACE}/{keys.GPUSHARE_UNHEALTHY}{node}"
            raise InputError(f"{name} names GPU {unknown[0]}; accepted: minor numbers of the node's GPUs, {_listed(uuid_of)}")
        return frozenset(uuid_of[minor] for minor in minors)

    # --- what pods hold there ---

    def charges_of(self, node: str, share: gpushare.Share) -> Charges:
        """Return what a pod holds that the original extender placed: only its annotations tell."""
        uuid = self.of(node).uuid_of.get(share.index, gpushare.stand_in_uuid(node, share.index))
        return Charges(frozenset((uuid,)), {uuid: share.mib})

    def renamed(self, node: str, charged: Charges, share: gpushare.Share | None = None) -> Charges:
        """Return charges in the names that the node's GPUs have now: a GPUTopology may have come, or gone, since they were written.

        A UUID that the node has is never touched. ``share``: the pod's own annotations, whose minor number speaks for a UUID that nobody tells any more.
        """
        uuid_of = self.of(node).uuid_of
        if not uuid_of:
            return charged
        lost = charged.uuids - set(uuid_of.values())
        names = {uuid: uuid_of[minor] for uuid in lost if (minor := self._minor(node, uuid, share)) is not None and minor in uuid_of}
        if not names:
            return charged
        shares = {names.get(uuid, uuid): mib for uuid, mib in charged.shares.items()}
        return Charges(frozenset(names.get(uuid, uuid) for uuid in charged.uuids), shares)

    def _minor(self, node: str, uuid: str, share: gpushare.Share | None) -> int | None:
        """Return the minor number of a GPU that the node does not have by that name, None where another GPU may have the number by now."""
        if gpushare.is_stand_in(uuid):
            return gpushare.minor_of_stand_in(node, uuid)
        if not all(map(gpushare.is_stand_in, self.of(node).uuid_of.values())):
            return None
        return self._minors.get(node, {}).get(uuid) if share is None else share.index


def _listed(minors: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(minors)))
