"""Fetch a decision from a running extender, for `linkwise explain`."""

from typing import Any
from urllib.parse import quote

import httpx

from topology.errors import InputError


def fetch(server: str, pod: str) -> dict[str, Any]:
    """Return the decision about NAMESPACE/NAME as the extender tells it; raises InputError with a sentence."""
    namespace, slash, name = pod.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise InputError(f"{pod}: which pod? Accepted: NAMESPACE/NAME")
    url = f"{server.rstrip('/')}/api/v1/pods/{quote(namespace, safe='')}/{quote(name, safe='')}/decision"
    try:
        response = httpx.get(url, timeout=10.0)
        answer = response.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise InputError(f"no extender answers at {server}: {error}; accepted: --server URL of `linkwise serve`") from error
    if response.status_code != 200 or not isinstance(answer, dict):
        raise InputError(f"{server}: {answer.get('Error', answer) if isinstance(answer, dict) else answer}")
    if not answer.keys() >= {"pod", "error", "nodes", "chosen", "bound"}:
        raise InputError(f"{server} answers, but not as an extender of Linkwise does; accepted: --server URL of `linkwise serve`")
    return answer
