"""Looks at the hardware again and again, in a thread of its own: nvidia-smi may take seconds, or hang, while heartbeats and holders go on.

Started by `running`, which is woken after each look and takes the latest. Between two looks it glances at who is there: a GPU that is lost, or is back, is
looked at within seconds. Looks come faster while something is broken, and slower on a node without GPUs. `stop` ends a look that is under way, and the nvidia-smi that it waits for.
"""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from topology.agent.probe import glance, look
from topology.agent.publication import Facts
from topology.agent.settings import AgentSettings
from topology.errors import InputError, InternalError, LinkwiseError, NvidiaSmiError, NvidiaSmiFailure

_log = structlog.get_logger()

ABSENT: Final = frozenset({NvidiaSmiFailure.NO_DEVICES, NvidiaSmiFailure.NOT_FOUND})  # nothing here says that the node ever had a GPU
# How nvidia-smi fails in a container that systemd has taken the device files from (`systemctl daemon-reload`), or that has the library of the driver before
# this one: on the node itself it may work. "Driver Not Loaded" is not among them, for there is nothing that a new container would find.
_CUT_OFF: Final = re.compile(r"failed to initialize NVML(?!.*not loaded)|driver/library version mismatch", re.IGNORECASE)
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
    def is_cut_off(self) -> bool:
        """Whether nvidia-smi fails as it does where it is this container that has lost the driver, and maybe not the node."""
        return is_cut_off(self.error)

    @property
    def all_well(self) -> bool:
        """Whether every GPU was seen working."""
        return self.facts is not None and not any(gpu.lost for gpu in self.facts.inventory.gpus)


def is_cut_off(error: LinkwiseError | None) -> bool:
    """Tell whether nvidia-smi failed as it does where it is this container that has lost the driver, and maybe not the node."""
    return isinstance(error, NvidiaSmiError) and _CUT_OFF.search(str(error)) is not None


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
            self._wait(found)

    def _wait(self, found: Look) -> None:
        """Wait for the time of the next look, for other GPUs than this one found, or for the end."""
        until = time.monotonic() + self._pause_s(found)
        while (left_s := until - time.monotonic()) > 0:
            pause_s = self._glance_pause_s(found)
            if self._stop.wait(min(left_s, pause_s)) or (pause_s < left_s and self._has_changed(found)):
                return

    def _glance_pause_s(self, found: Look) -> float:
        """Return how long to wait for a glance: a driver that takes long, as one without persistence mode does, is not kept busy."""
        return max(self._settings.glance_every_s, found.seconds)

    def _has_changed(self, found: Look) -> bool:
        if found.facts is None:
            return False
        try:
            return glance(self._settings, self._stop) != found.facts.answering
        except Exception:  # noqa: BLE001  # whatever it is, a look finds out and tells
            return True

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
