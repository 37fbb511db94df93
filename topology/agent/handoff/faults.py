"""Named points of the hand-off at which a test can end the agent, or make it fail: what is on disk then must be enough for the next one.

`hand_off` and `garbage` pass through them. In an agent that runs, nothing happens at a point, unless the file `LINKWISE_AGENT_FAULT_FILE` names it: then the
process is killed there, as a power cut would do it; that is for tests on a real kubelet.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

Fault = Callable[[str], None]

ALLOCATE_BEFORE_RECORD: Final = "allocate-before-record"
ALLOCATE_AFTER_RECORD: Final = "allocate-after-record"
START_BEFORE_IDENTITY: Final = "start-before-identity"
START_AFTER_IDENTITY: Final = "start-after-identity"
START_AFTER_HOLDING: Final = "start-after-holding"  # what the container holds is on disk, nothing else yet
START_AFTER_FILES: Final = "start-after-files"
START_AFTER_SPEC: Final = "start-after-spec"
RETIRE_AFTER_SPEC: Final = "retire-after-spec"
RETIRE_AFTER_FILES: Final = "retire-after-files"

POINTS: Final = (
    ALLOCATE_BEFORE_RECORD,
    ALLOCATE_AFTER_RECORD,
    START_BEFORE_IDENTITY,
    START_AFTER_IDENTITY,
    START_AFTER_HOLDING,
    START_AFTER_FILES,
    START_AFTER_SPEC,
    RETIRE_AFTER_SPEC,
    RETIRE_AFTER_FILES,
)


def no_fault(_point: str) -> None:
    """Pass every point."""


def killed_by(file: Path) -> Fault:
    """Return what kills this process at the point that a file names, once: the file goes first. It may come while the process runs."""

    def pass_or_die(here: str) -> None:
        if file.exists() and file.read_text(encoding="utf-8") == here:
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    return pass_or_die
