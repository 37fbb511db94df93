"""Who places the pods of a simulation: Linkwise itself, or plain counting. Each side has a cluster of its own, fed from the same snapshot.

    Linkwise        asks `Placement.fits`, `scoring.top_of` and `binding.decide`, and enters the answer into the ledger: what filter, prioritize and bind do
    Counting        what stock Kubernetes gives: the first node with enough free GPUs, there the lowest ones; a share of a GPU costs a whole one

Called by `replay` and by the benchmarks of placement quality. Whatever a side decides goes through `Ledger.promise`, which refuses what is held already: no side can cheat.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.binding import allocate, decide, promise
from extender.cluster import Cluster, View
from extender.containers import ContainerKind
from extender.demand import Demand, read_demand
from extender.demand_class import Target, class_of
from extender.placement import Placement, Plan
from extender.placement.fits import FITS, usable_mask
from extender.protocol import BindCall
from extender.reasons import Refusal, wire_sentence
from extender.requests import Requests, read_requests
from extender.scoring import top_of, top_without_gpus
from extender.settings import Policy, Settings
from extender.simulate.jobs import Job
from extender.simulate.selectors import Selectors
from extender.snapshot_file import Snapshot, SnapshotCluster
from extender.workload import Weights, Workload
from topology.api import Allocation
from topology.capacity import WHOLE
from topology.errors import DemandError
from topology.topology_class import members, union

_WANTED_KEPT: Final = 1024  # pods that wait, and are asked about again
COUNT: Final = "count"
POLICIES: Final = (*(policy.value for policy in Policy), COUNT)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a pod went: the node and its row, GPUs by bit, and what they get together (GB/s, 0.0 below two GPUs)."""

    node: str
    row: int
    mask: int
    gb_per_s: float
    gpus: float  # what it asked of them: a share counts as the part that it takes


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a job asks for, read once; ``demand`` is what the side gives it for that, ``asked`` what it says."""

    job: Job
    asked: Demand
    demand: Demand
    requests: Requests

    def gpus(self, view: View, row: int, plan: Plan) -> float:
        """Return how many GPUs of a node were asked for; a share counts as the part that it is of its GPU."""
        if not self.asked.shape.is_shared:
            return float(plan.union.bit_count())
        shares = self.asked.shares(plan.masks)
        return plan.union.bit_count() - len(shares) + sum(mib / view.offered.item(row, bit) for bit, mib in shares)


class Side(ABC):
    """A cluster and a way of placing pods on it; a subclass says how."""

    def __init__(self, snapshot: Snapshot, settings: Settings, policy: Policy) -> None:
        self.cluster = Cluster(settings.whole_gpu_resource, lambda: 0.0)
        self.problems = SnapshotCluster(snapshot, self.cluster).feed()
        self.placement = Placement()
        self.now_s = 0.0  # the time of the simulation, set by whoever lets pods come
        self._settings = settings
        self._policy = policy
        self._selectors = Selectors(snapshot.nodes)
        self._first = self.cluster.view()  # as the snapshot has it: what does not fit now never will
        self._first_placement = Placement()
        self._wanted: dict[str, _Wanted] = {}

    @property
    def gpus(self) -> int:
        """GPUs of the nodes that are open to pods as the snapshot has them, free or not."""
        return int(np.bitwise_count(self._first.usable[self._first.closed == Refusal.FITS]).sum())

    def place(self, job: Job) -> Placed | None:
        """Give the pod its GPUs; None where it fits nowhere now. Raises DemandError for one that asks for what cannot be."""
        wanted = self._read(job)
        view = self.cluster.view()
        found = self._choose(wanted, view, self._selectors.open_rows(job.pod, wanted.requests, view))
        if found is None:
            return None
        row, plan = found
        uid, node = job.uid, view.names[row]
        self._wanted.pop(uid, None)
        if plan is None:
            self.cluster.ledger.hosts.charge(uid, node, wanted.requests)
            return Placed(node, row, 0, 0.0, 0.0)
        allocation = allocate(node, wanted.demand, plan, view.gpus[row])
        promise(BindCall(job.namespace, job.name, uid, node), wanted.demand, allocation, self.cluster)
        self.cluster.ledger.confirm(uid)
        self._count(wanted.demand, allocation)
        return Placed(node, row, plan.union, plan.bandwidth, wanted.gpus(view, row, plan))

    def finish(self, job: Job) -> None:
        """Take back what the pod held."""
        self.cluster.remove_pod(job.uid)

    def never(self, job: Job) -> str:
        """Return why the pod fits nowhere, not even on the cluster as the snapshot has it; empty where it does."""
        try:
            wanted = self._read(job)
        except DemandError as error:
            return str(error)
        view = self._first
        open_rows = self._selectors.open_rows(job.pod, wanted.requests, view)
        if not open_rows.any():
            return "no node has its CPU and memory, or is selected by it"
        codes = self._codes(wanted, view, self._first_placement)
        if (codes[open_rows] == Refusal.FITS).any():
            return ""
        commonest = Counter(codes[open_rows].tolist()).most_common(1)[0][0]
        row = int(np.flatnonzero(open_rows & (codes == commonest))[0])
        return wire_sentence(Refusal(commonest), wanted.demand.asked, self._first_placement.numbers(wanted.demand.shape, view, row))

    def _read(self, job: Job) -> _Wanted:
        uid = job.uid
        known = self._wanted.get(uid)
        if known is None:
            demand = read_demand(job.pod, self._settings.whole_gpu_resource, self._policy)
            requests = demand.requests if demand.wants_gpus else read_requests(job.pod)
            known = _Wanted(job, demand, self._given(demand), requests)
            if len(self._wanted) >= _WANTED_KEPT:
                self._wanted.clear()  # whoever was dropped is not asked about again
            self._wanted[uid] = known
        return known

    def _given(self, demand: Demand) -> Demand:
        """Return what a pod gets that asks so."""
        return demand

    def _codes(self, wanted: _Wanted, view: View, placement: Placement) -> NDArray[np.int8]:
        """Return the Refusal of every row; a pod without GPUs fits wherever kube-scheduler lets it."""
        shape = wanted.demand.shape
        return placement.fits(shape, view).code if shape.parts else np.zeros(view.rows, np.int8)

    def _count(self, demand: Demand, allocation: Allocation) -> None:  # noqa: B027 - of interest to a side that looks ahead
        """Hear of a pod that was placed."""

    @abstractmethod
    def _choose(self, wanted: _Wanted, view: View, open_rows: NDArray[np.bool_]) -> tuple[int, Plan | None] | None:
        """Return a row among those open to the pod, and its GPUs there."""


class Linkwise(Side):
    """The production code. It looks ahead by the pods that it has placed, as an extender does, or by a workload that is given to it."""

    def __init__(self, snapshot: Snapshot, settings: Settings, policy: Policy) -> None:
        super().__init__(snapshot, settings, policy)
        self._workload = Workload(settings.workload_half_life_s, lambda: self.now_s)
        self._go_by_workload()

    def fix_workload(self, weights: Weights | None, classes: Target) -> None:
        """Look ahead by this workload from now on, where no weights are told by those that count; raises InputError where it is none."""
        if weights is not None:
            self._workload.fix(weights)
        self._workload.fix_classes(classes)
        self._go_by_workload()

    def _go_by_workload(self) -> None:
        self.placement.reweigh(self._workload.weights)
        self.placement.expect(self._workload.target)

    def _count(self, demand: Demand, allocation: Allocation) -> None:
        self._workload.note(map(len, allocation.containers.values()))
        self._workload.note_class(class_of(allocation, demand.requests.cpu_milli, demand.shape.model))
        if self._workload.follow() | self._workload.follow_classes():
            self._go_by_workload()

    def _choose(self, wanted: _Wanted, view: View, open_rows: NDArray[np.bool_]) -> tuple[int, Plan | None] | None:
        rows = np.flatnonzero(open_rows & (self._codes(wanted, view, self.placement) == FITS))
        if not len(rows):
            return None
        job, demand = wanted.job, wanted.demand
        if not demand.wants_gpus:
            return top_without_gpus(wanted.requests.cpu_milli, view, rows, self.placement), None
        row = top_of(demand, view, rows, self.placement)
        if row is None:
            return None
        plan = decide(BindCall(job.namespace, job.name, job.uid, view.names[row]), demand, view, self.placement)
        return None if plan is None else (row, plan)


class Counting(Side):
    """GPUs are counted, first fit, in the order of the snapshot."""

    def _given(self, demand: Demand) -> Demand:
        """Return whole GPUs for shares: stock Kubernetes knows no others."""
        whole = tuple(replace(part, mib=WHOLE) for part in demand.shape.parts)
        return replace(demand, shape=replace(demand.shape, parts=whole))

    def _choose(self, wanted: _Wanted, view: View, open_rows: NDArray[np.bool_]) -> tuple[int, Plan | None] | None:
        shape = wanted.demand.shape
        free = self._free(wanted, view)
        rows = np.flatnonzero(open_rows & (np.bitwise_count(free) >= shape.gpus) & (view.closed == Refusal.FITS))
        if not len(rows):
            return None
        row = int(rows[0])
        return row, self._lowest(wanted, view, row, int(free[row])) if shape.parts else None

    def _codes(self, wanted: _Wanted, view: View, placement: Placement) -> NDArray[np.int8]:
        del placement
        enough = np.bitwise_count(self._free(wanted, view)) >= wanted.demand.shape.gpus
        return np.where(view.closed != Refusal.FITS, view.closed, np.where(enough, Refusal.FITS, Refusal.TOO_SMALL)).astype(np.int8)

    def _free(self, wanted: _Wanted, view: View) -> NDArray[np.uint32]:
        """Return the free GPUs of the model asked for: what a nodeSelector on the model's label would leave."""
        if wanted.demand.shape.model is None:
            return view.free
        by_class = np.array([usable_mask(wanted.demand.shape, kind) for kind in view.classes] or [0], np.uint32)
        return np.where(view.class_index >= 0, view.free & by_class[view.class_index], np.uint32(0))

    def _lowest(self, wanted: _Wanted, view: View, row: int, free: int) -> Plan:
        """Return the lowest free GPUs, container by container; init containers find theirs among them."""
        bits, kind = list(members(free)), view.classes[view.class_index[row]]
        own = bits[: wanted.demand.shape.gpus]
        masks, at = [], 0
        for part in wanted.demand.shape.parts:
            masks.append(union(1 << bit for bit in own[at : at + part.gpus]))
            at += 0 if part.kind is ContainerKind.INIT else part.gpus
        largest = max(masks, key=lambda mask: (mask.bit_count(), float(kind.bandwidth[mask])))
        return Plan(tuple(masks), union(masks), float(kind.bandwidth[largest]), kind.worst_code(largest))


def side(policy: str, snapshot: Snapshot, settings: Settings) -> Side:
    """Return the side of a policy, one of `POLICIES`."""
    makers: dict[str, Callable[[], Side]] = {
        COUNT: lambda: Counting(snapshot, settings, Policy.PACK),
        **{one.value: lambda one=one: Linkwise(snapshot, settings, one) for one in Policy},  # type: ignore[misc]
    }
    return makers[policy]()
