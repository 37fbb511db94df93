"""A pod as the API server shows it, as far as the hand-off needs it.

Read by `pods`. Pods are written by users: whatever is not as Kubernetes defines it is left out, and then the pod has no plan, or is not known.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from topology.agent.handoff.holding import Container, Kind
from topology.api.annotations import ALLOCATION, GPU_COUNT

_STATIC_UID: Final = "kubernetes.io/config.hash"
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Pod:
    """What the hand-off needs of a pod. ``allocation``: its annotation as it stands there; ``ended``: no container of it runs or will run."""

    uid: str
    namespace: str
    name: str
    node: str | None
    containers: tuple[Container, ...]
    allocation: object = None
    gpu_count: object = None
    ended: bool = False
    created: str = ""
    static_uid: str | None = None

    @property
    def told(self) -> str:
        """The pod in a sentence."""
        return f"pod {self.namespace}/{self.name}"

    def container(self, name: str) -> Container | None:
        """Return a container by its name."""
        return next((one for one in self.containers if one.name == name), None)


def pod_of(raw: object) -> Pod | None:
    """Return a raw pod, None for what is none."""
    if not isinstance(raw, Mapping):
        return None
    metadata, spec, status = (_object(raw.get(key)) for key in ("metadata", "spec", "status"))
    uid, namespace, name = (metadata.get(key) for key in ("uid", "namespace", "name"))
    if not (isinstance(uid, str) and uid and isinstance(namespace, str) and isinstance(name, str)):
        return None
    annotations = _object(metadata.get("annotations"))
    node, static_uid = spec.get("nodeName"), annotations.get(_STATIC_UID)
    return Pod(
        uid=uid,
        namespace=namespace,
        name=name,
        node=node if isinstance(node, str) and node else None,
        containers=tuple(_containers(spec)),
        allocation=annotations.get(ALLOCATION),
        gpu_count=annotations.get(GPU_COUNT),
        ended=_has_ended(metadata, status),
        created=str(metadata.get("creationTimestamp") or ""),
        static_uid=static_uid if isinstance(static_uid, str) else None,
    )


def _containers(spec: Mapping[str, Any]) -> Iterator[Container]:
    order = 0
    for field in ("initContainers", "containers"):
        found = spec.get(field)
        for one in found if isinstance(found, list) else ():
            name = _object(one).get("name")
            if isinstance(name, str):
                app = field == "containers"
                yield Container(name, Kind.APP if app else Kind.SIDECAR if one.get("restartPolicy") == "Always" else Kind.INIT, order)
            order += 1


def _has_ended(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Tell whether no container runs or will: a final phase, or a deletion that has come to the end of all of them (then finalizers keep the object)."""
    if status.get("phase") in _ENDED:
        return True
    states = [_object(_object(one).get("state")) for field in ("initContainerStatuses", "containerStatuses") for one in _list_of(status.get(field))]
    return bool(metadata.get("deletionTimestamp")) and bool(states) and all("terminated" in state for state in states)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list_of(value: object) -> list[object]:
    return value if isinstance(value, list) else []
