"""A machine within the machine: mount and process namespaces of its own, in which one node of a test lives.

`tests.e2e.node` starts containerd, kubelet and agents inside. kubelet's device-plugin sockets are always under /var/lib/kubelet/device-plugins, whatever
its flags say; here that path, /run, /var/log and what an agent keeps are folders of the test, so that several nodes can live on one machine, beside a real one, and every
program inside has the paths that it has on a real node. Kernel settings that kubelet would change for the whole machine are hidden behind files that say
what it wants to read. The network is the machine's.

Process 1 inside holds everything: when it is killed the kernel ends all other processes, containers too, and drops all mounts. It ends with the test
run, however that ends (see `tests.e2e.program`). What is left are cgroups, which `tests.e2e.cgroups` removes, and files.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.node_needs import FromDistribution
from tests.e2e.program import Program, wait_until

KUBELET = "/var/lib/kubelet"
STATE = "/var/lib/linkwise"  # what an agent keeps on its node

# kubelet sets these where they differ (setupKernelTunables in pkg/kubelet/cm): an overcommitting kernel that panics and reboots 10 s after an oops.
_TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}

# Reaps by ignoring: containers outlive their shims' forks, and kubelet's and runc's orphans land here.
_HOLD = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True: signal.pause()"


class Enclosure:
    """The namespaces of one node; ``directory`` is its own, and what it has of /run, /var/log and /var/lib/kubelet lies there."""

    def __init__(self, directory: Path, tools: FromDistribution) -> None:
        self.directory = directory
        self._tools = tools
        self._holder = Program("enclosure", self._command(), directory / "enclosure.log")
        self._init = 0

    @property
    def run(self) -> Path:
        """What is /run inside."""
        return self.directory / "run"

    @property
    def log(self) -> Path:
        """What is /var/log inside."""
        return self.directory / "log"

    @property
    def kubelet(self) -> Path:
        """What is /var/lib/kubelet inside."""
        return self.directory / "kubelet"

    @property
    def state(self) -> Path:
        """What is /var/lib/linkwise inside."""
        return self.directory / "state"

    def start(self) -> "Enclosure":
        """Make the namespaces; they are there when this returns."""
        for folder in (self.run, self.log, self.kubelet, self.state, Path(KUBELET), Path(STATE)):
            folder.mkdir(parents=True, exist_ok=True)
        for name, value in _TUNABLES.items():
            self._tunable(name).write_text(f"{value}\n")
        ready = self.run / "enclosed"
        ready.unlink(missing_ok=True)
        self._holder.start().wait_ready(ready.exists)
        self._init = _only_child(self._holder.pid)
        return self

    def kill(self) -> None:
        """End every process inside, at once, as a power cut would, and with them all mounts."""
        self._holder.kill()

    def running(self) -> bool:
        """Whether it exists."""
        return self._holder.running()

    def program(self, name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> "InsideProgram":
        """Return a program to be started inside."""
        return InsideProgram(name, command, log, environment, enclosure=self)

    def call(self, *command: str | Path) -> str:
        """Run a command inside and return what it printed; a failure is an AssertionError with its stderr."""
        done = subprocess.run(self.entering(command), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def entering(self, command: Sequence[str | Path]) -> list[str | Path]:
        """Return the command that runs another one inside."""
        return [self._tools.nsenter, f"--target={self._init}", "--mount", "--pid", "--", *command]

    def _tunable(self, name: str) -> Path:
        return self.directory / f"sysctl-{name.replace('/', '-')}"

    def _command(self) -> list[str | Path]:
        binds = {
            "/run": self.run,
            "/var/log": self.log,
            KUBELET: self.kubelet,
            STATE: self.state,
            **{f"/proc/sys/{name}": self._tunable(name) for name in _TUNABLES},
        }
        script = "".join(f"mount --bind '{source}' '{target}' && " for target, source in binds.items())
        script += f"touch /run/enclosed && exec '{sys.executable}' -c '{_HOLD}'"
        return [self._tools.unshare, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]


class InsideProgram(Program):
    """A program inside an enclosure: as any other, but that what we start is nsenter, and the signals are for its child."""

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None, *, enclosure: Enclosure
    ) -> None:
        super().__init__(name, command, log, environment)
        self._inside = [str(part) for part in command]
        self._enclosure = enclosure

    def start(self) -> "InsideProgram":
        """Start the command inside; its output is appended to the log."""
        self.command = [str(part) for part in self._enclosure.entering(self._inside)]  # process 1 may be another one now
        super().start()
        return self

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            # Where nsenter has no child yet, there will be none.
            os.kill(next(iter(_children(self.pid)), self.pid), number)
        if number in (signal.SIGCONT, signal.SIGKILL):
            os.kill(self.pid, signal.SIGCONT)  # nsenter stops itself when its child is stopped; until it is reaped its id is its own


def _only_child(pid: int) -> int:
    """Return the one child of a process, once it has one."""
    return wait_until(lambda: next(iter(_children(pid)), 0), what=f"process {pid} has a child")


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found
