"""Whether containers got what their pods were promised, told from what the containers themselves wrote: an oracle that shares no code with the agent.

Each start of a container leaves a record on the node (`tests.e2e.node_pods`), and so does its end; they outlive their pods. `HandOffs` notes what each pod
was promised while the pod is there, and `check` compares: every start with the promise of its own pod, and every GPU's holders in time. A container that
could not say when it ended (SIGKILL, reboot) has ended when it starts again.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.e2e.checks import ALLOCATION

JsonObject = dict[str, Any]

_FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one container: what it saw, and from when until when it ran (seconds)."""

    uid: str
    container: str
    environment: dict[str, str]
    begin: float
    end: float

    @property
    def gpus(self) -> frozenset[str]:
        """The GPUs that it was shown."""
        return frozenset(filter(None, self.environment.get("NVIDIA_VISIBLE_DEVICES", "").split(",")))


class HandOffs:
    """The hand-offs of one node; ``records`` is the folder in which its containers write."""

    def __init__(self, records: Path) -> None:
        self.records = records
        records.mkdir(exist_ok=True)
        self._promised: dict[tuple[str, str], dict[str, int]] = {}
        self._names: dict[str, str] = {}

    def note(self, pods: Iterable[JsonObject]) -> None:
        """Remember what these pods were promised: UUIDs with MiB, 0 for a whole GPU, by container."""
        for pod in pods:
            text = (pod["metadata"].get("annotations") or {}).get(ALLOCATION)
            self._names[pod["metadata"]["uid"]] = pod["metadata"]["name"]
            for container, gpus in json.loads(text)["containers"].items() if text else ():
                shares = {gpu["uuid"]: gpu["memoryMiB"] if gpu.get("shared") else 0 for gpu in gpus}
                self._promised[pod["metadata"]["uid"], container] = shares

    def starts(self) -> list[Start]:
        """Return every start so far."""
        found: list[Start] = []
        again: dict[tuple[str, str], float] = {}
        # The last one first: what ended unheard had ended when it began anew.
        for path in sorted(self.records.glob("*.start"), key=lambda path: path.stat().st_mtime, reverse=True):
            uid, container, _, _ = path.name.split(".")
            ended = path.with_suffix(".end")
            lines = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines())
            end = ended.stat().st_mtime if ended.exists() else again.get((uid, container), _FOREVER)
            again[uid, container] = path.stat().st_mtime
            found.append(Start(uid, container, {name: value for name, _, value in lines}, path.stat().st_mtime, end))
        return found[::-1]

    def wrongly_told(self, topology: JsonObject) -> list[str]:
        """Return a sentence for each holder in the status of a GPUTopology who was promised otherwise, and for each GPU with one holder too many."""
        wrong = []
        for gpu in topology["status"]["gpus"]:
            holders = gpu.get("holders", [])
            wrong += [problem for holder in holders if holder["planned"] for problem in self._against_told(gpu["uuid"], holder)]
            whole = {holder["uid"] for holder in holders if "memoryMiB" not in holder}
            others = {holder["uid"] for holder in holders} - whole
            if len(whole) > 1 or (whole and others):
                wrong.append(f"{gpu['uuid']} is told to be held by {', '.join(sorted(self._names.get(uid, uid) for uid in whole | others))}")
        return wrong

    def _against_told(self, uuid: str, holder: JsonObject) -> list[str]:
        promised, told = self._promised.get((holder["uid"], holder["container"]), {}), holder.get("memoryMiB", 0)
        if promised.get(uuid) == told:
            return []
        return [f"container {holder['container']} of {holder['name']} was promised {promised} and is told to hold {told or 'all'} of {uuid}"]

    def check(self, gone: Iterable[str] = ()) -> list[Start]:
        """Return every start; raises AssertionError with every sentence about what is wrong.

        ``gone``: UIDs of pods that were killed, so that their containers could not say when they ended.
        """
        starts, killed = self.starts(), set(gone)
        wrong = [problem for start in starts for problem in self._against_promise(start)]
        lasting = [start for start in starts if start.end < _FOREVER or start.uid not in killed]
        wrong += self._held_twice(lasting)
        assert not wrong, "\n".join(wrong)
        return starts

    def _against_promise(self, start: Start) -> list[str]:
        who = f"container {start.container} of {self._names.get(start.uid, start.uid)}"
        promised = self._promised.get((start.uid, start.container), {})
        if start.gpus != promised.keys():
            return [f"{who} was promised {sorted(promised)} and shown {sorted(start.gpus)}"]
        shares = {mib for mib in promised.values() if mib}
        told = start.environment.get("LINKWISE_GPU_MEMORY_MIB")
        return [] if told == (str(*shares) if shares else None) else [f"{who} was promised {shares} MiB and told {told}"]

    def _held_twice(self, starts: list[Start]) -> list[str]:
        """Return a sentence for every two starts that had a GPU at the same time, unless both had a part of it."""
        of: dict[str, list[Start]] = defaultdict(list)
        for start in starts:
            for uuid in start.gpus:
                of[uuid].append(start)
        pairs = ((uuid, one, other) for uuid, holders in of.items() for one, other in combinations(sorted(holders, key=lambda start: start.begin), 2))
        return [
            f"{uuid} was in {self._who(one)} and in {self._who(other)}, from {other.begin:.3f} to {min(one.end, other.end):.3f}"
            for uuid, one, other in pairs
            if other.begin < one.end and not (self._shares(one, uuid) and self._shares(other, uuid))
        ]

    def _shares(self, start: Start, uuid: str) -> bool:
        return self._promised.get((start.uid, start.container), {}).get(uuid, 0) > 0

    def _who(self, start: Start) -> str:
        return f"{self._names.get(start.uid, start.uid)}/{start.container}"
