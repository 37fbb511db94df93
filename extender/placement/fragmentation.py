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


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """The figure of one class: ``ratio`` 0.0 where free GPUs are worth what as many in whole machines are, towards 1.0 the less they can serve."""

    key: str
    models: str
    ratio: float


def fragmentation(view: View, placement: Placement) -> Iterator[Fragmentation]:
    """Yield the figure of every class that has nodes open to new pods.

    1 - (sum of the worth of what is free on each node) / (free GPUs x worth of a whole machine / its GPUs). Without free GPUs nothing is lost: 0.0. A few free
    GPUs may be worth more each than a whole machine's are on average (a bridged pair beside GPUs without bridges): that is no loss either, 0.0.
    """
    open_nodes = view.closed == Refusal.FITS
    for number, kind in enumerate(view.classes):
        rows = open_nodes & (view.class_index == number)
        if not rows.any() or not kind.size:
            continue
        worth = placement.weighed(kind).worth
        free = view.free[rows]
        whole = float(np.bitwise_count(free).sum()) * float(worth[-1]) / kind.size
        ratio = 0.0 if whole <= 0 else max(0.0, 1.0 - float(worth[free].sum()) / whole)
        yield Fragmentation(kind.key, ", ".join(sorted({model for model in kind.models if model is not None})), round(ratio, 6))
