"""The cgroups of one node of a test: one folder of its own, in each hierarchy of version 1 or in the only one of version 2.

kubelet is told this folder as its root (`tests.e2e.kubelet`) and makes all its pods' below; `tests.e2e.node` makes it, and removes it when every process
inside has ended.
"""

import contextlib
import os
from pathlib import Path

from tests.e2e.program import wait_until

_ROOT = Path("/sys/fs/cgroup")
# What kubelet accounts pods by. "hugetlb" and "io" are left out where the machine has none.
_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


def is_v2() -> bool:
    """Whether the machine has the one unified hierarchy."""
    return (_ROOT / "cgroup.controllers").exists()


def make(name: str) -> None:
    """Make the cgroup, with every controller that the machine has to give."""
    for hierarchy in _hierarchies():
        made = hierarchy / name
        made.mkdir(exist_ok=True)
        if is_v2():
            _hand_down(hierarchy)
        for fact in ("cpuset.cpus", "cpuset.mems"):  # version 1: a new cpuset has no CPU, and takes no process
            if not is_v2() and (hierarchy / fact).exists() and not (made / fact).read_text().strip():
                (made / fact).write_text((hierarchy / fact).read_text())


def show(name: str, folder: Path) -> Path:
    """Make ``folder`` look like the cgroup filesystem of a machine that has this node alone: kubelet's cgroups stand at its top. Returns it."""
    if is_v2():
        folder.symlink_to(_ROOT / name)
        return folder
    folder.mkdir()
    for hierarchy in _hierarchies():
        (folder / hierarchy.name).symlink_to(hierarchy / name)
    return folder


def left(name: str) -> list[Path]:
    """Return the cgroups of that name and below, deepest first."""
    # os.walk passes over what kubelet removes while we look.
    found = [Path(path) for hierarchy in _hierarchies() for path, _, _ in os.walk(hierarchy / name)]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def processes(name: str) -> set[int]:
    """Return the processes in these cgroups."""
    found: set[int] = set()
    for cgroup in left(name):
        with contextlib.suppress(OSError):
            found.update(map(int, (cgroup / "cgroup.procs").read_text().split()))
    return found


def remove(name: str) -> None:
    """Remove the cgroup and all below; its processes have been killed, and may take a moment to be gone."""
    wait_until(lambda: not processes(name), what=f"the processes in cgroup {name} have ended")
    for cgroup in left(name):
        wait_until(lambda cgroup=cgroup: _removed(cgroup), what=f"{cgroup} is removed")


def _removed(cgroup: Path) -> bool:
    try:
        cgroup.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # busy for a moment after its last process
        return False
    return True


def _hierarchies() -> list[Path]:
    return [_ROOT] if is_v2() else sorted(path for path in _ROOT.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink())


def _hand_down(parent: Path) -> None:
    """Let the children of a cgroup of version 2 have its controllers; one that cannot be had is left out, kubelet says which one it misses."""
    for controller in set(_CONTROLLERS) & set((parent / "cgroup.controllers").read_text().split()):
        with contextlib.suppress(OSError):
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")
