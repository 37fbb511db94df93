"""Which calls a fault hits, and how a test follows it: the half of `fault_proxy` that tests hold in their hands.

A `Rule` is made by the methods of `FaultProxy` and applies to the calls whose method and path match, the first ``times`` of them. It is read in the
proxy's thread and changed in the test's, so everything behind its lock is small.
"""

import re
import threading
from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """What happens to a call; before or after it is forwarded."""

    DELAY = "delay"  # before: wait, then forward, even if the caller has given up
    HOLD = "hold"  # before: wait for `release`
    DROP = "drop"  # before: close the connection, never forward
    ANSWER = "answer"  # before: answer with a status, never forward
    HOLD_ANSWER = "hold answer"  # after: the API server has answered, the caller learns it on `release`
    ANSWER_AFTER = "answer after send"  # after: the API server has answered, the caller gets a status instead
    CUT = "cut after send"  # after: the API server has answered, the connection is closed instead
    LAG = "hold watch events"  # watches: bytes arrive so much later


class Rule:
    """One fault. Paths are searched for ``path`` (a regular expression; without the query), methods must match in full."""

    def __init__(
        self, fault: Fault, method: str, path: str, *, times: int | None = None, seconds: float = 0, status: int = 0, retry_after_s: int | None = None
    ) -> None:
        self.fault = fault
        self.seconds = seconds
        self.status = status
        self.retry_after_s = retry_after_s
        self._method = re.compile(method)
        self._path = re.compile(path)
        self._left = times
        self._changed = threading.Condition()
        self._hits = 0
        self._released = False
        self._removed = False

    @property
    def hits(self) -> int:
        """How many calls it has hit so far."""
        with self._changed:
            return self._hits

    def wait_hit(self, timeout: float = 10, count: int = 1) -> None:
        """Wait until ``count`` calls were hit: HOLD has the call in its hands then, HOLD_ANSWER and CUT the API server's answer to it."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._hits >= count, timeout), (
                f"not within {timeout:g} s: {self.fault.value} {self._method.pattern} {self._path.pattern} hit {self._hits} of {count} calls"
            )

    def release(self) -> None:
        """Let go of the calls that a HOLD or HOLD_ANSWER has, and of those to come."""
        with self._changed:
            self._released = True

    def remove(self) -> None:
        """End the fault: no further call is hit, held ones go on, watch events come through."""
        with self._changed:
            self._removed = self._released = True

    # For the proxy

    @property
    def released(self) -> bool:
        """Whether held calls may go on."""
        with self._changed:
            return self._released

    def matches(self, method: str, path: str) -> bool:
        """Whether it applies to such a call, without using it up."""
        with self._changed:
            fits = not self._removed and self._left != 0
        return fits and self._method.fullmatch(method) is not None and self._path.search(path) is not None

    def take(self, method: str, path: str) -> bool:
        """Whether it applies to this call; if so one of its ``times`` is used up."""
        if not self.matches(method, path):
            return False
        with self._changed:
            if self._left is not None:
                self._left -= 1
        return True

    def hit(self) -> None:
        """Count a call as hit and tell who waits for it."""
        with self._changed:
            self._hits += 1
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class Seen:
    """One call that reached the proxy; ``status`` is the API server's, None while unknown, or where it was never asked or never answered."""

    method: str
    path: str
    query: str
    body: bytes
    status: int | None
