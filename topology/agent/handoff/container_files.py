"""The files that containers see under /run/linkwise: one directory a token on the node, mounted read-only.

Written by `hand_off` before a container starts, removed when it is gone. A directory and not the file is mounted, so that a file can be replaced whole.
"""

import shutil
from pathlib import Path

from topology.agent.handoff.contents import FILE_NAME
from topology.agent.handoff.durable import write_whole


class ContainerFiles:
    """All of them, under ``root``; the path must be the same for the agent and for the container runtime."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, token: str) -> Path:
        """Return the directory of a token, there or not."""
        return self._root / token

    def write(self, token: str, allocation: bytes) -> Path:
        """Write the file of a token and return its directory; raises OSError."""
        directory = self.of(token)
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = directory / FILE_NAME
        if not path.exists() or path.read_bytes() != allocation:
            write_whole(path, allocation, durable=False)
        return directory

    def remove(self, token: str) -> None:
        """Let a token have no files."""
        shutil.rmtree(self.of(token), ignore_errors=True)

    def tokens(self) -> list[str]:
        """Return the tokens that have files."""
        return sorted(path.name for path in self._root.iterdir()) if self._root.is_dir() else []
