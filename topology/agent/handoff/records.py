"""What the agent itself has to remember: the tokens it issued, and what each container was given. One small file each, on disk before anybody is told.

Used by `hand_off` and `garbage`. A token is issued at Allocate, with the ids, for a container that nobody has named yet; at PreStartContainer it gets its
holding. A restarted agent reads the directory and knows what the last one knew. Most of it could be found out again (kubelet's checkpoint holds the token,
the pod its plan); what a pod from around the extender was given is written here alone.

Thread-safe: kubelet starts containers of several pods at once.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson
import structlog

from topology.agent.handoff.durable import TEMPORARY, remove, write_whole
from topology.agent.handoff.holding import Container, Holding, Kind, Part

_log = structlog.get_logger()

_SUFFIX: Final = ".json"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Record:
    """One token. ``sequence`` grows with every token of this node; ``issued_at`` is the time of day, in seconds."""

    token: str
    resource: str
    ids: frozenset[str]
    sequence: int
    issued_at: float
    holding: Holding | None = None


def fresh_token() -> str:
    """Return a name that was never used before; it begins with a letter, as CDI before 0.5 demands of a device."""
    return f"t{uuid4().hex}"


class Records:
    """All tokens of this node, in memory and in ``directory``."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time, token: Callable[[], str] = fresh_token) -> None:
        self._directory = directory
        self._clock = clock
        self._token = token
        self._lock = threading.Lock()
        self._records: dict[str, Record] = {}
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in directory.glob(f"{TEMPORARY}*"):
            left.unlink(missing_ok=True)  # of a write that was broken off
        for path in sorted(directory.glob(f"*{_SUFFIX}")):
            record = _read(path)
            if record is not None:
                self._records[record.token] = record
        self._last = max((record.sequence for record in self._records.values()), default=0)
        self.changed: Callable[[], None] = lambda: None  # called after what is held has changed

    def issue(self, resource: str, ids: frozenset[str]) -> Record:
        """Return a new token for these ids; raises OSError where it cannot be written."""
        with self._lock:
            now = self._clock()
            self._last = max(self._last + 1, int(now * 1e6))
            record = Record(self._token(), resource, ids, self._last, now)
        self._write(record)
        return record

    def adopt(self, token: str, resource: str, ids: frozenset[str]) -> Record:
        """Return the record of a token that kubelet knows: as it was issued, or made up where it was lost (then it counts as the oldest)."""
        with self._lock:
            return self._records.get(token) or Record(token, resource, ids, 0, self._clock())

    def hold(self, record: Record, holding: Holding) -> None:
        """Write down what the container of a token holds; raises OSError."""
        self._write(replace(record, holding=holding))
        self.changed()

    def retire(self, token: str) -> None:
        """Forget a token; raises OSError."""
        remove(self._path(token), durable=True)
        with self._lock:
            self._records.pop(token, None)
        self.changed()

    def get(self, token: str) -> Record | None:
        """Return what is known of a token."""
        with self._lock:
            return self._records.get(token)

    def all(self) -> list[Record]:
        """Return every token, in the order in which they were issued."""
        with self._lock:
            return sorted(self._records.values(), key=lambda record: record.sequence)

    def newest(self, resource: str, ids: frozenset[str]) -> Record | None:
        """Return the last token that was issued for exactly these ids."""
        return next((record for record in reversed(self.all()) if record.resource == resource and record.ids == ids), None)

    def holdings(self) -> dict[str, Holding]:
        """Return what is held, by token."""
        with self._lock:
            return {token: record.holding for token, record in self._records.items() if record.holding is not None}

    def _write(self, record: Record) -> None:
        write_whole(self._path(record.token), _encoded(record), durable=True)
        with self._lock:
            self._records[record.token] = record

    def _path(self, token: str) -> Path:
        return self._directory / f"{token}{_SUFFIX}"


def _encoded(record: Record) -> bytes:
    raw = {**asdict(record), "v": _VERSION, "ids": sorted(record.ids)}
    return orjson.dumps(raw, option=orjson.OPT_INDENT_2)


def _read(path: Path) -> Record | None:
    """Return a record; one that does not decode is left where it is, for people, and said: kubelet's checkpoint and the pod's plan stand in for it."""
    try:
        return _decoded(orjson.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning(f"the record {path} cannot be read and counts for nothing: {error}")
        return None


def _decoded(raw: dict[str, Any]) -> Record:
    held = raw["holding"]
    return Record(
        token=raw["token"],
        resource=raw["resource"],
        ids=frozenset(raw["ids"]),
        sequence=int(raw["sequence"]),
        issued_at=float(raw["issued_at"]),
        holding=None if held is None else _holding(held),
    )


def _holding(raw: dict[str, Any]) -> Holding:
    container = raw["container"]
    return Holding(
        pod_uid=raw["pod_uid"],
        namespace=raw["namespace"],
        pod=raw["pod"],
        container=Container(container["name"], Kind(container["kind"]), int(container["order"])),
        parts=tuple(Part(part["uuid"], int(part["mib"])) for part in raw["parts"]),
        planned=bool(raw["planned"]),
    )
