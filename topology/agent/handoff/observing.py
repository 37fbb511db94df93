"""Who holds which GPU, with the hand-off on: the agent gave them away itself, so it knows, whatever kubelet's ids say.

`running` asks every few seconds and after news of pods, in place of `topology.agent.holders`; the answer becomes the status that the extender goes by. Whoever seems to run
nothing any more is asked about at once (`liveness`), and forgotten where they are gone for certain: their GPUs are free for the cluster within one look, not
when the garbage is collected. A container that was admitted and has not started holds nothing yet; its pod's allocation says what it will.

While kubelet's checkpoint cannot be read, the holders are those last seen, and so is the time of observation.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from topology.agent.handoff.hand_off import HandOff
from topology.agent.handoff.holding import Holding
from topology.agent.handoff.liveness import Liveness
from topology.agent.handoff.pods import Pods
from topology.agent.handoff.records import Records
from topology.agent.handoff.refusal import RefusedStartError
from topology.agent.holders import HOLDERS_OBSERVED, Observation
from topology.api import Condition, GpuHolder, GPUTopology
from topology.capacity import WHOLE
from topology.errors import InputError, LinkwiseError

_Held = Mapping[str, tuple[GpuHolder, ...]]
_KNOWN: Final = Condition(type=HOLDERS_OBSERVED, status="True", reason="HandOff", message="the agent knows which GPUs it gave to whom")


class HeldGpus:
    """The holders by the agent's own records; a `topology.agent.holders.HolderSource`."""

    def __init__(self, hand_off: HandOff, liveness: Liveness, pods: Pods, records: Records) -> None:
        self._hand_off = hand_off
        self._liveness = liveness
        self._pods = pods
        self._records = records
        self._at: datetime | None = None
        self._held: _Held = {}
        self.error: LinkwiseError | None = None
        self.expects_change = False

    def remember(self, published: GPUTopology) -> None:
        """Begin with the holders that an earlier agent of this node has published."""
        status = published.status
        if status.holders_observed and self._at is None:
            self._at, self._held = status.observed_at, {gpu.uuid: gpu.holders for gpu in status.gpus if gpu.holders}

    def ask(self, now: datetime) -> None:
        """Look at the records, and at whom they speak of."""
        try:
            holdings = self.holdings()
        except RefusedStartError as error:
            self.error = error
        except OSError as error:
            self.error = InputError(f"what is left of containers that are gone cannot be removed: {error}")
        else:
            self.error = None
            self._at, self._held = now, self._by_uuid(holdings)

    def holdings(self) -> list[Holding]:
        """Return what is held by containers that are not gone for certain; raises RefusedStartError where it is not known, OSError."""
        held = self._hand_off.held()
        idle = self._liveness.idle(held)
        if idle:
            with_record = [record for record in self._records.all() if record.holding is not None and record.holding.pod_uid in idle]
            for record in self._liveness.gone(with_record):
                self._hand_off.retire(record)
            if idle - {record.holding.pod_uid for record in with_record if record.holding is not None}:
                self._liveness.strangers_have_changed()  # kubelet forgets those that have ended as it writes anew
            held = self._hand_off.held()
        self.expects_change = any(self._is_passing(uid) for uid in {one.pod_uid for one in held})
        return held

    def observation(self, uuids: Iterable[str], mig_parents: Mapping[str, str]) -> Observation:  # noqa: ARG002  # the records name GPUs, never MIG devices
        """Return who holds these GPUs."""
        return Observation(self._at, {uuid: self._held[uuid] for uuid in uuids if uuid in self._held}, self._condition())

    def _is_passing(self, pod_uid: str) -> bool:
        pod = self._pods.cached(pod_uid)
        return pod is None or pod.ended

    def _by_uuid(self, holdings: list[Holding]) -> _Held:
        found: dict[str, list[GpuHolder]] = {}
        for one in holdings:
            pod = self._pods.cached(one.pod_uid)
            uid = one.pod_uid if pod is None else pod.uid  # of a static pod kubelet has another one
            for part in one.parts:
                mib = None if part.mib == WHOLE else part.mib
                holder = GpuHolder(namespace=one.namespace, name=one.pod, container=one.container.name, uid=uid, memory_mib=mib, planned=one.planned)
                found.setdefault(part.uuid, []).append(holder)
        return {uuid: tuple(sorted(holders, key=_by_name)) for uuid, holders in found.items()}

    def _condition(self) -> Condition:
        if self.error is not None:
            then = "the holders are those last seen" if self._at is not None else "nobody knows who holds which GPU"
            return Condition(type=HOLDERS_OBSERVED, status="False", reason="RecordsUnknown", message=f"{self.error}; {then}")
        if self._at is None:
            return Condition(type=HOLDERS_OBSERVED, status="Unknown", reason="NotAsked", message="the records were not looked at yet")
        return _KNOWN


def _by_name(holder: GpuHolder) -> tuple[str, str, str, str]:
    return holder.namespace, holder.name, holder.container or "", holder.uid or ""
