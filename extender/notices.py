"""What the owner of a pod should hear: a door for events, so that whoever notices something need not know an API server.

`verbs` and `cluster` speak, `kube.events` posts; on a snapshot nobody listens.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class NoticeReason(StrEnum):
    """Reasons of our events; CamelCase, as Kubernetes writes them."""

    PLACED = "LinkwisePlaced"
    ALLOCATION_IGNORED = "LinkwiseAllocationIgnored"
    ALLOCATION_EDITED = "LinkwiseAllocationEdited"
    HOLDS_OTHER = "LinkwiseHoldsOther"
    BIND_FAILED = "LinkwiseBindFailed"

    @property
    def is_warning(self) -> bool:
        """Everything but a placement is a warning."""
        return self is not NoticeReason.PLACED


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence about one pod."""

    namespace: str
    name: str
    uid: str
    reason: NoticeReason
    message: str


class Recorder(Protocol):
    """Where notices go."""

    def record(self, notice: Notice) -> None:
        """Take a notice; returns at once and never raises."""
        ...


class Silence:
    """The recorder for a snapshot: nobody listens."""

    def record(self, notice: Notice) -> None:
        """Drop the notice."""
