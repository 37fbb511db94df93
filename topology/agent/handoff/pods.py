"""The pods of this node as the API server tells them, by UID: whose is a container, what was it promised, has it ended.

`Pods` is a cache that `pod_watch` keeps; a pod that it does not know (it lags, or there was no watch yet) is read from the API server at once. A name is
never trusted without its UID: a StatefulSet's pod comes back under the same name with another plan. Static pods are known to kubelet by another UID, which
the API server shows in the annotation ``kubernetes.io/config.hash``.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Final

from topology.agent.api_server import ApiServer, JsonObject, NoAnswerError, RefusedError
from topology.agent.handoff.holding import Container
from topology.agent.handoff.plan import Planned, plan_of
from topology.agent.handoff.pod import Pod, pod_of
from topology.errors import LinkwiseError

PODS: Final = "/api/v1/pods"


class PodUnknownError(LinkwiseError):
    """Nobody tells which pod this is."""


class Pods:
    """The cache, and the way around it."""

    def __init__(self, api: ApiServer, node_name: str) -> None:
        self._api = api
        self.node_name = node_name
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._meanwhile: list[list[tuple[str, Pod]]] = []  # of each question that is under way: what the watch has told since it was asked

    # --- the cache --------------------------------------------------------------------------------------------------

    def replace(self, raw: Iterable[object]) -> None:
        """Take a whole list in place of what was known."""
        found = {pod.uid: pod for pod in map(pod_of, raw) if pod is not None}
        with self._lock:
            self._pods = found

    def take(self, kind: str, raw: object) -> None:
        """Take one event of a watch."""
        pod = pod_of(raw)
        if pod is None:
            return
        with self._lock:
            self._put(kind, pod)
            for told in self._meanwhile:
                told.append((kind, pod))

    def _put(self, kind: str, pod: Pod) -> None:
        if kind == "DELETED":
            self._pods.pop(pod.uid, None)
        elif kind in ("ADDED", "MODIFIED"):
            self._pods[pod.uid] = pod

    def all(self) -> list[Pod]:
        """Return the pods of the cache."""
        with self._lock:
            return list(self._pods.values())

    def cached(self, uid: str) -> Pod | None:
        """Return a pod by the UID that kubelet knows it by, None where the cache does not have it."""
        with self._lock:
            return self._pods.get(uid) or next((pod for pod in self._pods.values() if pod.static_uid == uid), None)

    def lives(self, uid: str, namespace: str, name: str) -> bool:
        """Tell whether a pod may have running containers: the API server decides, and where it does not answer, it may."""
        pod = self.cached(uid)
        if pod is not None and pod.ended:
            return False
        try:
            pod = pod_of(self._get(namespace, name))
        except (NoAnswerError, RefusedError):
            return True
        return pod is not None and uid in (pod.uid, pod.static_uid) and not pod.ended

    def promised(self) -> list[tuple[Pod, Container, Planned]]:
        """Return what the pods of the cache were promised, container by container, of those that have not ended."""
        found = [
            (pod, container, plan_of(pod, container.name, self.node_name)) for pod in self.all() if not pod.ended for container in pod.containers
        ]
        return [(pod, container, plan) for pod, container, plan in found if isinstance(plan, Planned) and plan.parts]

    # --- the API server ---------------------------------------------------------------------------------------------

    def by_uid(self, uid: str, names: Iterable[tuple[str, str]] = ()) -> Pod:
        """Return a pod: from the cache, else by the (namespace, name) that somebody tells for it, else from all pods of the node.

        Raises PodUnknownError where there is no such pod, or the API server does not answer.
        """
        return self.cached(uid) or self.read(uid, names)

    def read(self, uid: str, names: Iterable[tuple[str, str]] = ()) -> Pod:
        """Return a pod as the API server has it now; raises as `by_uid` does."""
        try:
            found = self._asked(lambda: self._found(uid, names))
        except (NoAnswerError, RefusedError) as error:
            raise PodUnknownError(f"the pod of UID {uid} cannot be looked up: {error}") from error
        if not found:
            raise PodUnknownError(f"the API server knows no pod of UID {uid} on node {self.node_name}")
        return found[0]

    def _found(self, uid: str, names: Iterable[tuple[str, str]]) -> list[Pod]:
        for namespace, name in names:
            pod = pod_of(self._get(namespace, name))
            if pod is not None and uid in (pod.uid, pod.static_uid):
                return [pod]
        return [pod for pod in map(pod_of, self._list()) if pod is not None and uid in (pod.uid, pod.static_uid)][:1]

    def _asked(self, ask: Callable[[], list[Pod]]) -> list[Pod]:
        """Take what the API server answers into the cache, and after it what the watch has told meanwhile: the answer may be the older of the two.

        Pods that are not in the answer stay, for the watch to take out: else one that came after the answer was made would be lost for as long as the watch lasts.
        """
        told: list[tuple[str, Pod]] = []
        with self._lock:
            self._meanwhile.append(told)
        found: list[Pod] = []
        try:
            found = ask()
        finally:
            with self._lock:
                self._meanwhile = [other for other in self._meanwhile if other is not told]
                self._pods |= {pod.uid: pod for pod in found}
                for kind, pod in told:
                    self._put(kind, pod)
        return found

    def _get(self, namespace: str, name: str) -> JsonObject | None:
        try:
            return self._api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    def reload(self, uid: str) -> Pod:
        """Read all pods of the node from the API server now, and return one of them; raises as `by_uid` does."""
        pod = next((pod for pod in self.renew() if uid in (pod.uid, pod.static_uid)), None)
        if pod is None:
            raise PodUnknownError(f"the API server knows no pod of UID {uid} on node {self.node_name}")
        return pod

    def renew(self) -> list[Pod]:
        """Read all pods of the node from the API server now, and return them; raises PodUnknownError where it does not answer."""
        try:
            return self._asked(lambda: [pod for pod in map(pod_of, self._list()) if pod is not None])
        except (NoAnswerError, RefusedError) as error:
            raise PodUnknownError(f"the pods of this node cannot be listed: {error}") from error

    def _list(self) -> list[object]:
        """Return all pods of the node, not from a cache of the API server."""
        answer = self._api.request("GET", PODS, {"fieldSelector": f"spec.nodeName={self.node_name}"})
        items = answer.get("items")
        return items if isinstance(items, list) else []
