"""The hand-off: a container gets exactly the GPUs of its pod's allocation. kubelet's three calls, in the order in which they come.

    prefer     (GetPreferredAllocation)  which ids kubelet should take: those of a pod that waits (`steering`)
    allocate   (Allocate)                a fresh token for ids of which nobody says whose they are
    start      (PreStartContainer)       whose they are (`identity`), what it gets and that nobody else has it (`decision`, `liveness`), then, on disk
                                         and in this order: what it holds, the files it sees, the CDI spec of its token

Called by `server` in kubelet's threads, of which several may run at once. Every step can be the last one of this agent; the next one finds on disk what it needs, since nothing is promised to kubelet before it is there, and a container without its CDI spec does
not start. A refusal is an error to kubelet, which tries again; what may pass within seconds is waited for here.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from topology.agent.handoff import faults, series
from topology.agent.handoff.cdi import CdiDirectory
from topology.agent.handoff.checkpoint import CDI_KIND, TOKEN_ANNOTATION
from topology.agent.handoff.conditions import elsewhere
from topology.agent.handoff.container_files import ContainerFiles
from topology.agent.handoff.contents import DIRECTORY, RING, VISIBLE, allocation_file, environment
from topology.agent.handoff.decision import Decision, Rules
from topology.agent.handoff.holding import Holding, Kind
from topology.agent.handoff.identity import Identity, IdentityError, Starting
from topology.agent.handoff.kubelet import Kubelet
from topology.agent.handoff.liveness import Liveness
from topology.agent.handoff.node_gpus import NodeGpus
from topology.agent.handoff.nvidia_cdi import NvidiaCdiError
from topology.agent.handoff.plan import Around, Planned, plan_of
from topology.agent.handoff.pod_events import PodEvent, PodEvents
from topology.agent.handoff.pods import Pods
from topology.agent.handoff.records import Record, Records
from topology.agent.handoff.refusal import RefusedStartError
from topology.agent.handoff.series import Series
from topology.agent.handoff.steering import Steering
from topology.agent.handoff.wire import MESSAGES
from topology.api.annotations import GPU_MEMORY

_LOOK_AGAIN_S: Final = (0.2, 1.0)  # first and longest pause while somebody is in the way: each look makes kubelet write its checkpoint


@dataclass(frozen=True, slots=True)
class Means:
    """Whom the hand-off asks, where it writes, and to whom it tells."""

    kubelet: Kubelet
    pods: Pods
    records: Records
    liveness: Liveness
    identity: Identity
    cdi: CdiDirectory
    files: ContainerFiles
    events: PodEvents
    series: Series
    fault: faults.Fault = faults.no_fault


class HandOff:
    """One node's hand-off, for both resources; ``pause`` waits for so many seconds, or less and then tells, with True, that the agent ends."""

    def __init__(self, rules: Rules, means: Means, pause: Callable[[float], object] = time.sleep) -> None:
        self._rules = rules
        self._means = means
        self._pause = pause
        self._steering = Steering(means.pods, means.kubelet, means.records, pause)
        self._decision = Decision(rules, means.pods, means.records, means.liveness)

    @property
    def gpus(self) -> NodeGpus | None:
        """The node's GPUs as they were seen last, None before the first look."""
        return self._decision.gpus

    def node_has(self, gpus: NodeGpus) -> None:
        """Take what the node's GPUs are now."""
        self._decision.gpus = gpus

    def held(self) -> list[Holding]:
        """Return what every container on this node holds; raises RefusedStartError where it is not known."""
        return self._decision.held()

    @staticmethod
    def steers(resource: str) -> bool:
        """Tell whether the ids of a resource mean anything, so that one is better than another."""
        return resource != GPU_MEMORY

    def count_bug(self) -> None:
        """Count a call that failed on our own account."""
        self._means.series.refusals.labels(series.BUG).inc()

    # --- GetPreferredAllocation -------------------------------------------------------------------------------------

    def prefer(self, resource: str, available: frozenset[str], included: frozenset[str], size: int) -> list[str]:
        """Return which of the available ids kubelet should take, ``included`` among them."""
        found, is_planned = self._steering.prefer(resource, available, included, size)
        self._means.series.preferences.labels("yes" if is_planned else "no").inc()
        return found

    # --- Allocate ---------------------------------------------------------------------------------------------------

    def allocate(self, resource: str, ids: frozenset[str]) -> Any:
        """Return the answer for one container: a CDI device that says nothing yet; raises RefusedStartError where its token cannot be written."""
        with self._means.kubelet.giving_away():
            return self._allocated(resource, ids)

    def _allocated(self, resource: str, ids: frozenset[str]) -> Any:
        self._means.fault(faults.ALLOCATE_BEFORE_RECORD)
        try:
            token = self._means.records.issue(resource, ids).token
        except OSError as error:
            raise RefusedStartError(series.FILES, f"the token of {len(ids)} {resource} cannot be written: {error}") from error
        self._means.fault(faults.ALLOCATE_AFTER_RECORD)
        self._means.series.allocations.labels(resource).inc()
        response = MESSAGES["ContainerAllocateResponse"]
        if self._rules.by_cdi:
            return response(cdi_devices=[MESSAGES["CDIDevice"](name=f"{CDI_KIND}={token}")])
        # Here the container is not known and cannot be: what it gets are the ids, and at its start they have to be the plan.
        ring = self.gpus.ring(ids) if self.gpus is not None else sorted(ids)
        mount = MESSAGES["Mount"](container_path=DIRECTORY, host_path=str(self._means.files.of(token)), read_only=True)
        return response(envs={VISIBLE: ",".join(sorted(ids)), RING: ",".join(ring)}, mounts=[mount], annotations={TOKEN_ANNOTATION: token})

    # --- PreStartContainer ------------------------------------------------------------------------------------------

    def start(self, resource: str, ids: frozenset[str]) -> None:
        """Prepare the container that these ids are starting; raises RefusedStartError, and then it does not start."""
        with self._means.series.seconds.time():
            try:
                self._start(resource, ids)
            except RefusedStartError as refusal:
                self._means.series.refusals.labels(refusal.reason).inc()
                raise

    def _start(self, resource: str, ids: frozenset[str]) -> None:
        self._means.fault(faults.START_BEFORE_IDENTITY)
        until, pause_s = time.monotonic() + self._rules.patience_s, _LOOK_AGAIN_S[0]
        try:
            starting = self._means.identity.of(resource, ids)
        except IdentityError as error:
            raise RefusedStartError(series.IDENTITY, str(error)) from error
        self._means.fault(faults.START_AFTER_IDENTITY)
        try:
            while refused := self._all_prepared(starting):
                if not any(refusal.may_pass for _, refusal in refused):
                    break
                if self._made_room(refused):
                    continue
                if time.monotonic() >= until:
                    break
                if self._pause(pause_s):
                    break  # the agent ends: kubelet asks the next one
                pause_s = min(2 * pause_s, _LOOK_AGAIN_S[1])
            self._refuse_or_go_on(starting, refused)
        except OSError as error:
            raise RefusedStartError(series.FILES, f"what is left of a container that is gone cannot be removed: {error}") from error

    def _all_prepared(self, starting: list[Starting]) -> list[tuple[Starting, RefusedStartError]]:
        """Prepare each container that may be the one that starts, and return those that cannot have their GPUs."""
        refused = []
        for one in starting:
            try:
                self._prepare(one)
            except RefusedStartError as refusal:
                refused.append((one, refusal))
        return refused

    def _refuse_or_go_on(self, starting: list[Starting], refused: list[tuple[Starting, RefusedStartError]]) -> None:
        """Raise what is in the way. An init container that ran already does not stop the one that took over its ids, it only loses its spec."""
        past = [one for one, _ in refused if one.container.kind is Kind.INIT and self._held(one) is not None] if len(refused) < len(starting) else []
        for one, refusal in refused:
            if one in past and one.entry.token is not None:
                self._means.cdi.withdraw(one.entry.token)
                continue
            self._means.events.say(PodEvent(one.pod, _EVENTS.get(refusal.reason, "GPUsNotHandedOver"), f"container {one.container.name}: {refusal}"))
            raise refusal

    # --- one container ----------------------------------------------------------------------------------------------

    def _prepare(self, one: Starting) -> None:
        """Let one container have its GPUs; raises RefusedStartError."""
        token = one.entry.token
        if token is None:
            self._decision.check_ids(one)
            return
        held = self._held(one)
        holding = held or self._decision.decided(one, token)
        self._means.fault(faults.START_AFTER_HOLDING)
        self._decision.check_health(holding)
        self._write(token, holding, by_cdi=one.entry.by_cdi)
        if held is None:
            self._tell_start(one, holding)
        else:
            self._means.series.starts.labels(series.RESTARTED).inc()
            self._tell_edit(one, held)

    def _held(self, one: Starting) -> Holding | None:
        """Return what a container was given when it started before."""
        record = self._means.records.get(one.entry.token or "")
        return None if record is None else record.holding

    def _write(self, token: str, holding: Holding, *, by_cdi: bool) -> None:
        """Write what the container sees, and last what lets it start."""
        gpus = self._decision.known_gpus()
        try:
            files = self._means.files.write(token, allocation_file(holding, gpus))
            self._means.fault(faults.START_AFTER_FILES)
            if by_cdi:
                self._means.cdi.write(token, environment(holding, gpus), files, (gpus, holding.uuids))
        except (OSError, NvidiaCdiError) as error:
            raise RefusedStartError(series.FILES, f"what the container gets cannot be written: {error}") from error
        self._means.fault(faults.START_AFTER_SPEC)

    # --- who holds what ---------------------------------------------------------------------------------------------

    def _made_room(self, refused: list[tuple[Starting, RefusedStartError]]) -> bool:
        """Forget those in the way that are gone, and tell whether there were any."""
        blockers = {(one.pod_uid, one.container.name) for _, refusal in refused for one in refusal.blockers}
        records = [record for record in self._means.records.all() if record.holding and _key(record.holding) in blockers]
        gone = self._means.liveness.gone(records)
        for record in gone:
            self.retire(record)
        strangers = len(blockers) > len(records) and not gone
        return bool(gone) or (strangers and self._means.liveness.strangers_have_changed())

    def retire(self, record: Record) -> None:
        """Forget a token whose container is gone, what lets it start first; raises OSError."""
        self._means.cdi.withdraw(record.token)
        self._means.fault(faults.RETIRE_AFTER_SPEC)
        self._means.files.remove(record.token)
        self._means.fault(faults.RETIRE_AFTER_FILES)
        self._means.records.retire(record.token)
        self._means.series.retired.inc()

    # --- telling ----------------------------------------------------------------------------------------------------

    def _tell_start(self, one: Starting, holding: Holding) -> None:
        given = ", ".join(part.uuid for part in holding.parts)
        if not holding.planned:
            how = series.AROUND
            plan = plan_of(one.pod, one.container.name, self._rules.node_name)
            what = f" ({plan.why})" if isinstance(plan, Around) else ""
            why = f"container {one.container.name} was given free GPUs ({given}): its pod has no allocation by Linkwise for this node{what}"
            self._means.events.say(PodEvent(one.pod, "CameAround", why))
        elif one.entry.resource == GPU_MEMORY:
            how = series.SHARE
        else:
            how = series.AS_PLANNED if holding.uuids == one.entry.ids else series.CORRECTED
        self._means.series.starts.labels(how).inc()
        differs = elsewhere(self._decision.known_gpus(), one.entry.ids, holding.uuids)
        if differs:
            self._means.series.numa_differs.inc()
            why = f"container {one.container.name} has its {differs}: where kubelet's topology manager aligns CPUs and memory, it aligned them to the ids, and they are far away"
            self._means.events.say(PodEvent(one.pod, "NUMANodeDiffers", why))

    def _tell_edit(self, one: Starting, held: Holding) -> None:
        plan = plan_of(one.pod, one.container.name, self._rules.node_name)
        if held.planned and plan != Planned(held.parts):
            why = f"linkwise.dev/allocation was changed after container {one.container.name} had started: it keeps what it had"
            self._means.events.say(PodEvent(one.pod, "AllocationEdited", why))


# Reason of the event on the pod, for people who filter; part of what they alert on.
_EVENTS: Final = {
    series.HELD: "GPUHeld",
    series.MEMORY: "GPUMemoryTaken",
    series.GPU_GONE: "GPUGone",
    series.GPU_ILL: "GPULost",
    series.PLAN: "AllocationUnkept",
    series.NO_PLAN: "CameAround",
    series.NONE_FREE: "NoFreeGPU",
    series.OTHER_IDS: "OtherGPUs",
}


def _key(holding: Holding) -> tuple[str, str]:
    return holding.pod_uid, holding.container.name
