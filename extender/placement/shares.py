"""Which GPUs of a node the containers of a pod get where some of them take parts of GPUs.

Called by `placement` in place of `plan`, whose promises it keeps: floors and distances hold within each container's own set, and None means that there is no plan.
Whole GPUs are taken from the idle ones; a share lies on GPUs that have as much left, and several containers of a pod may share one. An init container
counts on a GPU only as far as it goes beyond what runs there later (`cluster.charges`), so it is planned inside its pod's GPUs where that takes the least.

Which GPU among those that will do: bandwidth first for pods that care for it, then whole NVLink islands, then what `Preference` says of the pods to come, then the least
left (best fit), then the worth of what stays idle. For one share on one GPU, which is nearly every pod, `best_gpus` answers for many nodes at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from extender.cluster import Room
from extender.containers import ContainerKind
from extender.demand import Part, Shape
from extender.placement.plan import Plan, as_plan
from topology.capacity import MOST_GPUS, hosts_of_one
from topology.topology_class import ALMOST, TopologyClass, members

_MOST_STEPS: Final = 20_000  # sets tried for one pod; far more than a pod of up to four containers needs
_DIGITS: Final = 6  # equal hardware must compare equal, whatever the order in which its costs were added up
_COLUMNS: Final = np.arange(MOST_GPUS)


@dataclass(frozen=True, slots=True)
class Rooms:
    """What n nodes of one class have to give, as `Room` for one: idle (n,) bits, left and offered (n, 16) MiB by bit."""

    idle: NDArray[np.int64]
    left: NDArray[np.int32]
    offered: NDArray[np.int32]

    @staticmethod
    def of(room: Room) -> "Rooms":
        """Return the arrays of one node."""
        return Rooms(np.array([room.idle], np.int64), np.array([room.left], np.int32), np.array([room.offered], np.int32))

    def take(self, at: NDArray[np.int64] | slice) -> "Rooms":
        """Return those nodes'."""
        return Rooms(self.idle[at], self.left[at], self.offered[at])

    def __iter__(self) -> Iterator[Room]:
        """Each node's."""
        for idle, left, offered in zip(self.idle.tolist(), self.left.tolist(), self.offered.tolist(), strict=True):
            yield Room(idle, tuple(left), tuple(offered))


class Preference(Protocol):
    """What it costs the pods to come that a share is taken of a GPU."""

    def cost_of_shares(self, kind: TopologyClass, rooms: Rooms, mib: int) -> NDArray[np.float64]:
        """Return the cost of a share of ``mib`` on each GPU, shape (n, 16), less is better; what it says of GPUs without room does not matter."""
        ...

    def costs_on(self, kind: TopologyClass, room: Room, mib: int) -> Sequence[float]:
        """Return the same for one node, a number a bit of the class."""
        ...


class BestFit:
    """The preference where nothing is known of the pods to come: none, so that the least left decides."""

    def cost_of_shares(self, kind: TopologyClass, rooms: Rooms, mib: int) -> NDArray[np.float64]:  # noqa: ARG002 - whatever the node
        """Return the same for all."""
        return np.zeros(rooms.left.shape)

    def costs_on(self, kind: TopologyClass, room: Room, mib: int) -> Sequence[float]:  # noqa: ARG002 - whatever the node
        """Return the same for all."""
        return [0.0] * kind.size


def plan_shares(shape: Shape, kind: TopologyClass, room: Room, preference: Preference) -> Plan | None:
    """Return the best plan for a shape with shares in what a node has to give, None where there is none."""
    if is_one_share(shape):
        mib = shape.parts[0].mib
        bit = best_gpu(kind, room, mib, lambda: preference.costs_on(kind, room, mib))
        return None if bit < 0 else as_plan(kind, (1 << bit,))
    masks = next(_Search(shape, kind, room, preference).plans(), None)
    return None if masks is None else as_plan(kind, masks)


def is_one_share(shape: Shape) -> bool:
    """Tell whether the pod asks for one part of one GPU and nothing else."""
    return len(shape.parts) == 1 and shape.parts[0].is_share and shape.parts[0].gpus == 1


