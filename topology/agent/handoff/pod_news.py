"""What the watch of pods means for the observation: that somebody who may hold GPUs has ended, or is gone.

Told by `pod_watch` after each change of the cache, by `records` where a container was given something or forgotten, and by `registration` where kubelet has come or gone; tells `running` that a look is worth
while now. A pod that is gone without having ended (deleted by force) is remembered until `take_gone`: the extender keeps its GPUs until it hears of a look that
came after the deletion, also where that look shows nothing new.
"""

import threading
from collections.abc import Callable

from topology.agent.handoff.pods import Pods
from topology.agent.handoff.records import Records


class PodNews:
    """Tells ``heard`` of what matters, from whatever thread."""

    def __init__(self, pods: Pods, records: Records) -> None:
        self._pods = pods
        self._records = records
        self._lock = threading.Lock()
        self._known: dict[str, bool] = {}  # UID -> has ended, of the pods that may hold GPUs
        self._is_one_gone = False
        self.heard: Callable[[], None] = lambda: None

    def changed(self) -> None:
        """Compare the cache with what it was."""
        holders = {holding.pod_uid for holding in self._records.holdings().values()}
        now = {pod.uid: pod.ended for pod in self._pods.all() if pod.allocation is not None or holders & {pod.uid, pod.static_uid}}
        with self._lock:
            before, self._known = self._known, now
            self._is_one_gone |= any(not ended for uid, ended in before.items() if uid not in now)
        if before != now:
            self.heard()

    def records_changed(self) -> None:
        """Take note that a container was given something, or was forgotten."""
        self.heard()

    def registration_changed(self) -> None:
        """Take note that kubelet listens to the agent now, or no longer."""
        self.heard()

    def take_gone(self) -> bool:
        """Tell whether a pod went, since the last call, that had not ended."""
        with self._lock:
            gone, self._is_one_gone = self._is_one_gone, False
        return gone
