"""A thin client of the API server for tests: dicts in, dicts out, on the official Python client.

`ApiServer` is one user's view, made by `ControlPlane.api(user)`. Kinds are named as in a manifest ("Pod", "GPUTopology"). Whatever the API server
refuses is an exception of `kubernetes.dynamic.exceptions` (ForbiddenError, ConflictError, UnprocessibleEntityError, NotFoundError) with `.status` and
`.body`; `refusal(error)` gives its sentence.
"""

import threading
from pathlib import Path
from typing import Any

import orjson
import yaml
from kubernetes import config
from kubernetes.dynamic import DynamicClient, Resource
from kubernetes.dynamic.exceptions import DynamicApiError, NotFoundError

JsonObject = dict[str, Any]

# Kinds that several API groups serve, or that are asked for often: without an API version here, all groups are searched (about 30 calls, once).
API_VERSIONS = {
    "ConfigMap": "v1",
    "Event": "v1",
    "Namespace": "v1",
    "Node": "v1",
    "Pod": "v1",
    "ServiceAccount": "v1",
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "GPUTopology": "linkwise.dev/v1alpha1",
    "Lease": "coordination.k8s.io/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
    "ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1",
}

PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


def refusal(error: DynamicApiError) -> str:
    """Return the API server's own sentence of a refused call."""
    return str(orjson.loads(error.body or b"{}").get("message", error.reason))


