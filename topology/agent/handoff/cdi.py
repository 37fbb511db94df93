"""The CDI spec of one token: what the container runtime does to the container that was given the device `linkwise.dev/allocation=<token>`.

Called by `hand_off` when it is known what the container gets, and by `garbage`. One file a token, written beside its name and renamed inside the CDI directory:
runtimes notice a new file through inotify and may hold the old content of a known name for a moment, so a name is never used for another container, and a
file that would not change is not written. Without the file the runtime refuses to create the container: whatever goes wrong here, no container starts.

The edits of NVIDIA's own spec are merged in where there is one, but for its NVIDIA_VISIBLE_DEVICES=void: the variable tells programs what they have.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from topology.agent.handoff.checkpoint import CDI_KIND
from topology.agent.handoff.contents import DIRECTORY
from topology.agent.handoff.durable import TEMPORARY, remove, write_whole
from topology.agent.handoff.node_gpus import NodeGpus
from topology.agent.handoff.nvidia_cdi import OURS, NvidiaCdiError, merged, nvidia_spec

_OLDEST: Final = "0.5.0"  # of the format; what is written here was all in it, and runtimes that know less are not in use
# Sources: CDI's specs-go/config.go at 1.1.1; a reader refuses a version that it does not know, so never more than needed.
_MOUNT_OPTIONS: Final = ("ro", "nosuid", "nodev", "noexec", "rbind", "rprivate")


class CdiDirectory:
    """Our specs in the runtime's directory for specs that come and go; ``nvidia``: where NVIDIA's may be, empty: it is not merged."""

    def __init__(self, directory: Path, nvidia: tuple[Path, ...]) -> None:
        self._directory = directory
        self._nvidia = nvidia

    def write(self, token: str, env: Mapping[str, str], files: Path, gpus: tuple[NodeGpus, Iterable[str]]) -> None:
        """Write what the container of a token gets; ``files`` is its directory on the node, ``gpus`` which of the node's.

        Raises OSError, and NvidiaCdiError where NVIDIA's spec cannot bring these GPUs in.
        """
        data = orjson.dumps(self._spec(token, env, files, gpus), option=orjson.OPT_INDENT_2)
        path = self._path(token)
        try:
            if path.read_bytes() == data:
                return
        except FileNotFoundError:
            self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_whole(path, data, durable=False)  # it lives as long as the boot, at most

    def withdraw(self, token: str) -> None:
        """Let the container of a token start no more; raises OSError."""
        remove(self._path(token), durable=False)

    def tokens(self) -> list[str]:
        """Return the tokens that have a spec."""
        return sorted(path.name[len(OURS) : -len(".json")] for path in self._directory.glob(f"{OURS}*.json"))

    def sweep(self) -> None:
        """Remove what broken-off writes left behind; only while nobody writes."""
        for path in self._directory.glob(f"{TEMPORARY}*"):
            remove(path, durable=False)

    def _path(self, token: str) -> Path:
        return self._directory / f"{OURS}{token}.json"

    def _spec(self, token: str, env: Mapping[str, str], files: Path, gpus: tuple[NodeGpus, Iterable[str]]) -> dict[str, Any]:
        version, theirs = self._nvidia_edits(*gpus)
        kept = [line for line in theirs.get("env") or () if str(line).partition("=")[0] not in env]
        mount = {"hostPath": str(files), "containerPath": DIRECTORY, "options": list(_MOUNT_OPTIONS)}
        ours: dict[str, Any] = {"env": [f"{name}={value}" for name, value in env.items()], "mounts": [mount]}
        edits = merged([{**theirs, "env": kept}, ours])
        return {"cdiVersion": version, "kind": CDI_KIND, "devices": [{"name": token, "containerEdits": edits}]}

    def _nvidia_edits(self, gpus: NodeGpus, uuids: Iterable[str]) -> tuple[str, dict[str, Any]]:
        spec = nvidia_spec(self._nvidia)
        if spec is None:
            return _OLDEST, {}
        missing = [uuid for uuid in uuids if uuid not in gpus.specs]
        if missing:
            raise NvidiaCdiError(f"GPU {missing[0]} is not in this node, so {spec.path} cannot bring it in")
        edits = merged([spec.common, *(spec.edits_of(gpus.specs[uuid]) for uuid in gpus.in_order(uuids))])
        return max(_OLDEST, spec.version.removeprefix("v"), key=_number), edits


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))
