"""Which GPUs of one node each container of a pod gets: one table lookup for one GPU container, a bounded search for several.

Called by `placement` with a topology class and the mask of GPUs that may be used; knows nothing of nodes or state. Floors and ceilings hold within
each container's own set. Containers that run together get disjoint sets; an init container is planned inside the GPUs that its pod has anyway,
and gets further ones only where those are too few or do not meet its floor, and only so many that the union is what kubelet counts for the pod.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.containers import ContainerKind
from extender.demand import Part, Shape
from topology.topology_class import GpuSet, TopologyClass, union

# Whole plans that are compared; feasibility itself is searched to the end. Up to 8 GPUs there are 1680 at most without init containers (3 + 2 + 1: some 50 ms,
# and a class has 256 masks): all are compared, so that the numbering of the GPUs decides nothing but ties. Beyond, a few of the best for the largest.
_EXACT_UP_TO: Final = 8
_PLANS_COMPARED: Final = {True: 2048, False: 64}
_TIER: Final = 0.99  # sets within 1 percent count as equal, as in the tables
# Sets tried for one pod on one mask. Far more than any pod of up to four containers needs; a stranger one, on more than 8 GPUs, may be refused although a
# split exists. Without a bound nine containers on 16 GPUs search for minutes, and no other call is answered meanwhile.
_MOST_STEPS: Final = 50_000


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
        gpu_set = _best_set(shape, kind, mask, shape.parts[0])
        return None if gpu_set is None else Plan((gpu_set.mask,), gpu_set.mask, gpu_set.bandwidth, gpu_set.worst)
    # One container after another may leave the last one nothing that will do, although some split would: then that split is taken.
    return (_one_after_another(shape, kind, mask) if shape.as_allocator else None) or _best_of(shape, kind, mask)


def _best_set(shape: Shape, kind: TopologyClass, mask: int, part: Part) -> GpuSet | None:
    if shape.as_allocator:
        return kind.allocator_set(mask, part.gpus, shape.ceiling, _floor(shape, part), one_numa=shape.one_numa)
    return kind.best_set(mask, part.gpus, shape.ceiling, _floor(shape, part), careful=shape.careful, one_numa=shape.one_numa)


def _floor(shape: Shape, part: Part) -> float:
    return shape.floor if part.gpus > 1 else 0.0  # one GPU has no link to hold to a floor


def _one_after_another(shape: Shape, kind: TopologyClass, mask: int) -> Plan | None:
    """Return the plan that gives every container its set in the order in which kubelet asks its device plugin, None where one of them finds none."""
    chosen: dict[int, int] = {}
    left = mask
    for number, part in enumerate(shape.parts):
        if part.kind is not ContainerKind.INIT:
            found = _best_set(shape, kind, left, part)
            if found is None:
                return None
            chosen[number] = found.mask
            left &= ~found.mask
    masks = next(_Search(shape, kind, mask).with_init_containers(chosen), None)
    return None if masks is None else as_plan(kind, masks)


def as_plan(kind: TopologyClass, masks: tuple[int, ...]) -> Plan:
    """Return the plan of those sets, one a container."""
    largest = _largest(kind, masks)
    return Plan(masks, union(masks), float(kind.bandwidth[largest]), kind.worst_code(largest))


def _best_of(shape: Shape, kind: TopologyClass, mask: int) -> Plan | None:
    """Return the best of all plans, or of the first: bandwidth of the largest container, of all, of the union, worth of the remainder."""
    search = _Search(shape, kind, mask)
    best: tuple[int, ...] | None = None
    best_key: tuple[float, ...] = ()
    slowest = 0.0
    for number, masks in enumerate(search.splits()):
        largest = _largest(kind, masks)
        bandwidth = float(kind.bandwidth[largest])
        if number == 0 and _fastest_first(shape):
            slowest = bandwidth * _TIER
        if number >= _PLANS_COMPARED[search.exact] or bandwidth < slowest:
            break
        key = _key(shape, kind, mask, masks)
        if best is None or key > best_key:
            best, best_key = masks, key
    return None if best is None else as_plan(kind, best)


def _fastest_first(shape: Shape) -> bool:
    """Tell whether no split is faster than the one before it: they come by the containers that run together, but an init container may be the largest."""
    return shape.careful and any(part.gpus == shape.largest and part.kind is not ContainerKind.INIT for part in shape.parts)


def _key(shape: Shape, kind: TopologyClass, mask: int, masks: tuple[int, ...]) -> tuple[float, ...]:
    """Return what is compared, the weightiest first; more is better."""
    together, largest = union(masks), _largest(kind, masks)
    worth, weakness = float(kind.worth[mask & ~together]), int(kind.weakness[largest])
    if not shape.careful:
        broken = int(kind.islands_broken(mask, together))
        return (-broken, worth, float(kind.bandwidth[largest]), -weakness)
    fastest = 0.0 if _fastest_first(shape) else float(kind.bandwidth[largest])  # else all that are compared are equally fast
    return (fastest, sum(float(kind.bandwidth[part_mask]) for part_mask in masks), float(kind.bandwidth[together]), worth, -weakness)


def _largest(kind: TopologyClass, masks: Sequence[int]) -> int:
    """Return the largest set, the fastest among equally large ones."""
    size = max(part_mask.bit_count() for part_mask in masks)
    return max((part_mask for part_mask in masks if part_mask.bit_count() == size), key=lambda part_mask: float(kind.bandwidth[part_mask]))


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for the sets of several containers inside ``mask``: complete, and lazy, so that a pod that fits easily is answered at once."""

    shape: Shape
    kind: TopologyClass
    mask: int
    steps: Iterator[int] = field(default_factory=lambda: iter(range(_MOST_STEPS)))

    def _goes_on(self) -> bool:
        """Take a step; False when all are used up: one pod must not hold up the calls of all others, however it is split."""
        return next(self.steps, None) is not None

    @property
    def exact(self) -> bool:
        """Whether the class is so small that all plans can be looked at."""
        return self.kind.size <= _EXACT_UP_TO

    def splits(self) -> Iterator[tuple[int, ...]]:
        """Yield the sets of every plan, the best set for the largest container first; which of two equal containers gets which set makes no difference."""
        if not all(self._possible(part) for part in self.shape.parts):
            return
        parts = self.shape.parts
        together = [number for number, part in enumerate(parts) if part.kind is not ContainerKind.INIT]
        together.sort(key=lambda number: (-parts[number].gpus, parts[number].kind))
        for chosen in self._disjoint(self.mask, together):
            yield from self.with_init_containers(chosen)

    def _possible(self, part: Part) -> bool:
        if part.gpus > self.kind.size:
            return False
        best = self.kind.best_bandwidths(part.gpus, self.shape.ceiling, one_numa=self.shape.one_numa)
        return float(best[self.mask]) >= _floor(self.shape, part)

    def _disjoint(self, mask: int, numbers: list[int], after: Sequence[int] | None = None) -> Iterator[dict[int, int]]:
        """Yield disjoint sets, one a part, for the parts of those numbers; ``after`` are the sets left to a part that equals the one before it."""
        if not numbers:
            yield {}
            return
        first, rest = numbers[0], numbers[1:]
        part = self.shape.parts[first]
        if not rest and not self.exact and not self._has_init_containers:
            best = self._best_set(mask, part)
            if best is not None:
                yield {first: best}
            return
        candidates = self._sets(mask, part) if after is None else after
        for position, candidate in enumerate(candidates):
            if candidate & ~mask:
                continue
            if not self._goes_on():
                return
            left = candidates[position + 1 :] if rest and self._are_alike(self.shape.parts[rest[0]], part) else None
            for others in self._disjoint(mask & ~candidate, rest, left):
                yield {first: candidate, **others}

    def _are_alike(self, a: Part, b: Part) -> bool:
        """Tell whether two containers may exchange their sets: sidecars differ from others only for the init containers after them."""
        return a == b or (a.gpus == b.gpus and not self._has_init_containers)

    @property
    def _has_init_containers(self) -> bool:
        return any(part.kind is ContainerKind.INIT for part in self.shape.parts)

    def with_init_containers(self, chosen: dict[int, int], at: int = 0, running: int = 0) -> Iterator[tuple[int, ...]]:
        """Add the init containers' sets in the order in which they start; ``running`` are the GPUs of the sidecars that have started by then."""
        if at == len(self.shape.parts):
            yield tuple(chosen[number] for number in range(at))
            return
        part = self.shape.parts[at]
        if part.kind is not ContainerKind.INIT:
            started = chosen[at] if part.kind is ContainerKind.SIDECAR else 0
            yield from self.with_init_containers(chosen, at + 1, running | started)
            return
        for own in self._init_sets(part, union(chosen.values()), running):
            yield from self.with_init_containers({**chosen, at: own}, at + 1, running)

    def _init_sets(self, part: Part, taken: int, running: int) -> Iterator[int]:
        """Yield sets for an init container: inside the idle ones of its pod's ``taken`` GPUs where they will do, else with as few others as possible.

        Never more than kubelet counts for the pod. A set inside leaves the most for the init containers after it, so the best of those is enough.
        """
        idle = taken & ~running
        inside = self._best_set(idle, part)
        if inside is not None:
            yield inside
            return
        room = self.shape.gpus - taken.bit_count()
        further = [(added, own) for own in self._sets(self.mask & ~running, part) if (added := (own & ~taken).bit_count()) <= room]
        yield from (own for _, own in sorted(further, key=lambda pair: pair[0]))

    def _best_set(self, mask: int, part: Part) -> int | None:
        found = _best_set(self.shape, self.kind, mask, part)
        return None if found is None else found.mask

    def _sets(self, mask: int, part: Part) -> list[int]:
        shape = self.shape
        found: list[int] = self.kind.sets(mask, part.gpus, shape.ceiling, _floor(shape, part), one_numa=shape.one_numa).tolist()
        return found
