"""kubelet's two views of who holds what, put together: its checkpoint (pods by UID, with our tokens) and PodResources (pods by name).

Used by `identity` and `liveness`. The checkpoint is written when something is given away, so it may still tell of a pod that has ended since. Where that
matters, kubelet is made to write it anew: a PodResources List lets it drop the pods that have ended, and any news on ListAndWatch lets it write the file,
so the unchanged list of devices is sent once more (``nudge``). What stands in the file after that is what kubelet knows now.

PodResources is one question for everybody who asks at the same time: kubelet grants 100 calls a second to all its clients together. It is not asked while an
Allocate of ours is answered: the question lets kubelet forget what it is just giving away, if a pod ends meanwhile, and give it to the next pod as well (see `identity`).
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from topology.agent.handoff.checkpoint import Checkpoint, CheckpointFile
from topology.agent.pod_resources import Claim, PodResourcesError, list_aligned, list_claims

_REWRITTEN_WITHIN_S: Final = 2.0  # kubelet does so in milliseconds, one fsync
_LOOK_EVERY_S: Final = 0.01
_LISTED_WITHIN_S: Final = 0.1  # kubelet's loop waits for Allocate, so it is not held up longer, not even by a List that hangs


class Kubelet:
    """kubelet's records; ``nudge`` sends the lists of devices once more."""

    def __init__(
        self,
        plugin_directory: Path,
        pod_resources: Path,
        nudge: Callable[[], None],
        ask: Callable[[Path], frozenset[Claim]] = list_claims,
    ) -> None:
        self._file = CheckpointFile(plugin_directory)
        self._socket = pod_resources
        self._nudge = nudge
        self._ask = ask
        self._lock = threading.Lock()
        self._asked: tuple[float, frozenset[Claim] | PodResourcesError] = (float("-inf"), frozenset())

    def checkpoint(self) -> Checkpoint:
        """Return what kubelet wrote last; raises CheckpointError."""
        return self._file.read()

    def rewritten(self) -> Checkpoint | None:
        """Return what kubelet knows now, None where it could not be made to write it; raises CheckpointError."""
        with suppress(PodResourcesError):  # then pods that have ended may still be in it, which is the safe side
            self.claims()
        before = self._file.stamp()
        self._nudge()
        deadline = time.monotonic() + _REWRITTEN_WITHIN_S
        while self._file.stamp() == before:
            if time.monotonic() >= deadline:
                return None
            time.sleep(_LOOK_EVERY_S)
        return self._file.read()

    def aligned(self, own: Collection[str]) -> frozenset[tuple[str, str, str]]:
        """Return the containers that have CPUs, memory or devices for themselves beside those of ``own`` resources, as `list_aligned` does."""
        with self._lock:
            return list_aligned(self._socket, own)

    @contextmanager
    def giving_away(self) -> Iterator[None]:
        """Keep questions of this agent apart from what kubelet is giving away within; others that ask PodResources cannot be kept."""
        is_apart = self._lock.acquire(timeout=_LISTED_WITHIN_S)
        try:
            yield
        finally:
            if is_apart:
                self._lock.release()

    def claims(self) -> frozenset[Claim]:
        """Return which container holds which device, as kubelet tells it to a question asked now; raises PodResourcesError."""
        came_at = time.monotonic()
        with self._lock:
            asked_at, answer = self._asked
            if asked_at < came_at:  # who waited for a question that was asked after they came takes its answer
                asked_at = time.monotonic()
                answer = self._answer()
                self._asked = (asked_at, answer)
        if isinstance(answer, PodResourcesError):  # for all who waited: one after the other, they would wait longer than kubelet does for a start
            raise PodResourcesError(str(answer), absent=answer.absent) from answer
        return answer

    def _answer(self) -> frozenset[Claim] | PodResourcesError:
        try:
            return self._ask(self._socket)
        except PodResourcesError as error:
            return error
