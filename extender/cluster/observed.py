"""What a node's agent saw of who holds which GPU, where no pod object tells: leftovers of force-deleted pods, and holders that nobody knows.

Called by `state` after every change of a node's pods or topology. A pod that is deleted by force disappears from the API server while its containers may
still run; it stays an observed holder until a later observation of the agent leaves it out. After a restart the same is known from the topology's status
alone. Nodes whose agent does not ask kubelet (``holdersObserved`` false) have none of this.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from extender.cluster.ledger import Entry, EntryState, Ledger
from extender.cluster.pods import BoundPod
from topology.api import GPUTopology

_PREFIX: Final = "observed:"  # of the UIDs of entries that stand for no pod object
PodName = tuple[str, str]


def holders(topology: GPUTopology | None) -> dict[PodName, frozenset[str]]:
    """Return (namespace, name) -> UUIDs as the agent observed them."""
    found: dict[PodName, set[str]] = {}
    for gpu in topology.status.gpus if topology is not None else ():
        for holder in gpu.holders:
            found.setdefault((holder.namespace, holder.name), set()).add(gpu.uuid)
    return {name: frozenset(uuids) for name, uuids in found.items()}


def was_running(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod's last state had a container that runs."""
    status = pod.get("status")
    if not isinstance(status, Mapping) or status.get("phase") in ("Succeeded", "Failed"):
        return False
    found = [item for key in ("initContainerStatuses", "containerStatuses") for item in status.get(key) or () if isinstance(item, Mapping)]
    return any("running" in (item.get("state") or {}) for item in found)


class ObservedHolders:
    """Entries of the ledger that only an agent's word stands behind."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ghosts: dict[str, dict[str, datetime | None]] = {}  # node -> uid -> observation at the time of the deletion
        self._ended: dict[str, set[PodName]] = {}  # node -> pods that have ended, whatever an older observation says
        self._namesakes: set[str] = set()  # pods of whose name an agent spoke already when they came: perhaps of a pod that is gone

    def came(self, pod: BoundPod, topology: GPUTopology | None) -> None:
        """Note a bound pod at its first sight: what is said of its name already may be said of an earlier pod that was called so."""
        if (pod.namespace, pod.name) in holders(topology):
            self._namesakes.add(pod.uid)

    def went(self, uid: str) -> None:
        """Forget a pod that is gone; undo of `came`."""
        self._namesakes.discard(uid)

    def is_in_doubt(self, uid: str) -> bool:
        """Tell whether the next observation may say more about a pod, even where it says the same."""
        return uid in self._namesakes

    def of(self, pod: BoundPod, topology: GPUTopology | None) -> frozenset[str]:
        """Return what the agent saw the pod hold, nothing where it may have looked before there was this pod."""
        at = None if topology is None else topology.status.observed_at
        if pod.uid in self._namesakes and at is not None and pod.created is not None:
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            # Times of creation are cut to whole seconds.
            if at < pod.created + timedelta(seconds=1):
                return frozenset()
        self._namesakes.discard(pod.uid)
        return holders(topology).get((pod.namespace, pod.name), frozenset())

    def keep(self, uid: str, topology: GPUTopology | None) -> bool:
        """Keep a deleted pod's entry as observed until its node's agent says otherwise; False where the agent does not look."""
        entry = self._ledger.get(uid)
        if entry is None or topology is None or not topology.status.holders_observed:
            return False
        self._ledger.enter(Entry(uid, entry.namespace, entry.name, entry.node, entry.uuids, EntryState.OBSERVED))
        self._ghosts.setdefault(entry.node, {})[uid] = topology.status.observed_at
        return True

    def ended(self, node: str, name: PodName) -> None:
        """Note that a pod's containers have ended: an older observation that still lists it counts no more."""
        self._ended.setdefault(node, set()).add(name)

    def is_ghost(self, entry: Entry) -> bool:
        """Tell whether no pod object stands behind an entry."""
        return entry.uid.startswith(_PREFIX) or entry.uid in self._ghosts.get(entry.node, {})

    def update(self, node: str, topology: GPUTopology | None, bound: Iterable[PodName]) -> None:
        """Bring a node's observed entries up to date with its topology and its pods."""
        seen = holders(topology) if topology is not None and topology.status.holders_observed else {}
        self._release_ghosts(node, topology, seen)
        self._ended[node] = self._ended.get(node, set()) & seen.keys()
        own = {(entry.namespace, entry.name) for entry in self._ledger.on_node(node) if not entry.uid.startswith(_PREFIX)}
        explained = own | set(bound) | self._ended[node]
        strangers = {self._uid(node, name): (name, uuids) for name, uuids in seen.items() if name not in explained}
        for entry in self._ledger.on_node(node):
            if entry.uid.startswith(_PREFIX) and entry.uid not in strangers:
                self._ledger.release(entry.uid)
        for uid, ((namespace, name), uuids) in strangers.items():
            self._ledger.enter(Entry(uid, namespace, name, node, uuids, EntryState.OBSERVED))

    def _release_ghosts(self, node: str, topology: GPUTopology | None, seen: Mapping[PodName, frozenset[str]]) -> None:
        for uid, observed_at in tuple(self._ghosts.get(node, {}).items()):
            entry = self._ledger.get(uid)
            later = topology is not None and topology.status.observed_at != observed_at
            # By name and GPU: a pod that was created again under the same name holds other GPUs.
            if entry is None or (later and not entry.uuids & seen.get((entry.namespace, entry.name), frozenset())):
                del self._ghosts[node][uid]
                self._ledger.release(uid)

    def _uid(self, node: str, name: PodName) -> str:
        return f"{_PREFIX}{node}:{name[0]}/{name[1]}"
