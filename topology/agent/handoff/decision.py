"""What a container gets: its plan if that is free, free GPUs if its pod came around the extender and policy lets it, else a refusal with its sentence.

Called by `hand_off` for a container that starts for the first time; what was decided is on disk before the lock is let go, so two containers never find one
GPU free. Knows who holds what: the agent's own records, what kubelet tells of others, and, for pods from around, what is promised to pods that wait.
"""

import threading
from dataclasses import dataclass
from typing import Final, Literal

from topology.agent.handoff import series
from topology.agent.handoff.checkpoint import CheckpointError
from topology.agent.handoff.free import free_parts, free_shares
from topology.agent.handoff.holding import Holding, Part, conflict
from topology.agent.handoff.identity import Starting
from topology.agent.handoff.liveness import Liveness
from topology.agent.handoff.node_gpus import NodeGpus
from topology.agent.handoff.plan import Around, Planned, Unkept, checked, memory_share_mib, plan_of
from topology.agent.handoff.pods import Pods, PodUnknownError
from topology.agent.handoff.records import Records
from topology.agent.handoff.refusal import RefusedStartError
from topology.agent.holders import gpu_of
from topology.api.annotations import GPU_MEMORY
from topology.capacity import WHOLE

_PLACE_ANEW: Final = "delete the pod, and let Linkwise place one in its stead (without nodeName, by a scheduler that asks Linkwise)"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the administrator decided. ``by_cdi`` False: without CDI, kubelet's ids decide, and have to be right."""

    node_name: str
    by_cdi: bool
    around: Literal["observe", "refuse"]
    patience_s: float


