"""The one answer to "does it fit", with everything that is kept between calls.

`verbs` asks `fits` for all nodes, `scoring` asks for the `candidates` among them, `binding` asks `place` for one node, `explain` asks `numbers`. Caches
live here and nowhere else: feasibility per shape and candidates per demand, brought up to date only for the rows that changed; and plans per class, mask and shape,
which hold until demands are weighed otherwise (`reweigh`, `expect`), since a class never changes. Weights and the outlook decide which of several sets and nodes is taken,
never whether there is one.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from extender.cluster import Room, View
from extender.demand import Demand, Shape
from extender.demand_class import Target
from extender.placement.candidates import Candidates, Judge, look, rooms_of, rows_to_look_at, with_room
from extender.placement.fits import FITS, Fits, refusals, usable_mask, usable_room
from extender.placement.outlook import Outlook, weight_of_fragmentation
from extender.placement.plan import Plan, plan
from extender.placement.prices import Found
from extender.placement.prospects import IMPOSSIBLE, Prospects, RoomProspects
from extender.placement.row_facts import RowFacts
from extender.placement.shares import Rooms, plan_shares
from extender.placement.told import HAVE_NUMBERS, NO_NUMBERS, Told, groups
from extender.placement.work import Work
from extender.reasons import NodeNumbers, Refusal, wire_sentence
from topology.capacity import hosts_of_one
from topology.links import Distance
from topology.topology_class import TopologyClass, members

_CLASSES_KEPT = 256
_KINDS_KEPT = 64  # beyond twice those that there are: 5 kB each with 8 GPUs, some MB with 16
_SHAPES_KEPT = 512
_PLANS_KEPT = 65_536
_TOLD_KEPT = 128  # 2 bytes a node each
_UNKNOWN: Any = object()  # None is a plan's answer
_CANDIDATES_KEPT = 128  # 40 bytes a node each
_PROSPECTS_KEPT = 256  # 1 MB each for 16 GPUs, 4 kB for 8


class Placement:
    """Feasibility and plans, remembered; ``weights`` are shares of demand by size, None for those that a class was made with; ``outlook`` judges by classes of demands."""

    def __init__(self, weights: Mapping[int, float] | None = None, outlook: Outlook | None = None) -> None:
        self.weights = weights
        self.outlook = Outlook() if outlook is None else outlook
        self.prices = self.outlook.prices
        self._coming: Target | None = None  # the target that is to be judged by once its prices are known
        self._rows = RowFacts()
        self._candidates: LRUCache[tuple[Shape, int, float], tuple[int, Candidates]] = LRUCache(_CANDIDATES_KEPT)
        self._weighed: dict[str, TopologyClass] = {}  # with the choices that they have kept
        self.work = {"fits": Work(), "candidates": Work()}
        self._fits: LRUCache[Shape, Fits] = LRUCache(_SHAPES_KEPT)
        self._last_fits: tuple[Shape | None, Fits | None] = (None, None)
        self._prospects: LRUCache[tuple[str, Shape], Prospects] = LRUCache(_PROSPECTS_KEPT)
        self._plans: LRUCache[tuple[str, Room, Shape], Plan | None] = LRUCache(_PLANS_KEPT)
        self._told: LRUCache[Shape, Told] = LRUCache(_TOLD_KEPT)
        self._most_kinds = _KINDS_KEPT  # of nodes with tables in the outlook

    def reweigh(self, weights: Mapping[int, float]) -> None:
        """Choose by other weights from now on."""
        if weights != self.weights:
            self.weights = weights
            self._plans.clear()
            self._prospects.clear()
            self._weighed.clear()
            self._candidates.clear()

    def expect(self, target: Target) -> None:
        """Judge by another target workload from now on, or as soon as its prices are known."""
        self._coming = None
        if target != self.outlook.target:
            self._coming = target
            self._go_on()

    def look_ahead(self, view: View) -> None:
        """Ask for the prices of the kinds of GPUs in a view, before a call needs them."""
        self.outlook.foresee(view)
        for question in self.outlook.questions(self._coming or self.outlook.target):
            self.prices.worth(question)

    def knows_prices(self, view: View) -> bool:
        """Tell whether the prices of all kinds of GPUs in a view are known; where not, parts of them go by a first guess."""
        self.outlook.foresee(view)
        return all(self.prices.is_known(question) for question in self.outlook.questions(self._coming or self.outlook.target))

    def learn(self, found: Found) -> None:
        """Judge by these prices from now on."""
        self.prices.learn(found)
        if not self._go_on() and not found.keys().isdisjoint(self.outlook.questions(self.outlook.target)):
            self._judge_by(self.outlook.under(self.outlook.target, self._rows.supply))

    @property
    def awaits_prices(self) -> bool:
        """True while a target that was told to `expect` is not judged by yet."""
        return self._coming is not None

    def _go_on(self) -> bool:
        """Judge by the target that is to come if its prices are known, or ask for them; tells whether it is judged by now."""
        target = self._coming
        unknown = [] if target is None else [question for question in self.outlook.questions(target) if not self.prices.is_known(question)]
        for question in unknown:
            self.prices.worth(question)
        if target is None or unknown:
            return False
        self._coming = None
        self._judge_by(self.outlook.under(target, self._rows.supply))
        return True

    def _judge_by(self, outlook: Outlook) -> None:
        self.outlook = outlook
        self._plans.clear()
        self._candidates.clear()
        self._rows.forget_numbers()

    def weighed(self, kind: TopologyClass) -> TopologyClass:
        """Return the class with the weights of this placement."""
        if self.weights is None:
            return kind
        known = self._weighed.get(kind.version)
        if known is None:
            if len(self._weighed) >= _CLASSES_KEPT:
                self._weighed.clear()
            known = self._weighed[kind.version] = kind.under(self.weights)
        return known

    def fits(self, shape: Shape, view: View) -> Fits:
        """Return the answer for all rows of the view."""
        last_shape, known = self._last_fits
        if last_shape is not shape:
            known = self._fits.get(shape)
        if known is not None and known.generation == view.generation:
            self.work["fits"].done(0, anew=False)
            return known
        is_anew = known is None or known.generation > view.generation or known.rows > view.rows  # fewer rows: they were numbered anew
        if known is None or is_anew:
            rows = np.arange(view.rows)
            code = refusals(shape, view, rows, self.plan)
        else:
            rows = np.nonzero(view.row_generation > known.generation)[0]
            code = known.code.copy() if known.rows == view.rows else np.concatenate([known.code, np.zeros(view.rows - known.rows, np.int8)])
            code[rows] = refusals(shape, view, rows, self.plan)
        code.flags.writeable = False
        self.work["fits"].done(len(rows), anew=is_anew)
        fits = Fits(view.generation, code)
        self._fits[shape] = fits
        self._last_fits = (shape, fits)  # filter, scores and bind ask about one pod after another
        return fits

    def plan(self, shape: Shape, kind: TopologyClass, room: Room) -> Plan | None:
        """Return the plan in what a node of a class has to give, None where there is none; it is restricted to the model and the NICs asked for here."""
        # Of whole GPUs nothing else matters: nodes with other shares have one plan.
        room = usable_room(shape, kind, room) if shape.is_shared else Room(room.idle & usable_mask(shape, kind))
        key = (kind.version, room, shape)
        found: Plan | None = self._plans.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            weighed = self.weighed(kind)
            found = self._plans[key] = plan_shares(shape, weighed, room, self.outlook) if shape.is_shared else plan(shape, weighed, room.idle)
        return found

    def prospects(self, shape: Shape, kind: TopologyClass, masks: NDArray[np.int64]) -> Prospects:
        """Return the tables of a shape on a class, filled for those masks."""
        key = (kind.version, shape)
        known = self._prospects.get(key)
        if known is None:
            known = self._prospects[key] = Prospects(shape, self.weighed(kind), self.plan)
        known.look_at(masks)
        return known

    def prospects_on(self, shape: Shape, kind: TopologyClass, mask: int) -> Prospects:
        """Return the tables of a shape on a class, filled for that mask."""
        known = self._prospects.get((kind.version, shape))
        if known is None:
            return self.prospects(shape, kind, np.array([mask]))
        known.look_at_one(mask)
        return known

    def room_prospects(self, shape: Shape, kind: TopologyClass, rooms: Rooms) -> RoomProspects:
        """Return what a shape with shares would get in those rooms of a class."""
        wanted = usable_mask(shape, kind)
        if wanted != (1 << kind.size) - 1:
            left = np.where(wanted >> np.arange(rooms.left.shape[1]) & 1, rooms.left, 0).astype(np.int32)
            rooms = Rooms(rooms.idle & wanted, left, rooms.offered)
        return RoomProspects.of(shape, self.weighed(kind), rooms, self.plan, self.outlook)

    def judge(self, view: View, shape: Shape | None = None, *, as_it_stands: bool = False) -> Judge:
        """Return by what costs are judged in a view; with what its nodes are worth where they are looked at ``as_it_stands``, and not as if others had taken something.

        For sets of whole GPUs in a cluster with NVLinks the weight of F is 0: what is lost in links has no place in it, and the worth of remainders, which comes next, tells both.
        """
        if self._rows.follow(view):
            self._judge_by(self.outlook.under(self.outlook.target, self._rows.supply))
        if len(self.outlook) > self._most_kinds:
            self._forget_gone_kinds(view)
        linked = shape is not None and shape.largest > 1 and not shape.is_shared and any(kind.islands for kind in view.classes)
        weight = 0.0 if linked else weight_of_fragmentation(self._rows.taken)
        return Judge(self.outlook, self._rows.numbers(view, self.outlook), weight, self._rows.values if as_it_stands else {})

    def _forget_gone_kinds(self, view: View) -> None:
        """Let go of the tables of kinds of nodes that are gone, which are most of them: in a cluster with failing links there are new ones all the time."""
        self._judge_by(self.outlook.under(self.outlook.target, self._rows.supply))
        versions = {kind.version for kind in view.classes}
        self._weighed = {version: kind for version, kind in self._weighed.items() if version in versions}
        self._rows.numbers(view, self.outlook)
        self._most_kinds = 2 * len(self.outlook) + _KINDS_KEPT

    def candidates(self, demand: Demand, view: View, rows: NDArray[np.int64], beside: Mapping[int, Room]) -> Candidates:
        """Return what those nodes would give a demand, and what it would cost; ``beside`` says by row what some of them have to give instead. All fit by the view itself."""
        found = self.all_candidates(demand, view).take(rows)
        others = np.nonzero(np.isin(rows, list(beside)))[0] if beside else np.zeros(0, np.int64)
        if len(others):
            rooms = rooms_of(view, rows[others])
            for position, row in enumerate(rows[others].tolist()):
                with_room(rooms, position, beside[row])
            found.put(others, look(demand, view, rows[others], rooms, self, self.judge(view, demand.shape)))
        return found

    def all_candidates(self, demand: Demand, view: View) -> Candidates:
        """Return what every row of the view would give a demand; it holds until the next call, and is not to be written."""
        judge = self.judge(view, demand.shape, as_it_stands=True)
        key = (demand.shape, demand.requests.cpu_milli, judge.weight)
        generation, known = self._candidates.get(key, (-1, Candidates.none(0)))
        if generation == view.generation and len(known.cost) == view.rows:
            self.work["candidates"].done(0, anew=False)
            return known
        anew = rows_to_look_at(view, generation, known)
        self.work["candidates"].done(len(anew), anew=len(anew) == view.rows)
        if len(known.cost) != view.rows:
            before, known = known, Candidates.none(view.rows)
            if len(before.cost) < view.rows:  # else the rows were numbered anew since, or the view is one of before, and all of them are looked at
                known.put(np.arange(len(before.cost)), before)
        fits = self.fits(demand.shape, view).code[anew] == FITS
        known.bandwidth[anew[~fits]] = IMPOSSIBLE
        fitting = anew[fits]
        if len(fitting):
            known.put(fitting, look(demand, view, fitting, rooms_of(view, fitting), self, judge))
        self._candidates[key] = (view.generation, known)
        return known

    def name_ranks(self, view: View) -> NDArray[np.int64]:
        """Return the place of each row's name among all names, shape (rows,): the last word among equals."""
        return self._rows.name_ranks(view)

    def cost_without_gpus(self, cpu_milli: int, view: View, rows: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        """Return what a pod without GPUs costs the GPU pods to come on nodes that have a class, shape (n,)."""
        judge = self.judge(view)
        by_gpus = self._rows.by_gpus(view, self.outlook)
        return judge.outlook.cost_of_cpu(judge.numbers[rows], by_gpus[rows], view.cpu_left[rows], cpu_milli)

    def place(self, shape: Shape, view: View, row: int, room: Room | None = None) -> Plan | None:
        """Return the plan on one node now, None where the pod does not fit; in ``room``, where only part of what the node has may be used."""
        if row < 0 or self.fits(shape, view).code.item(row) != FITS:
            return None
        return self.plan(shape, view.classes[view.class_index[row]], view.room(row) if room is None else room)

    def refusal(self, shape: Shape, view: View, row: int) -> Refusal:
        """Return the reason against one node, FITS where there is none."""
        if row < 0:
            return Refusal.NO_TOPOLOGY
        return Refusal(int(refusals(shape, view, np.array([row]), self.plan)[0]))

    def hosting(self, shape: Shape, view: View, row: int) -> int:
        """Return the bits of the GPUs of a node that could be in the set that refusals for links tell of."""
        wanted, leading = usable_mask(shape, view.classes[view.class_index[row]]), shape.leading
        free = int(view.free[row]) & wanted
        return hosts_of_one(leading.mib, free, tuple(view.left[row].tolist())) & wanted if leading.is_share else free

    def told(self, demand: Demand, view: View) -> Told:
        """Return what kube-scheduler is told of each row that does not fit; it holds until the next call."""
        known = self._told.get(demand.shape)
        if known is None or known.generation > view.generation:
            known = self._told[demand.shape] = Told()
        fits = self.fits(demand.shape, view)
        anew = known.grow_to(view)
        for number in set(fits.code[anew].tolist()):
            rows = anew[fits.code[anew] == number]
            for positions in groups(demand.shape, view, rows, Refusal(number)) if number else ():
                numbers = self.numbers(demand.shape, view, int(rows[positions[0]])) if number in HAVE_NUMBERS else NO_NUMBERS
                known.put(rows[positions], wire_sentence(Refusal(number), demand.asked, numbers))
            if not number:
                known.put(rows, "")
        return known

    def numbers(self, shape: Shape, view: View, row: int) -> NodeNumbers:
        """Return the numbers behind a refusal of that node."""
        if row < 0 or view.class_index[row] < 0:
            return NodeNumbers(0, 0, 0, detail=view.closed_by[row] if row >= 0 else "")
        kind = view.classes[view.class_index[row]]
        wanted = usable_mask(shape, kind)
        free = int(view.free[row]) & wanted
        # The best that the pod would accept; where nothing is near enough, the best of all, which tells what there is.
        ceilings = dict.fromkeys((shape.ceiling, Distance.SYS)) if shape.largest > 1 else ()
        hosting = self.hosting(shape, view, row)
        best = next(filter(None, (kind.best_set(hosting, shape.largest, ceiling, one_numa=shape.one_numa) for ceiling in ceilings)), None)
        return NodeNumbers(
            total=kind.size,
            eligible=(int(view.usable[row]) & wanted).bit_count(),
            free=free.bit_count(),
            best=None if best is None else best.bandwidth,
            best_link=None if best is None else best.worst,
            kept_apart=kind.lacks_peer_access(hosting),
            together=max((hosting & group).bit_count() for group in kind.numa_groups()) if kind.size else 0,
            detail=view.closed_by[row],
            refused_by_kubelet=_refused_by_kubelet(shape, view, row),
            **_memory_numbers(shape, kind, view, row, wanted),
        )


def _refused_by_kubelet(shape: Shape, view: View, row: int) -> tuple[str, datetime] | None:
    """Return the pod of that demand which kubelet refused on a node lately, and until when no other is sent there."""
    found = view.kubelet_refusals.get(shape, {}).get(row)
    return None if found is None else (found.pod, found.until)


def _memory_numbers(shape: Shape, kind: TopologyClass, view: View, row: int, wanted: int) -> dict[str, Any]:
    """Return what sentences tell of the memory of a node's GPUs, for a pod that asks for some."""
    eligible = list(members(int(view.usable[row]) & wanted))
    if not shape.is_shared or not eligible:
        return {}
    largest = max(eligible, key=lambda bit: (int(view.offered[row, bit]), -bit))
    share = max(part.mib for part in shape.parts)
    left = view.left[row, eligible]
    return {
        "most_offered_mib": int(view.offered[row, largest]),
        "most_left_mib": int(left.max()),
        "large_enough": int((left >= share).sum()),
        "model": kind.models[largest],
        "memory_mib": view.gpus[row].memory_mib[largest],
        "reserve_mib": view.gpus[row].reserve_mib,
    }
