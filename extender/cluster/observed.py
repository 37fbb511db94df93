"""What a node's agent saw of who holds which GPU, where no pod object tells: leftovers of force-deleted pods, and holders that nobody knows.

Called by `state` after every change of a node's pods or topology. A pod that is deleted by force disappears from the API server while its containers may
still run; it stays an observed holder until a later observation of the agent leaves it out. After a restart the same is known from the topology's status
alone. Nodes whose agent does not ask kubelet (``holdersObserved`` false) have none of this.

An agent with the hand-off on tells UIDs and MiB: what it says is compared with what each pod was promised. A pod that holds more is counted with what it holds as well, and its owner is told.
"""

from collections import Counter, deque
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cachetools import LRUCache

from extender.cluster.charges import shares_of
from extender.cluster.ledger import Entry, EntryState, Ledger
from extender.cluster.machines import Held, HolderKey, NodeTopology, PodName
from extender.cluster.pods import BoundPod

_PREFIX: Final = "observed:"  # of the UIDs of entries that stand for no pod object
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_ENDED_KEPT: Final = 512  # names a node
_TOLD_KEPT: Final = 10_000  # sentences that are not said again
_NOTHING: Final = Held(frozenset())

OTHER_GPUS: Final = "other-gpus"  # a pod holds a GPU that it was not promised
MORE_MEMORY: Final = "more-memory"  # a pod holds more of a GPU than it was promised
AROUND: Final = "around"  # a pod that came around Linkwise, and its node is open
UNKNOWN: Final = "unknown"  # a holder without a pod object that anybody here knows
LEFT: Final = "left"  # a pod that was deleted while its containers may run
DIFFERENCES: Final = (OTHER_GPUS, MORE_MEMORY, AROUND, UNKNOWN, LEFT)


@dataclass(frozen=True, slots=True)
class Difference:
    """One pod that holds what it was not promised, in a sentence."""

    entry: Entry
    sentence: str


def may_run(pod: Mapping[str, Any]) -> bool:
    """Tell whether a container of a pod that is gone may still run, or may just be starting, as far as the pod's last state tells."""
    status = pod.get("status")
    if not isinstance(status, Mapping):
        return True
    if status.get("phase") in ("Succeeded", "Failed"):
        return False
    found = [item for key in ("initContainerStatuses", "containerStatuses") for item in status.get(key) or () if isinstance(item, Mapping)]
    return not found or not all("terminated" in (item.get("state") or {}) for item in found)


