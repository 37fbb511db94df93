"""Which GPUs of one node each container of a pod gets: one table lookup for one GPU container, a bounded search for several.

Called by `placement` with a topology class and the mask of GPUs that may be used; knows nothing of nodes or state. Floors and ceilings hold within
each container's own set. Containers that run together get disjoint sets; an init container is planned inside the GPUs of the containers that
start after it, and gets further ones only where those are too few, so that the union is what kubelet counts for the pod.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from extender.demand import ContainerKind, Part, Shape
from topology.topology_class import TopologyClass

# Among sets of equal bandwidth for the largest container, this many whole plans are compared; feasibility itself is searched to the end.
_PLANS_COMPARED: Final = 64
_TIER: Final = 0.99  # sets within 1 percent count as equal, as in the tables


@dataclass(frozen=True, slots=True)
class Plan:
    """The sets of a pod on one node, as bits: ``masks`` parallel to the shape's parts, ``union`` all of them.

    ``bandwidth`` (GB/s) and ``worst`` (code) are those of the largest container's set; 0.0 and None below two GPUs.
    """

    masks: tuple[int, ...]
    union: int
    bandwidth: float
    worst: str | None


def plan(shape: Shape, kind: TopologyClass, mask: int) -> Plan | None:
    """Return the best plan for the shape on the GPUs of ``mask``, None where there is none.

    ``mask`` holds only GPUs that are free, healthy and of the model asked for.
    """
    if mask.bit_count() < shape.gpus:
        return None
    if len(shape.parts) == 1:
        gpu_set = kind.best_set(mask, shape.parts[0].gpus, shape.ceiling, _floor(shape, shape.parts[0]), careful=shape.careful)
        return None if gpu_set is None else Plan((gpu_set.mask,), gpu_set.mask, gpu_set.bandwidth, gpu_set.worst)
    return _best_of(shape, kind, mask)


def _floor(shape: Shape, part: Part) -> float:
    return shape.floor if part.gpus > 1 else 0.0  # one GPU has no link to hold to a floor


def _best_of(shape: Shape, kind: TopologyClass, mask: int) -> Plan | None:
    """Return the best of the first plans: bandwidth of the largest container, of the others, of the union, worth of the remainder."""
    best: Plan | None = None
    best_key: tuple[float, ...] = ()
    for number, found in enumerate(_plans(shape, kind, mask)):
        if best is not None and (number >= _PLANS_COMPARED or (shape.careful and found.bandwidth < best.bandwidth * _TIER)):
            break
        key = _key(shape, kind, mask, found)
        if best is None or key > best_key:
            best, best_key = found, key
    return best


def _key(shape: Shape, kind: TopologyClass, mask: int, found: Plan) -> tuple[float, ...]:
    worth = float(kind.worth[mask & ~found.union])
    if not shape.careful:
        return (worth,)
    others = sum(float(kind.bandwidth[part_mask]) for part_mask in found.masks)
    return (others, float(kind.bandwidth[found.union]), worth)


def _plans(shape: Shape, kind: TopologyClass, mask: int) -> Iterator[Plan]:
    """Yield every plan, those with the best set for the largest container first."""
    together = [number for number, part in enumerate(shape.parts) if part.kind is not ContainerKind.INIT]
    together.sort(key=lambda number: -shape.parts[number].gpus)
    for chosen in _disjoint(shape, kind, mask, together):
        masks = _with_init_containers(shape, kind, mask, chosen)
        if masks is None:
            continue
        union = 0
        for part_mask in masks:
            union |= part_mask
        largest = max(masks, key=lambda part_mask: (part_mask.bit_count(), float(kind.bandwidth[part_mask])))
        yield Plan(masks, union, float(kind.bandwidth[largest]), kind.worst_code(largest))


def _disjoint(shape: Shape, kind: TopologyClass, mask: int, numbers: list[int]) -> Iterator[dict[int, int]]:
    """Yield disjoint sets, one a part, for the parts of those numbers (largest first)."""
    if not numbers:
        yield {}
        return
    first, rest = numbers[0], numbers[1:]
    part = shape.parts[first]
    if not rest:
        last = kind.best_set(mask, part.gpus, shape.ceiling, _floor(shape, part), careful=shape.careful)
        if last is not None:
            yield {first: last.mask}
        return
    if not all(_possible(shape, kind, mask, shape.parts[number]) for number in numbers):
        return
    for candidate in kind.sets(mask, part.gpus, shape.ceiling, _floor(shape, part)):
        for others in _disjoint(shape, kind, mask & ~int(candidate), rest):
            yield {first: int(candidate), **others}


def _possible(shape: Shape, kind: TopologyClass, mask: int, part: Part) -> bool:
    return part.gpus <= kind.size and float(kind.best_bandwidths(part.gpus, shape.ceiling)[mask]) >= _floor(shape, part)


def _with_init_containers(shape: Shape, kind: TopologyClass, mask: int, chosen: dict[int, int]) -> tuple[int, ...] | None:
    """Add the init containers' sets to those that run together; None where one of them has no set."""
    masks = dict(chosen)
    everything = 0
    for part_mask in chosen.values():
        everything |= part_mask
    running = 0  # sidecars that have started by now
    for number, part in enumerate(shape.parts):
        if part.kind is ContainerKind.SIDECAR:
            running |= chosen[number]
        elif part.kind is ContainerKind.INIT:
            own = _init_set(shape, kind, part, everything & ~running, mask & ~everything)
            if own is None:
                return None
            masks[number] = own
            everything |= own
    return tuple(masks[number] for number in range(len(shape.parts)))


def _init_set(shape: Shape, kind: TopologyClass, part: Part, idle: int, spare: int) -> int | None:
    """Choose an init container's GPUs: among ``idle`` ones of its pod, all of those and some ``spare`` ones where they are too few."""
    if part.gpus <= idle.bit_count():
        found = kind.best_set(idle, part.gpus, shape.ceiling, _floor(shape, part), careful=shape.careful)
        return None if found is None else found.mask
    for candidate in kind.sets(idle | spare, part.gpus, shape.ceiling, _floor(shape, part)):
        if int(candidate) & idle == idle:
            return int(candidate)
    return None
