"""The devices that kubelet is told of, and which of them are healthy: by holder, since the plan and not kubelet's id decides which GPU a container has.

Called by `plugin` after every look and every start. Whole GPUs: ids are UUIDs, and every id stands for one GPU, its own unless a container holds otherwise: then
the ids that kubelet gave it stand for the GPUs that it really has, and the ids and GPUs left over stand for each other. When a GPU is lost, the id that
stands for it is unhealthy: kubelet tells the pod that is on it, and no other, and offers one GPU less. Memory: ids are numbers, one a GiB; of a lost GPU as
many are unhealthy as it offers, those of the containers that have shares of it first.

NUMA nodes are those of the id's own GPU: kubelet aligns a container that has no ids yet, and then the two are the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topology.agent.handoff.holding import Holding, Kind
from topology.agent.handoff.node_gpus import NodeGpus
from topology.agent.handoff.plan import gib_of
from topology.capacity import WHOLE


@dataclass(frozen=True, slots=True)
class Device:
    """One id; ``numa_node`` None: not known, or without meaning."""

    id: str
    healthy: bool
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """The ids that kubelet gave to a container, and what it holds."""

    ids: frozenset[str]
    holding: Holding


def gpu_devices(gpus: NodeGpus, given: Iterable[Given]) -> list[Device]:
    """Return the devices of whole GPUs, in the order of the node."""
    stands_for = _stands_for(gpus, given)
    return [Device(uuid, stands_for[uuid] not in gpus.ill, next(iter(gpus.numa_nodes([uuid])), None)) for uuid in gpus.specs]


def _stands_for(gpus: NodeGpus, given: Iterable[Given]) -> Mapping[str, str]:
    """Return the GPU that each id stands for: one to one."""
    found: dict[str, str] = {}
    # Of an init container and the one that took its ids over, the latter counts.
    for one in sorted(given, key=lambda one: (one.holding.container.kind is Kind.INIT, one.holding.told)):
        taken = set(found.values())
        theirs = [part.uuid for part in one.holding.parts if part.mib == WHOLE and part.uuid in gpus.uuids and part.uuid not in taken]
        _pair(found, [uuid for uuid in gpus.specs if uuid in one.ids and uuid not in found], gpus.in_order(theirs))
    taken = set(found.values())
    _pair(found, [uuid for uuid in gpus.specs if uuid not in found], [uuid for uuid in gpus.specs if uuid not in taken])
    return found


def _pair(found: dict[str, str], ids: list[str], uuids: list[str]) -> None:
    """Let ids stand for GPUs: each for its own where that is among them, the rest in order."""
    same = [uuid for uuid in ids if uuid in uuids]
    found |= {uuid: uuid for uuid in same}
    found |= zip((one for one in ids if one not in same), (uuid for uuid in uuids if uuid not in same), strict=False)


def memory_devices(gpus: NodeGpus, given: Iterable[Given]) -> list[Device]:
    """Return the devices of GPU memory: one a GiB that the node's GPUs offer, lost ones included."""
    ids = [str(number) for number in range(gpus.offered_gib)]
    containers = sorted(given, key=lambda one: one.holding.told)
    held = frozenset(number for one in containers for number in one.ids)
    ill: set[str] = set()
    for uuid in gpus.specs:
        if uuid not in gpus.ill:
            continue
        theirs: list[str] = []
        for one in containers:
            mib = next((part.mib for part in one.holding.parts if part.uuid == uuid and part.mib != WHOLE), 0)
            theirs += [number for number in sorted(one.ids, key=_by_number) if number not in ill][: gib_of(mib)]
        free = [number for number in reversed(ids) if number not in held and number not in ill]
        ill |= set([*theirs, *free][: max(gib_of(gpus.offered_mib[uuid]), len(theirs))])
    return [Device(number, number not in ill) for number in ids]


def _by_number(number: str) -> tuple[int, str]:
    return len(number), number
