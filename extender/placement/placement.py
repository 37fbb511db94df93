"""The one answer to "does it fit", with everything that is kept between calls.

`verbs` asks `fits` for all nodes, `scoring` asks for the `prospects` of their masks, `binding` asks `place` for one node, `explain` asks `numbers`. Two
caches live here and nowhere else: feasibility per shape, brought up to date only for the rows that changed; and plans per class, mask and shape, which
hold for ever, since a class never changes.
"""

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from extender.cluster import View
from extender.demand import Shape
from extender.placement.fits import Fits, refusals, usable_mask
from extender.placement.plan import Plan, plan
from extender.placement.prospects import Prospects
from extender.reasons import NodeNumbers, Refusal
from topology.topology_class import TopologyClass

_SHAPES_KEPT = 512
_PLANS_KEPT = 65_536
_PROSPECTS_KEPT = 256  # 1 MB each for 16 GPUs, 4 kB for 8


class Placement:
    """Feasibility and plans, remembered."""

    def __init__(self) -> None:
        self._fits: LRUCache[Shape, Fits] = LRUCache(_SHAPES_KEPT)
        self._prospects: LRUCache[tuple[str, Shape], Prospects] = LRUCache(_PROSPECTS_KEPT)
        self._plans: LRUCache[tuple[str, int, Shape], Plan | None] = LRUCache(_PLANS_KEPT)

    def fits(self, shape: Shape, view: View) -> Fits:
        """Return the answer for all rows of the view."""
        known = self._fits.get(shape)
        if known is not None and known.generation == view.generation:
            return known
        if known is None or known.generation > view.generation:
            rows = np.arange(view.rows)
            code = refusals(shape, view, rows, self.plan)
        else:
            rows = np.nonzero(view.row_generation > known.generation)[0]
            code = np.zeros(view.rows, np.int8)
            code[: known.rows] = known.code
            code[rows] = refusals(shape, view, rows, self.plan)
        code.flags.writeable = False
        fits = Fits(view.generation, code)
        self._fits[shape] = fits
        return fits

    def plan(self, shape: Shape, kind: TopologyClass, mask: int) -> Plan | None:
        """Return the plan on those GPUs of a class, None where there is none; ``mask`` is restricted to the model asked for here."""
        mask &= usable_mask(shape, kind)
        key = (kind.key, mask, shape)
        if key not in self._plans:
            self._plans[key] = plan(shape, kind, mask)
        return self._plans[key]

    def prospects(self, shape: Shape, kind: TopologyClass, masks: NDArray[np.int64]) -> Prospects:
        """Return the tables of a shape on a class, filled for those masks."""
        key = (kind.key, shape)
        known = self._prospects.get(key)
        if known is None:
            known = self._prospects[key] = Prospects(shape, kind, self.plan)
        known.look_at(masks)
        return known

    def place(self, shape: Shape, view: View, row: int, avoid: int = 0) -> Plan | None:
        """Return the plan on one node now, None where the pod does not fit; bits of ``avoid`` are left alone."""
        if self.refusal(shape, view, row) is not Refusal.FITS:
            return None
        return self.plan(shape, view.classes[view.class_index[row]], int(view.free[row]) & ~avoid)

    def refusal(self, shape: Shape, view: View, row: int) -> Refusal:
        """Return the reason against one node, FITS where there is none."""
        if row < 0:
            return Refusal.NO_TOPOLOGY
        return Refusal(int(refusals(shape, view, np.array([row]), self.plan)[0]))

    def numbers(self, shape: Shape, view: View, row: int) -> NodeNumbers:
        """Return the numbers behind a refusal of that node."""
        if row < 0 or view.class_index[row] < 0:
            return NodeNumbers(0, 0, 0, detail=view.closed_by[row] if row >= 0 else "")
        kind = view.classes[view.class_index[row]]
        by_model = usable_mask(shape, kind)
        free = int(view.free[row]) & by_model
        # The best that the pod would accept; where nothing is near enough, the best of all, which tells what there is.
        best = kind.best_set(free, shape.largest, shape.ceiling) or kind.best_set(free, shape.largest) if shape.largest > 1 else None
        return NodeNumbers(
            total=kind.size,
            eligible=(int(view.usable[row]) & by_model).bit_count(),
            free=free.bit_count(),
            best=None if best is None else best.bandwidth,
            best_link=None if best is None else best.worst,
            detail=view.closed_by[row],
        )
