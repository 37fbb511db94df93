"""Pods and clusters in one line, for tests: `pod("a").gpus(2).min_bandwidth(100)`, `cluster().dgx1v("a").pcie("b")`.

Real machines by name (from `extender.sample_machines`), no dict literals of sixty lines. Builders are immutable: each step returns a new one, so a base can
be shared.
"""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from extender.sample_machines import sample
from extender.snapshot_file import Snapshot

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

    def plain(self, container: str = "helper") -> "PodBuilder":
        return replace(self, containers=(*self.containers, {"name": container}))

    def annotated(self, **values: str) -> "PodBuilder":
        """Add annotations of linkwise.dev; `_` stands for `-`."""
        return replace(self, annotations={**self.annotations, **{f"linkwise.dev/{key.replace('_', '-')}": value for key, value in values.items()}})

    def min_bandwidth(self, gb_per_s: float) -> "PodBuilder":
        return self.annotated(min_bandwidth=f"{gb_per_s:g}")

    def max_distance(self, code: str) -> "PodBuilder":
        return self.annotated(max_distance=code)

    def bound_to(self, node: str, allocation: str | None = None, phase: str = "Running") -> "PodBuilder":
        annotations = self.annotations if allocation is None else {**self.annotations, "linkwise.dev/allocation": allocation}
        return replace(self, node=node, phase=phase, annotations=annotations)

    def terminating(self) -> "PodBuilder":
        return replace(self, deleting=True)

    def build(self) -> JsonObject:
        metadata: JsonObject = {"namespace": self.namespace, "name": self.name, "uid": self.uid, "annotations": dict(self.annotations)}
        if self.deleting:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        spec: JsonObject = {"containers": list(deepcopy(self.containers)), "initContainers": list(deepcopy(self.init_containers))}
        if self.node is not None:
            spec["nodeName"] = self.node
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": self.phase}}


def _container(name: str, count: int | str, resource: str = "nvidia.com/gpu") -> JsonObject:
    return {"name": name, "resources": {"requests": {resource: str(count)}, "limits": {resource: str(count)}}}


def pod(name: str = "pod", namespace: str = "default") -> PodBuilder:
    """Start a pod without containers."""
    return PodBuilder(name, namespace)


@dataclass(frozen=True)
class ClusterBuilder:
    """Nodes of named machine kinds, and pods."""

    topologies: tuple[JsonObject, ...] = ()
    pods: tuple[JsonObject, ...] = ()

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
        return Snapshot(topologies=deepcopy(self.topologies), pods=deepcopy(self.pods))


def cluster() -> ClusterBuilder:
    """Start an empty cluster."""
    return ClusterBuilder()
