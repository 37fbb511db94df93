"""The trace as an API server stores it: Nodes and GPUTopologies to create, pods to post, and what a stored pod says of where it went.

Called by `bench.placement_real`. Objects and rows are those of `objects`; here they get what a real API server and a real kube-scheduler want beside: capacities of whole GPUs and of
GPU memory, both in full, as the node agent's device plugin advertises them, and a container image. Whatever is told of a pod is read from the pod: nobody is asked who decided.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bench.openb.cluster import Placement
from bench.openb.cpu_pods import WAYS, CpuPods
from bench.openb.objects import job_of, name_of, snapshot_of
from bench.openb.trace import WHOLE, Node, Pod
from extender.protocol import JsonObject
from tests.e2e.objects import node_object
from topology.api import Allocation, GPUTopology
from topology.api.annotations import ALLOCATION, GPU_MEMORY, WHOLE_GPU
from topology.api.gputopology import read_gputopology
from topology.capacity import MIB_PER_GIB
from topology.errors import InternalError

NAMESPACE: Final = "default"
_PODS: Final = 1000  # of a node: the trace knows no such limit, and kubelet's 110 would be one
_PREFIX: Final = name_of(0)[:-5]


def node_of(row: int, node: Node) -> JsonObject:
    """Return the Node of a row: ready, with its GPUs counted whole and as memory."""
    amounts = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": str(_PODS),
        GPU_MEMORY: str(node.gpus * WHOLE),  # one thousandth of a GPU is one GiB
    }
    return node_object(name_of(row), node.gpus, resources=amounts)


def topologies(nodes: Sequence[Node], observed_at: datetime) -> list[GPUTopology]:
    """Return what the nodes' agents would publish, as observed at that time."""
    found = map(read_gputopology, snapshot_of(nodes).topologies)
    return [one.model_copy(update={"status": one.status.model_copy(update={"observed_at": observed_at})}) for one in found]


def pod_of(pod: Pod, cpu_pods: CpuPods) -> JsonObject:
    """Return the pod as its owner posts it."""
    raw = job_of(pod).pod
    (container,) = raw["spec"]["containers"]
    resources = container["resources"] if pod.demand.gpus else {**container["resources"], "limits": WAYS[cpu_pods].limits}
    spec = {
        "schedulerName": "linkwise",
        "containers": [{**container, "image": "registry.example/none", "resources": resources}],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
    }
    return {"apiVersion": "v1", "kind": "Pod", **raw, "spec": spec}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a pod: its place, or None where kube-scheduler found none."""

    name: str
    placement: Placement | None


def outcome_of(pod: Mapping[str, Any]) -> Outcome | None:
    """Return what became of a stored pod, None while nothing has.

    Raises InternalError for a pod that asks for GPUs and is bound without an allocation.
    """
    name = pod["metadata"]["name"]
    if pod["spec"].get("nodeName"):
        return Outcome(name, placement_of(pod))
    conditions = (pod.get("status") or {}).get("conditions") or ()
    # Other reasons (SchedulerError, SchedulingGated) are of passing things: kube-scheduler tries again.
    refused = any(one["type"] == "PodScheduled" and one["status"] == "False" and one.get("reason") == "Unschedulable" for one in conditions)
    return Outcome(name, None) if refused else None


def placement_of(pod: Mapping[str, Any]) -> Placement:
    """Return the place of a bound pod: its node, and the GPUs that its allocation names."""
    node = pod["spec"]["nodeName"]
    row = int(node.removeprefix(_PREFIX))
    milli, gpus = _asked(pod)
    if not gpus:
        return Placement(row, ())
    name = pod["metadata"]["name"]
    text = (pod["metadata"].get("annotations") or {}).get(ALLOCATION)
    if text is None:
        raise InternalError(f"pod {name} is bound to {node} and carries no {ALLOCATION}")
    allocation = Allocation.decode(text)
    given = [gpu for container in allocation.containers.values() for gpu in container]
    shares = {WHOLE if not gpu.shared else (gpu.memory_mib or 0) // MIB_PER_GIB for gpu in given}
    if allocation.node != node or len(given) != gpus or shares != {milli}:
        raise InternalError(f"pod {name} on {node} asked for {milli} milli of {gpus} GPUs, and its allocation says {text}")
    return Placement(row, tuple(sorted(int(gpu.uuid.rpartition("-")[2]) for gpu in given)))


def _asked(pod: Mapping[str, Any]) -> tuple[int, int]:
    """Return milli of each GPU, and how many GPUs, as the stored limits have them."""
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits") or {}
    whole, gib = int(limits.get(WHOLE_GPU, 0)), int(limits.get(GPU_MEMORY, 0))
    return (WHOLE, whole) if whole else (gib, 1 if gib else 0)


def taken_milli(pods: Iterable[Mapping[str, Any]]) -> int:
    """Return the GPU milli that stored pods hold; raises InternalError where a GPU would have to give more than it has."""
    taken: dict[tuple[int, int], int] = {}
    for pod in pods:
        if not pod["spec"].get("nodeName"):
            continue
        placement, (milli, _) = placement_of(pod), _asked(pod)
        for gpu in placement.gpus:
            key = (placement.row, gpu)
            taken[key] = taken.get(key, 0) + milli
            if taken[key] > WHOLE:
                raise InternalError(f"GPU {gpu} of {name_of(placement.row)} is promised {taken[key]} milli")
    return sum(taken.values())