class Decision:
    """Decides for one node; ``gpus`` None: they were not looked at yet."""

    def __init__(self, rules: Rules, pods: Pods, records: Records, liveness: Liveness) -> None:
        self._rules = rules
        self._pods = pods
        self._records = records
        self._liveness = liveness
        self._lock = threading.Lock()
        self.gpus: NodeGpus | None = None

    # --- a container that starts for the first time -----------------------------------------------------------------

    def decided(self, one: Starting, token: str) -> Holding:
        """Return what a container gets, on disk; raises RefusedStartError."""
        plan = plan_of(one.pod, one.container.name, self._rules.node_name)
        if isinstance(plan, Around):
            one, plan = self._confirmed(one)
        if isinstance(plan, Around) and self._rules.around == "refuse":
            raise RefusedStartError(series.NO_PLAN, f"{plan.why}; this node takes pods from Linkwise alone: {_PLACE_ANEW}")
        with self._lock:
            record = self._records.adopt(token, one.entry.resource, one.entry.ids)
            if record.holding is not None:
                return record.holding  # kubelet called twice, and the other call was faster
            parts = self._around_parts(one) if isinstance(plan, Around) else self._planned_parts(one, plan)
            holding = _holding(one, parts, planned=isinstance(plan, Planned))
            self.check_health(holding)
            try:
                self._records.hold(record, holding)
            except OSError as error:
                raise RefusedStartError(series.FILES, f"what the container holds cannot be written: {error}") from error
        return holding

    def _confirmed(self, one: Starting) -> tuple[Starting, Planned | Around]:
        """Ask the API server before a pod is said to have come around the extender: a view from before its binding has no allocation."""
        try:
            pod = self._pods.reload(one.entry.pod_uid)
        except PodUnknownError as error:
            raise RefusedStartError(series.NO_PLAN, f"{one.pod.told} has no allocation that can be used, and {error}") from error
        return Starting(one.entry, pod, one.container), plan_of(pod, one.container.name, self._rules.node_name)

    def _planned_parts(self, one: Starting, plan: Planned) -> tuple[Part, ...]:
        """Return the planned GPUs, which must be free."""
        entry, gpus = one.entry, self.known_gpus()
        kept = checked(plan, one.pod, one.container.name, entry.resource, len(entry.ids))
        if isinstance(kept, Unkept):
            raise RefusedStartError(series.PLAN, f"{kept.why}; it was not written by Linkwise for this pod: {_PLACE_ANEW}")
        gone = [part.uuid for part in kept.parts if part.uuid not in gpus.uuids]
        if gone:
            why = f"GPU {', '.join(gone)} of the allocation is not in node {self._rules.node_name}, and no other stands in for it"
            raise RefusedStartError(series.GPU_GONE, f"{why}: {_PLACE_ANEW}")
        if not entry.by_cdi and {part.uuid for part in kept.parts} != _uuids(entry.ids, gpus):
            raise RefusedStartError(series.OTHER_IDS, _other_ids(kept, entry.ids))
        self._check_free(_holding(one, kept.parts, planned=True), gpus)
        return kept.parts

    def _around_parts(self, one: Starting) -> tuple[Part, ...]:
        """Return free GPUs for a pod that came around the extender."""
        entry, gpus = one.entry, self.known_gpus()
        if not entry.by_cdi:
            own = tuple(Part(uuid) for uuid in gpus.in_order(_uuids(entry.ids, gpus)))
            self._check_free(_holding(one, own, planned=False), gpus)
            return own
        before = self._had_before(one, gpus)
        if before is not None:
            return before
        asking, others = _holding(one, (), planned=False), self.everybody()
        if entry.resource == GPU_MEMORY:
            parts = free_shares(gpus, asking, others, memory_share_mib(one.pod, len(entry.ids)))
        else:
            parts = free_parts(gpus, asking, others, entry.ids)
        if parts is None:
            told = f"{len(others)} containers hold GPUs or are promised some"
            why = f"{one.pod.told} came around Linkwise, and too little is free for {len(entry.ids)} {entry.resource}: {told}"
            raise RefusedStartError(series.NONE_FREE, why, blockers=tuple(others), may_pass=True)
        return parts

    def _had_before(self, one: Starting, gpus: NodeGpus) -> tuple[Part, ...] | None:
        """Return what the container of a pod from around was given by another token, None where that was nothing, or does not work any more."""
        of_container = (
            record.holding
            for record in self._records.all()
            if record.resource == one.entry.resource and record.holding and len(record.ids) == len(one.entry.ids)
        )
        for held in of_container:
            if (held.pod_uid, held.container.name) == (one.entry.pod_uid, one.container.name) and held.uuids <= gpus.uuids - gpus.ill.keys():
                return held.parts
        return None

    # --- a container for which another device plugin answered -------------------------------------------------------

    def check_ids(self, one: Starting) -> None:
        """Let a container start that gets the GPUs of its ids whatever we say: they must be its plan, and free. Raises RefusedStartError."""
        gpus = self.known_gpus()
        uuids = _uuids(one.entry.ids, gpus)
        plan = plan_of(one.pod, one.container.name, self._rules.node_name)
        if isinstance(plan, Planned) and {part.uuid for part in plan.parts} != uuids:
            raise RefusedStartError(series.OTHER_IDS, _other_ids(plan, one.entry.ids))
        holding = _holding(one, tuple(Part(uuid) for uuid in gpus.in_order(uuids)), planned=isinstance(plan, Planned))
        self.check_health(holding)
        with self._lock:
            self._check_free(holding, gpus)

    # --- who holds what ---------------------------------------------------------------------------------------------

    def held(self) -> list[Holding]:
        """Return what every container on this node holds, whoever gave it; raises RefusedStartError where kubelet's checkpoint cannot be read."""
        gpus = self.known_gpus()
        try:
            strangers = self._liveness.strangers(gpus.uuids, gpus.mig_parents)
        except CheckpointError as error:
            raise RefusedStartError(series.IDENTITY, str(error)) from error
        # A container has two tokens where kubelet lost its checkpoint and admitted the pod anew: it holds what it holds once.
        return [*dict.fromkeys(self._records.holdings().values()), *strangers]

    def everybody(self) -> list[Holding]:
        """Return what is held and what is promised to containers that have not started; raises as `held` does."""
        held = self.held()
        started = {(one.pod_uid, one.container.name) for one in held}
        waiting = [
            Holding(pod.uid, pod.namespace, pod.name, container, plan.parts)
            for pod, container, plan in self._pods.promised()
            if (pod.uid, container.name) not in started
        ]
        return [*held, *waiting]

    def _check_free(self, wanted: Holding, gpus: NodeGpus) -> None:
        found = conflict(wanted, self.held(), gpus.offered_mib)
        if found is not None:
            raise RefusedStartError(series.MEMORY if found.of_memory else series.HELD, found.why, blockers=found.blockers, may_pass=True)

    # --- the GPUs ---------------------------------------------------------------------------------------------------

    def check_health(self, holding: Holding) -> None:
        """Raise RefusedStartError where a GPU is gone or does not work."""
        gpus = self.known_gpus()
        for part in holding.parts:
            if part.uuid not in gpus.uuids:
                raise RefusedStartError(series.GPU_GONE, f"GPU {part.uuid} is not in node {self._rules.node_name} any more: {_PLACE_ANEW}")
            if part.uuid in gpus.ill:
                raise RefusedStartError(series.GPU_ILL, f"GPU {part.uuid} cannot be used: {gpus.ill[part.uuid]}")

    def known_gpus(self) -> NodeGpus:
        """Return the node's GPUs; raises RefusedStartError before the first look."""
        if self.gpus is None:
            raise RefusedStartError(series.GPU_ILL, "the GPUs of this node were not looked at yet")
        return self.gpus


def _holding(one: Starting, parts: tuple[Part, ...], *, planned: bool) -> Holding:
    """Return what a container would hold, by the UID that kubelet and the kernel know its pod by: of a static pod the API server has another."""
    return Holding(one.entry.pod_uid, one.pod.namespace, one.pod.name, one.container, parts, planned)


def _uuids(ids: frozenset[str], gpus: NodeGpus) -> frozenset[str]:
    found = (gpu_of(device, gpus.uuids, gpus.mig_parents) for device in ids)
    return frozenset(uuid for uuid in found if uuid is not None)


def _other_ids(plan: Planned, ids: frozenset[str]) -> str:
    planned = ", ".join(sorted(part.uuid + (f" ({part.mib} MiB)" if part.mib != WHOLE else "") for part in plan.parts))
    return (
        f"kubelet gave the container {', '.join(sorted(ids))}, and its pod's allocation says {planned}; delete the pod, so that another is admitted"
    )