class ObservedHolders:
    """Entries of the ledger that only an agent's word stands behind."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ghosts: dict[str, dict[str, datetime]] = {}  # node -> uid -> only an observation after this counts
        self._ended: dict[str, LRUCache[PodName, None]] = {}  # node -> pods that have ended, whatever is said of them
        self._strangers: set[str] = set()  # nodes with holders that nobody knows
        self._namesakes: set[str] = set()  # pods of whose name an agent spoke already when they came: perhaps of a pod that is gone
        self._differences: dict[str, dict[str, str]] = {}  # node -> uid -> kind, of pods that hold what they were not promised
        self._told: LRUCache[tuple[str, str], None] = LRUCache(_TOLD_KEPT)
        self._different: deque[Difference] = deque(maxlen=1000)

    def came(self, pod: BoundPod, topology: NodeTopology | None) -> None:
        """Note a bound pod at its first sight: what is said of its name already may be said of an earlier pod that was called so."""
        if topology is not None and (pod.namespace, pod.name, "") in topology.holders:
            self._namesakes.add(pod.uid)

    def went(self, uid: str) -> None:
        """Forget a pod that is gone; undo of `came`."""
        self._namesakes.discard(uid)

    def is_in_doubt(self, uid: str) -> bool:
        """Tell whether the next observation may say more about a pod, even where it says the same."""
        return uid in self._namesakes

    def of(self, pod: BoundPod, topology: NodeTopology | None) -> Held | None:
        """Return what the agent saw the pod hold, None where it saw nothing, or may have looked before there was this pod."""
        if topology is None:
            return None
        told = topology.holders.get((pod.namespace, pod.name, pod.uid))
        if told is not None:
            return told
        at = topology.observed_at
        # Times of creation are cut to whole seconds.
        if pod.uid in self._namesakes and at and pod.created and _aware(at) < pod.created + timedelta(seconds=1):
            return None
        self._namesakes.discard(pod.uid)
        return topology.holders.get((pod.namespace, pod.name, ""))

    def keep(self, uid: str, topologies: Mapping[str, NodeTopology], deleted: datetime | None) -> bool:
        """Keep a deleted pod's entry as observed until its node's agent has looked after ``deleted``; False where the agent does not look, or the pod was never bound.

        Whoever was bound from here counts, also if no watch or list has ever shown it bound.
        """
        entry = self._ledger.get(uid)
        topology = None if entry is None or entry.state is EntryState.PROMISED else topologies.get(entry.node)
        if entry is None or topology is None or not topology.holders_observed:
            return False
        self._ledger.enter(replace(entry, state=EntryState.OBSERVED, allocation=""))
        times = [_aware(time) for time in (topology.observed_at, deleted) if time is not None]
        self._ghosts.setdefault(entry.node, {})[uid] = max(times, default=_LONG_AGO)
        return True

    def ended(self, node: str, name: PodName) -> None:
        """Note that a pod's containers have ended: its name counts no more for as long as it is listed.

        Kubelet before 1.34 lists finished pods until they are deleted.
        """
        self._ended.setdefault(node, LRUCache(_ENDED_KEPT))[name] = None

    def forget_node(self, node: str) -> None:
        """Forget what was seen of a node that is gone for good, with the holders behind whom no pod stands: nobody will ever say that they have ended."""
        for entry in self._ledger.on_node(node):
            if self.is_ghost(entry):
                self._ledger.release(entry.uid)
        self._ghosts.pop(node, None)
        self._ended.pop(node, None)
        self._differences.pop(node, None)
        self._strangers.discard(node)

    def is_ghost(self, entry: Entry) -> bool:
        """Tell whether no pod object stands behind an entry."""
        return entry.uid.startswith(_PREFIX) or entry.uid in self._ghosts.get(entry.node, {})

    def update(self, node: str, topology: NodeTopology | None, bound: Mapping[str, BoundPod]) -> None:
        """Bring a node's observed entries up to date with its topology and its pods, by UID."""
        if topology is None or not topology.holders_observed:
            return  # nobody looked: what was observed before stands
        seen = topology.holders
        if not (seen or node in self._ghosts or node in self._ended or node in self._strangers or node in self._differences):
            return
        self._release_ghosts(node, topology.observed_at, seen)
        ended = self._still_ended(node, seen)
        names = {(entry.namespace, entry.name) for entry in self._ledger.on_node(node) if not entry.uid.startswith(_PREFIX)}
        names |= {(pod.namespace, pod.name) for pod in bound.values()} | set(ended)
        strangers: dict[str, Entry] = {}
        differences: dict[str, str] = {}
        for key, held in seen.items():
            namespace, name, uid = key
            entry = self._ledger.get(uid) if uid else None
            if entry is not None and entry.node == node:
                extra = self._beyond_promise(entry, held, bound.get(uid), differences)
            else:
                extra = _NOTHING if uid in bound or (namespace, name) in (names if not uid else ended) else held
            if extra.uuids:
                known = f"{_PREFIX}{node}:{namespace}/{name}" + (f":{uid}" if uid else "")
                strangers[known] = Entry(known, namespace, name, node, extra.uuids, EntryState.OBSERVED, shares=shares_of(extra.parts, {}))
        self._enter_strangers(node, strangers)
        self._differences.pop(node, None)
        if differences:
            self._differences[node] = differences

    def _still_ended(self, node: str, seen: Mapping[HolderKey, Held]) -> MutableMapping[PodName, None]:
        """Return the pods that have ended and are listed yet."""
        ended: MutableMapping[PodName, None] = self._ended.get(node, {})
        listed = {(namespace, name) for namespace, name, _ in seen}
        for unlisted in [pod for pod in ended if pod not in listed]:
            del ended[unlisted]
        if not ended:
            self._ended.pop(node, None)
        return ended

    def _beyond_promise(self, entry: Entry, held: Held, pod: BoundPod | None, differences: dict[str, str]) -> Held:
        """Return what a pod holds of GPUs that its entry does not name, and note what differs."""
        extra = held.uuids - entry.uuids
        shares = shares_of(held.parts, {} if pod is None else pod.kinds) if held.parts else {}
        larger = [uuid for uuid, mib in entry.shares.items() if uuid in held.uuids and not 0 < shares.get(uuid, 0) <= mib]
        if not extra and not larger:
            return _NOTHING
        differences[entry.uid] = OTHER_GPUS if extra else MORE_MEMORY
        if extra:
            sentence = f"it holds GPU {', '.join(sorted(extra))} on node {entry.node}, which it was not promised"
        else:
            sentence = f"it holds more of GPU {', '.join(larger)} on node {entry.node} than it was promised"
        if (entry.uid, sentence) not in self._told:
            self._told[entry.uid, sentence] = None
            self._different.append(Difference(entry, sentence))
        return Held(extra, tuple(part for part in held.parts if part[1] in extra))

    def _enter_strangers(self, node: str, strangers: Mapping[str, Entry]) -> None:
        for entry in self._ledger.on_node(node):
            if entry.uid.startswith(_PREFIX) and entry.uid not in strangers:
                self._ledger.release(entry.uid)
        (self._strangers.add if strangers else self._strangers.discard)(node)
        for entry in strangers.values():
            self._ledger.enter(entry)

    def _release_ghosts(self, node: str, at: datetime | None, seen: Mapping[HolderKey, Held]) -> None:
        for uid, after in tuple(self._ghosts.get(node, {}).items()):
            entry = self._ledger.get(uid)
            later = at is not None and _aware(at) > after
            if entry is None or (later and not _is_seen(entry, seen)):
                del self._ghosts[node][uid]
                self._ledger.release(uid)
        if not self._ghosts.get(node):
            self._ghosts.pop(node, None)

    # --- telling ----------------------------------------------------------------------------------------------------

    def differences(self) -> Mapping[str, int]:
        """Return how many pods there are of each kind of difference."""
        found = Counter(kind for of_node in self._differences.values() for kind in of_node.values())
        found[LEFT] = sum(map(len, self._ghosts.values()))
        for entry in self._ledger.observed():
            if entry.uid not in self._ghosts.get(entry.node, {}):
                is_unknown = entry.uid.startswith(_PREFIX)
                found[UNKNOWN if is_unknown else AROUND] += 1
        found[UNKNOWN] -= found[OTHER_GPUS]  # each has an entry of its own for what it holds besides
        return {kind: found[kind] for kind in DIFFERENCES}

    def take_different(self) -> list[Difference]:
        """Return what was first seen to differ since the last call."""
        different = list(self._different)
        self._different.clear()
        return different


def _is_seen(entry: Entry, seen: Mapping[HolderKey, Held]) -> bool:
    """Tell whether an agent still sees a pod that is gone: by UID, else by name and GPU, since one created again under the same name holds other GPUs."""
    by_name = seen.get((entry.namespace, entry.name, ""), _NOTHING)
    return (entry.namespace, entry.name, entry.uid) in seen or bool(entry.uuids & by_name.uuids)


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)
