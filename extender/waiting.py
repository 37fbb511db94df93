"""Pods that filter refused everywhere, until something changes that may let one in.

kube-scheduler does not watch GPUTopologies, and may see a deletion before the extender does; a pod that it tried too early sleeps for minutes. So `verbs` notes
the refused pods here, and `serving` asks after every change whether one of them fits on a node that has changed since; if so it touches a Node, which
wakes all of them. Bounded: with more waiting pods than this, the oldest are woken with the others all the same. What a leader noted is lost with it, so
the one after it adopts the pods that kube-scheduler says it has given up on.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import numpy as np

from extender.cluster import View
from extender.demand import Shape
from extender.placement import Placement
from extender.reasons import Refusal

_KEPT: Final = 5000


@dataclass(frozen=True, slots=True)
class _Waiting:
    shape: Shape
    generation: int  # of the view on which it was refused


class WaitingPods:
    """Refused pods by UID."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._pods: dict[str, _Waiting] = {}  # the one noted first stands first

    def refused(self, uid: str, shape: Shape, generation: int) -> None:
        """Note a pod that no node asked about can take."""
        if uid:
            self._put(uid, _Waiting(shape, generation))

    def adopt(self, uid: str, shape: Shape) -> None:
        """Note a pod that another process refused: on which state nobody knows, so any node may have changed since."""
        if uid and uid not in self._pods:
            self._put(uid, _Waiting(shape, 0))

    def _put(self, uid: str, waiting: _Waiting) -> None:
        self._pods.pop(uid, None)
        self._pods[uid] = waiting
        if len(self._pods) > _KEPT:
            del self._pods[next(iter(self._pods))]

    def served(self, uid: str) -> None:
        """Forget a pod that has somewhere to go."""
        self._pods.pop(uid, None)

    def node_that_may_help(self, view: View, besides: AbstractSet[str] = frozenset()) -> str | None:
        """Return a node that has changed since a waiting pod was refused and can take it now, None where there is none besides those named."""
        return next((node for node in self.nodes_that_may_help(view, besides) if node is not None), None)

    def nodes_that_may_help(self, view: View, besides: AbstractSet[str] = frozenset()) -> Iterator[str | None]:
        """Yield for each kind of waiting pod what `node_that_may_help` does, so that whoever asks may pause: there may be hundreds of kinds."""
        oldest: dict[Shape, int] = {}
        for waiting in self._pods.values():
            oldest[waiting.shape] = min(oldest.get(waiting.shape, waiting.generation), waiting.generation)
        for shape, generation in oldest.items():
            changed = view.row_generation > generation
            rows = np.nonzero((self._placement.fits(shape, view).code == Refusal.FITS) & changed)[0].tolist() if changed.any() else ()
            yield next((view.names[row] for row in rows if view.names[row] not in besides), None)

    def woken(self, generation: int) -> None:
        """Forget those refused up to that generation: all of them are tried again, and whoever is refused again comes back."""
        for uid, waiting in tuple(self._pods.items()):
            if waiting.generation <= generation:
                del self._pods[uid]

    def __len__(self) -> int:
        return len(self._pods)
