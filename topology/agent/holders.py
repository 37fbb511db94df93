"""Who holds which GPU, as kubelet tells it: from device ids to GPUs, and what to believe when kubelet does not answer.

`running` calls `Holders.observe` every few seconds; `wanted` writes the outcome into the status. The extender gives GPUs to new pods by this (pods that
came around it, pods deleted by force), so it errs to one side only: a GPU counts as held until kubelet has left its holder out twice in a row. A kubelet
that has just started may list no pods at all for a moment, though their containers run. While it does not answer, the holders are those last seen, and so is
the time of observation: the extender takes it for the time at which the holders were so, to tell a pod from a namesake that came later. Where kubelet
stays silent for long, the node therefore becomes stale, and takes no new pods.

Under NVIDIA's device plugin an id is a GPU's UUID, with a suffix where one GPU is offered several times (`GPU-…::3`), or the UUID of a MIG device, whose
GPU nvidia-smi tells. Any other id of the GPU resource names a GPU that nobody can tell: the condition says so.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from topology.agent.pod_resources import Claim, PodResourcesError, list_claims
from topology.api import Condition, GpuHolder, GPUTopology
from topology.errors import LinkwiseError
from topology.inventory import Inventory

HOLDERS_OBSERVED: Final = "HoldersObserved"  # kubelet answered, and every device it names is a GPU of this node

_GPU: Final = re.compile(r"(?:MIG-)?(GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\b.*")  # MIG-GPU-<uuid>/1/0 in drivers before 470
_MIG: Final = re.compile(r"(MIG-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\b.*")
_NVIDIA: Final = ("GPU-", "MIG-")
_MOST_NAMED: Final = 4  # devices in a sentence


@dataclass(frozen=True, slots=True)
class _Answer:
    """What kubelet said, and when it was asked."""

    claims: frozenset[Claim]
    asked_at: datetime


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of the holders, and when it was so. ``at`` None: nothing is known, and nobody may conclude that a GPU is free."""

    at: datetime | None
    holders: Mapping[str, tuple[GpuHolder, ...]]  # by UUID, in order of their names
    condition: Condition


class HolderSource(Protocol):
    """Whoever knows the holders: kubelet (`Holders`), or with the hand-off the agent itself (`handoff.observing`)."""

    @property
    def error(self) -> LinkwiseError | None:
        """Why the last question had no answer."""
        ...

    @property
    def expects_change(self) -> bool:
        """Whether somebody who holds something is about to go, so that the next question should come soon."""
        ...

    def remember(self, published: GPUTopology) -> None:
        """Begin with the holders that an earlier agent of this node has published."""
        ...

    def ask(self, now: datetime) -> None:
        """Ask; what is known is in the next `observation`."""
        ...

    def observation(self, uuids: Iterable[str], mig_parents: Mapping[str, str]) -> Observation:
        """Return who holds these GPUs; ``mig_parents`` gives the GPU of a MIG device, by UUID."""
        ...


class Holders:
    """Asks kubelet and remembers what it said last."""

    expects_change = False

    def __init__(self, socket: Path, resource: str, ask: Callable[[Path], frozenset[Claim]] = list_claims) -> None:
        self._socket = socket
        self._resource = resource
        self._ask = ask
        self._answers: deque[_Answer] = deque(maxlen=2)  # the last two; none: kubelet never answered
        self.error: PodResourcesError | None = None

    def remember(self, published: GPUTopology) -> None:
        """Begin with the holders that an earlier agent of this node has published."""
        status = published.status
        if status.holders_observed and status.observed_at is not None and not self._answers:
            claims = (Claim(one.namespace, one.name, one.container or "", self._resource, gpu.uuid) for gpu in status.gpus for one in gpu.holders)
            self._answers.append(_Answer(frozenset(claims), status.observed_at))

    def ask(self, now: datetime) -> None:
        """Ask kubelet; what it said, or why it did not, is in the next `observation`."""
        try:
            self._answers.append(_Answer(self._ask(self._socket), now))
        except PodResourcesError as error:
            self.error = error
        else:
            self.error = None

    def observation(self, uuids: Iterable[str], mig_parents: Mapping[str, str]) -> Observation:
        """Return who holds these GPUs; ``mig_parents`` gives the GPU of a MIG device, by UUID."""
        known = frozenset(uuids)
        held: dict[str, set[GpuHolder]] = {}
        strange: list[Claim] = []
        for claim in sorted(frozenset().union(*(answer.claims for answer in self._answers))):
            uuid = gpu_of(claim.device, known, mig_parents)
            if uuid is not None:
                held.setdefault(uuid, set()).add(GpuHolder(namespace=claim.namespace, name=claim.pod, container=claim.container or None))
            elif claim.resource == self._resource or claim.device.startswith(_NVIDIA):
                strange.append(claim)
        holders = {uuid: tuple(sorted(found, key=_by_name)) for uuid, found in held.items()}
        return Observation(self._at(), holders, self._condition(strange))

    def _at(self) -> datetime | None:
        """Return the time at which everything was so: the earlier one, where what it told is still told."""
        if not self._answers:
            return None
        first, last = self._answers[0], self._answers[-1]
        return last.asked_at if first.claims == last.claims else first.asked_at

    def _condition(self, strange: list[Claim]) -> Condition:
        if self.error is not None:
            reason = "SocketAbsent" if self.error.absent else "ListFailed"
            then = "the holders are those last seen" if self._answers else "nobody knows who holds which GPU"
            return Condition(type=HOLDERS_OBSERVED, status="False", reason=reason, message=f"{self.error}; {then}")
        if not self._answers:
            return Condition(type=HOLDERS_OBSERVED, status="Unknown", reason="NotAsked", message="kubelet was not asked yet")
        if strange:
            return Condition(type=HOLDERS_OBSERVED, status="False", reason="UnknownDevices", message=_unknown(strange))
        return Condition(type=HOLDERS_OBSERVED, status="True", reason="KubeletAnswers", message="kubelet tells who holds which GPU")


def gpu_of(device: str, uuids: frozenset[str], mig_parents: Mapping[str, str]) -> str | None:
    """Return the UUID of the GPU, among those of this node, that a device id stands for; None where it stands for none.

    >>> gpu_of("GPU-01234567-89ab-cdef-0123-456789abcdef::3", frozenset({"GPU-01234567-89ab-cdef-0123-456789abcdef"}), {})
    'GPU-01234567-89ab-cdef-0123-456789abcdef'
    """
    gpu, mig = _GPU.fullmatch(device), _MIG.fullmatch(device)
    uuid = gpu.group(1) if gpu else mig_parents.get(mig.group(1)) if mig else None
    return uuid if uuid in uuids else None


def mig_parents(inventory: Inventory) -> dict[str, str]:
    """Return the UUID of the GPU that each MIG device is a part of, by the UUID of the MIG device."""
    return {mig.uuid: gpu.uuid for gpu in inventory.gpus for mig in gpu.mig_instances if mig.uuid is not None and gpu.uuid is not None}


def _by_name(holder: GpuHolder) -> tuple[str, str, str]:
    return holder.namespace, holder.name, holder.container or ""


def _unknown(strange: list[Claim]) -> str:
    named = [f"{claim.resource} {claim.device} of pod {claim.namespace}/{claim.pod}" for claim in strange[:_MOST_NAMED]]
    more = f" and {len(strange) - len(named)} more" if len(strange) > len(named) else ""
    return f"kubelet names devices that are no GPUs of this node: {', '.join(named)}{more}"
