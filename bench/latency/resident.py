"""How much memory a process holds and how much processor time it took, as the kernel counts them.

Used by `bench.scale`. VmRSS is what is resident now, VmHWM the most that ever was; both in MiB. Processor time is of all threads, and leaves out what else the machine did meanwhile.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from topology.errors import InputError


@dataclass(frozen=True, slots=True)
class Resident:
    """Resident memory of a process in MiB: now, and at its most."""

    now_mib: float
    peak_mib: float


def resident(pid: int | str) -> Resident:
    """Return what a process holds; raises InputError where there is no /proc."""
    try:
        return parse(Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"memory of process {pid} is read from /proc, as Linux has it: {error.strerror}") from error


def processor_s(pid: int) -> float:
    """Return seconds of processor time since the process began; raises InputError where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError as error:
        raise InputError(f"processor time of process {pid} is read from /proc, as Linux has it: {error.strerror}") from error
    return sum(int(field) for field in fields[11:13]) / os.sysconf("SC_CLK_TCK")  # utime and stime, see proc(5)


def parse(status: str) -> Resident:
    r"""Return what /proc/PID/status says.

    >>> parse("Name: x\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n")
    Resident(now_mib=1.0, peak_mib=2.0)
    """
    values = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    now, peak = (int(values[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
    return Resident(now, peak)
