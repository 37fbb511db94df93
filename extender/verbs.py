"""The walk of a pod, in its order: filter, prioritize, preempt, bind. Bytes come from `app`, bytes go back to it.

    filter      protocol -> demand + cluster.view -> placement.fits -> reasons -> protocol
    prioritize  the same first four, then scoring; the winner's set counts as tentatively taken
    preempt     a veto over kube-scheduler's candidates: preemption
    bind        binding: place, promise, one POST, confirm or forget

Each verb also leaves a trace for `explain` (references, no text) and counts in `metrics`. Bad pods are answered in the form of the verb with a sentence;
only a body that is no call at all raises (CallError, which `app` turns into 400).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from extender import protocol
from extender.binding import Bindings, BindOutcome
from extender.cluster import Cluster, RefusedPod, View
from extender.demand import Demand, read_demand
from extender.demand_class import Target, checked
from extender.explain import NO_NODES, AskedNodes, Bound, Decision, Decisions, bound_of, bound_text
from extender.metrics import Metrics
from extender.node_objects import NodeObjects
from extender.notices import Notice, NoticeReason, Recorder, Silence
from extender.placement import FITS, Outlook, Placement
from extender.preemption import allowed
from extender.protocol import Binder, BindVerdict, NodesCall
from extender.reasons import CLOSURE_SENTENCES, Refusal, for_event
from extender.requests import read_requests
from extender.scoring import Scores, score, score_without_gpus
from extender.settings import Settings
from extender.text_columns import NameText
from extender.waiting import WaitingPods
from extender.workload import Weights, Workload
from topology.api import annotations
from topology.errors import DemandError

NO_SCORE = 0
_STRANGER: Final = for_event(CLOSURE_SENTENCES[Refusal.NO_TOPOLOGY])


@dataclass(frozen=True, slots=True)
class Clocks:
    """Time, injected: ``monotonic`` in seconds for deadlines, ``now`` for people."""

    monotonic: Callable[[], float]
    now: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class _Identity:
    """Who a raw pod is; ``uid`` is empty where the caller did not say, and then nothing is remembered for it."""

    pod: str
    uid: str


class Verbs:
    """The verbs over one state; one instance a process."""

    def __init__(
        self, cluster: Cluster, binder: Binder, metrics: Metrics, settings: Settings, clocks: Clocks, recorder: Recorder | None = None
    ) -> None:
        self.cluster = cluster
        self.workload = Workload(settings.workload_half_life_s, clocks.monotonic)
        self.placement = Placement(self.workload.weights, Outlook(self.workload.target))
        self.decisions = Decisions(settings.decisions_kept, settings.decisions_mib)
        self.bindings = Bindings(cluster, self.placement, binder, settings, clocks.monotonic)
        self.waiting = WaitingPods(self.placement)
        self._known_nodes = NodeObjects()
        self._recorder = recorder or Silence()
        self._binder = binder
        self._metrics = metrics
        self._settings = settings
        self._clocks = clocks
        self._demands: LRUCache[str, Demand] = LRUCache(settings.demands_kept)
        self._scored: LRUCache[str, float] = LRUCache(settings.demands_kept)  # GB/s that the top node promised at scoring

    def _read(self, pod: protocol.JsonObject) -> Demand:
        return read_demand(pod, self._settings.whole_gpu_resource, self._settings.policy, self.cluster.gpushare.mib_of_unit)

    # --- filter -----------------------------------------------------------------------------------------------------

    def filter(self, body: bytes) -> bytes:
        """Answer which of the nodes can take the pod, with a reason for each that cannot."""
        return self._answered("filter", body, self._filtered)

    def _filtered(self, call: NodesCall, view: View, rows: NDArray[np.int64]) -> bytes:
        who = _identity(call.pod)
        try:
            demand = self._read(call.pod)
        except DemandError as error:
            return self._refuse_everywhere(call, view.name_table.text_of(call.names, rows), who, str(error))
        if not demand.wants_gpus:
            self._remember(who, demand)
            return protocol.filter_answer(call, view.name_table.text_of(call.names, rows), np.arange(len(rows)), ())
        code = self._refusals(demand, view, rows)
        self._keep(who, demand, view, AskedNodes.of(call.names, rows, code))
        fitting = np.flatnonzero(code == FITS)
        self._remember(who, demand)
        if len(fitting):
            self.waiting.served(who.uid)
        else:
            self.waiting.refused(who.uid, demand.shape, view.generation)
        self._warn_of_allocation(call.pod, who)
        if len(fitting) == 1:
            # kube-scheduler asks for no scores when one node is left: it goes there.
            self._score(demand, view, rows[fitting], who)
        return protocol.filter_answer(call, view.name_table.text_of(call.names, rows), fitting, self._reasons(demand, view, rows, code))

    def _refuse_everywhere(self, call: NodesCall, names: NameText, who: _Identity, sentence: str) -> bytes:
        self._demands.pop(who.uid, None)  # what it asked before is no longer what it asks
        self.decisions.put(Decision(who.pod, who.uid, self._clocks.now(), None, sentence))
        self._metrics.refused_nodes.labels("DEMAND").inc(len(call.names))
        everywhere = np.arange(len(call.names))
        return protocol.filter_answer(call, names, everywhere[:0], [(everywhere, for_event(sentence))] if len(everywhere) else ())

    def _answered(self, verb: str, body: bytes, answer: Callable[[NodesCall, View, NDArray[np.int64]], bytes]) -> bytes:
        """Read a call, look at the state once, and answer, told how long it took."""
        started = time.perf_counter()
        call, view, rows = self._call(body, verb)
        found = answer(call, view, rows)
        self._metrics.decided(verb, len(rows), time.perf_counter() - started)
        return found

    def _call(self, body: bytes, verb: str) -> tuple[NodesCall, View, NDArray[np.int64]]:
        """Read a call, and find the rows of its nodes in the state of now."""
        call, view = protocol.read_nodes_call(body, verb, self._known_nodes), self.cluster.view()
        rows = view.rows_of(call.names)
        if len(rows) and int(rows.min()) < 0 and not call.names.are_names(np.flatnonzero(rows < 0)):
            call = protocol.read_nodes_call(body, verb, decode=True)
            rows = view.rows_of(call.names)
        return call, view, rows

    def _refusals(self, demand: Demand, view: View, rows: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return the Refusal of every node asked for."""
        code = self.placement.fits(demand.shape, view).code
        if not len(rows) or int(rows.min()) >= 0:
            return code.take(rows, mode="clip")
        found = np.full(len(rows), Refusal.NO_TOPOLOGY, np.int8)
        known = rows >= 0
        found[known] = code[rows[known]]
        return found

    def _keep(self, who: _Identity, demand: Demand, view: View, asked: AskedNodes, **told: Any) -> None:
        self.decisions.put(self._decision(who, demand, view, asked, **told))

    def _decision(self, who: _Identity, demand: Demand, view: View, asked: AskedNodes, **told: Any) -> Decision:
        """Return what explain needs later: what the decision was made from."""
        return Decision(
            pod=who.pod,
            uid=who.uid,
            at=self._clocks.now(),
            demand=demand,
            error="",
            policy=demand.policy,
            view=view,
            weights=self.placement.weights,
            outlook=self.placement.outlook,
            asked=asked,
            **told,
        )

    def _reasons(self, demand: Demand, view: View, rows: NDArray[np.int64], code: NDArray[np.int8]) -> list[tuple[NDArray[np.int64], str]]:
        """Return the refused positions by sentence."""
        counts = np.bincount(code).tolist()
        for number, nodes in enumerate(counts):
            if nodes and number:
                self._metrics.refused_nodes.labels(Refusal(number).name).inc(nodes)
        if sum(counts[1:]) == 0:
            return []
        told = self.placement.told(demand, view)
        if not view.rows or int(rows.min()) < 0:
            numbers = np.where(rows < 0, len(told.sentences), told.numbers[rows] if view.rows else 0)
        else:
            numbers = told.numbers.take(rows, mode="clip")
        sentences = [*told.sentences, _STRANGER]
        found = [(np.flatnonzero(numbers == number), sentences[number]) for number in np.flatnonzero(np.bincount(numbers)).tolist() if number]
        return sorted(
            found, key=lambda group: int(group[0][0])
        )  # numbers tell in which order sentences were first needed, which is nobody's business

    def _remember(self, who: _Identity, demand: Demand) -> None:
        if who.uid:
            self._demands[who.uid] = demand

    def adopt(self, pod: protocol.JsonObject) -> None:
        """Note a pod that waits because the process that led before refused it everywhere."""
        try:
            demand = self._read(pod)
        except DemandError:
            return  # no change of any node makes such a pod fit
        if demand.wants_gpus:
            self.waiting.adopt(_identity(pod).uid, demand.shape)

    def note_refused(self, pod: protocol.JsonObject, refused: RefusedPod, *, is_news: bool) -> None:
        """Note a bound pod that kubelet's topology manager refused: another of its demand is not sent to that node for a while.

        ``is_news``: it was there a moment ago, so it was refused now, whatever the clock of its node says.
        """
        now = self._clocks.now()
        at = now if is_news else refused.at
        try:
            demand = self._read(pod)
        except DemandError:
            return  # nothing like it is ever sent anywhere
        if at is not None and demand.wants_gpus:
            self.cluster.kubelet_refusals.note(demand.shape, refused, at, now)

    # --- prioritize -------------------------------------------------------------------------------------------------

    def prioritize(self, body: bytes) -> bytes:
        """Answer with a score for every node; exactly one gets 10 where any can take the pod."""
        return self._answered("prioritize", body, self._prioritized)

    def _prioritized(self, call: NodesCall, view: View, rows: NDArray[np.int64]) -> bytes:
        names = view.name_table.text_of(call.names, rows)
        who = _identity(call.pod)
        try:
            demand = self._read(call.pod)
        except DemandError:
            return protocol.prioritize_answer(names, np.full(len(rows), NO_SCORE))
        if not demand.wants_gpus:
            cpu_milli = read_requests(call.pod).cpu_milli
            return protocol.prioritize_answer(names, score_without_gpus(cpu_milli, view, rows, self.placement))
        code = self._refusals(demand, view, rows)
        feasible = np.flatnonzero(code == FITS)
        scores = self._score(demand, view, rows[feasible], who)
        self._keep_scores(who, demand, view, AskedNodes.of(call.names, rows, code), scores)
        self._remember(who, demand)
        answer = np.full(len(call.names), NO_SCORE, np.int64)
        answer[feasible] = scores.score
        return protocol.prioritize_answer(names, answer)

    def _score(self, demand: Demand, view: View, rows: NDArray[np.int64], who: _Identity) -> Scores:
        """Score feasible rows and hold the winner's set until its bind."""
        scores = score(demand, view, rows, view.rooms_beside(who.uid), self.placement)
        if scores.top is not None and who.uid:
            row = int(rows[scores.top])
            best = self.placement.plan(demand.shape, view.classes[view.class_index[row]], scores.room(view, row))
            assert best is not None
            self._scored[who.uid] = best.bandwidth
            self.cluster.hold(who.uid, row, best.union, self._settings.tentative_hold_s, demand.shares(best.masks))
        return scores

    def _keep_scores(self, who: _Identity, demand: Demand, view: View, asked: AskedNodes, scores: Scores) -> None:
        """Keep what prioritize saw and scored, and beside it the nodes that filter had refused: prioritize is not asked about those."""
        filtered = self.decisions.get(who.pod)
        refused = filtered.asked.refused() if filtered is not None and filtered.uid == who.uid else NO_NODES
        self._keep(who, demand, view, asked, scores=scores, refused_before=refused)

    # --- preempt ----------------------------------------------------------------------------------------------------

    def preempt(self, body: bytes) -> bytes:
        """Answer which candidate nodes to keep: those where the pod fits once the given victims are gone."""
        call = protocol.read_preempt_call(body)
        try:
            demand = self._read(call.pod)
        except DemandError:
            return protocol.preempt_answer({})  # no eviction makes such a pod fit
        return protocol.preempt_answer(allowed(call, demand, self.cluster, self.placement))

    # --- bind -------------------------------------------------------------------------------------------------------

    async def bind(self, body: bytes) -> bytes:
        """Bind the pod to the node with the allocation in the same write; the answer's Error is empty on success."""
        call = protocol.read_bind_call(body)
        try:
            outcome = await self.bindings.bind(call, partial(self._demand_of, call))
        except DemandError as error:
            return protocol.error_answer(f"pod {call.pod}: {error}")
        if not outcome.error:
            self._demands.pop(call.uid, None)
        bound = bound_of(call.node, outcome.error, outcome.plan, self.cluster.view())
        self.decisions.bind(call.pod, call.uid, bound)
        self._tell_placement(call, outcome, bound)
        if outcome.verdict is not None:
            self._metrics.bindings.labels(outcome.verdict.value).inc()
        self.follow_demands()
        promised = self._scored.pop(call.uid, None)
        if promised is not None and outcome.plan is not None and outcome.verdict is BindVerdict.BOUND and outcome.plan.bandwidth < promised:
            self._metrics.worse_sets.inc()
        return protocol.error_answer(outcome.error)

    def _tell_placement(self, call: protocol.BindCall, outcome: BindOutcome, bound: Bound) -> None:
        if outcome.plan is None or outcome.verdict is None:
            return
        self.waiting.served(call.uid)
        if outcome.error:
            self._recorder.record(Notice(call.namespace, call.name, call.uid, NoticeReason.BIND_FAILED, outcome.error))
        else:
            self._recorder.record(Notice(call.namespace, call.name, call.uid, NoticeReason.PLACED, bound_text(bound)))

    async def _demand_of(self, call: protocol.BindCall) -> Demand:
        """Return what a pod asks for: as it was filtered, or as it is stored where this process has not filtered it, as after a restart."""
        known = self._demands.get(call.uid)
        if known is not None:
            return known
        pod = await self._binder.read_pod(call.namespace, call.name)
        if pod is None:
            raise DemandError(f"it was not filtered by this process and is not stored, so it cannot be bound to {call.node}")
        return self._read(pod)

    # --- workload ---------------------------------------------------------------------------------------------------

    def follow_demands(self, *, at_once: bool = False) -> None:
        """Count the pods that were bound since the last time, by us or anybody, and weigh remainders by what is asked for now."""
        now = self._clocks.now()
        for pod in self.cluster.take_arrived():
            age_s = 0.0 if pod.created is None else (now - pod.created).total_seconds()
            self.workload.note(pod.set_sizes, age_s)
            if (counted := pod.demand_class) is not None:
                self.workload.note_class(counted, age_s)
        if self.workload.follow(at_once=at_once):
            self.placement.reweigh(self.workload.weights)
        if self.workload.follow_classes(at_once=at_once):
            self.placement.expect(self.workload.target)

    def fix_workload(self, weights: Weights | None = None, classes: Target | None = None) -> None:
        """Weigh demands as told from now on, each of the two where it is given. Raises InputError, and then nothing has changed."""
        if classes is not None:
            checked(classes)
        if weights is not None:
            self.workload.fix(weights)
        if classes is not None:
            self.workload.fix_classes(classes)
        self._go_by_workload()

    def reset_workload(self) -> None:
        """Weigh demands as they come, from the seed on."""
        self.workload.reset()
        self._go_by_workload()

    def _go_by_workload(self) -> None:
        self.placement.reweigh(self.workload.weights)
        self.placement.expect(self.workload.target)

    # --- notices ----------------------------------------------------------------------------------------------------

    def report_edits(self) -> None:
        """Tell the owners of bound pods whose allocation was edited that nobody believes it."""
        for pod in self.cluster.take_edited():
            sentence = f"annotation {annotations.ALLOCATION} was changed after the pod was bound; the change is ignored"
            self._recorder.record(Notice(pod.namespace, pod.name, pod.uid, NoticeReason.ALLOCATION_EDITED, sentence))

    def report_differences(self) -> None:
        """Tell the owners of pods that their node's agent sees hold what they were not promised."""
        for difference in self.cluster.take_different():
            entry = difference.entry
            sentence = f"{difference.sentence}: those GPUs are given to no other pod while it does; delete it, so that it is placed anew"
            self._recorder.record(Notice(entry.namespace, entry.name, entry.uid, NoticeReason.HOLDS_OTHER, sentence))

    def _warn_of_allocation(self, pod: protocol.JsonObject, who: _Identity) -> None:
        """Tell the owner of an unbound pod that carries an allocation that it is ignored, and will be overwritten at bind."""
        metadata = pod.get("metadata")
        found = metadata.get("annotations") if isinstance(metadata, dict) else None
        if isinstance(found, dict) and annotations.ALLOCATION in found:
            sentence = f"annotation {annotations.ALLOCATION} is written by Linkwise alone; what the pod carries is ignored and overwritten at bind"
            namespace, _, name = who.pod.partition("/")
            self._recorder.record(Notice(namespace, name, who.uid, NoticeReason.ALLOCATION_IGNORED, sentence))

    # --- reading ----------------------------------------------------------------------------------------------------

    def evaluate(self, pod: protocol.JsonObject) -> Decision:
        """Decide about a pod on all nodes as of now, for people: nothing is held and nothing is remembered."""
        who = _identity(pod)
        try:
            demand = self._read(pod)
        except DemandError as error:
            return Decision(who.pod, who.uid, self._clocks.now(), None, str(error))
        if not demand.wants_gpus:
            sentence = f"no container of the pod asks for {self._settings.whole_gpu_resource} or {annotations.GPU_MEMORY}"
            return Decision(who.pod, who.uid, self._clocks.now(), demand, sentence)
        view = self.cluster.view()
        code = self.placement.fits(demand.shape, view).code
        return self._decision(who, demand, view, AskedNodes(np.arange(view.rows, dtype=np.int32), code))


def _identity(pod: protocol.JsonObject) -> _Identity:
    metadata = pod.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    namespace, name, uid = (value if isinstance(value, str) else "" for value in map(found.get, ("namespace", "name", "uid")))
    return _Identity(f"{namespace or 'default'}/{name or '?'}", uid)
