"""Every call that extender and agent make to the API server, as RBAC sees it: what their accounts must be allowed, and nothing else.

`tests/test_manifests.py` compares the table with the code and with the manifests, `tests/e2e/test_manifests.py` asks a real API server.
"""

from dataclasses import dataclass

from extender.settings import Settings

NAMESPACE = "linkwise-system"


@dataclass(frozen=True)
class Request:
    """One call to the API server in the code: where it is made, and what RBAC makes of it."""

    file: str
    method: str
    verb: str
    resource: str  # GROUP/RESOURCE[/SUBRESOURCE], without group for core
    namespace: str | None = None  # None: cluster-scoped, or all namespaces
    name: str | None = None


TOPOLOGIES = "linkwise.dev/gputopologies"
LEASES = "coordination.k8s.io/leases"
LEASE = Settings().lease_name

EXTENDER = (
    Request("extender/kube/watch.py", "GET", "list", "/pods"),
    Request("extender/kube/watch.py", "GET", "watch", "/pods"),
    Request("extender/kube/watch.py", "GET", "list", TOPOLOGIES),
    Request("extender/kube/watch.py", "GET", "watch", TOPOLOGIES),
    Request("extender/kube/watch.py", "GET", "list", "/nodes"),
    Request("extender/kube/watch.py", "GET", "watch", "/nodes"),
    Request("extender/kube/watch.py", "GET", "list", "/configmaps", "kube-system"),
    Request("extender/kube/watch.py", "GET", "watch", "/configmaps", "kube-system"),
    Request("extender/kube/bind.py", "POST", "create", "/pods/binding", "team-a"),
    Request("extender/kube/bind.py", "GET", "get", "/pods", "team-a"),
    Request("extender/kube/events.py", "POST", "create", "/events", "team-a"),
    Request("extender/serving.py", "PATCH", "patch", "/nodes", name="node-a"),
    Request("extender/kube/untaint.py", "PATCH", "patch", "/nodes", name="node-a"),
    Request("extender/kube/lease.py", "GET", "get", LEASES, NAMESPACE, LEASE),
    Request("extender/kube/lease.py", "POST", "create", LEASES, NAMESPACE),
    Request("extender/kube/lease.py", "PUT", "update", LEASES, NAMESPACE, LEASE),
    Request("extender/kube/lease.py", "GET", "list", "/pods", NAMESPACE),
    Request("extender/kube/lease.py", "PATCH", "patch", "/pods", NAMESPACE),
)
AGENT = (
    Request("topology/agent/api_server.py", "GET", "get", "/nodes", name="node-a"),
    Request("topology/agent/api_server.py", "GET", "get", TOPOLOGIES, name="node-a"),
    Request("topology/agent/publish.py", "PATCH", "create", TOPOLOGIES),  # server-side apply of an object that does not exist yet
    Request("topology/agent/publish.py", "PATCH", "patch", TOPOLOGIES, name="node-a"),
    Request("topology/agent/publish.py", "PATCH", "patch", f"{TOPOLOGIES}/status", name="node-a"),
    Request("topology/agent/publish.py", "POST", "create", "/events", "default"),
)
HAND_OFF = (
    Request("topology/agent/handoff/pods.py", "GET", "get", "/pods", "team-a"),
    Request("topology/agent/handoff/pods.py", "GET", "list", "/pods"),
    Request("topology/agent/handoff/pod_watch.py", "GET", "watch", "/pods"),
    Request("topology/agent/handoff/pod_events.py", "POST", "create", "/events", "team-a"),
)
