"""What a real node (kubelet and containerd) needs of the machine that it runs on, and whether it is here.

`tests.e2e.build` asks before it builds kubelet and containerd, the fixture `node` before it starts them. Built from Go modules is what Kubernetes and
containerd give; runc and a static busybox come from the distribution (Debian: `apt-get install runc busybox-static`), since both need C libraries or
a compiler of their own. No CNI plugins and no iptables: the pods of these tests talk to nobody (see `tests.e2e.containerd`).

Only the standard library is used here, so that it runs before anything is installed.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SBIN = "/usr/sbin:/sbin"  # where Debian puts runc; not on every PATH
_SYS_ADMIN, _MKNOD = 21, 27  # bits of a capability set, <linux/capability.h>
_INTERPRETER = 3  # PT_INTERP, <elf.h>


class NeedsError(Exception):
    """No real node can run here; the text is one sentence that says what is missing."""


@dataclass(frozen=True, slots=True)
class FromDistribution:
    """The programs that are not built."""

    runc: Path
    busybox: Path
    unshare: Path
    nsenter: Path


def from_distribution(environment: Mapping[str, str] = os.environ) -> FromDistribution:
    """Return where the programs are that are not built; raises NeedsError.

    ``environment`` replaces the process environment, for tests of this file.
    """
    if not sys.platform.startswith("linux"):
        raise NeedsError(f"a real node needs Linux, this is {sys.platform}")
    if os.geteuid() != 0:
        raise NeedsError("a real node needs root: it mounts, makes cgroups and runs containers")
    for bit, name in ((_SYS_ADMIN, "CAP_SYS_ADMIN"), (_MKNOD, "CAP_MKNOD")):
        if not _capabilities() >> bit & 1:
            raise NeedsError(f"a real node needs {name}, which this root has not; a container needs to be a privileged one")
    found = {name: _find(name, package, environment) for name, package in _PACKAGES.items()}
    if _is_dynamic(found["busybox"]):
        raise NeedsError(
            f"{found['busybox']} needs shared libraries, which an image made of it alone has not: install busybox-static in place of busybox"
        )
    return FromDistribution(**found)


def why_not(environment: Mapping[str, str] = os.environ) -> str:
    """Return why no real node can run here, empty if it can."""
    try:
        from_distribution(environment)
    except NeedsError as error:
        return str(error)
    return ""


# Program -> Debian package.
_PACKAGES = {"runc": "runc", "busybox": "busybox-static", "unshare": "util-linux", "nsenter": "util-linux"}


def _find(name: str, package: str, environment: Mapping[str, str]) -> Path:
    path = shutil.which(name, path=f"{environment.get('PATH', '')}:{_SBIN}")
    if path is None:
        raise NeedsError(f"a real node needs {name}, which is not on the PATH: apt-get install {package}")
    return Path(path)


def _capabilities() -> int:
    """Return this process's effective capabilities."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16)


def _is_dynamic(program: Path) -> bool:
    """Whether a 64-bit ELF file asks for a dynamic loader."""
    head = program.read_bytes()[:4096]
    start, size, count = int.from_bytes(head[32:40], "little"), int.from_bytes(head[54:56], "little"), int.from_bytes(head[56:58], "little")
    kinds = (int.from_bytes(head[at : at + 4], "little") for at in range(start, start + size * count, size))
    return _INTERPRETER in kinds
