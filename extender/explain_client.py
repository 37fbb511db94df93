"""Fetch a decision from a running extender, for `linkwise explain`: straight from its URL, or through the API server's service proxy.

The second needs no port-forward and no address, only the right to `get` services/proxy in the extender's namespace. Which of the two is `decision_about`'s
business; what a decision looks like is `explain`'s.
"""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from extender.kube.client import ApiRefusedError, KubeClient, NoAnswerError
from topology.errors import InputError

LOCAL: Final = "http://127.0.0.1:8888"  # where `linkwise serve` listens unless it is told otherwise
SERVICE: Final = "linkwise-system/linkwise-extender:extender"  # as manifests/service.yaml has it
# NAMESPACE/NAME:PORT; `https:` before the name for an extender that serves TLS, as in the API server's own paths.
_SERVICE: Final = re.compile(r"(?P<namespace>[a-z0-9-]+)/(?P<name>(https:)?[a-z0-9-]+):(?P<port>[a-z0-9-]+)")
_ANSWER: Final = frozenset({"pod", "error", "nodes", "chosen", "bound"})


@dataclass(frozen=True, slots=True)
class Way:
    """How to reach the extender: ``server`` is its URL; without one, ``service`` (None: `SERVICE`) behind the API server of the kubeconfig."""

    server: str | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    service: str | None = None


def decision_about(pod: str, way: Way) -> dict[str, Any]:
    """Return the decision about NAMESPACE/NAME; raises InputError with a sentence.

    Where nothing is said about the way, an extender on this machine answers; if none listens, the cluster's.
    """
    if way.server is not None:
        return fetch(way.server, pod)
    if way.kubeconfig is None and way.context is None and _listens(LOCAL):
        return fetch(LOCAL, pod)
    return asyncio.run(fetch_through_api_server(way, pod))


def fetch(server: str, pod: str) -> dict[str, Any]:
    """Return the decision as the extender at that URL tells it; raises InputError with a sentence."""
    url = f"{server.rstrip('/')}{_path(pod)}"
    try:
        response = httpx.get(url, timeout=10.0)
        answer = response.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise InputError(f"no extender answers at {server}: {error}; accepted: --server URL of `linkwise serve`") from error
    if response.status_code != 200 or not isinstance(answer, dict):
        raise InputError(f"{server}: {answer.get('Error', answer) if isinstance(answer, dict) else answer}")
    return _checked(answer, server)


async def fetch_through_api_server(way: Way, pod: str) -> dict[str, Any]:
    """Return the decision as the service's extender tells it; raises InputError with a sentence."""
    name = way.service or SERVICE
    service = _SERVICE.fullmatch(name)
    if service is None:
        raise InputError(f"--service {name}: no service; accepted: NAMESPACE/NAME:PORT, NAMESPACE/https:NAME:PORT where it serves TLS")
    path = f"/api/v1/namespaces/{service['namespace']}/services/{service['name']}:{service['port']}/proxy{_path(pod)}"
    try:
        async with await KubeClient.connect(way.kubeconfig, way.context) as client:
            answer = await client.request("GET", path, timeout_s=15.0)
    except ApiRefusedError as error:
        hint = "; accepted: --server URL of an extender, or --service NAMESPACE/NAME:PORT" if error.status in (403, 503) else ""
        raise InputError(f"service {name}: {error}{hint}") from error
    except (NoAnswerError, ValueError) as error:
        raise InputError(f"the extender behind service {name} gave no answer: {error}") from error
    return _checked(answer, f"service {name}")


def _path(pod: str) -> str:
    namespace, slash, name = pod.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise InputError(f"{pod}: which pod? Accepted: NAMESPACE/NAME")
    return f"/api/v1/pods/{quote(namespace, safe='')}/{quote(name, safe='')}/decision"


def _checked(answer: object, who: str) -> dict[str, Any]:
    if not isinstance(answer, dict) or not answer.keys() >= _ANSWER:
        raise InputError(f"{who} answers, but not as an extender of Linkwise does; accepted: --server URL of `linkwise serve`")
    return answer


def _listens(server: str) -> bool:
    """Tell whether anything takes a connection there."""
    try:
        httpx.get(f"{server}/healthz", timeout=2.0)
    except httpx.HTTPError:
        return False
    return True