class ApiServer:
    """The API server as the user of a kubeconfig sees it."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = config.new_client_from_config(config_file=str(kubeconfig))
        # The default cache file is one per address in /tmp: an earlier control plane on the same port would answer for this one.
        self._discovering = threading.Lock()  # two threads that ask for the same new kind at once find none
        self._dynamic = DynamicClient(self._client, cache_file=str(kubeconfig.with_suffix(".discovery")))

    def close(self) -> None:
        """Close the connections."""
        self._client.rest_client.pool_manager.clear()

    def create(self, item: JsonObject, namespace: str | None = None, *, subresource: str = "", dry_run: bool = False) -> JsonObject:
        """POST an object; for a subresource (`binding`, `eviction`) the object's name says of what, and its own kind is free."""
        metadata = item["metadata"]
        resource = self._resource("Pod" if subresource else item["kind"], "v1" if subresource else item["apiVersion"])
        name = metadata["name"] if subresource else None
        path = self._path(resource, name, namespace or metadata.get("namespace"), subresource)
        return self.request("POST", path, item, query={"dryRun": "All"} if dry_run else None)

    def get(self, kind: str, name: str, namespace: str | None = None) -> JsonObject:
        """GET one object; raises NotFoundError."""
        return self.request("GET", self._path(self._resource(kind), name, namespace))

    def find(self, kind: str, name: str, namespace: str | None = None) -> JsonObject | None:
        """GET one object, None where it does not exist."""
        try:
            return self.get(kind, name, namespace)
        except NotFoundError:
            return None

    def items(self, kind: str, namespace: str | None = None, *, labels: str = "", fields: str = "") -> list[JsonObject]:
        """LIST objects, in all namespaces where none is given; items carry their kind and apiVersion."""
        resource = self._resource(kind)
        query = {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        answer = self.request("GET", self._path(resource, None, namespace, everywhere=True), query=query)
        return [{"apiVersion": resource.group_version, "kind": kind, **item} for item in answer["items"]]

    def patch(self, kind: str, name: str, body: Any, namespace: str | None = None, *, how: str = "merge", subresource: str = "") -> JsonObject:
        """PATCH an object or a subresource; ``how`` is merge, json, strategic or apply (as manager `e2e`)."""
        query = {"fieldManager": "e2e", "force": "true"} if how == "apply" else None
        return self.request("PATCH", self._path(self._resource(kind), name, namespace, subresource), body, query=query, content_type=PATCHES[how])

    def replace(self, item: JsonObject, *, subresource: str = "") -> JsonObject:
        """PUT an object."""
        metadata = item["metadata"]
        return self.request(
            "PUT", self._path(self._resource(item["kind"], item["apiVersion"]), metadata["name"], metadata.get("namespace"), subresource), item
        )

    def apply(self, item: JsonObject) -> JsonObject:
        """Server-side apply: create the object, or make it equal to ``item`` in the fields given."""
        metadata = item["metadata"]
        path = self._path(self._resource(item["kind"], item["apiVersion"]), metadata["name"], metadata.get("namespace"))
        return self.request("PATCH", path, item, query={"fieldManager": "e2e", "force": "true"}, content_type=PATCHES["apply"])

    def apply_file(self, path: Path) -> list[JsonObject]:
        """Apply every document of a YAML file, in its order."""
        return [self.apply(item) for item in yaml.safe_load_all(path.read_text(encoding="utf-8")) if item]

    def delete(self, kind: str, name: str, namespace: str | None = None, *, grace_s: int | None = None) -> JsonObject:
        """DELETE an object and return the answer: the object as it is being deleted, or a Status; empty for one that is gone, which is as good.

        ``grace_s`` 0 deletes a bound pod at once, as a forced deletion does.
        """
        query = {} if grace_s is None else {"gracePeriodSeconds": str(grace_s)}
        try:
            return self.request("DELETE", self._path(self._resource(kind), name, namespace), query=query)
        except NotFoundError:
            return {}

    def delete_all(self, kind: str) -> None:
        """Delete all objects of a kind without grace, in every namespace but kube-system, where the API server keeps its own."""
        resource = self._resource(kind)
        for namespace in sorted({item["metadata"].get("namespace", "") for item in self.items(kind)} - {"kube-system"}):
            self.request("DELETE", self._path(resource, None, namespace or None), query={"gracePeriodSeconds": "0"})

    def bind(
        self, name: str, node: str, namespace: str = "default", *, annotations: dict[str, str] | None = None, uid: str | None = None
    ) -> JsonObject:
        """POST a Binding, as a scheduler or an extender does."""
        metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}, **({"uid": uid} if uid else {})}
        item = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        return self.create(item, subresource="binding")

    def events(self, name: str, namespace: str = "default", reason: str = "") -> list[JsonObject]:
        """Return the events about one object (core/v1, which shows those of events.k8s.io too), oldest first; cluster-scoped objects' are in `default`."""
        found = self.items("Event", namespace, fields=f"involvedObject.name={name}" + (f",reason={reason}" if reason else ""))
        return sorted(found, key=lambda event: str(event["metadata"]["creationTimestamp"]))

    def request(
        self, method: str, path: str, body: Any = None, *, query: dict[str, str] | None = None, content_type: str = "application/json"
    ) -> JsonObject:
        """Send any call; returns the answer's JSON."""
        # Without a deadline a test that talks through a paused or faulty server would hang instead of failing.
        answer = self._dynamic.request(
            method, path, body=body, query_params=list((query or {}).items()), content_type=content_type, serialize=False, _request_timeout=60
        )
        parsed = orjson.loads(answer.data)
        assert isinstance(parsed, dict)
        return parsed

    def _resource(self, kind: str, api_version: str | None = None) -> Resource:
        api_version = api_version or API_VERSIONS.get(kind)
        with self._discovering:
            resource: Resource = self._dynamic.resources.get(kind=kind, **({"api_version": api_version} if api_version else {"preferred": True}))
        return resource

    @staticmethod
    def _path(resource: Resource, name: str | None, namespace: str | None, subresource: str = "", *, everywhere: bool = False) -> str:
        """``everywhere``: without a namespace all of them, which only reading allows; else `default`."""
        parts = [resource.prefix, resource.group, resource.api_version]
        if resource.namespaced and (namespace or not everywhere):
            parts += ["namespaces", namespace or "default"]
        parts += [resource.name, name, subresource]
        return "/" + "/".join(part for part in parts if part)
