"""When a pod may be bound to a node of gpushare's plugin, so that the plugin cannot take it for another pod.

kubelet tells a device plugin no pod. gpushare's plugin guesses: of the Pending pods that are bound to its node and not yet assigned, it takes the one with the
oldest ASSUME_TIME whose total is what kubelet asks for. kubelet may admit two pods in the other order than they were bound, so two such pods
with equal totals must wait for the same GPU: else each would get the other's. `binding` asks `reason_to_wait` and then calls `assume`; `cluster` tells
what it sees of bound pods. Nothing here is stored: after a restart the pods themselves tell it again.
"""

from collections.abc import Callable
from dataclasses import dataclass
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


class AssumeOrder:
    """The assumed pods of every node, and the last ASSUME_TIME that was given there."""

    def __init__(self, monotonic: Callable[[], float], now_ns: Callable[[], int]) -> None:
        """``monotonic`` in seconds counts patience; ``now_ns`` in Unix nanoseconds is what the plugin compares."""
        self._monotonic = monotonic
        self._now_ns = now_ns
        self._waiting: dict[str, dict[str, tuple[Assumed, float]]] = {}  # node -> uid -> pod, since when
        self._node_of: dict[str, str] = {}
        self._last_ns: dict[str, int] = {}

    def reason_to_wait(self, node: str, pod: Assumed) -> str:
        """Return why the pod must not be bound now, empty where it may."""
        for other, since in self._on(node):
            if other.uid != pod.uid and other.units == pod.units and other.index != pod.index:
                left = PATIENCE_S - (self._monotonic() - since)
                return (
                    f"pod {other.pod} waits on node {node} for {other.units} units of GPU {other.index}, and this one would for as many of GPU {pod.index}: "
                    f"gpushare's device plugin could not tell them apart; try again once that pod has its GPU, or in {max(left, 0):.0f} s"
                )
        return ""

    def indices_of(self, node: str, units: int) -> frozenset[int]:
        """Return the GPUs for which pods of that total wait: on these another one can be bound at once."""
        return frozenset(other.index for other, _ in self._on(node) if other.units == units)

    def assume(self, node: str, pod: Assumed) -> int:
        """Note a pod that is being bound and return its ASSUME_TIME, later than any on that node; undo with `settle`."""
        self._put(node, pod)
        self._last_ns[node] = max(self._now_ns(), self._last_ns.get(node, 0) + 1)
        return self._last_ns[node]

    def saw(self, node: str, pod: Assumed, assume_time: int) -> None:
        """Note a bound pod that the plugin has not yet handed a GPU, whoever bound it."""
        self._put(node, pod)
        if assume_time < min(self._now_ns() + _AHEAD_NS, MOST_NS):
            self._last_ns[node] = max(self._last_ns.get(node, 0), assume_time)

    def settle(self, uid: str) -> None:
        """Forget a pod that is assigned, running, gone, or was not bound after all."""
        node = self._node_of.pop(uid, None)
        if node is not None:
            self._waiting[node].pop(uid, None)

    def _put(self, node: str, pod: Assumed) -> None:
        before = self._waiting.get(self._node_of.get(pod.uid, ""), {}).get(pod.uid)
        if self._node_of.get(pod.uid, node) != node:
            self.settle(pod.uid)
            before = None
        self._node_of[pod.uid] = node
        self._waiting.setdefault(node, {})[pod.uid] = (pod, self._monotonic() if before is None else before[1])

    def _on(self, node: str) -> list[tuple[Assumed, float]]:
        """Return the pods of a node that still hold others back."""
        now = self._monotonic()
        return [(pod, since) for pod, since in self._waiting.get(node, {}).values() if now - since < PATIENCE_S]
