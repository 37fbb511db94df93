"""Pods and clusters in one line, for tests: `pod("a").gpus(2).min_bandwidth(100)`, `cluster().dgx1v("a").pcie("b")`.

Real machines by name (from `extender.sample_machines`), no dict literals of sixty lines. Builders are immutable: each step returns a new one, so a base can
be shared. `extender_on` puts the real verbs over such a cluster, with a clock that only a test moves.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from extender.cluster import Cluster
from extender.demand import Demand, read_demand
from extender.metrics import Metrics
from extender.notices import Recorder
from extender.sample_machines import sample
from extender.settings import Settings
from extender.snapshot_file import Snapshot, SnapshotCluster
from extender.verbs import Clocks, Verbs
from topology.api import AllocatedGpu, Allocation

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class PodBuilder:
    """One pod as kube-scheduler sends it."""

    name: str
    namespace: str = "default"
    annotations: JsonObject = field(default_factory=dict)
    containers: tuple[JsonObject, ...] = ()
    init_containers: tuple[JsonObject, ...] = ()
    node: str | None = None
    phase: str = "Pending"
    deleting: bool = False
    created_at: datetime | None = None

    @property
    def uid(self) -> str:
        return f"uid-{self.namespace}-{self.name}"

    def gpus(self, count: int | str, container: str = "main", resource: str = "nvidia.com/gpu") -> "PodBuilder":
        return replace(self, containers=(*self.containers, _container(container, count, resource)))

    def init(self, count: int, container: str = "init") -> "PodBuilder":
        return replace(self, init_containers=(*self.init_containers, _container(container, count)))

    def sidecar(self, count: int, container: str = "sidecar") -> "PodBuilder":
        sidecar = {**_container(container, count), "restartPolicy": "Always"}
        return replace(self, init_containers=(*self.init_containers, sidecar))

    def plain(self, container: str = "helper", **requests: str) -> "PodBuilder":
        """Add a container without GPUs; ``requests`` are its CPU and memory."""
        resources = {"resources": {"requests": requests}} if requests else {}
        return replace(self, containers=(*self.containers, {"name": container, **resources}))

    def shared(self, gib: int | str, container: str = "main") -> "PodBuilder":
        """Ask for GiB of GPU memory."""
        return self.gpus(gib, container, "linkwise.dev/gpu-memory")

    def init_shared(self, gib: int, container: str = "init") -> "PodBuilder":
        return replace(self, init_containers=(*self.init_containers, _container(container, gib, "linkwise.dev/gpu-memory")))

    def sidecar_shared(self, gib: int, container: str = "sidecar") -> "PodBuilder":
        sidecar = {**_container(container, gib, "linkwise.dev/gpu-memory"), "restartPolicy": "Always"}
        return replace(self, init_containers=(*self.init_containers, sidecar))

    def units(self, units: int | str, container: str = "main") -> "PodBuilder":
        """Ask gpushare's device plugin for units of a GPU's memory."""
        return self.gpus(units, container, "aliyun.com/gpu-mem")

    def init_units(self, units: int, container: str = "init") -> "PodBuilder":
        return replace(self, init_containers=(*self.init_containers, _container(container, units, "aliyun.com/gpu-mem")))

    def carrying(self, **values: str) -> "PodBuilder":
        """Add annotations of gpushare: `idx="0", pod="10"`."""
        return replace(self, annotations={**self.annotations, **{f"ALIYUN_COM_GPU_MEM_{key.upper()}": value for key, value in values.items()}})

    def placed_by_gpushare(self, node: str, index: int, units: int, gpu_units: int, *, assigned: bool = True) -> "PodBuilder":
        """Bind the pod as gpushare's own extender does: with its annotations and no allocation; assigned pods run."""
        carried = {"idx": str(index), "pod": str(units), "dev": str(gpu_units), "assume_time": "1700000000000000000"}
        asking = self if self.containers else self.units(units)
        return asking.carrying(assigned="true" if assigned else "false", **carried).bound_to(node, phase="Running" if assigned else "Pending")

    def annotated(self, **values: str) -> "PodBuilder":
        """Add annotations of linkwise.dev; `_` stands for `-`."""
        return replace(self, annotations={**self.annotations, **{f"linkwise.dev/{key.replace('_', '-')}": value for key, value in values.items()}})

    def min_bandwidth(self, gb_per_s: float) -> "PodBuilder":
        return self.annotated(min_bandwidth=f"{gb_per_s:g}")

    def max_distance(self, code: str) -> "PodBuilder":
        return self.annotated(max_distance=code)

    def holding(self, node: str, *uuids: str, container: str = "main", phase: str = "Running") -> "PodBuilder":
        """Bind the pod with an allocation of these GPUs; it asks for as many, unless it has containers already."""
        asking = self if self.containers or self.init_containers else self.gpus(len(uuids), container)
        return asking.bound_to(node, allocation_of(node, {container: uuids}), phase)

    def sharing(self, node: str, mib_of: Mapping[str, int], container: str = "main") -> "PodBuilder":
        """Bind the pod with parts of GPUs, MiB by UUID; it asks for what it asks."""
        gpus = tuple(AllocatedGpu(uuid=uuid, memory_mib=mib, shared=True) for uuid, mib in mib_of.items())
        return self.bound_to(node, Allocation(node=node, containers={container: gpus}).encode())

    def bound_to(self, node: str, allocation: str | None = None, phase: str = "Running") -> "PodBuilder":
        annotations = self.annotations if allocation is None else {**self.annotations, "linkwise.dev/allocation": allocation}
        return replace(self, node=node, phase=phase, annotations=annotations)

    def terminating(self) -> "PodBuilder":
        return replace(self, deleting=True)

    def created(self, at: datetime) -> "PodBuilder":
        return replace(self, created_at=at)

    def build(self) -> JsonObject:
        metadata: JsonObject = {"namespace": self.namespace, "name": self.name, "uid": self.uid, "annotations": dict(self.annotations)}
        if self.created_at is not None:
            metadata["creationTimestamp"] = self.created_at.isoformat()
        if self.deleting:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        spec: JsonObject = {"containers": list(deepcopy(self.containers)), "initContainers": list(deepcopy(self.init_containers))}
        if self.node is not None:
            spec["nodeName"] = self.node
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": self.phase}}


