"""The plain device plugin of a node, as a test sees it: started, stopped, and asked which calls it got.

The program itself is `tests/e2e/plain_device_plugin.py`, which knows nothing of this file.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.e2e.node import RealNode
from tests.e2e.program import wait_until

JsonObject = dict[str, Any]

RESOURCE = "plain.example/gpu"

_PROGRAM = Path(__file__).parent / "plain_device_plugin.py"


class PlainPlugin:
    """One plugin of ``devices`` ids, `gpu0` and on; ``options`` as the program takes them (`--pre-start`)."""

    def __init__(self, node: RealNode, *options: str, resource: str = RESOURCE, devices: int = 8) -> None:
        self._node = node
        self._resource = resource
        self._devices = devices
        self.record = node.directory / "plain-calls"
        self.refusal = node.directory / "plain-refusal"
        given = ("--resource", resource, "--devices", str(devices), "--record", self.record, "--refuse", self.refusal, *options)
        self._command = (sys.executable, _PROGRAM, "--device-folder", node.devices, *given)
        self.program = self.start()

    def start(self) -> Any:
        """Start it, also again, and return its process; it registers when kubelet is there."""
        self.program = self._node.run("plain-plugin", self._command)
        return self.program

    def stop(self) -> None:
        """End it, and wait until the Node says so: what it says of an ended plugin would be taken for the next one's."""
        self.program.stop()
        wait_until(lambda: self._node.allocatable(self._resource) == 0, 20, f"no {self._resource} is allocatable")

    def wait_allocatable(self) -> "PlainPlugin":
        """Wait until kubelet offers all its devices."""
        wait_until(lambda: self._node.allocatable(self._resource) == self._devices, 20, f"{self._devices} {self._resource} are allocatable")
        return self

    def calls(self, name: str = "") -> list[JsonObject]:
        """Return what it recorded since the record began: all, or the calls of one name."""
        lines = self.record.read_text(encoding="utf-8").splitlines() if self.record.exists() else []
        return [call for call in map(json.loads, lines) if name in ("", call.get("call"))]

    def wait_calls(self, name: str, count: int, timeout: float = 30) -> list[JsonObject]:
        """Return the calls of one name once there are so many."""
        wait_until(lambda: len(self.calls(name)) >= count, timeout, f"{count} calls of {name}")
        return self.calls(name)

    def forget(self) -> None:
        """Begin a new record."""
        self.record.unlink(missing_ok=True)
