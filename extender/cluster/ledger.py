"""Who holds which GPU: every promise and every allocation, keyed by pod UID. The only place where holding changes.

`binding` promises and then confirms or forgets; `state` enters what bound pods carry and releases what ended. Every do has its undo beside it, and
every change ends in the same `settle`, which recomputes what is held and left of the node's GPUs from the entries: the columns cannot drift from the ledger.
GPUs are named by UUID here, never by position: indices and order may change at a reboot. What a promised pod requests beside GPUs goes to `hosts` at once.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum

from extender.cluster.charges import Charges
from extender.cluster.columns import Columns, Taken
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
    """One pod's GPUs on one node: ``uuids`` are all of them, ``shares`` MiB of those that it holds in part; the others are its own."""

    uid: str
    namespace: str
    name: str
    node: str
    uuids: frozenset[str]
    state: EntryState
    allocation: str = ""  # the annotation's value; empty for observed holders
    shares: Mapping[str, int] = field(default_factory=dict, hash=False)

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
        self._promised: set[str] = set()
        self._unseen: set[str] = set()  # confirmed, and not entered since
        self._observed: set[str] = set()

    # --- the walk of a pod ---

    def promise(self, entry: Entry, requests: Requests = NOTHING) -> None:
        """Enter a decision before its binding is posted; undo with `forget`.

        Raises InternalError where a GPU is held already: the caller decided on this very state.
        """
        if entry.uid in self._entries:
            raise InternalError(f"pod {entry.pod} is promised twice")
        row = self._columns.row(entry.node)
        gpus = self._columns.gpus[row]
        whole = gpus.mask_of(entry.uuids - entry.shares.keys())
        if gpus.mask_of(entry.uuids).bit_count() != len(entry.uuids) or whole & int(self._columns.held[row]):
            raise InternalError(f"pod {entry.pod} is promised GPUs of {entry.node} that are held or unknown")
        if any(self._columns.left[row, gpus.bit_of[uuid]] < mib for uuid, mib in entry.shares.items()):
            raise InternalError(f"pod {entry.pod} is promised more memory of a GPU of {entry.node} than is left")
        self._put(entry if entry.state is EntryState.PROMISED else replace(entry, state=EntryState.PROMISED))
        self.hosts.promise(entry.uid, entry.node, requests)

    def confirm(self, uid: str) -> None:
        """Note that the pod is bound with its promise."""
        entry = self._entries.get(uid)
        if entry is not None and entry.state is EntryState.PROMISED:
            # What it holds stays the same, so nothing is to be settled.
            self._entries[uid] = self._on_node[entry.node][uid] = replace(entry, state=EntryState.CONFIRMED)
            self._promised.discard(uid)
            self._unseen.add(uid)

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
        self._unseen.discard(entry.uid)
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
            self._promised.discard(uid)
            self._unseen.discard(uid)
            self._observed.discard(uid)
            there = self._on_node[entry.node]
            del there[uid]
            if not there:
                del self._on_node[entry.node]
            self.settle(entry.node)
        return entry

    def settle(self, node: str) -> None:
        """Recompute what is held and left of the node's GPUs from its entries: after they changed, or after the node's GPUs did."""
        columns, row = self._columns, self._columns.row(node)
        taken = self.taken(node)
        bits, left = taken.bits, columns.left_of(row, taken)
        if bits != columns.held.item(row) or tuple(columns.left[row].tolist()) != left:
            columns.held[row] = bits
            columns.left[row] = left
            columns.touch(row)

    # --- reading ---

    def get(self, uid: str) -> Entry | None:
        """Return the entry of that pod."""
        return self._entries.get(uid)

    def promised(self) -> int:
        """Return how many promises stand."""
        return len(self._promised)

    def observed(self) -> tuple[Entry, ...]:
        """Return the entries that an agent's word stands behind; few, or none."""
        return tuple(self._entries[uid] for uid in self._observed)

    def unseen(self) -> tuple[str, ...]:
        """Return the pods that were bound from here and that nobody has shown bound yet."""
        return tuple(self._unseen)

    def charged(self, uid: str, allocation: str | None) -> Charges | None:
        """Return what a pod is charged by that allocation already: all that can be told of one that nobody showed, whose Binding alone is known without its containers."""
        entry = self._entries.get(uid)
        return Charges(entry.uuids, entry.shares) if entry is not None and entry.allocation == allocation else None

    def on_node(self, node: str) -> tuple[Entry, ...]:
        """Return the entries of that node, in the order in which they came."""
        return tuple(self._on_node.get(node, {}).values())

    def taken(self, node: str, without: AbstractSet[str] = frozenset()) -> Taken:
        """Return what the pods on the node hold, but for those named."""
        bit_of = self._columns.gpus[self._columns.row(node)].bit_of
        whole, shares = 0, dict[int, int]()
        for entry in self._on_node.get(node, {}).values():
            if entry.uid in without:
                continue
            for uuid in entry.uuids:
                bit = bit_of.get(uuid)
                if bit is None:
                    continue
                mib = entry.shares.get(uuid)
                if mib is None:
                    whole |= 1 << bit
                else:
                    shares[bit] = shares.get(bit, 0) + mib
        return Taken(whole, shares)

    def __iter__(self) -> Iterator[Entry]:
        """All entries, over a copy."""
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def _put(self, entry: Entry) -> None:
        self._entries[entry.uid] = entry
        (self._promised.add if entry.state is EntryState.PROMISED else self._promised.discard)(entry.uid)
        (self._observed.add if entry.state is EntryState.OBSERVED else self._observed.discard)(entry.uid)
        self._on_node.setdefault(entry.node, {})[entry.uid] = entry
        self.settle(entry.node)
