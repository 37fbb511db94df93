"""An API server in a few lines: it keeps pods, takes Bindings, and tells a watch what changed, all as late or as wrongly as a test wants.

`machine` puts it behind the doors that the extender has: it is the binder, and it is the source of pods. Pods are never changed in place, so an event that is
delivered late shows the pod as it was then. Time is the machine's.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from extender.protocol import Binding, BindResult, BindVerdict

JsonObject = dict[str, Any]
NAMESPACE = "default"
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"


class Answer(Enum):
    """What becomes of a Binding that is posted."""

    TAKEN = "taken"
    REFUSED = "refused"
    UNHEARD = "taken, but the answer is lost"
    LOST = "lost on its way"
    LATE = "the caller's patience ends first; it may still be taken until its own deadline"


@dataclass(frozen=True)
class Late:
    """A Binding on its way; the server takes it until ``until`` at the latest."""

    binding: Binding
    until: float


def nobody_listens(uid: str, pod: JsonObject | None) -> None:
    """A watch that ends nowhere."""


@dataclass
class ApiServer:
    """Pods by name, all in one namespace; ``tell`` is the watch: a pod's UID, and the pod as it is now or None where it is gone."""

    clock: Callable[[], float]
    tell: Callable[[str, JsonObject | None], None]
    pods: dict[str, JsonObject] = field(default_factory=dict)
    posts: list[Binding] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    answers: dict[str, list[Answer]] = field(default_factory=dict)  # by UID, for the posts to come; TAKEN where none is left
    bound_to: dict[str, str] = field(default_factory=dict)  # UID -> node, for ever
    seen: set[str] = field(default_factory=set)  # UIDs of all pods that ever were

    # --- the binder's door ---

    async def bind(self, binding: Binding, timeout_s: float) -> BindResult:
        self.posts.append(binding)
        answers = self.answers.get(binding.uid)
        answer = answers.pop(0) if answers else Answer.TAKEN
        await asyncio.sleep(0)  # others run while it is on its way
        if answer is Answer.REFUSED:
            return BindResult(BindVerdict.REFUSED, "forbidden by a quota")
        if answer is Answer.LOST:
            return BindResult(BindVerdict.UNKNOWN, "connection reset")
        if answer is Answer.LATE:
            self.late.append(Late(binding, self.clock() + timeout_s))
            return BindResult(BindVerdict.UNKNOWN, "time-out")
        if self._gone(binding):
            return BindResult(BindVerdict.REFUSED, "404 Not Found")
        if not self._take(binding):
            return BindResult(BindVerdict.UNKNOWN, "409 Conflict")
        await asyncio.sleep(0)
        return BindResult(BindVerdict.UNKNOWN, "connection reset") if answer is Answer.UNHEARD else BindResult(BindVerdict.BOUND)

    async def read_pod(self, namespace: str, name: str) -> JsonObject | None:
        pod = self.pods.get(name)
        await asyncio.sleep(0)  # the answer is on its way, and may be old when it arrives
        return pod

    # --- what time and users do ---

    def create(self, pod: JsonObject) -> None:
        self.seen.add(pod["metadata"]["uid"])
        self._put(pod)

    def change(self, name: str, **parts: JsonObject) -> None:
        """Replace fields of metadata, spec or status."""
        pod = self.pods[name]
        self._put({**pod, **{part: {**pod[part], **fields} for part, fields in parts.items()}})

    def delete(self, name: str) -> None:
        pod = self.pods.pop(name)
        self.tell(pod["metadata"]["uid"], None)

    def land(self, late: Late) -> None:
        """Take a Binding whose caller has given up."""
        self.late.remove(late)
        if not self._gone(late.binding):
            self._take(late.binding)

    def expire(self) -> None:
        """Drop what is past its own deadline."""
        self.late = [late for late in self.late if late.until >= self.clock()]

    def _gone(self, binding: Binding) -> bool:
        return binding.name not in self.pods

    def _take(self, binding: Binding) -> bool:
        """Put node and annotations on the pod in one write; False for the four causes of 409."""
        pod = self.pods[binding.name]
        metadata = pod["metadata"]
        if metadata["uid"] != binding.uid or metadata.get("deletionTimestamp") or pod["spec"].get("nodeName"):
            return False
        self.bound_to[binding.uid] = binding.node
        self.change(
            binding.name,
            metadata={"annotations": {**metadata["annotations"], **binding.annotations}},
            spec={"nodeName": binding.node},
            status={"phase": "Pending" if ASSIGNED in binding.annotations else "Running"},  # gpushare's plugin has still to find it
        )
        return True

    def _put(self, pod: JsonObject) -> None:
        self.pods[pod["metadata"]["name"]] = pod
        self.tell(pod["metadata"]["uid"], pod)
