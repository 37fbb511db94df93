"""Looks at the hardware again and again, in a thread of its own: nvidia-smi may take seconds, or hang, while heartbeats and holders go on.

Started by `running`, which is woken after each look and takes the latest. Goes faster while something is broken, so that a repaired GPU is usable within
seconds, and slower on a node without GPUs. `stop` ends a look that is under way, and the nvidia-smi that it waits for.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from topology.agent.probe import look
from topology.agent.publication import Facts
from topology.agent.settings import AgentSettings
from topology.errors import InputError, InternalError, LinkwiseError, NvidiaSmiError, NvidiaSmiFailure

_log = structlog.get_logger()

ABSENT: Final = frozenset({NvidiaSmiFailure.NO_DEVICES, NvidiaSmiFailure.NOT_FOUND})  # nothing here says that the node ever had a GPU
_JOIN_S: Final = 3.0  # nvidia-smi is killed at once, and waited for up to a second


@dataclass(frozen=True, slots=True)
class Look:
    """What one look gave: either facts or the error that was in the way; ``seconds`` is how long it took."""

    facts: Facts | None
    error: LinkwiseError | None
    seconds: float

    @property
    def no_gpus(self) -> bool:
        """Whether nvidia-smi, or its absence, says that there are no GPUs."""
        return isinstance(self.error, NvidiaSmiError) and self.error.kind in ABSENT

    @property
    def all_well(self) -> bool:
        """Whether every GPU was seen working."""
        return self.facts is not None and not any(gpu.lost for gpu in self.facts.inventory.gpus)


class Prober:
    """The thread; ``looked`` is called in it after every look."""

    def __init__(self, settings: AgentSettings, looked: Callable[[Look], None]) -> None:
        self._settings = settings
        self._looked = looked
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        self.expects_gpus = False  # set once the node is known to have, or to have had, GPUs: then their absence is a failure

    def start(self) -> None:
        """Begin with the first look."""
        self._thread.start()

    def stop(self) -> None:
        """End, with the look that is under way."""
        self._stop.set()
        self._thread.join(_JOIN_S)

    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            found = self._look()
            if self._stop.is_set():
                return
            self._looked(found)
            self._stop.wait(self._pause_s(found))

    def _look(self) -> Look:
        started = time.monotonic()
        try:
            facts = look(self._settings, self._stop)
        except InputError as error:
            return Look(None, error, time.monotonic() - started)
        except Exception as error:  # noqa: BLE001  # our bug must not leave the node silent: told like a failing driver, and in the log
            _log.exception("the probe failed on its own account")
            return Look(None, InternalError(f"the probe failed, which is a bug in Linkwise: {error!r}"), time.monotonic() - started)
        return Look(facts, None, time.monotonic() - started)

    def _pause_s(self, found: Look) -> float:
        if found.facts is not None:
            self.expects_gpus = True
        if found.all_well:
            return self._settings.probe_every_s
        if found.no_gpus and not self.expects_gpus:
            return self._settings.no_gpu_every_s
        return min(self._settings.failing_every_s, self._settings.probe_every_s)
