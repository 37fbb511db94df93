"""Why a container does not start: a reason for the counters, and a sentence that kubelet shows on the pod."""

from collections.abc import Iterable

from topology.agent.handoff.holding import Holding
from topology.errors import LinkwiseError


class RefusedStartError(LinkwiseError):
    """The container does not start now. ``may_pass``: it may within seconds, once ``blockers`` are gone."""

    def __init__(self, reason: str, message: str, *, blockers: Iterable[Holding] = (), may_pass: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.blockers = tuple(blockers)
        self.may_pass = may_pass
