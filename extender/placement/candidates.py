"""What each node would give a demand, and what that would cost: one entry a node, kept by demand and looked at again only for the rows that changed.

`scoring` asks `Placement.candidates` for the nodes that it compares. The numbers come from three places: bandwidth, worth lost and islands broken from `prospects`; the cost for the
pods to come from `outlook`, of the state before and after the plan; nothing is compared here.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from extender.cluster import Room, View
from extender.demand import Demand, Shape
from extender.placement.fits import usable_room
from extender.placement.outlook import NodeState, Outlook, State
from extender.placement.prospects import IMPOSSIBLE, Prospects, RoomProspects
from extender.placement.shares import DIGITS, Rooms, best_gpu, is_one_share, rounded
from topology.capacity import MOST_GPUS
from topology.topology_class import TopologyClass


@dataclass(frozen=True, slots=True)
class Candidates:
    """What decides, one column a node: GB/s, worth that the node loses, islands that are broken, GPUs (of shares: MiB) left, cost for the pods to come.

    One array, since every decision takes and writes some columns of all five. Where the pod does not fit, bandwidth is IMPOSSIBLE and the rest says nothing.
    """

    numbers: NDArray[np.float64]  # (5, n)

    @staticmethod
    def none(count: int) -> "Candidates":
        """Return so many nodes on which nothing fits."""
        numbers = np.zeros((5, count))
        numbers[0] = IMPOSSIBLE
        return Candidates(numbers)

    @property
    def bandwidth(self) -> NDArray[np.float64]:
        """GB/s, shape (n,)."""
        found: NDArray[np.float64] = self.numbers[0]
        return found

    @property
    def worth_lost(self) -> NDArray[np.float64]:
        """GPU x GB/s, shape (n,)."""
        found: NDArray[np.float64] = self.numbers[1]
        return found

    @property
    def broken(self) -> NDArray[np.float64]:
        """Islands and cores, as `TopologyClass.whole_islands` counts them, shape (n,)."""
        found: NDArray[np.float64] = self.numbers[2]
        return found

    @property
    def left(self) -> NDArray[np.float64]:
        """GPUs, or MiB, shape (n,)."""
        found: NDArray[np.float64] = self.numbers[3]
        return found

    @property
    def cost(self) -> NDArray[np.float64]:
        """Milli of an average GPU, shape (n,)."""
        found: NDArray[np.float64] = self.numbers[4]
        return found

    @property
    def possible(self) -> NDArray[np.bool_]:
        """Where there is a plan, (n,)."""
        return self.bandwidth > IMPOSSIBLE

    def take(self, at: NDArray[np.int64]) -> "Candidates":
        """Return a copy of those entries."""
        return Candidates(self.numbers[:, at])

    def put(self, at: NDArray[np.int64], found: "Candidates") -> None:
        """Write those entries."""
        self.numbers[:, at] = found.numbers


_BITS: Final = np.arange(MOST_GPUS)
FEW: Final = 12  # rows up to which one at a time is faster than all at once; where both are equally fast was measured on openb


class Prospector(Protocol):
    """Who knows the prospects of a shape on a class: `Placement`."""

    def prospects(self, shape: Shape, kind: TopologyClass, masks: NDArray[np.int64]) -> Prospects:
        """Return the tables of a shape of whole GPUs, filled for those masks."""
        ...

    def prospects_on(self, shape: Shape, kind: TopologyClass, mask: int) -> Prospects:
        """Return the tables of a shape of whole GPUs, filled for that mask."""
        ...

    def room_prospects(self, shape: Shape, kind: TopologyClass, rooms: Rooms) -> RoomProspects:
        """Return what a shape with shares would get in those rooms."""
        ...

    def weighed(self, kind: TopologyClass) -> TopologyClass:
        """Return a class with the weights of now."""
        ...


@dataclass(frozen=True, slots=True)
class Judge:
    """By what costs are judged: the outlook, which of its tables each row of the view goes by (rows,), and the weight of F."""

    outlook: Outlook
    numbers: NDArray[np.int64]
    weight: float
    values: dict[int, tuple[int, float, float]] = field(default_factory=dict)  # by row: its generation, the weight, and what it was worth as it stood


def rooms_of(view: View, rows: NDArray[np.int64]) -> Rooms:
    """Return what those nodes have to give; arrays of its own."""
    return Rooms(view.free[rows].astype(np.int64), view.left[rows], view.offered[rows])


def with_room(rooms: Rooms, position: int, room: Room) -> None:
    """Let a node have that to give instead."""
    rooms.idle[position], rooms.left[position] = room.idle, room.left


def look(demand: Demand, view: View, rows: NDArray[np.int64], rooms: Rooms, prospector: Prospector, judge: Judge) -> Candidates:
    """Look at those nodes, all of which fit by the state of the view, as if they had ``rooms`` to give."""
    if len(rows) <= FEW and (not demand.shape.is_shared or is_one_share(demand.shape)):
        return _look_at_each(demand, view, rows, rooms, prospector, judge)
    found = Candidates.none(len(rows))
    after = Rooms(rooms.idle.copy(), rooms.left.copy(), rooms.offered)
    classes = view.class_index[rows]
    numbers = set(classes.tolist())
    for number in numbers:
        at = np.nonzero(classes == number)[0] if len(numbers) > 1 else slice(None)
        kind, here = view.classes[number], rooms.take(at)
        of: Prospects | RoomProspects
        where: NDArray[np.int64] | slice
        if demand.shape.is_shared:
            shared = prospector.room_prospects(demand.shape, kind, here)
            of, where, union, taken = shared, slice(None), shared.union, shared.taken
        else:
            whole = prospector.prospects(demand.shape, kind, here.idle)
            of, where, union = whole, here.idle, whole.union[here.idle]
            taken = here.left * (union[:, None] >> _BITS & 1).astype(np.int32)
        for position, column in enumerate((of.bandwidth, of.worth_lost, of.broken, of.left)):
            found.numbers[position, at] = column[where]
        after.idle[at], after.left[at] = here.idle & ~union, here.left - taken
    cpu = view.cpu_left[rows]
    before, then = State(cpu, rooms.idle, rooms.left), State(cpu - demand.requests.cpu_milli, after.idle, after.left)
    found.worth_lost[:] = np.round(found.worth_lost, DIGITS)  # equal hardware must compare equal, whatever the order in which its worth was added up
    found.cost[:] = judge.outlook.cost(judge.numbers[rows], before, then, judge.weight)
    return found


def _look_at_each(demand: Demand, view: View, rows: NDArray[np.int64], rooms: Rooms, prospector: Prospector, judge: Judge) -> Candidates:
    """Do what `look` does, node by node: for a few, what numpy costs per operation is more than the work."""
    look_at = _share_on if demand.shape.is_shared else _whole_on
    levels = judge.outlook.levels(rooms.idle, rooms.left).tolist()
    found = []
    for row, room, own, cpu in zip(rows.tolist(), rooms, levels, view.cpu_left[rows].tolist(), strict=True):
        seen = look_at(demand.shape, prospector.weighed(view.classes[view.class_index.item(row)]), room, prospector, (judge, row, own))
        if seen is None:
            found.append((IMPOSSIBLE, 0.0, 0.0, 0.0, 0.0))
            continue
        (bandwidth, worth_lost, broken, left), union, after = seen
        before, then = NodeState(cpu, room.idle, own), NodeState(cpu - demand.requests.cpu_milli, room.idle & ~union, after)
        cost = rounded(_value_before(view, row, before, judge) - judge.outlook.value_of(judge.numbers.item(row), then, judge.weight))
        found.append((bandwidth, rounded(worth_lost), broken, left, cost))
    return Candidates(np.array(found, np.float64).reshape(-1, 5).T.copy())


def _value_before(view: View, row: int, before: NodeState, judge: Judge) -> float:
    """Return what a node is worth as it stands: asked once for every demand that is looked at after the node changed."""
    generation = view.host_generation.item(row)
    known = judge.values.get(row)
    if known is None or known[:2] != (generation, judge.weight):
        known = judge.values[row] = (generation, judge.weight, judge.outlook.value_of(judge.numbers.item(row), before, judge.weight))
    return known[2]


_Seen = tuple[
    tuple[float, float, float, float], int, list[int]
]  # bandwidth, worth lost, islands broken and left; bits of the GPUs taken; levels afterwards


def _share_on(shape: Shape, kind: TopologyClass, room: Room, _: Prospector, at: tuple[Judge, int, list[int]]) -> _Seen | None:
    """Return what one share would get on one node."""
    judge, row, levels = at
    mib, usable = shape.parts[0].mib, usable_room(shape, kind, room)
    bit = best_gpu(kind, usable, mib, lambda: judge.outlook.costs_at(judge.numbers.item(row), usable, levels, mib))
    if bit < 0:
        return None
    rest = usable.idle & ~(1 << bit)
    worth_lost, broken = kind.worth.item(usable.idle) - kind.worth.item(rest), kind.whole_islands.item(usable.idle) - kind.whole_islands.item(rest)
    after = levels.copy()
    after[bit] = judge.outlook.level(room.left[bit] - mib)
    return (0.0, worth_lost, broken, sum(usable.left)), 1 << bit, after


def _whole_on(shape: Shape, kind: TopologyClass, room: Room, prospector: Prospector, at: tuple[Judge, int, list[int]]) -> _Seen | None:
    """Return what whole GPUs would get on one node."""
    tables, mask = prospector.prospects_on(shape, kind, room.idle), room.idle
    union = tables.union.item(mask)
    if not union:
        return None
    after = [0 if union >> bit & 1 else level for bit, level in enumerate(at[2])]
    return (tables.bandwidth.item(mask), tables.worth_lost.item(mask), tables.broken.item(mask), tables.left.item(mask)), union, after


def rows_to_look_at(view: View, generation: int, known: Candidates) -> NDArray[np.int64]:
    """Return the rows of a view that are not as they were at that generation; all of them where that one is later, or nothing is known."""
    if generation > view.generation or not len(known.cost):
        return np.arange(view.rows)
    return np.nonzero(view.host_generation > generation)[0]  # CPU decides as well
