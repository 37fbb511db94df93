"""Which ids kubelet should take for a container that it does not name: those of a pod that was promised so many GPUs here and waits.

Called by `hand_off` for GetPreferredAllocation. A hint and no more: the plan decides at the container's start, whatever kubelet took. But ids that are the plan
keep other tools right that map ids to pods, and, without CDI, they are what the container gets. kubelet admits the pods of one moment in the order of their
creation, so among several that wait for as many GPUs the oldest is meant, unless another one is under admission already.

kubelet may know of a pod some milliseconds before we do: where nobody waits, that long is waited for, and then the API server asked, since one miss brings others:
the GPUs of a container that was given other ids are, by their ids, free for the next one, whose own ids are not.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from topology.agent.handoff.checkpoint import Checkpoint, CheckpointError
from topology.agent.handoff.kubelet import Kubelet
from topology.agent.handoff.pods import Pods, PodUnknownError
from topology.agent.handoff.records import Records
from topology.api.annotations import GPU_MEMORY
from topology.capacity import WHOLE

_WAITS: Final = 2
_PAUSE_S: Final = 0.05  # kubelet admits one pod after the other: what is waited for here, all of them wait for


class Steering:
    """Chooses; asks the cache of pods and kubelet's checkpoint, and the API server where nobody in the cache waits."""

    def __init__(self, pods: Pods, kubelet: Kubelet, records: Records, pause: Callable[[float], object]) -> None:
        self._pods = pods
        self._kubelet = kubelet
        self._records = records
        self._pause = pause

    def prefer(self, resource: str, available: frozenset[str], included: frozenset[str], size: int) -> tuple[list[str], bool]:
        """Return ``size`` of the available ids (fewer where there are fewer), and whether they are what a pod that waits is promised."""
        if resource == GPU_MEMORY:
            return _filled(sorted(included), sorted(available), size), False
        for missed in range(_WAITS + 2):
            planned = self._of_a_waiting_pod(self._checkpoint(), resource, (available | included, included), size)
            if planned is not None:
                return sorted(planned), True
            if missed < _WAITS:
                self._pause(_PAUSE_S)
            elif missed == _WAITS:
                with suppress(PodUnknownError):
                    self._pods.renew()
        return _filled(sorted(included), self._free_first(available), size), False

    def _of_a_waiting_pod(
        self, checkpoint: Checkpoint, resource: str, bounds: tuple[frozenset[str], frozenset[str]], size: int
    ) -> frozenset[str] | None:
        """Return the GPUs of the container that is probably meant; they are within, and contain, the ``bounds``."""
        within, contained = bounds
        admitted = {(entry.pod_uid, entry.container) for entry in checkpoint.entries if entry.resource == resource}
        under_admission = {entry.pod_uid for entry in checkpoint.entries}
        fitting = [
            (pod.uid not in under_admission, pod.created, pod.namespace, pod.name, container.order, uuids)
            for pod, container, plan in self._pods.promised()
            if not {(pod.uid, container.name), (pod.static_uid, container.name)} & admitted
            and all(part.mib == WHOLE for part in plan.parts)
            and len(uuids := frozenset(part.uuid for part in plan.parts)) == size
            and contained <= uuids <= within
        ]
        return min(fitting, key=lambda one: one[:-1])[-1] if fitting else None

    def _free_first(self, available: frozenset[str]) -> list[str]:
        """Return the ids in order: those whose GPU nobody holds or is promised, then the others."""
        taken = {part.uuid for _, _, plan in self._pods.promised() for part in plan.parts}
        taken |= {uuid for holding in self._records.holdings().values() for uuid in holding.uuids}
        return sorted(available, key=lambda uuid: (uuid in taken, uuid))

    def _checkpoint(self) -> Checkpoint:
        try:
            return self._kubelet.checkpoint()
        except CheckpointError:
            return Checkpoint()


def _filled(first: list[str], then: list[str], size: int) -> list[str]:
    return list(dict.fromkeys([*first, *then]))[:size]
