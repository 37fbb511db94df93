"""Who holds which GPU: every promise and every allocation, keyed by pod UID. The only place where holding changes.

`binding` promises and then confirms or forgets; `state` enters what bound pods carry and releases what ended. Every do has its undo beside it, and
every change ends in the same `_settle`, which recomputes the node's `held` mask from the entries: the columns cannot drift from the ledger.
GPUs are named by UUID here, never by position: indices and order may change at a reboot. What a promised pod requests beside GPUs goes to `hosts` at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from extender.cluster.columns import Columns
from extender.cluster.hosts import Hosts
from extender.requests import NOTHING, Requests
from topology.errors import InternalError


class EntryState(Enum):
    """How sure the ledger is of an entry."""

    PROMISED = "promised"  # decided here, the API server has not said yes
    CONFIRMED = "confirmed"  # the pod is bound and carries the allocation
    OBSERVED = "observed"  # the node's agent says so; Linkwise did not place this pod


@dataclass(frozen=True, slots=True)
class Entry:
    """One pod's GPUs on one node."""

    uid: str
    namespace: str
    name: str
    node: str
    uuids: frozenset[str]
    state: EntryState
    allocation: str = ""  # the annotation's value; empty for observed holders

    @property
    def pod(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


class Ledger:
    """Entries by pod UID, and by node; writes the `held` column."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.hosts = Hosts(columns)
        self._entries: dict[str, Entry] = {}
        self._on_node: dict[str, dict[str, Entry]] = {}

    # --- the walk of a pod ---

    def promise(self, entry: Entry, requests: Requests = NOTHING) -> None:
        """Enter a decision before its binding is posted; undo with `forget`.

        Raises InternalError where a GPU is held already: the caller decided on this very state.
        """
        if entry.uid in self._entries:
            raise InternalError(f"pod {entry.pod} is promised twice")
        row = self._columns.row(entry.node)
        wanted = self._columns.gpus[row].mask_of(entry.uuids)
        if wanted.bit_count() != len(entry.uuids) or wanted & int(self._columns.held[row]):
            raise InternalError(f"pod {entry.pod} is promised GPUs of {entry.node} that are held or unknown")
        self._put(replace(entry, state=EntryState.PROMISED))
        self.hosts.promise(entry.uid, entry.node, requests)

    def confirm(self, uid: str) -> None:
        """Note that the pod is bound with its promise."""
        entry = self._entries.get(uid)
        if entry is not None and entry.state is EntryState.PROMISED:
            self._put(replace(entry, state=EntryState.CONFIRMED))

    def forget(self, uid: str) -> Entry | None:
        """Undo a promise whose binding has not taken effect and never will; entries that are more than promised stay."""
        entry = self._entries.get(uid)
        if entry is None or entry.state is not EntryState.PROMISED:
            return None
        self.hosts.forget(uid)
        return self.release(uid)

    # --- what the cluster shows ---

    def enter(self, entry: Entry) -> None:
        """Enter what a bound pod or a node's agent shows; undo with `release`. Counts two holders of one GPU as they are."""
        known = self._entries.get(entry.uid)
        if known == entry:
            return
        if known is not None and known.node != entry.node:
            self.release(entry.uid)
        self._put(entry)

    def release(self, uid: str) -> Entry | None:
        """Take a pod's entry out; its GPUs are free at once unless another pod holds them too."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            del self._on_node[entry.node][uid]
            self.settle(entry.node)
        return entry

    def settle(self, node: str) -> None:
        """Recompute the node's held mask from its entries: after they changed, or after the node's GPUs did."""
        row = self._columns.row(node)
        gpus = self._columns.gpus[row]
        held = 0
        for entry in self._on_node.get(node, {}).values():
            held |= gpus.mask_of(entry.uuids)
        if held != int(self._columns.held[row]):
            self._columns.held[row] = held
            self._columns.touch(row)

    # --- reading ---

    def get(self, uid: str) -> Entry | None:
        """Return the entry of that pod."""
        return self._entries.get(uid)

    def on_node(self, node: str) -> tuple[Entry, ...]:
        """Return the entries of that node, in the order in which they came."""
        return tuple(self._on_node.get(node, {}).values())

    def __iter__(self) -> Iterator[Entry]:
        """All entries, over a copy."""
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def _put(self, entry: Entry) -> None:
        self._entries[entry.uid] = entry
        self._on_node.setdefault(entry.node, {})[entry.uid] = entry
        self.settle(entry.node)
