"""The startup taint: which Nodes carry it, and what each of them still waits for before it can lose it.

Nodes that register with `linkwise.dev/agent-not-ready` take no pods that do not tolerate it, until the extender knows their GPUs. `state` brings Nodes and
GPUTopologies; `kube.untaint` asks who waits for nothing any more and writes. Nothing is decided by names alone: a Node that is deleted and registers anew under
its name (a pool that replaces a machine) finds the GPUTopology of the one before until the garbage collector has come, and that one says nothing about it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from extender.cluster.machines import NodeTopology
from extender.cluster.pods import time_of
from topology.api.annotations import STARTUP_TAINT

JsonObject = dict[str, Any]


class Awaited(StrEnum):
    """What a Node with the taint still waits for, the first thing first."""

    TOPOLOGY = "topology"  # nobody has published a GPUTopology of this very Node that can be read
    AGENT = "agent"  # its agent has not looked at the GPUs since the Node is there, or is silent
    HAND_OFF = "hand-off"  # the hand-off is on, and kubelet does not know the agent's device plugin yet
    NOTHING = "nothing"  # it can lose the taint


@dataclass(frozen=True, slots=True)
class TaintedNode:
    """A Node that carries the startup taint; ``taints`` are all of them as they came, in their order."""

    name: str
    uid: str
    created: datetime | None
    taints: tuple[Any, ...]

    def removal(self) -> list[JsonObject]:
        """Return the JSON patch (RFC 6902) that takes our taint off, whatever its effects, and nothing else.

        Each place is tested before it is removed, from the last to the first: where somebody has changed the taints so that another stands there, or the Node is another one by now, nothing is written.
        """
        operations: list[JsonObject] = [{"op": "test", "path": "/metadata/uid", "value": self.uid}]
        for place in reversed(range(len(self.taints))):
            if _is_ours(self.taints[place]):
                path = f"/spec/taints/{place}"
                operations += [{"op": "test", "path": path, "value": self.taints[place]}, {"op": "remove", "path": path}]
        return operations


class StartupTaints:
    """The Nodes that carry the taint, by name: few at any time, and most of the time none."""

    def __init__(self) -> None:
        self._nodes: dict[str, TaintedNode] = {}

    def apply(self, name: str, raw: Mapping[str, Any]) -> None:
        """Take in a Node as it is now; undo with `remove`."""
        found = read_tainted(name, raw)
        if found is not None:
            self._nodes[name] = found
        else:
            self._nodes.pop(name, None)

    def remove(self, name: str) -> None:
        """Take a Node out that is gone."""
        self._nodes.pop(name, None)

    def __iter__(self) -> Iterator[TaintedNode]:
        return iter(tuple(self._nodes.values()))


def read_tainted(name: str, raw: Mapping[str, Any]) -> TaintedNode | None:
    """Return a raw Node where it carries the startup taint, None for any other; never raises.

    >>> read_tainted("a", {"spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]}}) is None
    True
    """
    spec, metadata = raw.get("spec"), raw.get("metadata")
    taints = spec.get("taints") if isinstance(spec, Mapping) else None
    if not taints or not isinstance(taints, list) or not any(map(_is_ours, taints)):
        return None
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return TaintedNode(name, str(metadata.get("uid") or ""), time_of(metadata.get("creationTimestamp")), tuple(taints))


def awaited(node: TaintedNode, topology: NodeTopology | None, now: datetime, stale_after_s: float) -> Awaited:
    """Return what a Node still waits for; ``topology`` is what was read of its GPUTopology, None where there is none that can be read."""
    if topology is None or topology.owner not in ("", node.uid):
        return Awaited.TOPOLOGY
    heard = topology.observed_at
    if heard is None or _is_before(heard, node.created) or _aware(now) - _aware(heard) > timedelta(seconds=stale_after_s):
        return Awaited.AGENT
    return Awaited.NOTHING if topology.registered else Awaited.HAND_OFF


def _is_before(heard: datetime, created: datetime | None) -> bool:
    """Tell whether an agent looked before the Node was there: what it saw was told of the Node before."""
    return created is not None and _aware(heard) < created


def _is_ours(taint: object) -> bool:
    return isinstance(taint, Mapping) and taint.get("key") == STARTUP_TAINT


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)
