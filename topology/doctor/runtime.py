"""The container runtime: whether it knows CDI, and looks where the agent writes.

Called by `chain`. The runtime is asked by its own socket where that is to be seen (as root on the node); from the agent's pod only its name and version are
known, by way of the API server. Without CDI the hand-off has another form, ``LINKWISE_AGENT_HAND_OFF=ids``.
"""

import re
from typing import Final

from topology.agent.container_runtime import ContainerRuntime, RuntimeUnknownError
from topology.doctor.finding import Finding, broken, ok, skipped
from topology.doctor.node import Node

# From which version on a runtime knows CDI, and from which on it is enabled unless somebody switches it off. Sources: the release notes of containerd 1.7 and
# 2.0 and of CRI-O 1.23; a runtime that is not here knows none through CRI.
_KNOWS_CDI: Final = {"containerd": ((1, 7), (2, 0)), "cri-o": ((1, 23), (1, 23))}
_OR_IDS: Final = "or set LINKWISE_AGENT_HAND_OFF=ids for the agent (docs/hand-off.md, Without CDI)"


def runtime(node: Node) -> Finding:
    """Check that the container runtime resolves CDI devices, where the hand-off needs it."""
    found = node.runtime
    if isinstance(found, RuntimeUnknownError):
        return broken(str(found), f"look at the container runtime's log and restart it, and run this as root ({node.runtime_socket})")
    if found is None:
        return skipped("no socket of a container runtime is to be seen here, and the API server does not tell which one the node has")
    told = f"{found.name} {found.version}"
    if node.hand_off != "cdi":
        return ok(told)
    return _with_cdi(node, found, told)


def _with_cdi(node: Node, found: ContainerRuntime, told: str) -> Finding:
    known = _KNOWS_CDI.get(found.name)
    if known is None or _number(found.version) < known[0]:
        return broken(f"{told} knows no CDI, by which containers get their GPUs", f"update to containerd 2 or CRI-O 1.23, {_OR_IDS}")
    if found.cdi is False:
        return broken(f"{told} has CDI switched off", f"set enable_cdi = true in its configuration and restart it, {_OR_IDS}")
    if found.cdi_dirs is not None and _plain(str(node.settings.cdi_dir)) not in map(_plain, found.cdi_dirs):
        looked = ", ".join(found.cdi_dirs) or "nowhere"
        return broken(
            f"{told} looks for CDI specs in {looked}, and the agent writes them to {node.settings.cdi_dir}",
            f"add {node.settings.cdi_dir} to cdi_spec_dirs of the container runtime, or set LINKWISE_AGENT_CDI_DIR",
        )
    if found.cdi or (found.cdi_dirs is not None and _number(found.version) >= known[1]):  # containerd 2.4 has no switch any more
        return ok(f"{told} with CDI")
    if _number(found.version) >= known[1]:
        return ok(f"{told} with CDI, unless somebody switched it off (its configuration is not to be seen here)")
    return skipped(f"{told} knows CDI, which is off by default; whether it is enabled (enable_cdi = true) is not to be seen here")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _plain(directory: str) -> str:
    """Return a directory by one name: /var/run is /run."""
    return directory.rstrip("/").removeprefix("/var") if directory.startswith("/var/run/") else directory.rstrip("/")
