"""Which GPUs of a node the containers of a pod get where some of them take parts of GPUs.

Called by `placement` in place of `plan`, whose promises it keeps: floors and distances hold within each container's own set, and None means that there is no plan.
Whole GPUs are taken from the idle ones; a share lies on GPUs that have as much left, and several containers of a pod may share one. An init container
counts on a GPU only as far as it goes beyond what runs there later (`cluster.charges`), so it is planned inside its pod's GPUs where that takes the least.

Which GPU among those that will do: bandwidth first for pods that care for it, then whole NVLink islands, then what `Preference` says of the pods to come, then the least
left (best fit), then the worth of what stays idle. For one share on one GPU, which is nearly every pod, `best_gpus` answers for many nodes at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
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

# Work on one pod in one room, in looks at the sets of one container, 0.1 ms each: 0.3 s at most, far more than a pod of up to four containers needs. What needs more is
# refused although a split may exist; no other call is answered meanwhile. Machines on which more sets are alike than are looked at are those where all are (NVSwitch).
# A pod of more containers may find no plan in a room for as long as it looks, on one nearly full node after the other: with a tenth of the looks hundreds of
# such nodes still take less than a Lease lasts, and next to all of the plans are found (decision 18).
_MOST_LOOKS: Final = 3_000
_LOOKS_FOR_MANY: Final = 300
_MANY: Final = 5  # containers
_LOOKS_AT_EQUALS: Final = 64
_SETS_A_LOOK: Final = 64  # a look at more sets takes longer by as much
DIGITS: Final = 6  # equal hardware must compare equal, whatever the order in which its costs were added up
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


def plan_shares(shape: Shape, kind: TopologyClass, room: Room, preference: Preference) -> Plan | None:
    """Return the best plan for a shape with shares in what a node has to give, None where there is none."""
    if is_one_share(shape):
        mib = shape.parts[0].mib
        bit = best_gpu(kind, room, mib, lambda: preference.costs_on(kind, room, mib))
        return None if bit < 0 else as_plan(kind, (1 << bit,))
    masks = _Search(shape, kind, room, preference, _Looks(_MOST_LOOKS if len(shape.parts) < _MANY else _LOOKS_FOR_MANY)).best()
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
        lambda: -np.round(kind.worth[rest], DIGITS),
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
    costs = costs_of()
    return min(hosts, key=lambda bit: _against(kind, room.idle, bit, costs[bit], room.left[bit]))


def _against(kind: TopologyClass, idle: int, bit: int, cost: float, left: float) -> tuple[float, ...]:
    """Return what speaks against taking one GPU, the weightiest first: whole islands broken, cost, what is left of it, and the worth of what stays idle (negative)."""
    rest, islands = idle & ~(1 << bit), kind.whole_islands.item
    return (islands(idle) - islands(rest), cost, left, -rounded(kind.worth.item(rest)))


def rounded(value: float) -> float:
    """Return a cost or a worth with `DIGITS` digits, as numpy rounds it."""
    return round(value * 10**DIGITS) / 10**DIGITS


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

    def with_part(self, part: Part, own: int, running: tuple[int, ...]) -> "_Use":
        """Return what is used with one more container, which runs beside ``running``."""
        if not part.is_share:
            return replace(self, whole=self.whole | own)
        beside = _plus(running, part, own)
        return replace(self, charged=tuple(max(most, beside[bit]) if own >> bit & 1 else most for bit, most in enumerate(self.charged)))


@dataclass(frozen=True, slots=True)
class _Started:
    """The sidecars that run when an init container starts: bits of their whole GPUs, MiB by bit of their shares."""

    whole: int
    shares: tuple[int, ...]

    def with_part(self, part: Part, own: int) -> "_Started":
        if part.kind is not ContainerKind.SIDECAR:
            return self
        return replace(self, shares=_plus(self.shares, part, own)) if part.is_share else replace(self, whole=self.whole | own)


_Key = tuple[float, ...]
_Found = tuple[tuple[_Key, ...], dict[int, int]]  # what speaks against a plan, container by container, and its sets by part
_State = tuple[int, _Use, tuple[_Started, ...]]


@dataclass(slots=True)
class _Looks:
    """How much work may still be done: in all, and for the sake of sets that are as good as one that leads to a plan."""

    left: int
    at_equals: int = _LOOKS_AT_EQUALS


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for the sets of several containers, what is hardest to place first: of all plans the one with the best set for the first, then for the second, and so on.

    Complete but for ``looks``. A set is tried before another where its key is less, and where one leads to a plan, only those with the same key are tried beside it,
    so that the numbering of the GPUs decides nothing but ties. ``known`` keeps what came of each state: which container took which GPU makes no difference to those after it.
    """

    shape: Shape
    kind: TopologyClass
    node: Room
    preference: Preference
    looks: _Looks
    known: dict[_State, _Found | None] = field(default_factory=dict)

    def best(self) -> tuple[int, ...] | None:
        """Return the sets of the best plan, parallel to the parts, None where there is none."""
        parts = self.shape.parts
        together = [number for number, part in enumerate(parts) if part.kind is not ContainerKind.INIT]
        if not self._enough(together):
            return None
        together.sort(key=lambda number: (parts[number].is_share, -parts[number].gpus, -parts[number].mib, number))
        init = [number for number, part in enumerate(parts) if part.kind is ContainerKind.INIT]
        found = self._best([*together, *init], {}, _Use(0, self._nothing))
        return None if found is None else tuple(found[1][number] for number in range(len(parts)))

    @property
    def _nothing(self) -> tuple[int, ...]:
        return (0,) * len(self.node.left)

    def _enough(self, together: list[int]) -> bool:
        """Tell whether the shares that run together find as many places as they need, each size alone; most pods that do not fit end here."""
        shares = [self.shape.parts[number] for number in together if self.shape.parts[number].is_share]
        for mib in {part.mib for part in shares}:
            as_large = [part.gpus for part in shares if part.mib >= mib]
            if sum(as_large) > sum(min(amount // mib, len(as_large)) for amount in self.node.left):
                return False
        return True

    def _best(self, numbers: list[int], chosen: dict[int, int], use: _Use) -> _Found | None:
        """Return the best sets for the parts of those numbers beside the ``chosen`` ones; init containers come last, in the order in which they start."""
        if not numbers:
            return (), {}
        state = (len(numbers), use, tuple(self._beside(chosen).values()))
        if state not in self.known:
            self.known[state] = self._tried(numbers, chosen, use)
        return self.known[state]

    def _tried(self, numbers: list[int], chosen: dict[int, int], use: _Use) -> _Found | None:
        number, part = numbers[0], self.shape.parts[numbers[0]]
        running = use.charged if part.kind is not ContainerKind.INIT else self._beside(chosen)[number].shares
        best: _Found | None = None
        for key, own in self._candidates(number, chosen, use):
            if best is not None and (key != best[0][0] or len(numbers) == 1 or self.looks.at_equals <= 0):
                break
            before = self.looks.left
            after = self._best(numbers[1:], {**chosen, number: own}, use.with_part(part, own, running))
            if best is not None:
                self.looks.at_equals -= 1 + before - self.looks.left
            if after is not None and (best is None or after[0] < best[0][1:]):
                best = (key, *after[0]), {number: own, **after[1]}
        return best

    def _beside(self, chosen: dict[int, int]) -> dict[int, _Started]:
        """Return the sidecars that run when each init container starts, as far as they are placed."""
        started, found = _Started(0, self._nothing), {}
        for number, part in enumerate(self.shape.parts):
            if part.kind is ContainerKind.INIT:
                found[number] = started
            elif number in chosen:
                started = started.with_part(part, chosen[number])
        return found

    def _candidates(self, number: int, chosen: dict[int, int], use: _Use) -> Iterable[tuple[_Key, int]]:
        """Return sets for a part with what speaks against them, the least first.

        An init container may use what its pod has anyway, so what it charges beyond that speaks against a set before all else. Its whole GPUs are never more than kubelet counts.
        """
        part = self.shape.parts[number]
        if part.kind is not ContainerKind.INIT:
            return self._sets(part, use, self.node.idle & ~use.whole & ~use.shared, use.room(self.node, use.charged))
        started = self._beside(chosen)[number]
        if part.is_share:
            charged = use.charged
            further = [max(0, running + part.mib - charged[bit]) for bit, running in enumerate(started.shares)]
            found = self._sets(part, use, 0, use.room(self.node, started.shares))
            return sorted(((float(sum(further[bit] for bit in members(own))), *key), own) for key, own in found)
        most = self.shape.gpus - use.whole.bit_count()
        added = [(key, own, (own & ~use.whole).bit_count()) for key, own in self._sets(part, use, self.node.idle & ~use.shared & ~started.whole)]
        return sorted(((float(more), *key), own) for key, own, more in added if more <= most)

    def _sets(self, part: Part, use: _Use, idle: int, left: tuple[int, ...] = ()) -> Iterable[tuple[_Key, int]]:
        """Return the sets that will do for one container with what speaks against them, the least first; none where all work is done."""
        if self.looks.left <= 0:
            return ()
        untouched = self.node.idle & ~use.whole & ~use.shared
        room, hosting = Room(untouched, left, self.node.offered), hosts_of_one(part.mib, idle, left)
        if part.gpus > 1:
            return self._several(part, room, hosting)
        self.looks.left -= 1
        return self._single(part, room, hosting)

    def _single(self, part: Part, room: Room, hosting: int) -> list[tuple[_Key, int]]:
        """Return what `_several` does for one GPU: of so few, what numpy costs per operation is more than the work."""
        bits, kind = members(hosting), self.kind
        costs = self.preference.costs_on(kind, room, part.mib) if part.is_share and len(bits) > 1 else (0.0,) * kind.size
        left = room.left if part.is_share else (0,) * kind.size
        return sorted((_against(kind, room.idle, bit, costs[bit], float(left[bit])), 1 << bit) for bit in bits)

    def _several(self, part: Part, room: Room, hosting: int) -> Iterator[tuple[_Key, int]]:
        """Yield sets of several GPUs that keep floor and ceiling."""
        shape, kind = self.shape, self.kind
        found = kind.sets(hosting, part.gpus, shape.ceiling, shape.floor, one_numa=shape.one_numa)
        self.looks.left -= 1 + len(found) // _SETS_A_LOOK
        if not len(found):
            return
        taken = found & room.idle
        cost, amounts = np.zeros(len(found)), np.zeros(len(found))
        if part.is_share:
            inside = (found[:, None] >> _COLUMNS & 1).astype(np.bool_)
            rooms = Rooms.of(room)
            cost = np.where(inside, np.round(self.preference.cost_of_shares(kind, rooms, part.mib), DIGITS), 0.0).sum(axis=1)
            amounts = np.where(inside, rooms.left, 0).sum(axis=1)
        bandwidth = np.round(kind.bandwidth[found], DIGITS)
        most = bandwidth.max()
        keys = (
            np.where(bandwidth >= ALMOST * most, 0.0, most - bandwidth) if shape.careful else np.zeros(len(found)),
            kind.islands_broken(room.idle, taken),
            np.round(cost, DIGITS),
            amounts,
            -np.round(kind.worth[room.idle & ~taken], DIGITS),
            -bandwidth,
            kind.weakness[found],
        )
        order = np.lexsort(keys[::-1])  # stable: equals stand as the tables order them, the nearest on PCIe first, then by numbering
        for at in order.tolist():
            yield tuple(float(key[at]) for key in keys), int(found[at])


def _plus(amounts: tuple[int, ...], part: Part, own: int) -> tuple[int, ...]:
    return tuple(amount + (part.mib if own >> bit & 1 else 0) for bit, amount in enumerate(amounts))
