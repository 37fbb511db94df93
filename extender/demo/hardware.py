"""What a placement gets: GB/s of a set of GPUs on a node, from the tables that the extender decides by.

Called by `tour` for all sides alike, so that the comparison is one of placements and never one of models. `plain` takes the GPUs of a node from here,
`served` turns the UUIDs of an allocation into the same bits.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from topology.api import GPUTopology
from topology.errors import InternalError
from topology.links import Distance
from topology.topology_class import TopologyClass, members, topology_class


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a pod went: its node and one mask a container; bit i is the GPU at position i of the node's GPUTopology."""

    node: str
    masks: tuple[int, ...]

    @property
    def union(self) -> int:
        """All GPUs of the pod."""
        return sum(self.masks)  # the masks of containers are disjoint


@dataclass(frozen=True, slots=True)
class Figures:
    """What the set of a pod's largest container gets: GB/s (0.0 for one GPU), its worst link, whether its ring runs over NVLink."""

    gb_per_s: float
    worst: str | None
    on_nvlink: bool


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """One node: its topology class, and its GPUs by position."""

    topology: GPUTopology
    kind: TopologyClass
    uuids: tuple[str, ...]

    @staticmethod
    def of(topology: GPUTopology) -> "NodeHardware":
        """Read a GPUTopology."""
        kind = topology_class(topology.matrix(), topology.inventory())
        return NodeHardware(topology, kind, tuple(gpu.uuid for gpu in topology.spec.gpus))

    def mask_of(self, uuids: Iterable[str]) -> int:
        """Return the bits of GPUs given by UUID; raises InternalError for one that the node does not have."""
        mask = 0
        for uuid in uuids:
            if uuid not in self.uuids:
                raise InternalError(f"node {self.topology.name} has no GPU {uuid}")
            mask |= 1 << self.uuids.index(uuid)
        return mask

    def indices(self, mask: int) -> tuple[int, ...]:
        """Return the indices, as nvidia-smi shows them, of the GPUs in a mask."""
        return tuple(self.topology.spec.gpus[bit].index for bit in members(mask))

    def figures(self, placed: Placed) -> Figures:
        """Return what the largest container's set gets; of several equally large ones the best, as the extender reports it."""
        largest = max(placed.masks, key=lambda mask: (mask.bit_count(), float(self.kind.bandwidth[mask])))
        gpu_set = self.kind.gpu_set(largest)
        return Figures(gpu_set.bandwidth, gpu_set.worst, gpu_set.bandwidth > self._fastest_pcie(largest))

    def keeps(self, placed: Placed, floor: float, ceiling: Distance) -> bool:
        """Return whether every container's set has at least ``floor`` GB/s and no link beyond ``ceiling``, as the extender holds to them."""
        sets = [mask for mask in placed.masks if mask.bit_count() > 1]
        return all(self.kind.bandwidth[mask] >= floor and self.kind.worst[mask] <= ceiling for mask in sets)

    def _fastest_pcie(self, mask: int) -> float:
        """GB/s of the fastest PCIe path inside a set: whatever is faster than that runs over NVLink."""
        return max((float(self.kind.links.pcie_gb_per_s[i, j]) for i, j in combinations(members(mask), 2)), default=0.0)


def hardware_of(topologies: Iterable[GPUTopology]) -> dict[str, NodeHardware]:
    """Return the nodes by name."""
    return {topology.name: NodeHardware.of(topology) for topology in topologies}
