"""What both sides share on the API server: GPUTopology, the allocation, and every annotation key.

The agent writes GPUTopology, the extender reads it and writes the allocation, the agent reads that. Nothing here knows either of them.
"""

from topology.api.allocation import AllocatedGpu, Allocation
from topology.api.gputopology import (
    ANOTHER_PLUGIN,
    HAND_OFF_REGISTERED,
    NUMA_ALIGNED,
    Condition,
    GpuHolder,
    GpuSpec,
    GpuStatus,
    GPUTopology,
    GPUTopologySpec,
    GPUTopologyStatus,
    LinkRows,
    NicSpec,
    ObjectMeta,
    PcieSlot,
    RefusedPair,
    SourceSpec,
    read_gputopology,
)

__all__ = [
    "ANOTHER_PLUGIN",
    "HAND_OFF_REGISTERED",
    "NUMA_ALIGNED",
    "AllocatedGpu",
    "Allocation",
    "Condition",
    "GPUTopology",
    "GPUTopologySpec",
    "GPUTopologyStatus",
    "GpuHolder",
    "GpuSpec",
    "GpuStatus",
    "LinkRows",
    "NicSpec",
    "ObjectMeta",
    "PcieSlot",
    "RefusedPair",
    "SourceSpec",
    "read_gputopology",
]
