"""Who still holds what, and who is gone for certain: the memory of the arbiter.

Used by `hand_off` (who is in the way) and `garbage` (what can be forgotten). Somebody is gone only by evidence that is younger than what they were given:
kubelet, made to write its checkpoint anew, no longer knows their token; and the kernel shows no process of their pod, or, where its cgroups are not to be
seen, the API server says that the pod is gone or has ended. Each witness alone is wrong at times: kubelet forgets pods that were deleted by force, and all
of them when somebody deletes its checkpoint; the API server keeps a pod whose finalizers wait.

Beside the agent's own records there are containers that it never answered for: those of another device plugin, from before the hand-off, hold the GPUs of
their ids; those whose record was lost hold what their pod's plan says.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from topology.agent.handoff.cgroups import Cgroups
from topology.agent.handoff.checkpoint import CheckpointError, Entry
from topology.agent.handoff.holding import Container, Holding, Kind, Part
from topology.agent.handoff.identity import current_since
from topology.agent.handoff.kubelet import Kubelet
from topology.agent.handoff.plan import Planned, plan_of
from topology.agent.handoff.pods import Pods
from topology.agent.handoff.records import Record, Records
from topology.agent.holders import gpu_of
from topology.api.annotations import GPU_MEMORY

_NOBODY_KNOWS: Final = Container("", Kind.APP, 0)


class Liveness:
    """The witnesses, asked together."""

    def __init__(self, kubelet: Kubelet, pods: Pods, records: Records, cgroups: Cgroups) -> None:
        self._kubelet = kubelet
        self._pods = pods
        self._records = records
        self._cgroups = cgroups

    def gone(self, records: Iterable[Record]) -> list[Record]:
        """Return those of the records whose containers are gone for certain."""
        asked = list(records)
        if not asked:
            return []
        try:
            forgotten = self._forgotten(asked)
        except CheckpointError:
            return []
        return [record for record in forgotten if not self._pod_lives(record.holding)]

    def _forgotten(self, asked: list[Record]) -> list[Record]:
        """Return those that kubelet does not know any more; it is made to write its checkpoint only where the one that lies there does not tell."""
        found = self._kubelet.checkpoint()
        if current_since(found, self._records, max(record.sequence for record in asked)) and not all(one.token in found.tokens for one in asked):
            return [record for record in asked if record.token not in found.tokens]
        anew = self._kubelet.rewritten()  # who stands in an old one may have ended since
        return [] if anew is None else [record for record in asked if record.token not in anew.tokens]

    def _pod_lives(self, holding: Holding | None) -> bool:
        if holding is None:
            return False  # nothing was ever started by this token
        has_processes = self._cgroups.has_processes(holding.pod_uid)
        if has_processes is not None:
            return has_processes
        return self._pods.lives(holding.pod_uid, holding.namespace, holding.pod)

    def idle(self, holdings: Iterable[Holding]) -> frozenset[str]:
        """Return the UIDs of pods that seem to run nothing: a reason to ask `gone`, and no evidence. Asks neither kubelet nor the API server."""
        return frozenset(one.pod_uid for one in holdings if self._seems_idle(one.pod_uid))

    def _seems_idle(self, pod_uid: str) -> bool:
        has_processes = self._cgroups.has_processes(pod_uid)
        if has_processes is not None:
            return not has_processes
        pod = self._pods.cached(pod_uid)
        return pod is None or pod.ended

    def strangers_have_changed(self) -> bool:
        """Make kubelet write its checkpoint anew, and tell whether it knows less than before: containers without records are told by it alone."""
        try:
            before, after = self._kubelet.checkpoint(), self._kubelet.rewritten()
        except CheckpointError:
            return False
        return after is not None and not set(before.entries) <= set(after.entries)

    def strangers(self, uuids: frozenset[str], mig_parents: Mapping[str, str]) -> list[Holding]:
        """Return what containers hold that kubelet knows and the records do not; raises CheckpointError."""
        return list(self._strangers(uuids, mig_parents))

    def _strangers(self, uuids: frozenset[str], mig_parents: Mapping[str, str]) -> Iterator[Holding]:
        for entry in self._kubelet.checkpoint().entries:
            if entry.token is not None and self._records.get(entry.token) is not None:
                continue
            parts = self._parts(entry, uuids, mig_parents)
            if parts:
                pod = self._pods.cached(entry.pod_uid)
                container = (pod.container(entry.container) if pod is not None else None) or Container(entry.container, Kind.APP, _NOBODY_KNOWS.order)
                namespace, name = (pod.namespace, pod.name) if pod is not None else ("?", f"of UID {entry.pod_uid}")
                yield Holding(entry.pod_uid, namespace, name, container, parts, planned=entry.token is not None)

    def _parts(self, entry: Entry, uuids: frozenset[str], mig_parents: Mapping[str, str]) -> tuple[Part, ...]:
        if entry.by_cdi:
            pod = self._pods.cached(entry.pod_uid)
            plan = plan_of(pod, entry.container, self._pods.node_name) if pod is not None else None
            if isinstance(plan, Planned):
                return plan.parts
        if entry.resource == GPU_MEMORY:
            return ()
        found = {gpu_of(device, uuids, mig_parents) for device in entry.ids}
        return tuple(Part(uuid) for uuid in sorted(uuid for uuid in found if uuid is not None))
