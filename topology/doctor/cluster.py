"""The API server and what lies on it: the rights, the Node, and the node's GPUTopology, which is how the extender knows the node.

Called by `chain`. Everything is asked as the account at hand: in the agent's pod that is the agent's, so what it may do is what the agent may do.
"""

from datetime import datetime
from typing import Final

from topology.agent.api_server import ApiServer, Body, NoAnswerError, RefusedError
from topology.agent.probe import utc_now
from topology.api import HAND_OFF_REGISTERED, GPUTopology
from topology.doctor.finding import Finding, broken, ok, skipped
from topology.doctor.node import Node
from topology.errors import LinkwiseError

# As the extender has it: such a node takes no new pods.
_STALE_AFTER_S: Final = 180
_ALARMING: Final = ("DriverReady", "GPUsHealthy", "HoldersObserved", HAND_OFF_REGISTERED)
_RBAC: Final = "apply manifests/rbac-agent.yaml, or run this with the account of somebody who may"
_HAND_OFF_RBAC: Final = "turn the hand-off on with its rights (the component `hand-off` in manifests/kustomization.yaml, then `kubectl apply -k manifests`), or run this with the account of somebody who may"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
# (group, resource, subresource, verb), as manifests/rbac-agent.yaml gives them, and for the hand-off manifests/hand-off/rbac.yaml.
_RIGHTS: Final = (
    ("", "nodes", "", "get"),
    ("linkwise.dev", "gputopologies", "", "get"),
    ("linkwise.dev", "gputopologies", "", "create"),
    ("linkwise.dev", "gputopologies", "", "patch"),
    ("linkwise.dev", "gputopologies", "status", "patch"),
)
_HAND_OFF_RIGHTS: Final = (("", "pods", "", "get"), ("", "pods", "", "list"), ("", "pods", "", "watch"), ("", "events", "", "create"))


def api_server(node: Node) -> Finding:
    """Check that the API server answers, knows the node, and grants what the agent needs."""
    if not isinstance(node.api, ApiServer):
        return broken(str(node.api), "give --kubeconfig FILE, or run this in the agent's pod")
    refused = _refused(node)
    if refused is not None:
        return refused
    missing = _missing(node.api, _RIGHTS)
    of_hand_off = _missing(node.api, _HAND_OFF_RIGHTS) if node.hand_off != "off" else ""
    if missing or of_hand_off:
        return broken(f"the account may not {', '.join(filter(None, (missing, of_hand_off)))}", _RBAC if missing else _HAND_OFF_RBAC)
    return ok(f"it answers, and the account may do what the agent does{'' if missing is not None else ' as far as it can be seen'}")


def _refused(node: Node) -> Finding | None:
    """Return what is wrong with the answer to the first question, the Node; None where it is there."""
    found = node.node_object
    if isinstance(found, NoAnswerError):
        return broken(
            f"the API server does not answer: {found}",
            "look whether the control plane runs and this node reaches it (address, firewall, certificates)",
        )
    if isinstance(found, RefusedError) and found.status in {401, 403}:
        return broken(f"the API server refuses the account: {found}", _RBAC)
    if isinstance(found, LinkwiseError):
        return broken(f"the API server fails: {found}", "read the API server's log")
    if found is None:
        return broken(f"the cluster has no Node {node.name}", "give --node-name as `kubectl get nodes` has it, or join the node to the cluster")
    return None


def _missing(api: ApiServer, rights: tuple[tuple[str, str, str, str], ...]) -> str | None:
    """Return what the account may not do, empty where it may do all; None where the API server does not tell."""
    missing: list[str] = []
    for group, resource, subresource, verb in rights:
        attributes = {"group": group, "resource": resource, "subresource": subresource, "verb": verb}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}
        try:
            answer = api.request("POST", _REVIEWS, body=Body(review))
        except LinkwiseError:
            return None
        if not (answer.get("status") or {}).get("allowed"):
            missing.append(f"{verb} {resource}{'/' if subresource else ''}{subresource}")
    return ", ".join(missing)


def topology(node: Node) -> Finding:
    """Check that the node's GPUTopology is there, fresh, and tells of the GPUs that are in it."""
    found = node.topology
    if isinstance(found, RefusedError) and found.status == 404:
        return broken("the cluster does not know GPUTopologies", "apply manifests/crd.yaml")
    if isinstance(found, RefusedError | NoAnswerError) or (isinstance(found, LinkwiseError) and found is node.api):
        return skipped(f"it cannot be read: {found}")
    if isinstance(found, LinkwiseError):
        return broken(str(found), f"delete it (`kubectl delete gputopo {node.name}`): the agent writes it anew")
    if found is None:
        return broken(f"no GPUTopology {node.name} is published", "read the agent's log: it publishes within a minute once nvidia-smi answers")
    return _published(node, found)


def _published(node: Node, found: GPUTopology) -> Finding:
    age_s = _age_s(found.status.observed_at)
    if age_s is None or age_s > _STALE_AFTER_S:
        age = "has no status yet" if age_s is None else f"is {age_s:.0f} s old"
        return broken(
            f"GPUTopology {node.name} {age}; after {_STALE_AFTER_S} s a node takes no new pods",
            "start the agent, or read its log for what keeps it from publishing; compare the clocks",
        )
    for condition in found.status.conditions:
        if condition.type in _ALARMING and condition.status == "False":
            return broken(
                f"GPUTopology {node.name} says that {condition.type} is false: {condition.message}",
                "mend what the message names; the agent publishes it by itself, and where none runs on this node, start it",
            )
    here = node.topology_here
    published = {gpu.uuid for gpu in found.spec.gpus}
    if here is not None and {gpu.uuid for gpu in here.spec.gpus} - published:
        new = ", ".join(sorted({gpu.uuid for gpu in here.spec.gpus} - published))
        return broken(
            f"GPUTopology {node.name} does not have {new}, which nvidia-smi lists",
            "wait a minute, then restart the agent: it looks with another nvidia-smi",
        )
    return ok(f"GPUTopology {node.name} is fresh and has {len(published)} GPUs")


def _age_s(observed_at: datetime | None) -> float | None:
    return None if observed_at is None else max((utc_now() - observed_at).total_seconds(), 0.0)