def best_gpus(kind: TopologyClass, rooms: Rooms, mib: int, preference: Preference) -> NDArray[np.int64]:
    """Return the GPU of each node that gives one share, as its bit, shape (n,); -1 where none has room."""
    wins = rooms.left >= mib
    counts = wins.sum(axis=1)
    none = counts == 0
    # A GPU that is shared already is taken from no island, and its place among the idle ones stays: bit 0 of nothing.
    rest = rooms.idle[:, None] ^ (rooms.idle[:, None] & 1 << _COLUMNS)
    keys: tuple[Callable[[], NDArray[Any]], ...] = (
        lambda: kind.whole_islands[rooms.idle][:, None] - kind.whole_islands[rest],
        lambda: preference.cost_of_shares(kind, rooms, mib),
        lambda: rooms.left,
        lambda: -np.round(kind.worth[rest], _DIGITS),
    )
    for key in keys if kind.islands else keys[1:]:
        if (counts <= 1).all():
            break  # nothing is left to choose
        masked = np.where(wins, key(), np.inf)
        wins = masked == masked.min(axis=1, keepdims=True)
        wins[none] = False
        counts = wins.sum(axis=1)
    best: NDArray[np.int64] = wins.argmax(axis=1)
    best[none] = -1
    return best


def best_gpu(kind: TopologyClass, room: Room, mib: int, costs_of: Callable[[], Sequence[float]]) -> int:
    """Return what `best_gpus` does for one node, ``costs_of`` gives the costs by bit: for a few nodes, what numpy costs per operation is more than the work."""
    hosts = [bit for bit in range(kind.size) if room.left[bit] >= mib]
    if len(hosts) < 2:
        return hosts[0] if hosts else -1
    costs, worth, islands = costs_of(), kind.worth.item, kind.whole_islands.item
    whole = islands(room.idle)

    def key(bit: int) -> tuple[float, ...]:
        rest = room.idle & ~(1 << bit)
        return (whole - islands(rest), costs[bit], room.left[bit], -(round(worth(rest) * 10**_DIGITS) / 10**_DIGITS))

    return min(hosts, key=key)


# --- several containers, several GPUs -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Use:
    """What the pod uses itself: bits of whole GPUs, and MiB by bit that it is charged."""

    whole: int
    charged: tuple[int, ...]

    @property
    def shared(self) -> int:
        return sum(1 << bit for bit, amount in enumerate(self.charged) if amount)

    def room(self, node: Room, running: tuple[int, ...]) -> tuple[int, ...]:
        """Return MiB by bit for one more container beside ``running``."""
        return tuple(0 if self.whole >> bit & 1 else amount - running[bit] for bit, amount in enumerate(node.left))

    def with_whole(self, mask: int) -> "_Use":
        return replace(self, whole=self.whole | mask)


