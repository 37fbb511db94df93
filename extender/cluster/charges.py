"""What a pod's allocation takes of each GPU, by Kubernetes' rule for effective requests. One function, for a promise and for a rebuild alike.

Containers that run together add up. An init container runs beside the sidecars that were started before it, and alone otherwise: on each GPU it counts only as far as it goes
beyond what runs there later. So a pod whose init container and app share a GPU is charged the larger of the two, all its life: kubelet may run the init container again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from extender.containers import ContainerKind, effective
from topology.api import Allocation
from topology.capacity import WHOLE


@dataclass(frozen=True, slots=True)
class Charges:
    """What is charged: ``uuids`` are all GPUs, ``shares`` MiB of those that are held in part."""

    uuids: frozenset[str]
    shares: Mapping[str, int]


NO_SHARES: Final[Mapping[str, int]] = MappingProxyType({})  # of most pods


def charges(allocation: Allocation, kinds: Mapping[str, ContainerKind]) -> Charges:
    """Return what an allocation charges; ``kinds`` are the pod's containers in the order in which they start.

    A container that the pod does not have counts as one that runs all the time: never less than may be in use. A GPU that any container has whole is charged whole.
    """
    if not any(gpu.share_mib != WHOLE for gpus in allocation.containers.values() for gpu in gpus):
        return Charges(allocation.uuids(), NO_SHARES)
    parts = [(name, gpu.uuid, gpu.share_mib) for name, gpus in allocation.containers.items() for gpu in gpus]
    return Charges(allocation.uuids(), shares_of(parts, kinds))


def shares_of(parts: Iterable[tuple[str, str, int]], kinds: Mapping[str, ContainerKind]) -> Mapping[str, int]:
    """Return MiB of each GPU that is held in part; ``parts`` are container, UUID, and MiB or `WHOLE`, ``kinds`` as in `charges`."""
    given: dict[str, list[tuple[str, int]]] = {}
    for container, uuid, mib in parts:
        given.setdefault(container, []).append((uuid, mib))
    own = {uuid for gpus in given.values() for uuid, mib in gpus if mib == WHOLE}
    unknown = dict.fromkeys(given.keys() - kinds.keys(), ContainerKind.SIDECAR)  # started before all others, and never ends
    shares = effective((kind, [one for one in given.get(name, ()) if one[0] not in own]) for name, kind in {**unknown, **kinds}.items())
    return dict(sorted(shares.items()))
