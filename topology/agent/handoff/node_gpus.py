"""The node's GPUs as the hand-off needs them, made from the GPUTopology that the agent describes: who is there, who is ill, where, and how much is offered.

Made by `plugin` after every look, read by everybody here; immutable. The topology comes from the look itself and not from the API server, which may be away.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from topology.agent.handoff.plan import gib_of
from topology.agent.handoff.ring import ring_order
from topology.api import GpuSpec, GPUTopology
from topology.capacity import offered_mib
from topology.collective import machine_links
from topology.errors import TopologyError

_NOT_TOLD = "it is not healthy"
_SLICED = "it is in MIG mode, and cut into instances that other device plugins give away"


@dataclass(frozen=True)
class NodeGpus:
    """The GPUs of one node. ``reserve_mib``: MiB of each that are not given away in shares, as the extender counts them."""

    topology: GPUTopology
    reserve_mib: int
    mig_parents: Mapping[str, str]

    @cached_property
    def specs(self) -> Mapping[str, GpuSpec]:
        """What each GPU is, by UUID, in the order of the node."""
        return {gpu.uuid: gpu for gpu in self.topology.spec.gpus}

    @cached_property
    def uuids(self) -> frozenset[str]:
        """Every GPU of the node."""
        return frozenset(self.specs)

    @cached_property
    def ill(self) -> Mapping[str, str]:
        """Why a GPU cannot be used, by UUID; who is not in it works. One in MIG mode is nobody's as a whole: the extender gives none of it away either."""
        sliced = {uuid: _SLICED for uuid, spec in self.specs.items() if (spec.mig_mode or "").lower() == "enabled"}
        return sliced | {gpu.uuid: gpu.reason or _NOT_TOLD for gpu in self.topology.status.gpus if not gpu.healthy and gpu.uuid in self.uuids}

    @cached_property
    def offered_mib(self) -> Mapping[str, int]:
        """MiB of each GPU that shares may take together, whole GiB."""
        return {uuid: offered_mib(spec.memory_mib, self.reserve_mib) for uuid, spec in self.specs.items()}

    @cached_property
    def offered_gib(self) -> int:
        """GiB that the node advertises, ill GPUs included."""
        return sum(gib_of(mib) for mib in self.offered_mib.values())

    def numa_nodes(self, uuids: Iterable[str]) -> frozenset[int]:
        """Return the NUMA nodes of these GPUs, as far as they are known."""
        found = (self.specs[uuid].numa_node for uuid in uuids if uuid in self.specs)
        return frozenset(node for node in found if node is not None and node >= 0)

    def in_order(self, uuids: Iterable[str]) -> list[str]:
        """Return these GPUs in the order of the node; strangers last."""
        place = {uuid: at for at, uuid in enumerate(self.specs)}
        return sorted(set(uuids), key=lambda uuid: (place.get(uuid, len(place)), uuid))

    def ring(self, uuids: Iterable[str]) -> list[str]:
        """Return these GPUs in the order of their best ring."""
        gpus = self.in_order(uuids)
        if len(gpus) < 4 or self._rates is None or not self.uuids.issuperset(gpus):
            return gpus
        at = [list(self.specs).index(uuid) for uuid in gpus]
        return [gpus[position] for position in ring_order(self._rates[np.ix_(at, at)])]

    @cached_property
    def _rates(self) -> NDArray[np.float64] | None:
        """(n, n) GB/s of each pair; None where the links cannot be read, which is told elsewhere."""
        try:
            links = machine_links(self.topology.matrix(), self.topology.inventory())
        except TopologyError:
            return None
        return np.maximum(links.nvlinks * links.nvlink_gb_per_s, links.pcie_gb_per_s)