@dataclass(frozen=True, slots=True)
class _Started:
    """The sidecars that run when an init container starts: bits of their whole GPUs, MiB by bit of their shares."""

    whole: int
    shares: tuple[int, ...]

    def with_part(self, part: Part, own: int) -> "_Started":
        if part.kind is not ContainerKind.SIDECAR:
            return self
        return replace(self, shares=_plus(self.shares, part, own)) if part.is_share else replace(self, whole=self.whole | own)


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for the sets of several containers: complete but for `_MOST_STEPS`, and lazy, so that a pod that fits easily is answered at once."""

    shape: Shape
    kind: TopologyClass
    node: Room
    preference: Preference
    steps: Iterator[int] = field(default_factory=lambda: iter(range(_MOST_STEPS)))

    def plans(self) -> Iterator[tuple[int, ...]]:
        """Yield the sets of every plan, parallel to the parts, the preferred one first: what is hardest to place is placed first."""
        parts = self.shape.parts
        together = [number for number, part in enumerate(parts) if part.kind is not ContainerKind.INIT]
        together.sort(key=lambda number: (parts[number].is_share, -parts[number].gpus, -parts[number].mib, number))
        nothing = (0,) * len(self.node.left)
        for chosen, use in self._together(together, {}, _Use(0, nothing)):
            yield from self._with_init_containers(chosen, use, _Started(0, nothing))

    def _together(self, numbers: list[int], chosen: dict[int, int], use: _Use) -> Iterator[tuple[dict[int, int], _Use]]:
        if not numbers:
            yield chosen, use
            return
        part = self.shape.parts[numbers[0]]
        idle = self.node.idle & ~use.whole & ~use.shared
        for own in self._sets(part, replace(self.node, idle=idle, left=use.room(self.node, use.charged))):
            if next(self.steps, None) is None:
                return
            after = replace(use, charged=_plus(use.charged, part, own)) if part.is_share else use.with_whole(own)
            yield from self._together(numbers[1:], {**chosen, numbers[0]: own}, after)

    def _with_init_containers(self, chosen: dict[int, int], use: _Use, started: _Started, at: int = 0) -> Iterator[tuple[int, ...]]:
        """Add the init containers in the order in which they start."""
        if at == len(self.shape.parts):
            yield tuple(chosen[number] for number in range(at))
            return
        part = self.shape.parts[at]
        if part.kind is not ContainerKind.INIT:
            yield from self._with_init_containers(chosen, use, started.with_part(part, chosen[at]), at + 1)
            return
        for own in self._init_sets(part, use, started):
            if next(self.steps, None) is None:
                return
            after = _with_init(use, part, own, started) if part.is_share else use.with_whole(own)
            yield from self._with_init_containers({**chosen, at: own}, after, started, at + 1)

    def _init_sets(self, part: Part, use: _Use, started: _Started) -> list[int]:
        """Return sets for an init container, those first that charge the least beyond what the pod is charged anyway."""
        if part.is_share:
            found = self._sets(part, replace(self.node, left=use.room(self.node, started.shares)))
            return sorted(found, key=lambda own: sum(max(0, started.shares[bit] + part.mib - use.charged[bit]) for bit in members(own)))
        idle = self.node.idle & ~use.shared & ~started.whole
        most = self.shape.gpus - use.whole.bit_count()  # never more than kubelet counts for the pod
        found = [own for own in self._sets(part, replace(self.node, idle=idle)) if (own & ~use.whole).bit_count() <= most]
        return sorted(found, key=lambda own: (own & ~use.whole).bit_count())

    def _sets(self, part: Part, room: Room) -> list[int]:
        """Return the sets that will do for one container, the preferred one first."""
        shape, kind = self.shape, self.kind
        floor = shape.floor if part.gpus > 1 else 0.0
        found = kind.sets(hosts_of_one(part.mib, room.idle, room.left), part.gpus, shape.ceiling, floor, one_numa=shape.one_numa)
        if not len(found):
            return []
        rooms = Rooms.of(room)
        taken = found & room.idle
        cost, left = np.zeros(MOST_GPUS), np.zeros(MOST_GPUS)
        if part.is_share:
            cost, left = np.round(self.preference.cost_of_shares(kind, rooms, part.mib)[0], _DIGITS), rooms.left[0].astype(np.float64)
        inside = (found[:, None] >> _COLUMNS & 1).astype(np.bool_)
        bandwidth = kind.bandwidth[found]
        fastest = bandwidth.max()
        slower = np.where(bandwidth >= ALMOST * fastest, -fastest, -bandwidth) if shape.careful else np.zeros(len(found))
        order = np.lexsort(
            (
                np.arange(len(found)),  # as the tables order them: worth, nearness, numbering
                -np.round(kind.worth[room.idle & ~taken], _DIGITS),
                np.where(inside, left, 0.0).sum(axis=1),
                np.round(np.where(inside, cost, 0.0).sum(axis=1), _DIGITS),
                kind.islands_broken(room.idle, taken),
                slower,
            )
        )
        sets: list[int] = found[order].tolist()
        return sets


def _plus(amounts: tuple[int, ...], part: Part, own: int) -> tuple[int, ...]:
    return tuple(amount + (part.mib if own >> bit & 1 else 0) for bit, amount in enumerate(amounts))


def _with_init(use: _Use, part: Part, own: int, started: _Started) -> _Use:
    beside = _plus(started.shares, part, own)
    return replace(use, charged=tuple(max(most, beside[bit]) if own >> bit & 1 else most for bit, most in enumerate(use.charged)))
