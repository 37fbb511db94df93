"""What a test does to a cluster, in one line each: make nodes and pods, wait for where they go, and leave nothing behind.

The fixture `live` gives one to each test and empties it afterwards, so that tests share a control plane without seeing each other's objects.
Everything here acts as the administrator; `live.plane.api("alice")` is somebody else.
"""

import contextlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from kubernetes.dynamic.exceptions import NotFoundError

from extender.sample_machines import sample
from tests.builders import PodBuilder
from tests.e2e.api_server import ApiServer, JsonObject
from tests.e2e.control_plane import ControlPlane
from tests.e2e.objects import node_object, pod_object
from tests.e2e.program import wait_until
from topology.api import GPUTopology

# In this order, and all of each kind: pods before their nodes, nodes before what they own.
EMPTIED = ("Pod", "Node", "GPUTopology", "Lease", "Event", "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy")


class LiveCluster:
    """Nodes and pods of one test, on a running control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.api: ApiServer = plane.api()

    def make_node(self, name: str, gpus: int = 8, labels: Mapping[str, str] | None = None, resources: Mapping[str, str] | None = None) -> JsonObject:
        """Create a Node that takes pods: ready, with its GPUs allocatable, without taints."""
        self.api.create(node_object(name, gpus, labels, resources))
        # Admission gives every new node the taint not-ready, which a controller would remove.
        return self.api.patch("Node", name, {"spec": {"taints": None}})

    def make_nodes(self, names: Iterable[str], gpus: int = 8) -> None:
        """Create many nodes, several at a time."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: self.make_node(name, gpus), names))

    def publish(self, topology: GPUTopology) -> JsonObject:
        """Create or change a GPUTopology with its status, as its agent does."""
        item = topology.to_object()
        self.api.apply({**item, "status": {}})
        return self.api.patch("GPUTopology", topology.name, {"status": item["status"]}, subresource="status")

    def make_machine(self, kind: str, name: str) -> GPUTopology:
        """Create a Node with the GPUs of a kind of machine (`extender.sample_machines`), and publish its topology as observed now."""
        topology = sample(kind, name, observed_at=datetime.now(UTC))
        self.make_node(name, len(topology.spec.gpus))
        self.publish(topology)
        return topology

    def make_pod(self, builder: PodBuilder, scheduler: str = "linkwise", **spec: Any) -> JsonObject:
        """Create the builder's pod; a builder with `bound_to` makes one that went around every scheduler."""
        return self.api.create(pod_object(builder, scheduler, **spec))

    def make_pods(self, builders: Iterable[PodBuilder], scheduler: str = "linkwise", **spec: Any) -> None:
        """Create many pods, several at a time, so in no particular order."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda builder: self.make_pod(builder, scheduler, **spec), builders))

    def pod(self, name: str, namespace: str = "default") -> JsonObject:
        """Return the pod as it is stored now."""
        return self.api.get("Pod", name, namespace)

    def node_of(self, name: str, namespace: str = "default") -> str | None:
        """Return the node that the pod is bound to, None where it is not."""
        node = self.pod(name, namespace)["spec"].get("nodeName")
        return None if node is None else str(node)

    def wait_bound(self, name: str, namespace: str = "default", timeout: float = 10) -> JsonObject:
        """Return the pod once it is bound to a node."""
        found = wait_until(lambda: self.pod(name, namespace) if self.node_of(name, namespace) else None, timeout, f"pod {namespace}/{name} is bound")
        assert found is not None
        return found

    def wait_event(self, text: str, name: str, namespace: str = "default", reason: str = "", timeout: float = 10) -> JsonObject:
        """Return the first event about an object whose message holds ``text``."""

        def seen() -> list[JsonObject]:
            return [event for event in self.api.events(name, namespace, reason) if text in event.get("message", "")]

        return wait_until(seen, timeout, f"an event with {text!r} about {namespace}/{name}")[0]

    def end_pod(self, name: str, namespace: str = "default", phase: str = "Succeeded") -> JsonObject:
        """Write the status that kubelet writes when the containers have ended."""
        ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        statuses = [
            {"name": container["name"], "image": container["image"], "imageID": "", "ready": False, "restartCount": 0, "state": ended}
            for container in self.pod(name, namespace)["spec"]["containers"]
        ]
        return self.api.patch("Pod", name, {"status": {"phase": phase, "containerStatuses": statuses}}, namespace, subresource="status")

    def empty(self) -> None:
        """End the programs of the test and delete its objects. Namespaces, RBAC and CRDs stay: they are the same for every test."""
        self.plane.stop_extras()
        self.clear(EMPTIED)

    def clear(self, kinds: Iterable[str]) -> None:
        """Delete all objects of these kinds, under whatever runs; returns when no pod is left.

        Pods end before they are deleted: where an agent looks, a pod that is deleted while it may run stays a holder until the agent has looked again.
        """
        self._end_pods_on({each["metadata"]["name"] for each in self.api.items("GPUTopology") if each.get("status", {}).get("holdersObserved")})
        for kind in kinds:
            self.api.delete_all(kind)
        wait_until(lambda: not self.api.items("Pod"), what="no pod is left")

    def _end_pods_on(self, nodes: set[str]) -> None:
        for pod in self.api.items("Pod"):
            if pod["spec"].get("nodeName") in nodes and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                with contextlib.suppress(NotFoundError):
                    self.end_pod(pod["metadata"]["name"], pod["metadata"]["namespace"])
