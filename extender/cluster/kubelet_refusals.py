"""What kubelet's topology manager refused after Linkwise had bound it: for some minutes no pod of that demand is sent to that node again.

kubelet's topology manager (policy `restricted` or `single-numa-node`) decides at admission, by what it knows of CPUs, memory and its own device ids; a pod that it cannot align has failed
for good (`status.reason: TopologyAffinityError`), and its controller makes another one like it, which would go to the same node, and fail, for as long as the node is the
best. So `state` notes the demand and the node, filter refuses the one on the other, and after `REMEMBERED` the node is tried again: what ran there may have ended.

Readers see the refusals in the view, by shape and row. A pod is noted once, however often it is told: by a watch, a list, or the list of a process that has just started, which
goes by the time at which kubelet says that the pod began (and ended). Bounded: beyond `MOST` the one that ends first is forgotten.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from cachetools import LRUCache

from extender.cluster.columns import Columns, KubeletRefusal
from extender.cluster.pods import RefusedPod
from extender.demand import Shape

REMEMBERED: Final = timedelta(minutes=5)
MOST: Final = 1000  # of demand and node
_PODS_KEPT: Final = 4096


class KubeletRefusals:
    """The refusals of now; writes `kubelet_refusals` of the columns, where they are counted by nobody else. ``clock``: monotonic seconds."""

    def __init__(self, columns: Columns, clock: Callable[[], float]) -> None:
        self._columns = columns
        self._clock = clock
        self._noted: LRUCache[str, None] = LRUCache(_PODS_KEPT)  # UIDs

    def __len__(self) -> int:
        return sum(map(len, self._columns.kubelet_refusals.values()))

    def note(self, shape: Shape, pod: RefusedPod, at: datetime, now: datetime) -> None:
        """Remember a pod that was refused at that time, unless that is too long ago, or it was noted; undone by `end` when its time has come."""
        left = REMEMBERED - max(now - at, timedelta(0))
        if left <= timedelta(0) or pod.uid in self._noted:
            return
        self._noted[pod.uid] = None
        row = self._columns.row(pod.node)
        refusal = KubeletRefusal(pod.told, now + left, self._clock() + left.total_seconds())
        known = self._columns.kubelet_refusals.get(shape, {}).get(row)
        if known is None or known.ends < refusal.ends:
            self._put(shape, row, refusal)
        if len(self) > MOST:
            self._forget_first()

    def end(self) -> None:
        """Forget those whose time has come."""
        now = self._clock()
        for shape, by_row in self._columns.kubelet_refusals.items():
            for row in [row for row, refusal in by_row.items() if refusal.ends <= now]:
                self._put(shape, row, None)

    def _forget_first(self) -> None:
        every = ((refusal.ends, row, shape) for shape, by_row in self._columns.kubelet_refusals.items() for row, refusal in by_row.items())
        _, row, shape = min(every, key=lambda one: one[:2])
        self._put(shape, row, None)

    def _put(self, shape: Shape, row: int, refusal: KubeletRefusal | None) -> None:
        """Write one anew, or take it out (None): views of before keep what they have, and whoever remembers answers about the row looks at it again."""
        columns = self._columns
        by_row = {other: known for other, known in columns.kubelet_refusals.get(shape, {}).items() if other != row}
        if refusal is not None:
            by_row[row] = refusal
        others = {other: known for other, known in columns.kubelet_refusals.items() if other != shape}
        columns.kubelet_refusals = {**others, shape: by_row} if by_row else others
        columns.touch(row)
