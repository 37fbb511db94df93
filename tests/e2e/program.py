"""One process of a test: started with a log file, watched until it is ready, ended by its own pid.

`tests.e2e.control_plane` starts etcd and the Kubernetes programs with it; tests start `linkwise serve` and `linkwise agent`. `stop`, `kill`, `pause`
(SIGSTOP) and `resume` are the four things that a test does to a process; `start` after `stop` or `kill` starts the same command again.

A test run that is itself killed leaves no control plane behind: one watchdog process knows the pids and ends them when this process is gone.
Nothing here looks for processes by name.
"""

import atexit
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

POLL_S = 0.05

T = TypeVar("T")


class StartError(Exception):
    """A program ended early or was not ready in time; the text holds the end of its log."""


def wait_until(condition: Callable[[], T], timeout: float = 10, what: str = "") -> T:
    """Return the first true value of ``condition``, asked every 50 ms; raises AssertionError after ``timeout`` seconds with the last value seen."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what or getattr(condition, '__name__', condition)}; last seen: {value!r}")
        time.sleep(POLL_S)


_handed_out: set[int] = set()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on, never the same twice.

    Ports above 32767 are left to the kernel (ip_local_port_range): it may give one of those to an outgoing connection before our program listens.
    """
    for _ in range(200):
        port = random.randrange(20000, 32768)
        if port in _handed_out:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _handed_out.add(port)
        return port
    raise StartError("no free port between 20000 and 32767 in 200 tries")


class Program:
    """A command with its log. ``environment`` is added to this process's environment."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id; raises AssertionError where it was never started."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def running(self) -> bool:
        """Whether the process exists (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> "Program":
        """Start the command; its output is appended to the log."""
        assert not self.running(), f"{self.name} is running already"
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches pytest alone, whose fixtures then end the programs in order.
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self._environment, start_new_session=True
            )
        _watchdog.add(self.pid)
        return self

    def wait_ready(self, ready: Callable[[], object], timeout: float = 30) -> "Program":
        """Wait until ``ready`` returns something true; raises StartError with the end of the log when it ends or takes too long."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running():
                raise StartError(f"{self.name} ended with status {self._process and self._process.returncode}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} was not ready within {timeout:g} s\n{self.tail()}")
            time.sleep(POLL_S)
        return self

    def wait_log(self, pattern: str, timeout: float = 30) -> "re.Match[str]":
        """Wait for the first match of a regular expression in the log, and return it."""
        found: list[re.Match[str]] = []

        def seen() -> bool:
            match = re.search(pattern, self.text(), re.MULTILINE)
            found.extend([match] if match else [])
            return match is not None

        self.wait_ready(seen, timeout)
        return found[0]

    def stop(self, timeout: float = 15) -> int:
        """Ask it to end (SIGTERM), kill it after ``timeout`` seconds; returns its exit status, -9 for a kill."""
        if self._process is None:
            return 0
        if self.running():
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
        return self._reap()

    def kill(self) -> None:
        """End it at once, as a power cut would (SIGKILL)."""
        if self._process is not None:
            if self.running():
                self._signal(signal.SIGKILL)
            self._reap()

    def pause(self) -> None:
        """Stop the process in mid-air (SIGSTOP): connections stay open, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process run on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def text(self) -> str:
        """Everything it has written so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def tail(self, lines: int = 30) -> str:
        """Return the last lines of the log, under a heading."""
        return "\n".join([f"--- {self.log}, last {lines} lines; started as: {' '.join(self.command)}", *self.text().splitlines()[-lines:]])

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def _reap(self) -> int:
        assert self._process is not None
        status = self._process.wait(10)
        _watchdog.remove(self._process.pid)
        return status


# Reads "+PID" and "-PID" lines; the end of the input means that the test process is gone, however it went.
_WATCHDOG = """
import os, signal, sys
pids = set()
for line in sys.stdin:
    (pids.add if line[0] == "+" else pids.discard)(int(line[1:]))
for pid in pids:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class _Watchdog:
    """The process that ends our programs when this process has been killed; started with the first program."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[Any] | None = None

    def add(self, pid: int) -> None:
        if self._process is None:
            self._process = subprocess.Popen([sys.executable, "-c", _WATCHDOG], stdin=subprocess.PIPE, text=True, start_new_session=True)
            atexit.register(self.close)
        self._tell(f"+{pid}\n")

    def remove(self, pid: int) -> None:
        self._tell(f"-{pid}\n")

    def close(self) -> None:
        """Programs that are still running now are ended too."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(10)
            self._process = None

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(line)
            self._process.stdin.flush()


_watchdog = _Watchdog()
