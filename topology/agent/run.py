"""Runs nvidia-smi, within bounds: a time-out, a limit of what it may print, and nothing of it left behind.

Called by `probe`, once a question. Returns what was printed with the exit status and judges neither (`topology.nvidia_smi.failure_in` does). Only a
tool that cannot be started, does not come back or does not stop printing is an error here; so is one that the agent, about to end, no longer waits for.

stdout and stderr are read as one text, in the order of printing: nvidia-smi puts the line about a lost GPU on either of them, depending on its version.
"""

import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from topology.errors import NvidiaSmiError, NvidiaSmiFailure

# `-q -x` prints about 25 kB a GPU and 3 kB a MIG device; 16 GPUs with 7 each stay below 1 MB.
MOST_OUTPUT_BYTES: Final = 8 * 1024 * 1024
_CHUNK: Final = 64 * 1024
_KILL_GRACE_S: Final = 1.0
_SLICE_S: Final = 0.1  # how long the agent's end waits for a call that waits


class _StoppedError(Exception):
    """The agent ends while the tool runs."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call printed, and its exit status (negative: the number of the signal that ended it)."""

    text: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class NvidiaSmi:
    """An nvidia-smi that exists: call it with its arguments. Once ``stop`` is set, a call ends at once, and what it started with it."""

    path: str
    timeout_s: float
    stop: threading.Event | None = None

    def __call__(self, *arguments: str) -> Answer:
        """Run it once; raises NvidiaSmiError where it cannot be started, does not answer in time, or prints without end."""
        try:
            return _answer([self.path, *arguments], _Patience(self.timeout_s, self.stop))
        except _StoppedError as error:
            raise NvidiaSmiError(NvidiaSmiFailure.UNKNOWN, f"{self.said(arguments)} was ended, as the agent ends") from error
        except TimeoutError as error:
            how = f"did not answer within {self.timeout_s:g} s and was ended; the driver or a GPU hangs, see dmesg"
            raise NvidiaSmiError(NvidiaSmiFailure.UNKNOWN, f"{self.said(arguments)} {how}") from error
        except OverflowError as error:
            how = f"printed more than {MOST_OUTPUT_BYTES} bytes and was ended"
            raise NvidiaSmiError(NvidiaSmiFailure.UNKNOWN, f"{self.said(arguments)} {how}") from error

    def said(self, arguments: tuple[str, ...]) -> str:
        """Return the call as people type it."""
        return " ".join([Path(self.path).name, *arguments])


class _Patience:
    """How long one call may still take, and whether it is still wanted."""

    def __init__(self, timeout_s: float, stop: threading.Event | None) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._stop = stop

    def slice_s(self) -> float:
        """Return how many seconds to wait before asking again; raises TimeoutError, _StoppedError."""
        if self._stop is not None and self._stop.is_set():
            raise _StoppedError
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left if self._stop is None else min(left, _SLICE_S)


def find_nvidia_smi(path: str | None, timeout_s: float, stop: threading.Event | None = None) -> NvidiaSmi:
    """Return the nvidia-smi at ``path``, or the one on PATH without a path; raises NvidiaSmiError of kind not_found."""
    found = shutil.which(path or "nvidia-smi")
    if found is not None:
        return NvidiaSmi(found, timeout_s, stop)
    if not path:
        raise NvidiaSmiError(
            NvidiaSmiFailure.NOT_FOUND, "nvidia-smi is not on PATH: this node has no NVIDIA driver, or its tools are not mounted here"
        )
    what = "is not an executable file" if Path(path).exists() else "does not exist"
    raise NvidiaSmiError(NvidiaSmiFailure.NOT_FOUND, f"{path} {what}; accepted: the path of nvidia-smi")


def _answer(command: list[str], patience: _Patience) -> Answer:
    """Run the command; raises TimeoutError, _StoppedError, OverflowError beyond `MOST_OUTPUT_BYTES`; either way nothing of it stays behind."""
    patience.slice_s()
    process = _started(command)
    try:
        output = _read(process, patience)
        exit_code = _exit_code(process, patience)
    except BaseException:
        _end(process)
        raise
    finally:
        _pipe(process).close()
    return Answer(output.decode("utf-8", errors="replace"), exit_code)


def _started(command: list[str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(  # noqa: S603  # a list without a shell; the path is the administrator's, the arguments are ours
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a group of its own, so that what it started ends with it
            env={**os.environ, "LC_ALL": "C"},  # the messages of a shell or loader in front of it in the language that we read
        )
    except OSError as error:
        raise NvidiaSmiError(
            NvidiaSmiFailure.NOT_FOUND, f"{command[0]} cannot be started ({error.strerror}); accepted: an executable file"
        ) from error


def _read(process: "subprocess.Popen[bytes]", patience: _Patience) -> bytes:
    """Return everything that is printed until the end of the output; raises OverflowError beyond the limit, and what ``patience`` raises."""
    pipe = _pipe(process)
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(patience.slice_s()):
                continue
            chunk = os.read(pipe.fileno(), _CHUNK)
            if not chunk:
                return bytes(output)
            output += chunk
            if len(output) > MOST_OUTPUT_BYTES:
                raise OverflowError


def _exit_code(process: "subprocess.Popen[bytes]", patience: _Patience) -> int:
    """Return the exit status; a tool may close its output and live on."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=patience.slice_s())


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End whatever is left of the process group.

    A process that waits inside the driver (state D) cannot be killed before the driver lets go: it is not waited for longer than `_KILL_GRACE_S`.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_KILL_GRACE_S)


def _pipe(process: "subprocess.Popen[bytes]") -> IO[bytes]:
    assert process.stdout is not None, "Popen was asked for a pipe"
    return process.stdout
