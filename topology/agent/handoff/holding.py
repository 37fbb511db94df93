"""What a container holds of the node's GPUs, and what several of them may hold at a time. Plain types and rules: no file, no kubelet, no pod.

Used by everything in this package. A part is one GPU as the container's own (`WHOLE`) or so many MiB of it. Containers of one pod that never run together
may have the same GPU: an init container and what starts after it. The amount that a pod takes of a GPU is Kubernetes' rule for effective requests, as the
extender charges it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from topology.capacity import WHOLE


class Kind(StrEnum):
    """When a container runs: all the pod's life, from its start on, or alone before the others."""

    APP = "app"
    SIDECAR = "sidecar"
    INIT = "init"


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod: ``order`` is its place in the order in which kubelet starts them."""

    name: str
    kind: Kind
    order: int


@dataclass(frozen=True, slots=True)
class Part:
    """One GPU of a container: ``mib`` MiB of it, or `WHOLE`."""

    uuid: str
    mib: int = WHOLE


@dataclass(frozen=True, slots=True)
class Holding:
    """What one container of one pod was given; ``planned`` False: the pod came around the extender and got what was free."""

    pod_uid: str
    namespace: str
    pod: str
    container: Container
    parts: tuple[Part, ...]
    planned: bool = True

    @property
    def uuids(self) -> frozenset[str]:
        """The GPUs."""
        return frozenset(part.uuid for part in self.parts)

    @property
    def told(self) -> str:
        """The container in a sentence."""
        return f"container {self.container.name} of pod {self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a container cannot have a GPU now, and who is in the way."""

    uuid: str
    why: str
    blockers: tuple[Holding, ...]
    of_memory: bool = False


def conflict(wanted: Holding, others: Iterable[Holding], offered_mib: Mapping[str, int]) -> Conflict | None:
    """Return what is in the way of a container, None where nothing is; ``offered_mib`` is what each GPU has for shares, MiB.

    ``others`` is everybody who holds something, of the same pod as well; what ``wanted`` itself holds already is not counted against it.
    """
    beside = [one for one in others if not _same_container(one, wanted)]
    for part in wanted.parts:
        on_it = [one for one in beside if part.uuid in one.uuids]
        owners = [one for one in on_it if (part.mib == WHOLE or _mib(one, part.uuid) == WHOLE) and _together(one, wanted)]
        if owners:
            names = ", ".join(sorted({one.told for one in owners}))
            how = "holds it" if any(_mib(one, part.uuid) == WHOLE for one in owners) else "has a share of it"
            return Conflict(part.uuid, f"GPU {part.uuid} is not free: {names} {how}", tuple(owners))
        if part.mib == WHOLE:
            continue
        used, offered = taken_mib([*on_it, wanted], part.uuid), offered_mib.get(part.uuid, 0)
        if used > offered:
            sharers = tuple(one for one in on_it if _mib(one, part.uuid) != WHOLE)
            names = ", ".join(sorted({one.told for one in sharers})) or "nobody else"
            why = f"GPU {part.uuid} offers {offered} MiB, and {used} MiB would be taken: {part.mib} MiB are wanted beside {names}"
            return Conflict(part.uuid, why, sharers, of_memory=True)
    return None


def taken_mib(holdings: Iterable[Holding], uuid: str) -> int:
    """Return MiB of a GPU that shares take, each pod by its largest need at one time."""
    by_pod: dict[str, list[Holding]] = {}
    for one in holdings:
        if _mib(one, uuid) > WHOLE:
            by_pod.setdefault(one.pod_uid, []).append(one)
    return sum(_peak(of_pod, uuid) for of_pod in by_pod.values())


def _peak(of_pod: list[Holding], uuid: str) -> int:
    """Return the most that a pod's containers take at one time: an init container runs beside the sidecars that were started before it."""
    together = sidecars = most = 0
    for one in sorted(of_pod, key=lambda one: one.container.order):
        amount = _mib(one, uuid)
        if one.container.kind is Kind.INIT:
            most = max(most, sidecars + amount)
            continue
        together += amount
        sidecars += amount if one.container.kind is Kind.SIDECAR else 0
    return max(together, most)


def _mib(holding: Holding, uuid: str) -> int:
    """Return MiB of a GPU, `WHOLE` for one that is the container's own, -1 where it has no part of it."""
    return next((part.mib for part in holding.parts if part.uuid == uuid), -1)


def _same_container(a: Holding, b: Holding) -> bool:
    return (a.pod_uid, a.container.name) == (b.pod_uid, b.container.name)


def _together(a: Holding, b: Holding) -> bool:
    """Tell whether two containers may run at the same time."""
    if a.pod_uid != b.pod_uid:
        return True
    first, later = sorted((a.container, b.container), key=lambda one: one.order)
    if first.kind is Kind.INIT:
        return False  # it has ended before anything after it starts
    return later.kind is not Kind.INIT or first.kind is Kind.SIDECAR
