"""What is left of containers that are gone: tokens, files, CDI specs. Collected now and then, and after a restart; nothing depends on its being soon.

Called by `plugin`. A token is forgotten when its container is gone for certain (`liveness`); one that kubelet never wrote down (the agent or kubelet ended
in the middle of Allocate) after a while. A broken-off retirement leaves the record, which goes last, so the next round ends it. Specs and files without a
record, and unknown to kubelet, are leftovers of a lost state directory.
"""

import time
from collections.abc import Callable
from typing import Final

import structlog

from topology.agent.handoff.cdi import CdiDirectory
from topology.agent.handoff.checkpoint import CheckpointError
from topology.agent.handoff.container_files import ContainerFiles
from topology.agent.handoff.hand_off import HandOff
from topology.agent.handoff.kubelet import Kubelet
from topology.agent.handoff.liveness import Liveness
from topology.agent.handoff.records import Records

_log = structlog.get_logger()

_YOUNG_S: Final = 60.0  # kubelet writes its checkpoint within milliseconds of Allocate


class Garbage:
    """Collects it."""

    def __init__(self, hand_off: HandOff, liveness: Liveness, kubelet: Kubelet, records: Records, clock: Callable[[], float] = time.time) -> None:
        self._hand_off = hand_off
        self._liveness = liveness
        self._kubelet = kubelet
        self._records = records
        self._clock = clock

    def collect(self) -> int:
        """Retire every token whose container is gone, and return how many; raises OSError where a file cannot be removed."""
        try:
            known = self._kubelet.checkpoint().tokens
        except CheckpointError as error:
            _log.warning("nothing is forgotten while kubelet's checkpoint cannot be read", why=str(error))
            return 0
        suspects = [record for record in self._records.all() if record.token not in known and self._clock() - record.issued_at >= _YOUNG_S]
        gone = self._liveness.gone(suspects)
        for record in gone:
            self._hand_off.retire(record)
        return len(gone)

    def sweep(self, cdi: CdiDirectory, files: ContainerFiles) -> None:
        """Remove specs and files of tokens that neither the records nor kubelet know; at the start, before anything is written. Raises OSError."""
        cdi.sweep()
        known = {record.token for record in self._records.all()}
        try:
            known |= self._kubelet.checkpoint().tokens
        except CheckpointError:
            return
        for token in set(cdi.tokens()) - known:
            cdi.withdraw(token)
        for token in set(files.tokens()) - known:
            files.remove(token)
