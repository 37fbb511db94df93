"""Whether a pod still has processes, as the kernel knows it: by the pod's cgroup, which kubelet names after its UID.

Used by `liveness`. This is the one witness that outlasts everybody's records: kubelet forgets a pod that was deleted by force while its containers still have
their grace period. Reads, never writes. Known layouts: kubelet's cgroupfs driver (``kubepods/burstable/pod<uid>``) and its systemd driver
(``kubepods-burstable-pod<uid>.slice``), on cgroup v2 and v1. Where nothing of kubelet is found, nothing is known.

The agent has a process namespace of its own, as a pod without hostPID has, and a list of processes leaves out those of other namespaces on v1. So the kernel's counts are read:
``cgroup.events`` on v2, ``pids.current`` on v1. An empty list of processes says nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

# On v1 a hierarchy a controller: that of pids counts the processes, the others list them.
_HIERARCHIES: Final = (".", "pids", "memory", "cpu", "systemd")
_CLASSES: Final = ("", "burstable", "besteffort")
# What tells of a cgroup and all below it, whoever reads. Source: cgroup-v2.rst (cgroup.events) and cgroup-v1/pids.rst (pids.current) of the kernel's documentation.
_COUNTS: Final[Mapping[str, Callable[[str], bool]]] = {
    "cgroup.events": lambda text: "populated 1" in text,
    "pids.current": lambda text: text.strip() != "0",
}


class Cgroups:
    """The cgroup filesystem of the node, mounted at ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def has_processes(self, pod_uid: str) -> bool | None:
        """Tell whether a pod has processes, None where kubelet's cgroups are not to be seen, or do not say."""
        trees = [tree for tree in self._trees() if tree.is_dir()]
        if not trees:
            return None
        found = [_is_populated(pod) for tree in trees for pod in _pod(tree, pod_uid) if pod.is_dir()]
        said = [one for one in found if one is not None]
        return any(said) if said or not found else None

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


def _is_populated(cgroup: Path) -> bool | None:
    """Tell whether there is a process in it or below, None where that is not to be told; what vanishes meanwhile has none."""
    for name, says_so in _COUNTS.items():
        text = _read(cgroup / name)
        if text is not None:
            return says_so(text)
    if not cgroup.is_dir():
        return False
    return True if any(map(_lists_processes, (cgroup, *_below(cgroup)))) else None


def _below(cgroup: Path) -> list[Path]:
    try:
        return [path for path in cgroup.rglob("*") if path.is_dir()]
    except OSError:
        return []


def _lists_processes(cgroup: Path) -> bool:
    return bool((_read(cgroup / "cgroup.procs") or "").strip())


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return None
