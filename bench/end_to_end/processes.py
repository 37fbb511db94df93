"""CPU seconds and resident memory of programs, as Linux tells them in /proc.

On few cores everything competes: what a program takes from the others counts as much as how long it is waited for.
"""

import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_KIB_PER_MIB: Final = 1024
OWN: Final = "load"  # this process: creates, watches, measures


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds by program since its start."""

    seconds: Mapping[str, float]

    def since(self, before: "Cpu") -> "Cpu":
        """Return what was used since an earlier reading; a program that is new was not there before."""
        return Cpu({name: value - before.seconds.get(name, 0.0) for name, value in self.seconds.items()})


def read_cpu(pids: Mapping[str, int]) -> Cpu:
    """Return the CPU seconds of these processes and of this one."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return Cpu({**{name: cpu_seconds(Path(f"/proc/{pid}/stat").read_text()) for name, pid in pids.items()}, OWN: own.ru_utime + own.ru_stime})


def cpu_seconds(stat: str) -> float:
    """Return the seconds in user and kernel mode that /proc/PID/stat tells, those of children that have ended among them; the program's name may hold brackets."""
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def resident_mib(status: str) -> float:
    """Return MiB in memory that /proc/PID/status tells; 0 for one that has ended."""
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / _KIB_PER_MIB
    return 0.0


def read_resident_mib(pid: int) -> float:
    """Return the resident memory of a process, MiB."""
    return resident_mib(Path(f"/proc/{pid}/status").read_text())


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found
