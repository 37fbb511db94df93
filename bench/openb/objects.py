"""The trace as objects of Kubernetes: Nodes and GPUTopologies that `linkwise serve --snapshot` would read, pods as kube-scheduler would send them.

Called by the policies that ask Linkwise (`policies.linkwise`, `bench.placement_http`). Nodes are named by their row, so that the order of names, by which Linkwise breaks ties,
is the order in which the other policies break theirs. A GPU has 1000 GiB: one thousandth is one GiB. Links are alike everywhere unless somebody brings other machines.
"""

from collections.abc import Callable, Sequence
from typing import Final

from bench.openb.trace import WHOLE, Demand, Node, Pod
from extender.protocol import JsonObject
from extender.simulate.jobs import Job, raw_pod
from extender.snapshot_file import Snapshot
from topology.api.annotations import API_VERSION, GPU_MODEL, KIND, TOPOLOGY

_MIB_PER_GIB: Final = 1024
_CODE: Final = "NODE"  # between any two GPUs: PCIe under one CPU, so that no set is better than another

Machine = Callable[[Node], Sequence[Sequence[str]]]  # link codes of a node's GPUs, a row a GPU


def uniform(node: Node) -> Sequence[Sequence[str]]:
    """Return equal links between all GPUs."""
    return [["X" if a == b else _CODE for b in range(node.gpus)] for a in range(node.gpus)]


def name_of(row: int) -> str:
    """Return the name of the node in that row."""
    return f"node-{row:05d}"


def snapshot_of(nodes: Sequence[Node], machine: Machine = uniform) -> Snapshot:
    """Return the cluster without pods; rows are positions in ``nodes``."""
    return Snapshot(
        tuple(_node(name_of(row), node) for row, node in enumerate(nodes)),
        tuple(_topology(name_of(row), node, machine(node)) for row, node in enumerate(nodes)),
    )


def _node(name: str, node: Node) -> JsonObject:
    allocatable = {"cpu": f"{node.cpu_milli}m", "memory": f"{node.memory_mib}Mi"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"capacity": allocatable, "allocatable": allocatable}}


def _topology(name: str, node: Node, codes: Sequence[Sequence[str]]) -> JsonObject:
    uuids = [f"GPU-{name}-{index}" for index in range(node.gpus)]
    gpus = [
        {"index": index, "uuid": uuid, "model": node.model, "memoryMiB": WHOLE * _MIB_PER_GIB, "numaNode": 0, "nvlinks": _nvlinks(codes[index])}
        for index, uuid in enumerate(uuids)
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"gpus": gpus, "links": {"gpus": [list(row) for row in codes]}},
        "status": {"gpus": [{"uuid": uuid} for uuid in uuids]},
    }


def _nvlinks(codes: Sequence[str]) -> int:
    return sum(int(code[2:]) for code in codes if code.startswith("NV"))


def job_of(pod: Pod, *, careful: bool = False) -> Job:
    """Return the pod as Linkwise gets it; ``careful``: one of several GPUs cares for its links, which the trace does not tell."""
    demand = pod.demand
    whole = demand.gpus if demand.gpu_milli == WHOLE else 0
    annotations = _annotations(demand, careful=careful) if demand.gpus else {}
    return Job(raw_pod(pod.name, (demand.cpu_milli, demand.memory_mib), whole, 0 if whole else demand.total_gpu_milli, annotations))


def _annotations(demand: Demand, *, careful: bool) -> JsonObject:
    models = {GPU_MODEL: ",".join(demand.models)} if demand.models else {}
    return models if careful and demand.gpus > 1 else {TOPOLOGY: "none", **models}
