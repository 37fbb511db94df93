"""How much of the free GPUs' use is lost because they do not lie together: the published measure, one figure a topology class.

Called by `app` when somebody reads /metrics. The same worth that the choice of sets and nodes goes by: what free GPUs can serve of the demands that the
cluster is asked for, in GPU x GB/s (`topology.topology_class`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from extender.cluster import View
from extender.placement.placement import Placement
from extender.reasons import Refusal
from topology.topology_class import TopologyClass


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """The figure of one class: ``ratio`` 0.0 where free GPUs are worth what as many in whole machines are, towards 1.0 the less they can serve."""

    key: str
    models: str
    ratio: float


@dataclass(frozen=True, slots=True)
class _Worth:
    """What is free on the open nodes of a class is worth ``now``, and would be worth in ``whole`` machines; ``everything``: all healthy GPUs in whole machines."""

    kind: TopologyClass
    now: float
    whole: float
    everything: float

    @property
    def ratio(self) -> float:
        return 0.0 if self.whole <= 0 else max(0.0, 1.0 - self.now / self.whole)


def fragmentation(view: View, placement: Placement) -> Iterator[Fragmentation]:
    """Yield the figure of every class that has nodes open to new pods.

    1 - (sum of the worth of what is free on each node) / (free GPUs x worth of a whole machine / its GPUs). Without free GPUs nothing is lost: 0.0. A few free
    GPUs may be worth more each than a whole machine's are on average (a bridged pair beside GPUs without bridges): that is no loss either, 0.0.
    """
    for found in _worths(view, placement):
        yield Fragmentation(found.kind.key, ", ".join(sorted({model for model in found.kind.models if model is not None})), round(found.ratio, 6))


def overall(view: View, placement: Placement) -> float:
    """Return what is lost on all open nodes together as a share of what their healthy GPUs are worth in whole machines, 0.0 to 1.0: comparable however full they are."""
    found = list(_worths(view, placement))
    everything = sum(one.everything for one in found)
    return sum(one.ratio * one.whole for one in found) / everything if everything > 0 else 0.0


def _worths(view: View, placement: Placement) -> Iterator[_Worth]:
    open_nodes = view.closed == Refusal.FITS
    for number, kind in enumerate(view.classes):
        rows = open_nodes & (view.class_index == number)
        if not rows.any() or not kind.size:
            continue
        worth = placement.weighed(kind).worth
        free = view.free[rows]
        each = float(worth[-1]) / kind.size
        healthy = float(np.bitwise_count(view.usable[rows]).sum())
        yield _Worth(kind, float(worth[free].sum()), float(np.bitwise_count(free).sum()) * each, healthy * each)
