"""Set and remainder to a score of 0 to 10: which of the feasible nodes is best for the pod and for the pods after it.

Called by `verbs.prioritize`. Order: bandwidth (for pods that care) or whole NVLink islands broken (for the others), then the cost for the pods to come, then what the remainder loses in worth, then the
policy (the fullest node, or the emptiest), then the name.
Exactly one node gets 10, because kube-scheduler breaks ties at random and random ties undo a good policy; the others fall by their loss against it.
Loss is counted in bandwidth for pods that care, in cost for the others, and at least `ISLAND` for breaking an island. One ladder, one place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from extender.cluster import Room, View
from extender.demand import Demand, Shape
from extender.placement import Candidates, Placement
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


def score(demand: Demand, view: View, rows: NDArray[np.int64], beside: Mapping[int, Room], placement: Placement) -> Scores:
    """Score the feasible nodes of ``rows``; ``beside`` maps a row to what it has to give once other scored pods have what they will most likely take."""
    candidates = placement.candidates(demand, view, rows, beside)
    if beside and not candidates.possible.any():
        beside = {}
        candidates = placement.candidates(demand, view, rows, beside)
    possible = np.nonzero(candidates.possible)[0]
    order = _order(_keys(demand, candidates, placement.name_ranks(view)[rows], possible), possible)
    if not order:
        return Scores(np.zeros(len(rows), np.int8), np.zeros(len(rows)), beside, None, None)
    loss = _loss(demand.shape, candidates, order[0])
    scores = _ladder(loss)
    scores[~candidates.possible] = 0
    scores[order[0]] = TOP
    return Scores(scores, loss, beside, order[0], order[1] if len(order) > 1 else None)


def top_of(demand: Demand, view: View, rows: NDArray[np.int64], placement: Placement) -> int | None:
    """Return the row of the node that `score` would give `TOP`, None where there is none: for who wants to know nothing else (`simulate`)."""
    candidates = placement.all_candidates(demand, view)
    possible = rows.compress(candidates.possible.take(rows))
    return next(iter(_order(_keys(demand, candidates, placement.name_ranks(view), possible), possible, most=1)), None)


def top_without_gpus(cpu_milli: int, view: View, rows: NDArray[np.int64], placement: Placement) -> int:
    """Return the row, of some that are known, that `score_without_gpus` would give `TOP`; the first by name where that makes no difference."""
    has_gpus = np.nonzero(view.class_index >= 0)[0]
    cost = placement.cost_without_gpus(cpu_milli, view, slice(None)) if len(has_gpus) == view.rows else np.zeros(view.rows)
    if len(has_gpus) < view.rows:
        cost[has_gpus] = placement.cost_without_gpus(cpu_milli, view, has_gpus)
    return _order([cost, placement.name_ranks(view)], rows, most=1)[0]


def score_without_gpus(cpu_milli: int, view: View, rows: NDArray[np.int64], placement: Placement) -> NDArray[np.int8]:
    """Score nodes for a pod without GPUs, by what its CPU costs the GPU pods to come, shape (n,); 0 for all where that makes no difference.

    Asked only where kube-scheduler sends us every pod. Rows that are not known, or have no GPUs, cost nothing.
    """
    if not view.rows or not len(rows):
        return np.zeros(len(rows), np.int8)
    cost = np.zeros(len(rows))
    known = np.nonzero((rows >= 0) & (view.class_index[rows] >= 0))[0]
    cost[known] = placement.cost_without_gpus(cpu_milli, view, rows[known])
    if cost.min() == cost.max():
        return np.zeros(len(rows), np.int8)
    ranks = np.where(rows >= 0, placement.name_ranks(view)[rows], len(view.names))
    (top, *_) = _order([cost, ranks], np.arange(len(rows)))
    scores = _ladder(np.clip((cost - cost[top]) / np.abs(cost).max(), 0.0, 1.0))
    scores[top] = TOP
    return scores


def _order(keys: Sequence[NDArray[Any]], remaining: NDArray[np.int64], most: int = 2) -> list[int]:
    """Return the best candidate and the runner-up of the positions given; of the last key no two values are equal."""
    order: list[int] = []
    rivals, depth = remaining, 0  # the last among which more than one was left, and the key by which it was looked at
    while len(rivals) and len(order) < most:
        equals = rivals
        for number, key in enumerate(keys[depth:], depth):
            own = key.take(equals)
            best = equals.compress(own == own.min())
            if len(best) < len(equals):
                rivals, depth = equals, number
            equals = best
            if len(equals) == 1:
                break
        order.append(int(equals[0]))
        rivals = rivals[rivals != equals[0]]
    return order


def _keys(demand: Demand, candidates: Candidates, name_ranks: NDArray[np.int64], possible: NDArray[np.int64]) -> list[NDArray[Any]]:
    """Return what is compared, the weightiest first, names last; less is better. Bandwidth is compared with the best of the ``possible`` positions."""
    left = -candidates.left if demand.policy is Policy.SPREAD else candidates.left
    if not demand.shape.careful:
        # The node with the fewest GPUs left is not the one with the least CPU left: for a pod that takes CPU too, the same order every time packs better (decision 16).
        by_gpus = demand.policy is Policy.SPREAD or not demand.requests.cpu_milli
        return [candidates.broken, candidates.cost, candidates.worth_lost, *([left] if by_gpus else []), name_ranks]
    most = candidates.bandwidth[possible].max(initial=0.0)
    slower = np.where(candidates.bandwidth >= most * EQUAL, 0.0, most - candidates.bandwidth)
    return [slower, candidates.cost, candidates.worth_lost, left, name_ranks]


def _loss(shape: Shape, candidates: Candidates, top: int) -> NDArray[np.float64]:
    """Return the loss of each candidate against the top, 0..1."""
    if shape.careful:
        best = candidates.bandwidth[top]
        loss = 1.0 - candidates.bandwidth / best if best > 0 else np.zeros(len(candidates.bandwidth))
    else:
        cost = np.where(candidates.possible, candidates.cost, candidates.cost[top])
        most = float(np.abs(cost).max())
        loss = (cost - cost[top]) / most if most > 0 else np.zeros(len(cost))
        # Whoever breaks more is no better than the worst that does not, as in the order.
        breaks_more = candidates.broken > candidates.broken[top]
        others = float(loss[candidates.possible & ~breaks_more].max())
        loss = np.where(breaks_more, np.maximum(loss, max(ISLAND, others)), loss)
    clipped: NDArray[np.float64] = np.clip(loss, 0.0, 1.0)
    return clipped


def _ladder(loss: NDArray[np.float64]) -> NDArray[np.int8]:
    """Turn losses into scores: 9 down to 0."""
    percent = np.ceil(np.round(loss * 100, 7)).astype(np.int64)
    return _STEPS.take(percent)


_STEPS: Final = np.array([next((step for limit, step in LADDER if percent <= round(limit * 100)), 0) for percent in range(101)], np.int8)
