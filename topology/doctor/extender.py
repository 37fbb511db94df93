"""The extender: whether it is ready, and whether it takes new pods on this node.

Called by `chain`. It is reached by its URL, or through the API server's service proxy, for which an account needs ``get`` of services/proxy in the extender's
namespace: the agent's has it not, on purpose, and then these links are skipped.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import httpx

from topology.agent.api_server import ApiServer, NoAnswerError, RefusedError
from topology.doctor.finding import Finding, broken, ok, skipped
from topology.doctor.node import Node, fetched

_SERVICE: Final = re.compile(r"(?P<namespace>[a-z0-9-]+)/(?P<name>(https:)?[a-z0-9-]+):(?P<port>[a-z0-9-]+)")
_START: Final = "start the extender (`kubectl -n linkwise-system get pods`) and read its log; give --server URL if it is elsewhere"


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the extender said; ``status`` 0: nothing, and ``body`` is why."""

    status: int
    body: str
    value: Any = None


def extender(node: Node) -> Finding:
    """Check that the extender is reached and ready."""
    answer = _ask(node, "/readyz")
    if isinstance(answer, Finding):
        return answer
    if answer.status == httpx.codes.OK:
        return ok(f"{_who(node)} is ready")
    if not answer.status:
        return broken(f"no extender answers at {_who(node)}: {answer.body}", _START)
    return broken(f"{_who(node)} is not ready: {answer.body}", "read the extender's log; it is ready once it has listed the cluster")


def node_open(node: Node) -> Finding:
    """Check that the extender takes new pods on this node."""
    answer = _ask(node, f"/api/v1/nodes/{node.name}")
    if isinstance(answer, Finding):
        return answer
    if not answer.status:
        return skipped(f"no extender answers at {_who(node)}")
    if answer.status == httpx.codes.NOT_FOUND:
        return broken(
            f"the extender does not know {node.name}", "see the links above: it knows a node by its GPUTopology, a few seconds after it is published"
        )
    if not isinstance(answer.value, dict) or "closed" not in answer.value:
        return broken(f"{_who(node)} answers, but not as an extender of Linkwise: {answer.body[:120]}", "give --server URL of `linkwise serve`")
    closed = answer.value["closed"]
    if isinstance(closed, dict):
        return broken(
            f"the extender takes no new pods here: {closed.get('reason')}",
            f"mend what it names; `curl …/api/v1/nodes/{node.name}` tells when it is open again",
        )
    return ok(f"it takes new pods; {answer.value.get('free')} of {answer.value.get('total')} GPUs are free")


def _who(node: Node) -> str:
    return node.asked.extender or f"service {node.asked.service}"


def _ask(node: Node, path: str) -> "_Answer | Finding":
    """Return what the extender answers, or a finding where there is no way to it."""
    if node.asked.extender is not None:
        return _directly(f"{node.asked.extender.rstrip('/')}{path}")
    service = _SERVICE.fullmatch(node.asked.service)
    if service is None:
        return broken(f"--service {node.asked.service} is no service", "give NAMESPACE/NAME:PORT, or --server URL")
    if not isinstance(node.api, ApiServer):
        return skipped("there is no API server to go through; give --server URL")
    return _through(node.api, f"/api/v1/namespaces/{service['namespace']}/services/{service['name']}:{service['port']}/proxy{path}")


def _directly(url: str) -> _Answer:
    answer = fetched(url)
    if not isinstance(answer, httpx.Response):
        return _Answer(0, answer)
    try:
        return _Answer(answer.status_code, answer.text.strip(), answer.json())
    except ValueError:
        return _Answer(answer.status_code, answer.text.strip())


def _through(api: ApiServer, path: str) -> "_Answer | Finding":
    try:
        return _Answer(200, "", api.request("GET", path))
    except NoAnswerError as error:
        return skipped(f"the API server does not answer: {error}")
    except RefusedError as error:
        # A text that is no JSON object comes as an error with the status 200. A Status object is the API server's own word, the rest is the extender's.
        if error.reason in {"Forbidden", "Unauthorized"}:
            return skipped("this account may not `get` services/proxy; give --server URL, or --kubeconfig of an administrator")
        return _Answer(0 if error.reason in {"NotFound", "ServiceUnavailable"} else error.status, str(error))
