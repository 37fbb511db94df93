"""The demo's cluster as plain Kubernetes objects: two nodes of each sample machine, and one pod that runs already.

Called by `tour`; `served` feeds it to the extender, `plain` counts on it. The pod that runs already holds GPU 0 of a DGX-1V: what every cluster looks
like after its first notebook, and enough to make the four lowest free GPUs a bad choice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from extender.demo.stream import StreamPod
from extender.protocol import JsonObject
from extender.sample_machines import SAMPLE_MACHINES, sample
from extender.snapshot_file import Snapshot
from topology.api import AllocatedGpu, Allocation, GPUTopology
from topology.api.annotations import ALLOCATION, WHOLE_GPU

NODES_OF_A_KIND: Final = 2
PICTURED_NODE: Final = "dgx1v-1"
PRODUCT_LABEL: Final = "nvidia.com/gpu.product"  # set by NVIDIA's GPU feature discovery, used in node selectors
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Scene:
    """The cluster before the first pod of the stream; ``running`` are bound pods."""

    nodes: tuple[JsonObject, ...]
    topologies: tuple[GPUTopology, ...]
    running: tuple[JsonObject, ...]

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(len(topology.spec.gpus) for topology in self.topologies)

    def snapshot(self, pods: Iterable[StreamPod] = ()) -> Snapshot:
        """Return the cluster as a snapshot, with those pods waiting in it."""
        topologies = tuple(topology.to_object() for topology in self.topologies)
        return Snapshot(self.nodes, topologies, (*self.running, *(pod.to_object() for pod in pods)))


def make_scene() -> Scene:
    """Return the cluster of the demo; always the same."""
    topologies = tuple(sample(kind, f"{kind}-{number + 1}") for kind in SAMPLE_MACHINES for number in range(NODES_OF_A_KIND))
    pictured = next(topology for topology in topologies if topology.name == PICTURED_NODE)
    return Scene(tuple(map(_node, topologies)), topologies, (_running("notebook-00", pictured, 0),))


def _node(topology: GPUTopology) -> JsonObject:
    gpus = str(len(topology.spec.gpus))
    labels = {HOSTNAME_LABEL: topology.name, PRODUCT_LABEL: str(topology.spec.model).replace(" ", "-")}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": topology.name, "labels": labels},
        "status": {"capacity": {WHOLE_GPU: gpus}, "allocatable": {WHOLE_GPU: gpus}},
    }


def _running(name: str, topology: GPUTopology, index: int) -> JsonObject:
    """Return a pod with one GPU that Linkwise bound earlier."""
    pod = StreamPod(name, (1,)).to_object()
    gpu = topology.spec.gpus[index]
    held = AllocatedGpu(uuid=gpu.uuid, index=gpu.index, memory_mib=gpu.memory_mib)
    allocation = Allocation(node=topology.name, containers={"main": (held,)})
    pod["metadata"]["annotations"][ALLOCATION] = allocation.encode()
    pod["spec"]["nodeName"] = topology.name
    pod["status"] = {"phase": "Running"}
    return pod
