"""Where the reflectors' objects go: pods, nodes, topologies and gpushare's ConfigMaps into the cluster's state.

`serving` puts one of each between a `watch.Reflector` and the `Cluster`. A sink knows what a list may remove: everything that the state holds by now,
also pods that were bound by this very process and that no watch has shown yet.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import structlog

from extender import log_keys
from extender.cluster import Cluster
from extender.cluster.observed import may_run
from extender.cluster.pods import RefusedPod, refused_by_topology_manager, time_of, uid_of

_log = structlog.get_logger()
JsonObject = dict[str, Any]


class HearsOfRefused(Protocol):
    """Who is told of pods that kubelet's topology manager refused: `Verbs.note_refused`."""

    def __call__(self, pod: JsonObject, refused: RefusedPod, *, is_news: bool) -> None:
        """Take note of a pod."""
        ...


class PodSink:
    """Pods, by UID; ``parked`` hears of unbound ones that kube-scheduler has given up on for now.

    ``refused`` hears of bound ones that kubelet's topology manager did not admit, and whether they were there a moment ago.
    """

    def __init__(self, cluster: Cluster, parked: Callable[[JsonObject], None] | None = None, refused: HearsOfRefused | None = None) -> None:
        self._cluster = cluster
        self._parked = parked
        self._refused = refused

    def key(self, raw: JsonObject) -> str:
        """Return the pod's UID."""
        return uid_of(raw.get("metadata") or {})

    def apply(self, raw: JsonObject) -> None:
        """Take in a pod as it is now."""
        refused = None if self._refused is None else refused_by_topology_manager(raw)
        if refused is not None and self._refused is not None:
            self._refused(raw, refused, is_news=self._cluster.knows(refused.uid))
        self._cluster.apply_pod(raw)
        if self._parked is not None and is_parked(raw):
            self._parked(raw)

    def remove(self, raw: JsonObject) -> None:
        """Take out a pod that is gone; its last state tells whether its containers had ended."""
        self._cluster.remove_pod(self.key(raw), ended=not may_run(raw), deleted=time_of((raw.get("metadata") or {}).get("deletionTimestamp")))

    def known(self) -> Iterable[str]:
        """Return the UIDs of the pods that hold something of a node here, as of now; some twice."""
        return self._cluster.pod_uids()

    def forget(self, key: str) -> None:
        """Take out a pod that a list no longer has; how it ended nobody saw."""
        self._cluster.remove_pod(key, ended=False)


def is_parked(raw: JsonObject) -> bool:
    """Tell whether kube-scheduler found no node for a pod and waits for an event before it tries again."""
    if (raw.get("spec") or {}).get("nodeName") or (raw.get("metadata") or {}).get("deletionTimestamp"):
        return False
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable" for condition in conditions)


class NodeSink:
    """Nodes, by name."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def key(self, raw: JsonObject) -> str:
        """Return the node's name."""
        return str((raw.get("metadata") or {}).get("name", ""))

    def apply(self, raw: JsonObject) -> None:
        """Take in a node as it is now; most of it is not kept."""
        self._cluster.apply_node(raw)

    def remove(self, raw: JsonObject) -> None:
        """Take out a node that is gone."""
        self.forget(self.key(raw))

    def known(self) -> set[str]:
        """Return the names that the state has."""
        return self._cluster.node_names()

    def forget(self, key: str) -> None:
        """Take out a node that a list no longer has."""
        self._cluster.remove_node(key)


class ConfigMapSink:
    """ConfigMaps of the namespace in which gpushare's users name their unhealthy GPUs, by name; nothing is kept of any other."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def key(self, raw: JsonObject) -> str:
        """Return the name."""
        return str((raw.get("metadata") or {}).get("name", ""))

    def apply(self, raw: JsonObject) -> None:
        """Take in a ConfigMap as it is now."""
        self._cluster.apply_config_map(raw)

    def remove(self, raw: JsonObject) -> None:
        """Take out a ConfigMap that is gone."""
        self.forget(self.key(raw))

    def known(self) -> set[str]:
        """Return the names that the state has."""
        return self._cluster.gpushare.config_maps()

    def forget(self, key: str) -> None:
        """Take out a ConfigMap that a list no longer has."""
        self._cluster.remove_config_map(key)


class TopologySink:
    """GPUTopologies, by name."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._complained: dict[str, str] = {}

    def key(self, raw: JsonObject) -> str:
        """Return the object's name."""
        return str((raw.get("metadata") or {}).get("name", ""))

    def apply(self, raw: JsonObject) -> None:
        """Take in a topology; one that cannot be read closes its node and is told once."""
        name = self.key(raw)
        problem = self._cluster.apply_topology(raw)
        if problem and self._complained.get(name) != problem:
            _log.warning("topology cannot be read", **{log_keys.NODE: name, log_keys.REASON: problem})
        if problem:
            self._complained[name] = problem
        else:
            self._complained.pop(name, None)

    def remove(self, raw: JsonObject) -> None:
        """Take out a topology that is gone."""
        self.forget(self.key(raw))

    def known(self) -> set[str]:
        """Return the names that the state has."""
        return self._cluster.topology_names()

    def forget(self, key: str) -> None:
        """Take out a topology that a list no longer has."""
        self._complained.pop(key, None)
        self._cluster.remove_topology(key)
