"""CPU and memory of the nodes: what a Node has to give, what its pods request, and so what is left beside the GPUs.

`state` brings Nodes and pods, in any order and as often as it likes; `ledger` brings promises. Everything is keyed by pod UID, so a pod that is seen twice
counts once, and each change costs the same however many pods there are. Sums are kept for every node that was heard of, since a GPUTopology may come last;
they are shown in the columns of those that have a row. This decides nothing about what fits: kube-scheduler's NodeResourcesFit has refused nodes without room
before the extender is called. It is for scores. Resizes in place count as asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from extender.cluster.columns import UNKNOWN, Columns
from extender.requests import MIB, NOTHING, Requests, quantity

_MOST: Final = 2**61  # nothing left is farther from 0; a Node may say whatever it likes, and sums must stay apart from UNKNOWN


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is read of a Node; None where it says nothing that can be read. What gpushare says there is the business of `gpushare_nodes`."""

    cpu_milli: int | None = None
    memory_mib: int | None = None


def read_node(raw: Mapping[str, Any]) -> NodeFacts:
    """Return what matters of a raw Node; never raises.

    >>> read_node({"status": {"allocatable": {"cpu": "64", "memory": "512Gi"}}})
    NodeFacts(cpu_milli=64000, memory_mib=524288)
    """
    allocatable = _mapping(_mapping(raw.get("status")).get("allocatable"))
    memory = quantity(allocatable.get("memory"))
    return NodeFacts(quantity(allocatable.get("cpu"), 1000), None if memory is None else memory // MIB)


@dataclass(slots=True)
class _Sums:
    """One node: what it has to give, None before its Node is seen, and what its pods request together.

    ``row`` and what is ``shown`` there; -1 before the node has a row.
    """

    name: str
    row: int = -1
    shown: tuple[int, int] = (UNKNOWN, UNKNOWN)
    facts: NodeFacts | None = None
    pods: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0

    def count(self, requests: Requests, sign: int) -> None:
        """Add a pod, or take it off."""
        self.pods += sign
        self.cpu_milli += sign * requests.cpu_milli
        self.memory_mib += sign * requests.memory_mib

    def left(self) -> tuple[int, int]:
        """Return millicores and MiB left."""
        facts = self.facts or _NO_FACTS
        return _left(facts.cpu_milli, self.cpu_milli), _left(facts.memory_mib, self.memory_mib)


_NO_FACTS: Final = NodeFacts()


@dataclass(slots=True)  # never changed, but not frozen either: one is made for every pod of a cluster
class _Charge:
    sums: _Sums
    requests: Requests


class Hosts:
    """What is left on each node; writes `cpu_left` and `memory_left`."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._nodes: dict[str, _Sums] = {}
        self._bound: dict[str, _Charge] = {}  # by pod UID, those that were seen bound
        self._promised: dict[str, _Charge] = {}  # decided here; no bound pod was seen
        self._rows_shown = 0

    # --- Nodes ---

    def set_node(self, name: str, facts: NodeFacts) -> None:
        """Take in what a Node has to give; undo with `drop_node`."""
        sums = self._sums(name)
        if sums.facts != facts:
            sums.facts = facts
            self._show(sums)

    def drop_node(self, name: str) -> None:
        """Take a Node out that is gone: what is left there is unknown, its pods stay counted until they are gone as well."""
        sums = self._nodes.get(name)
        if sums is not None:
            sums.facts = None
            self._show(sums)

    def facts_of(self, name: str) -> NodeFacts | None:
        """Return what was read of that Node, None where none was seen."""
        sums = self._nodes.get(name)
        return None if sums is None else sums.facts

    def nodes(self) -> set[str]:
        """Return the names of the Nodes that were seen."""
        return {name for name, sums in self._nodes.items() if sums.facts is not None}

    # --- pods ---

    def promise(self, uid: str, node: str, requests: Requests) -> None:
        """Count a pod that is to be bound, unless it was seen bound somewhere; undo with `forget`."""
        if uid not in self._bound:
            self._count(self._promised, uid, node, requests)

    def forget(self, uid: str) -> None:
        """Undo a promise whose pod was never seen bound; what a bound pod requests stays."""
        self._take_off(self._promised.pop(uid, None))

    def charge(self, uid: str, node: str, requests: Requests) -> None:
        """Count a pod that sits on a node, in place of what was known of it; undo with `release`."""
        promised = self._promised.pop(uid, None) if self._promised else None
        self._count(self._bound, uid, node, requests)
        self._take_off(promised)

    def release(self, uid: str) -> None:
        """Take a pod out that has ended or is gone."""
        self._take_off(self._bound.pop(uid, None) or self._promised.pop(uid, None))

    def requests_of(self, uid: str) -> Requests:
        """Return what is counted for that pod."""
        known = self._bound.get(uid) or self._promised.get(uid)
        return NOTHING if known is None else known.requests

    def bound(self) -> tuple[str, ...]:
        """Return the UIDs of the pods that were seen bound."""
        return tuple(self._bound)

    # --- columns ---

    def show_new_rows(self) -> None:
        """Fill the columns of nodes that got their row since the last call: before that their sums had no place to be shown."""
        for row in range(self._rows_shown, self._columns.count):
            sums = self._nodes.get(self._columns.names[row])
            if sums is not None:
                sums.row, sums.shown = row, sums.left()
                self._columns.cpu_left[row], self._columns.memory_left[row] = sums.shown
        self._rows_shown = self._columns.count

    def knows(self, name: str) -> bool:
        """Tell whether a Node of that name was seen and is there, or a pod on it."""
        return name in self._nodes

    def renumber(self) -> None:
        """Follow the columns, whose rows have other numbers now."""
        for sums in self._nodes.values():
            sums.row = -1
        self._rows_shown = 0
        self.show_new_rows()

    def _count(self, charges: dict[str, _Charge], uid: str, node: str, requests: Requests) -> None:
        known = charges.get(uid)
        charge = charges[uid] = _Charge(self._sums(node), requests)
        charge.sums.count(requests, 1)
        if known is not None:
            known.sums.count(known.requests, -1)
            if known.sums is not charge.sums:
                self._show(known.sums)
        self._show(charge.sums)

    def _take_off(self, charge: _Charge | None) -> None:
        if charge is not None:
            charge.sums.count(charge.requests, -1)
            self._show(charge.sums)

    def _sums(self, name: str) -> _Sums:
        sums = self._nodes.get(name)
        if sums is None:
            sums = self._nodes[name] = _Sums(name)
        return sums

    def _show(self, sums: _Sums) -> None:
        """Write what is left into the node's row where that is news; forget a node of which nothing is known any more."""
        if sums.row < 0:
            sums.row = self._columns.row_of.get(sums.name, -1)
        left = sums.left()
        if sums.row >= 0 and left != sums.shown:
            sums.shown = self._columns.cpu_left[sums.row], self._columns.memory_left[sums.row] = left
            self._columns.touch_host(sums.row)
        if sums.facts is None and not sums.pods:
            del self._nodes[sums.name]


def _left(allocatable: int | None, requested: int) -> int:
    if allocatable is None:
        return UNKNOWN
    left = allocatable - requested
    return left if -_MOST < left < _MOST else max(-_MOST, min(_MOST, left))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
