"""What a node's agent saw of who holds which GPU, where no pod object tells: leftovers of force-deleted pods, and holders that nobody knows.

Called by `state` after every change of a node's pods or topology. A pod that is deleted by force disappears from the API server while its containers may
still run; it stays an observed holder until a later observation of the agent leaves it out. After a restart the same is known from the topology's status
alone. Nodes whose agent does not ask kubelet (``holdersObserved`` false) have none of this.
"""

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cachetools import LRUCache

from extender.cluster.ledger import Entry, EntryState, Ledger
from extender.cluster.machines import NodeTopology, PodName
from extender.cluster.pods import BoundPod

_PREFIX: Final = "observed:"  # of the UIDs of entries that stand for no pod object
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_ENDED_KEPT: Final = 512  # names a node


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

    def came(self, pod: BoundPod, topology: NodeTopology | None) -> None:
        """Note a bound pod at its first sight: what is said of its name already may be said of an earlier pod that was called so."""
        if topology is not None and (pod.namespace, pod.name) in topology.holders:
            self._namesakes.add(pod.uid)

    def went(self, uid: str) -> None:
        """Forget a pod that is gone; undo of `came`."""
        self._namesakes.discard(uid)

    def is_in_doubt(self, uid: str) -> bool:
        """Tell whether the next observation may say more about a pod, even where it says the same."""
        return uid in self._namesakes

    def of(self, pod: BoundPod, topology: NodeTopology | None) -> frozenset[str]:
        """Return what the agent saw the pod hold, nothing where it may have looked before there was this pod."""
        at = None if topology is None else topology.observed_at
        # Times of creation are cut to whole seconds.
        if pod.uid in self._namesakes and at and pod.created and _aware(at) < pod.created + timedelta(seconds=1):
            return frozenset()
        self._namesakes.discard(pod.uid)
        return frozenset() if topology is None else topology.holders.get((pod.namespace, pod.name), frozenset())

    def keep(self, uid: str, topology: NodeTopology | None, deleted: datetime | None) -> bool:
        """Keep a deleted pod's entry as observed until its node's agent has looked after ``deleted``; False where the agent does not look."""
        entry = self._ledger.get(uid)
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

    def is_ghost(self, entry: Entry) -> bool:
        """Tell whether no pod object stands behind an entry."""
        return entry.uid.startswith(_PREFIX) or entry.uid in self._ghosts.get(entry.node, {})

    def update(self, node: str, topology: NodeTopology | None, bound: Iterable[PodName]) -> None:
        """Bring a node's observed entries up to date with its topology and its pods."""
        if topology is None or not topology.holders_observed:
            return  # nobody looked: what was observed before stands
        seen = topology.holders
        if not (seen or node in self._ghosts or node in self._ended or node in self._strangers):
            return
        self._release_ghosts(node, topology.observed_at, seen)
        ended: MutableMapping[PodName, None] = self._ended.get(node, {})
        for unlisted in [pod for pod in ended if pod not in seen]:
            del ended[unlisted]
        if not ended:
            self._ended.pop(node, None)
        own = {(entry.namespace, entry.name) for entry in self._ledger.on_node(node) if not entry.uid.startswith(_PREFIX)}
        explained = own | set(bound) | set(ended)
        strangers = {self._uid(node, name): (name, uuids) for name, uuids in seen.items() if name not in explained}
        for entry in self._ledger.on_node(node):
            if entry.uid.startswith(_PREFIX) and entry.uid not in strangers:
                self._ledger.release(entry.uid)
        (self._strangers.add if strangers else self._strangers.discard)(node)
        for uid, ((namespace, name), uuids) in strangers.items():
            self._ledger.enter(Entry(uid, namespace, name, node, uuids, EntryState.OBSERVED))

    def _release_ghosts(self, node: str, at: datetime | None, seen: Mapping[PodName, frozenset[str]]) -> None:
        for uid, after in tuple(self._ghosts.get(node, {}).items()):
            entry = self._ledger.get(uid)
            later = at is not None and _aware(at) > after
            # By name and GPU: a pod that was created again under the same name holds other GPUs.
            if entry is None or (later and not entry.uuids & seen.get((entry.namespace, entry.name), frozenset())):
                del self._ghosts[node][uid]
                self._ledger.release(uid)
        if not self._ghosts.get(node):
            self._ghosts.pop(node, None)

    def _uid(self, node: str, name: PodName) -> str:
        return f"{_PREFIX}{node}:{name[0]}/{name[1]}"


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)
