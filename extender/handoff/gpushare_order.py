"""When a pod may be bound to a node of gpushare's plugin, so that the plugin cannot take it for another pod.

kubelet tells a device plugin no pod. gpushare's plugin guesses: of the Pending pods that are bound to its node and not yet assigned, it takes the one with the
oldest ASSUME_TIME whose total is what kubelet asks for. kubelet may admit two pods in the other order than they were bound, so two such pods
with equal totals must wait for the same GPU: else each would get the other's. `binding` asks `reason_to_wait` and then calls `assume`; `cluster` tells
what it sees of bound pods. Nothing here is stored: after a restart the pods themselves tell it again.

"Assigned" says that the plugin has used a pod's annotations, for this pod or for an equal one. While each pod's annotations are used sooner or later that comes to the
same. But a pod that runs before its own were used has left them behind, and then one that is assigned has still to ask.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from extender.handoff.gpushare import MOST_NS

# Kubelet asks the plugin at admission, before any image is pulled: who is not assigned by then may never be, and holds nobody back any longer.
PATIENCE_S: Final = 10.0
_AHEAD_NS: Final = 3600 * 10**9  # a time further ahead than clocks differ was written by hand, and must not push ours to where nobody can read them


@dataclass(frozen=True, slots=True)
class Assumed:
    """A pod that is bound, or about to be, and that the plugin has not yet handed a GPU.

    ``pod`` is NAMESPACE/NAME for people, ``units`` its total, ``index`` the minor number of its GPU.
    """

    uid: str
    pod: str
    units: int
    index: int


class Turn(Enum):
    """How far a bound pod has come with the plugin."""

    WAITS = auto()  # Pending, its annotations not used
    ASSIGNED = auto()  # Pending, its annotations used
    RAN = auto()  # it runs, its annotations not used: it had those of an equal pod


@dataclass(frozen=True, slots=True)
class _Note:
    pod: Assumed
    turn: Turn
    since: float


class AssumeOrder:
    """The assumed pods of every node, and the last ASSUME_TIME that was given there."""

    def __init__(self, monotonic: Callable[[], float], now_ns: Callable[[], int]) -> None:
        """``monotonic`` in seconds counts patience; ``now_ns`` in Unix nanoseconds is what the plugin compares."""
        self._monotonic = monotonic
        self._now_ns = now_ns
        self._notes: dict[str, dict[str, _Note]] = {}  # node -> uid
        self._node_of: dict[str, str] = {}
        self._last_ns: dict[str, int] = {}

    def reason_to_wait(self, node: str, pod: Assumed) -> str:
        """Return why the pod must not be bound now, empty where it may."""
        for note in self._to_ask(node, pod.units):
            other = note.pod
            if other.uid != pod.uid and other.index != pod.index:
                left = PATIENCE_S - (self._monotonic() - note.since)
                return (
                    f"pod {other.pod} waits on node {node} for {other.units} units of GPU {other.index}, and this one would for as many of GPU {pod.index}: "
                    f"gpushare's device plugin could not tell them apart; try again once that pod has its GPU, or in {max(left, 0):.0f} s"
                )
        return ""

    def indices_of(self, node: str, units: int) -> frozenset[int]:
        """Return the GPUs for which pods of that total wait: on these another one can be bound at once."""
        return frozenset(note.pod.index for note in self._to_ask(node, units))

    def assume(self, node: str, pod: Assumed) -> int:
        """Note a pod that is being bound and return its ASSUME_TIME, later than any on that node; undo with `settle`."""
        self._put(node, pod, Turn.WAITS)
        self._last_ns[node] = max(self._now_ns(), self._last_ns.get(node, 0) + 1)
        return self._last_ns[node]

    def saw(self, node: str, pod: Assumed, assume_time: int, turn: Turn = Turn.WAITS) -> None:
        """Note a bound pod whose turn is not over, whoever bound it."""
        self._put(node, pod, turn)
        # The plugin overwrites the time of an assigned pod, and so says nothing of ours.
        if turn is not Turn.ASSIGNED and assume_time < min(self._now_ns() + _AHEAD_NS, MOST_NS):
            self._last_ns[node] = max(self._last_ns.get(node, 0), assume_time)

    def settle(self, uid: str) -> None:
        """Forget a pod that has its GPU, is gone, or was not bound after all."""
        node = self._node_of.pop(uid, None)
        if node is not None:
            self._notes[node].pop(uid, None)

    def forget_node(self, node: str) -> None:
        """Forget the times of a node that is gone for good, unless a pod is assumed there."""
        if not self._notes.get(node):
            self._notes.pop(node, None)
            self._last_ns.pop(node, None)

    def _put(self, node: str, pod: Assumed, turn: Turn) -> None:
        before = self._notes.get(self._node_of.get(pod.uid, ""), {}).get(pod.uid)
        if self._node_of.get(pod.uid, node) != node:
            self.settle(pod.uid)
            before = None
        self._node_of[pod.uid] = node
        self._notes.setdefault(node, {})[pod.uid] = _Note(pod, turn, self._monotonic() if before is None else before.since)

    def _to_ask(self, node: str, units: int) -> list[_Note]:
        """Return the pods of that total on the node that may still ask the plugin, and so hold others back."""
        now = self._monotonic()
        notes = [note for note in self._notes.get(node, {}).values() if note.pod.units == units and now - note.since < PATIENCE_S]
        left_behind = any(note.turn is Turn.RAN for note in notes)
        return [note for note in notes if note.turn is Turn.WAITS or (left_behind and note.turn is Turn.ASSIGNED)]
