"""Whether a pod still has processes, as the kernel knows it: by the pod's cgroup, which kubelet names after its UID.

Used by `liveness`. This is the one witness that outlasts everybody's records: kubelet forgets a pod that was deleted by force while its containers still have
their grace period. Reads, never writes. Known layouts: kubelet's cgroupfs driver (``kubepods/burstable/pod<uid>``) and its systemd driver
(``kubepods-burstable-pod<uid>.slice``), on cgroup v2 and v1. Where nothing of kubelet is found, nothing is known.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

# On v1 a hierarchy a controller; any of them shows the processes.
_HIERARCHIES: Final = (".", "pids", "memory", "cpu", "systemd")
_CLASSES: Final = ("", "burstable", "besteffort")


class Cgroups:
    """The cgroup filesystem of the node, mounted at ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def has_processes(self, pod_uid: str) -> bool | None:
        """Tell whether a pod has processes, None where kubelet's cgroups are not to be seen."""
        trees = [tree for tree in self._trees() if tree.is_dir()]
        if not trees:
            return None
        return any(_is_populated(pod) for tree in trees for pod in _pod(tree, pod_uid) if pod.is_dir())

    def _trees(self) -> Iterator[Path]:
        for hierarchy in _HIERARCHIES:
            yield self._root / hierarchy / "kubepods"
            yield self._root / hierarchy / "kubepods.slice"


def _pod(tree: Path, uid: str) -> Iterator[Path]:
    """Yield where a pod's cgroup would be, one a class of service."""
    for service in _CLASSES:
        if tree.name == "kubepods":
            yield tree / service / f"pod{uid}"
            continue
        prefix = f"kubepods-{service}" if service else "kubepods"
        within = tree / f"{prefix}.slice" if service else tree
        yield within / f"{prefix}-pod{uid.replace('-', '_')}.slice"


def _is_populated(cgroup: Path) -> bool:
    """Tell whether there is a process in it or below; what vanishes meanwhile has none."""
    try:
        events = (cgroup / "cgroup.events").read_text(encoding="ascii")  # v2 says it in a word
    except OSError:
        return any(_processes(path) for path in (cgroup, *_below(cgroup)))
    return "populated 1" in events


def _below(cgroup: Path) -> list[Path]:
    try:
        return [path for path in cgroup.rglob("*") if path.is_dir()]
    except OSError:
        return []


def _processes(cgroup: Path) -> bool:
    try:
        return bool((cgroup / "cgroup.procs").read_text(encoding="ascii").strip())
    except OSError:
        return False
