"""From what was found on a node to the GPUTopology that describes it, and to the YAML that people read.

Called by `probe` with everything that nvidia-smi and the kernel told. Pure: no tool, no clock, no file. Decides which GPU can be published (one that
has an identity), matches the rows of the link matrix with the inventory by index, and says in notes and conditions what is missing. Nothing is left
out without a note; a GPU that works but has no usable UUID is an error, since nobody could ever be given it.

Owner reference, resource version and the decision whether anything changed are added where the object is written to a cluster.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import yaml

from topology.api import (
    Condition,
    GpuSpec,
    GpuStatus,
    GPUTopology,
    GPUTopologySpec,
    GPUTopologyStatus,
    LinkRows,
    NicSpec,
    ObjectMeta,
    PcieSlot,
    SourceSpec,
    read_gputopology,
)
from topology.errors import TopologyError
from topology.inventory import Gpu, Inventory
from topology.links import LinkCode
from topology.matrix import LinkMatrix

DRIVER_READY: Final = "DriverReady"  # nvidia-smi answered
LINKS_KNOWN: Final = "LinksKnown"  # every pair of GPUs has a code, and NVLink could be seen
GPUS_HEALTHY: Final = "GPUsHealthy"  # no GPU is lost

_LOST: Final = "the driver reports this GPU as lost; it needs a reset or a reboot"
_UUID: Final = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")  # documentation elides it as GPU-…
_NOT_TOLD: Final = frozenset({None, "", "N/A"})


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found on a node. ``fallback`` says why the matrix is one of PCIe paths from the kernel; None where nvidia-smi printed it."""

    inventory: Inventory
    matrix: LinkMatrix
    fallback: str | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """One GPU to be published, and its row in the matrix (None: it has none)."""

    gpu: Gpu
    index: int
    uuid: str
    row: int | None


def publication(node_name: str, facts: Facts, observed_at: datetime) -> GPUTopology:
    """Return the GPUTopology of the node; raises TopologyError where the facts describe no node, or a working GPU has no UUID."""
    found, notes = _match(facts)
    if not found:
        raise TopologyError(f"node {node_name}: no GPU can be published: {'; '.join(notes) or 'none was found'}")
    codes = _codes(facts.matrix, found)
    gaps = _gaps(codes)
    links_known = _links_known(facts, gaps + notes)
    lost = sum(gpu.lost for gpu in facts.inventory.gpus)
    topology = {
        "metadata": ObjectMeta(name=node_name),
        "spec": GPUTopologySpec(
            gpus=tuple(_gpu_spec(one, facts.matrix) for one in found),
            nics=tuple(NicSpec(label=nic.label, name=nic.name) for nic in facts.matrix.nics),
            links=codes,
            driver_version=facts.inventory.driver_version,
            source=_source(facts, gaps, notes),
            gpu_count=len(found),
            model=_common_model(found),
            nvlink=_nvlink(codes, facts),
        ),
    }
    return topology
