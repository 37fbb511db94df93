"""Set and remainder to a score of 0 to 10: which of the feasible nodes is best for the pod and for the pods after it.

Called by `verbs.prioritize`. Order: bandwidth (for pods that care) or whole NVLink islands broken (for the others), then what the remainder loses, then the policy (the fullest node, or the emptiest), then the name.
Exactly one node gets 10, because kube-scheduler breaks ties at random and random ties undo a good policy; the others fall by their loss against it.
Loss is counted in bandwidth for pods that care, in worth of the remainder for the others, and at least `ISLAND` for breaking an island. One ladder, one place.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.cluster import Room, View
from extender.demand import Shape
from extender.placement import IMPOSSIBLE, Placement, Prospects, RoomProspects, Rooms
from extender.settings import Policy

TOP: Final = 10
# (loss up to, score); above the last one 0. A level is weight x 10 points beside in-tree scores of 0 to 100 each.
LADDER: Final = ((0.02, 9), (0.10, 8), (0.20, 7), (0.30, 6), (0.40, 5), (0.50, 4), (0.60, 3), (0.70, 2), (0.80, 1))
ISLAND: Final = 0.10  # loss of a pod that needs no bandwidth where it breaks an island that the best candidate leaves whole: two levels
EQUAL: Final = 0.99  # bandwidths within 1 percent are equal, as in the choice of the set


@dataclass(frozen=True, slots=True)
class Scores:
    """One entry a candidate, in the order given; ``top`` and ``runner_up`` are positions in it, None where there is no such candidate.

    ``loss`` is the loss against the top in 0..1; ``beside`` is, by row, what was counted on of nodes where other pods hold something tentatively, which leaves no
    set where they took too much: the score is 0 then.
    """

    score: NDArray[np.int8]
    loss: NDArray[np.float64]
    beside: Mapping[int, Room]
    top: int | None
    runner_up: int | None

    def room(self, view: View, row: int) -> Room:
        """Return what was counted on of a node."""
        return self.beside.get(row) or view.room(row)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """What decides, one entry a candidate: GB/s, worth that the node loses, islands that are broken, GPUs (of shares: MiB) left."""

    bandwidth: NDArray[np.float64]
    worth_lost: NDArray[np.float64]
    broken: NDArray[np.float64]
    left: NDArray[np.float64]

    @property
    def possible(self) -> NDArray[np.bool_]:
        return self.bandwidth > IMPOSSIBLE


def score(shape: Shape, policy: Policy, view: View, rows: NDArray[np.int64], beside: Mapping[int, Room], placement: Placement) -> Scores:
    """Score the feasible nodes of ``rows``; ``beside`` maps a row to what it has to give once other scored pods have what they will most likely take."""
    candidates = _look(shape, view, rows, beside, placement)
    if beside and not candidates.possible.any():
        beside = {}
        candidates = _look(shape, view, rows, beside, placement)
    order = _order(shape, policy, candidates, lambda position: view.names[rows[position]])
    if not order:
        return Scores(np.zeros(len(rows), np.int8), np.zeros(len(rows)), beside, None, None)
    loss = _loss(shape, candidates, order[0])
    scores = _ladder(loss)
    scores[~candidates.possible] = 0
    scores[order[0]] = TOP
    return Scores(scores, loss, beside, order[0], order[1] if len(order) > 1 else None)


def _look(shape: Shape, view: View, rows: NDArray[np.int64], beside: Mapping[int, Room], placement: Placement) -> _Candidates:
    """Look the candidates up, class by class."""
    rooms = _rooms(view, rows, beside)
    candidates = _Candidates(*(np.empty(len(rows)) for _ in range(4)))
    classes = view.class_index[rows]
    for number in np.unique(classes).tolist():
        at = np.nonzero(classes == number)[0]
        found: Prospects | RoomProspects
        if shape.is_shared:
            found, where = placement.room_prospects(shape, view.classes[number], rooms.take(at)), np.arange(len(at))
        else:
            found, where = placement.prospects(shape, view.classes[number], rooms.idle[at]), rooms.idle[at]
        candidates.bandwidth[at] = found.bandwidth[where]
        candidates.worth_lost[at] = found.worth_lost[where]
        candidates.broken[at] = found.broken[where]
        candidates.left[at] = found.left[where]
    return candidates


def _rooms(view: View, rows: NDArray[np.int64], beside: Mapping[int, Room]) -> Rooms:
    """Return what those nodes have to give."""
    rooms = Rooms(view.free[rows].astype(np.int64), view.left[rows], view.offered[rows])
    if beside:
        for position in np.nonzero(np.isin(rows, list(beside)))[0].tolist():
            room = beside[int(rows[position])]
            rooms.idle[position], rooms.left[position] = room.idle, room.left
    return rooms


def _order(shape: Shape, policy: Policy, candidates: _Candidates, name_of: Callable[[int], str]) -> list[int]:
    """Return the best candidate and the runner-up, as positions."""
    keys = _keys(shape, policy, candidates)
    order: list[int] = []
    remaining = candidates.possible.copy()
    while remaining.any() and len(order) < 2:
        equals = remaining
        for key in keys:
            equals = equals & (key == key[equals].min())
        best = min((int(position) for position in np.nonzero(equals)[0]), key=name_of)
        order.append(best)
        remaining[best] = False
    return order


def _keys(shape: Shape, policy: Policy, candidates: _Candidates) -> list[NDArray[np.float64]]:
    """Return what is compared, the weightiest first; less is better."""
    # Equal hardware must compare equal, whatever the order in which its worth was added up.
    worth_lost: NDArray[np.float64] = np.round(candidates.worth_lost, 6)
    left: NDArray[np.float64] = candidates.left * (-1.0 if policy is Policy.SPREAD else 1.0)
    if not shape.careful:
        return [candidates.broken, worth_lost, left]
    most = candidates.bandwidth.max(initial=0.0)
    slower = np.where(candidates.bandwidth >= most * EQUAL, 0.0, most - candidates.bandwidth)
    return [slower, worth_lost, left]


def _loss(shape: Shape, candidates: _Candidates, top: int) -> NDArray[np.float64]:
    """Return the loss of each candidate against the top, 0..1."""
    if shape.careful:
        best = candidates.bandwidth[top]
        loss = 1.0 - candidates.bandwidth / best if best > 0 else np.zeros(len(candidates.bandwidth))
    else:
        lost = np.where(np.isfinite(candidates.worth_lost), candidates.worth_lost, 0.0)
        most = float(lost.max())
        loss = (lost - lost[top]) / most if most > 0 else np.zeros(len(lost))
        loss = np.where(candidates.broken > candidates.broken[top], np.maximum(loss, ISLAND), loss)
    clipped: NDArray[np.float64] = np.clip(loss, 0.0, 1.0)
    return clipped


def _ladder(loss: NDArray[np.float64]) -> NDArray[np.int8]:
    """Turn losses into scores: 9 down to 0."""
    limits = np.array([limit for limit, _ in LADDER])
    steps = np.array([step for _, step in LADDER] + [0], np.int8)
    found: NDArray[np.int8] = steps[np.searchsorted(limits, np.round(loss, 9), side="left")]
    return found
