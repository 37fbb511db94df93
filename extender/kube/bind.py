"""Bindings to a real API server: one POST, and what its answer, or its silence, means.

The binder behind `extender.binding` when Linkwise runs on a cluster. The verdict is about what may have happened on the server, never a guess: whatever
is not a clear yes or a clear no is UNKNOWN, and the promise stands until the pod tells.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from extender.kube.client import ApiRefusedError, KubeClient, NoAnswerError
from extender.protocol import Binding, BindResult, BindVerdict, JsonObject

# The answer may be lost on the way: wait a little longer than the server may work on it.
_NETWORK_S: Final = 1.0
_LEAST_S: Final = 0.1  # less is no chance, and "0ms" would mean no limit to the API server
_SLACK_S: Final = 0.5  # between decision and departure; the lease's margin is four times as long
_READ_S: Final = 5.0  # a bind call waits for it, and kube-scheduler for that: 10 s
# 409: already bound, being deleted, gated or another UID; which of them, only the pod tells. 408 and 5xx: it may have been written.
_UNCLEAR: Final = frozenset({408, 409})


class KubeBinder:
    """Posts Bindings while ``may_take_s`` allows: seconds that a POST may still take before another replica could lead."""

    def __init__(self, client: KubeClient, may_take_s: Callable[[], float]) -> None:
        self._client = client
        self._may_take_s = may_take_s

    async def bind(self, binding: Binding, timeout_s: float) -> BindResult:
        """Post the Binding once; the API server itself gives up after the time-out."""
        allowed = min(timeout_s, self._may_take_s())
        if allowed < _LEAST_S:
            return BindResult(BindVerdict.REFUSED, "this replica may lose its lease before the answer; another one will be asked")
        left = False

        def may_leave() -> bool:
            """Tell, at the last moment before the bytes go, whether the lease still allows it."""
            nonlocal left
            left = self._may_take_s() >= allowed - _SLACK_S
            return left

        target = f"{_pod_path(binding.namespace, binding.name)}/binding?timeout={int(allowed * 1000)}ms"
        try:
            await self._client.post(target, binding.to_object(), may_leave, allowed + _NETWORK_S)
        except NoAnswerError as error:
            return BindResult(BindVerdict.UNKNOWN if left else BindVerdict.REFUSED, str(error))
        except ApiRefusedError as error:
            unclear = error.status in _UNCLEAR or error.status >= 500
            return BindResult(BindVerdict.UNKNOWN if unclear else BindVerdict.REFUSED, str(error))
        return BindResult(BindVerdict.BOUND)

    async def read_pod(self, namespace: str, name: str) -> JsonObject | None:
        """Return the pod as it is stored now, None where it is gone; raises where nobody answers."""
        try:
            pod: JsonObject = await self._client.request("GET", _pod_path(namespace, name), timeout_s=_READ_S)
        except ApiRefusedError as error:
            if error.status == 404:
                return None
            raise
        return pod


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
