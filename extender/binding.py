"""One pod onto one node: place on the state of this moment, promise, encode, one POST, confirm or forget.

Called by `verbs.bind`. From placing to promising there is no await, and one event loop owns the state: that is the node's lock, and it cannot outlive its
owner. The POST itself is outside of it, so binds to one node overlap. A POST whose outcome is unknown leaves its promise standing until the pod
tells: bound (confirm), gone or another (forget), or still unbound past the deadline (forget).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from extender import log_keys
from extender.assuming import assume, room_beside_waiting
from extender.cluster import Cluster, Entry, EntryState, NodeGpus, View, charges
from extender.demand import Demand, Part
from extender.handoff import native
from extender.placement import Placement, Plan
from extender.protocol import BindCall, Binder, Binding, BindResult, BindVerdict
from extender.reasons import full_sentence
from extender.settings import Settings
from topology.api import AllocatedGpu, Allocation
from topology.errors import ApiServerError
from topology.topology_class import members

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class BindOutcome:
    """How a bind call ended: ``error`` is empty on success; ``plan`` is what was decided, None where nothing was."""

    error: str
    plan: Plan | None = None
    verdict: BindVerdict | None = None


class Bindings:
    """The bind verb's engine; one instance a process."""

    def __init__(self, cluster: Cluster, placement: Placement, binder: Binder, settings: Settings, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._placement = placement
        self._binder = binder
        self._settings = settings
        self._clock = clock
        self._in_hand: dict[str, asyncio.Future[None]] = {}  # by pod: whoever waits for its turn waits for this
        self._deadlines: dict[str, float] = {}  # promises whose POST had no answer: when it can no longer take effect

    async def bind(self, call: BindCall, demand_of: Callable[[], Awaitable[Demand]]) -> BindOutcome:
        """Bind the pod to the node, once, however often it is called; ``demand_of`` is asked only where it is not bound yet, and what it raises is not caught."""
        while call.uid in self._in_hand:
            await asyncio.wait([self._in_hand[call.uid]])
        with self._alone(call.uid):
            if call.uid in self._deadlines:
                await self._resolve_if_answered(call.uid)
            told = self._already(call)
            if told is not None:
                return told
            demand = await demand_of()  # the watch may show the pod bound meanwhile
            return self._already(call) or await self._decide_and_post(call, demand)

    @contextmanager
    def _alone(self, uid: str) -> Iterator[None]:
        """Keep other calls about the pod waiting; nobody has it in hand when this is entered."""
        done = self._in_hand[uid] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._in_hand[uid]
            done.set_result(None)

    def _already(self, call: BindCall) -> BindOutcome | None:
        """Answer from the ledger where the pod has an entry: bound there is success, anything else names the node."""
        entry = self._cluster.ledger.get(call.uid)
        if entry is None:
            return None
        if entry.state is EntryState.PROMISED:
            return BindOutcome(f"pod {call.pod} is promised to node {entry.node}; whether its binding took effect is not known yet")
        if entry.node != call.node:
            return BindOutcome(f"pod {call.pod} is bound to node {entry.node} already, not to {call.node}")
        return BindOutcome("", verdict=BindVerdict.BOUND)

    async def _decide_and_post(self, call: BindCall, demand: Demand) -> BindOutcome:
        if not demand.wants_gpus:
            return await self._post_without_gpus(call)
        self._cluster.unhold(call.uid)
        view = self._cluster.view()
        plan = self._place_beside_waiting(call, demand, view) or decide(call, demand, view, self._placement)
        if plan is None:
            return BindOutcome(f"pod {call.pod} does not fit on node {call.node} any more: {self._why_not(call, demand)}")
        allocation = allocate(call.node, demand, plan, view.gpus[view.row_of[call.node]])
        assumption = assume(call, demand, allocation, self._cluster)
        if assumption.reason:
            return BindOutcome(f"pod {call.pod} is not bound to node {call.node} yet: {assumption.reason}")
        binding = Binding(call.namespace, call.name, call.uid, call.node, {**native.encode(allocation), **assumption.annotations})
        promise(call, demand, allocation, self._cluster)
        result = await self._post(binding)
        return BindOutcome(self._settle(call, result), plan, result.verdict)

    def _why_not(self, call: BindCall, demand: Demand) -> str:
        view = self._cluster.view()
        row = view.row_of.get(call.node, -1)
        refusal = self._placement.refusal(demand.shape, view, row)
        return full_sentence(refusal, demand.asked, self._placement.numbers(demand.shape, view, row))

    async def _post_without_gpus(self, call: BindCall) -> BindOutcome:
        """Bind a pod that is none of our business: kube-scheduler sends all pods where no managedResources are configured."""
        result = await self._binder.bind(Binding(call.namespace, call.name, call.uid, call.node, {}), self._settings.bind_timeout_s)
        if result.verdict is BindVerdict.BOUND or await self._is_bound_there(call):
            return BindOutcome("", verdict=BindVerdict.BOUND)
        return BindOutcome(f"binding pod {call.pod} to node {call.node}: {result.message}", verdict=result.verdict)

    async def _is_bound_there(self, call: BindCall) -> bool:
        """Tell whether an earlier call has bound the pod; no ledger knows it, since it holds no GPU."""
        try:
            pod = await self._binder.read_pod(call.namespace, call.name)
        except ApiServerError:
            return False
        return pod is not None and (pod.get("metadata") or {}).get("uid") == call.uid and (pod.get("spec") or {}).get("nodeName") == call.node

    def _place_beside_waiting(self, call: BindCall, demand: Demand, view: View) -> Plan | None:
        """Place a pod of gpushare's plugin where pods with the same total wait already, None where none do or where there is no room."""
        room = room_beside_waiting(call, demand, view, self._cluster) if demand.shape.plugin_gpus else None
        return None if room is None else self._placement.place(demand.shape, view, view.row_of[call.node], room)

    async def _post(self, binding: Binding) -> BindResult:
        try:
            return await self._binder.bind(binding, self._settings.bind_timeout_s)
        except BaseException:  # a cancelled call must not take the promise with it: the POST may have left already
            self._deadlines[binding.uid] = self._clock() + self._settings.bind_timeout_s + self._settings.bind_grace_s
            raise

    def _settle(self, call: BindCall, result: BindResult) -> str:
        """Confirm, forget, or leave the promise standing; returns the error for the caller."""
        log = _log.bind(**{log_keys.POD: call.pod, log_keys.UID: call.uid, log_keys.NODE: call.node})
        if result.verdict is BindVerdict.BOUND:
            self._cluster.ledger.confirm(call.uid)
            log.info("pod bound")
            return ""
        if result.verdict is BindVerdict.REFUSED:
            self._forget(call.uid)
            log.warning("binding refused", **{log_keys.REASON: result.message})
            return f"binding pod {call.pod} to node {call.node} was refused: {result.message}"
        self._deadlines[call.uid] = self._clock() + self._settings.bind_timeout_s + self._settings.bind_grace_s
        log.warning("binding without an answer", **{log_keys.REASON: result.message})
        return f"binding pod {call.pod} to node {call.node} got no answer ({result.message}); its GPUs stay promised until the pod tells"

    def _forget(self, uid: str) -> None:
        self._cluster.ledger.forget(uid)
        if self._cluster.ledger.get(uid) is None:
            self._cluster.assume_order.settle(uid)

    @property
    def any_in_hand(self) -> bool:
        """Tell whether a pod is being bound at this moment."""
        return bool(self._in_hand)

    def any_may_take_effect(self) -> bool:
        """Tell whether the API server may still be working on a POST of ours that had no answer."""
        now = self._clock()
        return any(deadline > now for deadline in self._deadlines.values())

    async def resolve_open(self) -> None:
        """Ask after every promise whose POST had no answer; called every second or so."""
        for uid in tuple(self._deadlines):
            if uid not in self._in_hand:
                with self._alone(uid):
                    await self._resolve_if_answered(uid)

    async def _resolve_if_answered(self, uid: str) -> None:
        """Resolve a promise; where nobody answers, it stands until the next time."""
        try:
            await self._resolve(uid)
        except ApiServerError as error:
            _log.warning("nobody tells what became of a promise", **{log_keys.UID: uid, log_keys.REASON: str(error)})

    async def _resolve(self, uid: str) -> None:
        """Read a pod whose POST had no answer, and confirm or forget its promise where that can be told."""
        entry = self._cluster.ledger.get(uid)
        if entry is None or entry.state is not EntryState.PROMISED:
            self._deadlines.pop(uid, None)
            return
        asked_at = self._clock()
        pod = await self._binder.read_pod(entry.namespace, entry.name)
        now = self._cluster.ledger.get(uid)
        if now is None or now.state is not EntryState.PROMISED:
            pass  # the cluster has shown meanwhile what became of it, and this answer may be older
        elif pod is None or (pod.get("metadata") or {}).get("uid") != uid:
            self._forget(uid)
        elif (pod.get("spec") or {}).get("nodeName"):
            self._cluster.apply_pod(pod)
        elif asked_at > self._deadlines.get(uid, asked_at):
            self._forget(uid)
        else:
            return
        self._deadlines.pop(uid, None)


def decide(call: BindCall, demand: Demand, view: View, placement: Placement) -> Plan | None:
    """Return the GPUs on the node of the call, None where the pod does not fit there: beside the sets that other scored pods will take where that is as good."""
    row = view.row_of.get(call.node, -1)
    room = view.rooms_beside(call.uid).get(row)
    beside = None if room is None else placement.place(demand.shape, view, row, room)
    anywhere = placement.place(demand.shape, view, row)
    if beside is not None and anywhere is not None and beside.bandwidth >= anywhere.bandwidth:
        return beside
    return anywhere


def promise(call: BindCall, demand: Demand, allocation: Allocation, cluster: Cluster) -> None:
    """Enter what was decided on this very state into the ledger; undo with ``cluster.ledger.forget``. Called by `simulate` too."""
    charged = charges(allocation, demand.kinds)
    entry = Entry(call.uid, call.namespace, call.name, call.node, charged.uuids, EntryState.PROMISED, allocation.encode(), charged.shares)
    cluster.ledger.promise(entry, demand.requests)


def allocate(node: str, demand: Demand, plan: Plan, gpus: NodeGpus) -> Allocation:
    """Turn bits into the allocation: identities by container name, never positions."""
    return Allocation(
        node=node,
        containers={
            name: tuple(_allocated(demand, part, gpus, bit) for bit in members(mask))
            for name, part, mask in zip(demand.containers, demand.shape.parts, plan.masks, strict=True)
        },
        bandwidth_gb_per_s=round(plan.bandwidth, 3) if demand.shape.largest > 1 else None,
        worst_link=plan.worst,
    )


def _allocated(demand: Demand, part: Part, gpus: NodeGpus, bit: int) -> AllocatedGpu:
    if not part.is_share:
        return AllocatedGpu(uuid=gpus.uuids[bit], index=gpus.indices[bit], memory_mib=gpus.memory_mib[bit])
    return AllocatedGpu(uuid=gpus.uuids[bit], index=gpus.indices[bit], memory_mib=part.mib, shared=True, cores_percent=demand.cores_percent)