def _container(name: str, count: int | str, resource: str = "nvidia.com/gpu") -> JsonObject:
    return {"name": name, "resources": {"requests": {resource: str(count)}, "limits": {resource: str(count)}}}


def allocation_of(node: str, containers: Mapping[str, Iterable[str]]) -> str:
    """Return the value of the allocation annotation for UUIDs by container."""
    return Allocation(node=node, containers={name: tuple(AllocatedGpu(uuid=uuid) for uuid in uuids) for name, uuids in containers.items()}).encode()


def kube_node(name: str, labels: Mapping[str, str] | None = None, **allocatable: str) -> JsonObject:
    """Return a Node with what it has to give."""
    return {"kind": "Node", "metadata": {"name": name, "labels": dict(labels or {})}, "status": {"allocatable": allocatable}}


def gpushare_node(name: str, gpus: int = 4, units: int = 23, label: str = "true") -> JsonObject:
    """Return a Node that gpushare's device plugin serves."""
    return kube_node(name, {"gpushare": label}, **{"aliyun.com/gpu-count": str(gpus), "aliyun.com/gpu-mem": str(gpus * units)})


def unhealthy_gpus(node: str, gpus: object) -> JsonObject:
    """Return the ConfigMap in which gpushare's users name a node's unhealthy GPUs."""
    metadata = {"namespace": "kube-system", "name": f"unhealthy-gpu-{node}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"gpus": gpus}}


def demand_of(asked: PodBuilder) -> Callable[[], Awaitable[Demand]]:
    """Return what tells the demand of a pod, as `extender.binding` asks for it."""

    async def read() -> Demand:
        return read_demand(asked.build())

    return read


def pod(name: str = "pod", namespace: str = "default") -> PodBuilder:
    """Start a pod without containers."""
    return PodBuilder(name, namespace)


@dataclass(frozen=True)
class ClusterBuilder:
    """Nodes of named machine kinds, and pods."""

    topologies: tuple[JsonObject, ...] = ()
    pods: tuple[JsonObject, ...] = ()
    nodes: tuple[JsonObject, ...] = ()
    config_maps: tuple[JsonObject, ...] = ()

    def node(self, name: str, cpu: str = "128", memory: str = "1Ti") -> "ClusterBuilder":
        """Add a Node, which tells what there is beside GPUs; its GPUs come with a machine."""
        return replace(self, nodes=(*self.nodes, kube_node(name, cpu=cpu, memory=memory)))

    def gpushare(self, name: str, gpus: int = 4, units: int = 23) -> "ClusterBuilder":
        """Add a Node that gpushare's device plugin serves: so many GPUs of so many units each, and no word of links."""
        return replace(self, nodes=(*self.nodes, gpushare_node(name, gpus, units)))

    def unhealthy(self, node: str, gpus: object) -> "ClusterBuilder":
        """Add the ConfigMap in which gpushare's users name unhealthy GPUs."""
        return replace(self, config_maps=(*self.config_maps, unhealthy_gpus(node, gpus)))

    def machine(self, kind: str, *names: str) -> "ClusterBuilder":
        return replace(self, topologies=(*self.topologies, *(sample(kind, name).to_object() for name in names)))

    def nvswitch(self, *names: str) -> "ClusterBuilder":
        return self.machine("nvswitch", *names)

    def dgx1v(self, *names: str) -> "ClusterBuilder":
        return self.machine("dgx1v", *names)

    def bridges(self, *names: str) -> "ClusterBuilder":
        return self.machine("bridges", *names)

    def pcie(self, *names: str) -> "ClusterBuilder":
        return self.machine("pcie", *names)

    def mesh(self, *names: str) -> "ClusterBuilder":
        return self.machine("mesh", *names)

    def with_pods(self, *pods: PodBuilder) -> "ClusterBuilder":
        return replace(self, pods=(*self.pods, *(each.build() for each in pods)))

    def uuids(self, node: str) -> list[str]:
        """UUIDs of a node's GPUs in published order."""
        return [gpu["uuid"] for topology in self.topologies if topology["metadata"]["name"] == node for gpu in topology["spec"]["gpus"]]

    def snapshot(self) -> Snapshot:
        return Snapshot(deepcopy(self.nodes), deepcopy(self.topologies), deepcopy(self.pods), config_maps=deepcopy(self.config_maps))


def cluster() -> ClusterBuilder:
    """Start an empty cluster."""
    return ClusterBuilder()


def changed(
    topology: JsonObject,
    *,
    without: int | None = None,
    unhealthy: Iterable[int] = (),
    holders: Mapping[int, str] | None = None,
    kept_apart: Iterable[tuple[int, int]] = (),
) -> JsonObject:
    """Return a GPUTopology as it looks later: one GPU (by position) fell off the bus, some are unhealthy, some are held by pods NAMESPACE/NAME.

    ``kept_apart`` are the pairs, by position, to which the driver allows no peer access.
    """
    later = deepcopy(topology)
    spec, status = later["spec"], later["status"]
    if kept_apart:
        spec["links"]["noPeerAccess"] = [{"a": a, "b": b, "status": "CNS"} for a, b in kept_apart]
    for position in unhealthy:
        status["gpus"][position]["healthy"] = False
    for position, name in (holders or {}).items():
        namespace, _, pod_name = name.partition("/")
        status["gpus"][position]["holders"] = [{"namespace": namespace, "name": pod_name}]
        status["holdersObserved"] = True
    if without is not None:
        spec["links"]["gpus"] = [[code for j, code in enumerate(row) if j != without] for row in spec["links"]["gpus"]]
        for rows in (spec["gpus"], status["gpus"], spec["links"]["gpus"], spec["links"].get("nics") or [None] * len(spec["gpus"])):
            del rows[without]
    return later


@dataclass
class Clock:
    """Time that stands still until a test moves it."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Extender:
    """The verbs over a cluster in memory, called with the bytes that kube-scheduler sends."""

    verbs: Verbs
    binder: SnapshotCluster
    metrics: Metrics
    clock: Clock
    problems: list[str]

    @property
    def cluster(self) -> Cluster:
        return self.verbs.cluster

    def names(self) -> list[str]:
        return list(self.cluster.view().names)

    def filter(self, asked: PodBuilder, *names: str) -> JsonObject:
        answer: JsonObject = json.loads(self.verbs.filter(self._call(asked, names)))
        return answer

    def prioritize(self, asked: PodBuilder, *names: str) -> dict[str, int]:
        return {entry["Host"]: entry["Score"] for entry in json.loads(self.verbs.prioritize(self._call(asked, names)))}

    async def bind(self, asked: PodBuilder, node: str) -> str:
        """Return the answer's Error; empty is success."""
        call = {"PodNamespace": asked.namespace, "PodName": asked.name, "PodUID": asked.uid, "Node": node}
        error: str = json.loads(await self.verbs.bind(json.dumps(call).encode()))["Error"]
        return error

    async def place(self, asked: PodBuilder, node: str) -> list[int]:
        """Filter and bind a pod; return the indices of its GPUs."""
        assert self.filter(asked, node)["NodeNames"] == [node]
        assert await self.bind(asked, node) == ""
        return self.indices(asked, node)

    def indices(self, asked: PodBuilder, node: str) -> list[int]:
        """Return the positions of the GPUs that the ledger holds for the pod."""
        entry = self.cluster.ledger.get(asked.uid)
        return [] if entry is None else [bit for bit, uuid in enumerate(self.gpus_of(node)) if uuid in entry.uuids]

    def gpus_of(self, node: str) -> tuple[str, ...]:
        view = self.cluster.view()
        return view.gpus[view.row_of[node]].uuids

    def free(self, node: str) -> list[int]:
        view = self.cluster.view()
        mask = int(view.free[view.row_of[node]])
        return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]

    def _call(self, asked: PodBuilder, names: tuple[str, ...]) -> bytes:
        return json.dumps({"Pod": asked.build(), "NodeNames": list(names) or self.names(), "Nodes": None}).encode()


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def extender_on(
    built: ClusterBuilder, settings: Settings | None = None, bindings_file: Path | None = None, recorder: Recorder | None = None
) -> Extender:
    """Put the verbs over a cluster."""
    chosen, clock, metrics = settings or Settings(), Clock(), Metrics()
    state = Cluster(chosen.whole_gpu_resource, clock, reserve_mib=chosen.gpu_reserve_mib)
    binder = SnapshotCluster(built.snapshot(), state, bindings_file)
    problems = binder.feed()
    return Extender(Verbs(state, binder, metrics, chosen, Clocks(clock, lambda: NOW), recorder), binder, metrics, clock, problems)
