"""Which container is about to start: kubelet's PreStartContainer names device ids alone, and ids are not an identity.

Called by `hand_off`. kubelet's checkpoint names the pod's UID, the container and, in our own answer, the token that was issued for it. One id set may stand in
it twice: an init container and the container that took over its ids. Both are returned, each with its own token, for each can be prepared without knowing
which of them starts. The same goes for two pods: kubelet gives ids away twice where somebody lists PodResources in the moment of an Allocate (UpdateAllocatedDevices forgets what
is not answered yet), and keeps to it. By CDI each has its own GPUs all the same, those of its token; without CDI, or where they have one token, they are a contradiction, and nothing is started.
Nor need their sets be equal: one id of three may be another pod's only one.

The checkpoint counts as current when it holds the token that was issued last for these ids; otherwise kubelet is made to write it anew. Then the pod is looked
up by UID, and PodResources, which knows names alone, must not name another pod for the same ids.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from topology.agent.handoff.checkpoint import Checkpoint, CheckpointError, Entry
from topology.agent.handoff.holding import Container
from topology.agent.handoff.kubelet import Kubelet
from topology.agent.handoff.pod import Pod
from topology.agent.handoff.pods import Pods, PodUnknownError
from topology.agent.handoff.records import Records
from topology.agent.pod_resources import Claim, PodResourcesError
from topology.errors import LinkwiseError


class IdentityError(LinkwiseError):
    """It is not known for certain which container this is; kubelet tries again."""


@dataclass(frozen=True, slots=True)
class Starting:
    """One container that may be the one that starts."""

    entry: Entry
    pod: Pod
    container: Container


class Identity:
    """Finds out; one for all resources."""

    def __init__(self, kubelet: Kubelet, pods: Pods, records: Records, note: Callable[[str], None]) -> None:
        self._kubelet = kubelet
        self._pods = pods
        self._records = records
        self._note = note

    def of(self, resource: str, ids: frozenset[str]) -> list[Starting]:
        """Return the containers, of one pod as a rule, that these ids may be starting; raises IdentityError."""
        try:
            return self._of(resource, ids)
        except CheckpointError as error:
            raise IdentityError(str(error)) from error

    def _of(self, resource: str, ids: frozenset[str]) -> list[Starting]:
        entries = self._entries(resource, ids)
        claims = self._claims(resource, ids)
        names = dict.fromkeys((claim.namespace, claim.pod) for claim in claims)
        pods = {uid: self._pod(uid, ids, names) for uid in dict.fromkeys(entry.pod_uid for entry in entries)}
        known = {(pod.namespace, pod.name) for pod in pods.values()}
        others = [f"{namespace}/{name}" for namespace, name in names if (namespace, name) not in known]
        if others:
            sharing = self._sharing(resource, ids, entries)
            others = [other for other in others if other not in sharing]
        if others:
            # The namesakes differ in UID only where names are equal; here kubelet itself tells two stories.
            told = ", ".join(pod.told for pod in pods.values())
            raise IdentityError(f"kubelet's checkpoint says that {told} has {_told(ids)}, and PodResources names pod {', '.join(others)}")
        return [self._starting(entry, pods[entry.pod_uid]) for entry in entries]

    def _sharing(self, resource: str, ids: frozenset[str], entries: list[Entry]) -> set[str]:
        """Return the pods, as NAMESPACE/NAME, to which kubelet gave some of these ids as well, among other ids: by its checkpoint, and each with GPUs of its own."""
        found = [entry for entry in self._kubelet.checkpoint().entries if entry.resource == resource and entry.ids & ids and entry.ids != ids]
        pods = [self._pods.cached(entry.pod_uid) for entry in found] if _are_apart([*entries, *found]) else []
        return {f"{pod.namespace}/{pod.name}" for pod in pods if pod is not None}

    def _pod(self, uid: str, ids: frozenset[str], names: Iterable[tuple[str, str]]) -> Pod:
        try:
            return self._pods.by_uid(uid, names)
        except PodUnknownError as error:
            raise IdentityError(f"kubelet's checkpoint names the pod of UID {uid} for {_told(ids)}, but {error}") from error

    def _entries(self, resource: str, ids: frozenset[str]) -> list[Entry]:
        found = self._kubelet.checkpoint().of(resource, ids)
        if not self._is_current(found, resource, ids):
            anew = self._kubelet.rewritten()
            if anew is None:
                raise IdentityError(f"kubelet's checkpoint does not show who has {_told(ids)}, and kubelet does not write it anew")
            found = anew.of(resource, ids)
        if not found:
            raise IdentityError(f"kubelet's checkpoint names no container for {_told(ids)} of {resource}")
        if len({entry.pod_uid for entry in found}) > 1 and not _are_apart(found):
            raise IdentityError(f"kubelet's checkpoint names several pods for {_told(ids)}: {', '.join(sorted({entry.pod_uid for entry in found}))}")
        return found

    def _is_current(self, found: list[Entry], resource: str, ids: frozenset[str]) -> bool:
        newest = self._records.newest(resource, ids)
        tokens = {entry.token for entry in found}
        return bool(found) and len({entry.pod_uid for entry in found}) == 1 and (newest is None or newest.token in tokens)

    def _claims(self, resource: str, ids: frozenset[str]) -> list[Claim]:
        """Return what PodResources says of these ids; nothing where it does not answer: the token has named the container already."""
        try:
            claims = self._kubelet.claims()
        except PodResourcesError as error:
            self._note(f"{error}; containers are told apart by kubelet's checkpoint alone")
            return []
        return sorted(claim for claim in claims if claim.resource == resource and claim.device in ids)

    @staticmethod
    def _starting(entry: Entry, pod: Pod) -> Starting:
        container = pod.container(entry.container)
        if container is None:
            raise IdentityError(f"kubelet's checkpoint names container {entry.container} of {pod.told}, which has no such container")
        return Starting(entry, pod, container)


def current_since(checkpoint: Checkpoint, records: Records, sequence: int) -> bool:
    """Tell whether a checkpoint is younger than that token: it holds one that was issued later."""
    return any((record := records.get(token)) is not None and record.sequence > sequence for token in checkpoint.tokens)


def _are_apart(entries: list[Entry]) -> bool:
    """Tell whether each has GPUs of its own, whatever ids kubelet gave it."""
    return all(entry.by_cdi for entry in entries) and len({entry.token for entry in entries}) == len(entries)


def _told(ids: frozenset[str]) -> str:
    shown = sorted(ids)
    return ", ".join(shown[:2]) + (f" and {len(shown) - 2} more ids" if len(shown) > 2 else "")
