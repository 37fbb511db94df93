"""Writes one node's GPUTopology to the API server: what differs from what was written last, a heartbeat, and events about what changed.

Called by `running` in every round, which also decides when to try again. Server-side apply under the field manager `linkwise-agent`, with force: the spec
is this agent's alone. The object belongs to the Node, so it goes when the Node goes. Between two writes the metadata of Node and object are looked up: a
re-created Node, a deleted object, or one that is not as it was written is written again; the latter may also be a write of our own that got no answer and took effect late, or
the last word of an agent before this one. Looked up and not watched: kubelet reads its own Node about as often, and an agent that may only `get` can list nobody else's.

An object that an earlier agent of this node wrote is taken over: applying what it holds already changes nothing, and events tell the difference.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from topology.agent.api_server import APPLY, METADATA_ONLY, ApiServer, Body, JsonObject, NoAnswerError, RefusedError
from topology.agent.changes import Change, changes
from topology.agent.metrics import Metrics
from topology.agent.probe import utc_now
from topology.api import GPUTopology
from topology.api.annotations import API_VERSION, BOOT_ID, GROUP, KIND, PLURAL, VERSION

FIELD_MANAGER: Final = "linkwise-agent"
_APPLY_QUERY: Final = {"fieldManager": FIELD_MANAGER, "force": "true"}
_AGAIN_AFTER: Final = timedelta(seconds=2)  # longer than clocks of a cluster differ, and than the second to which times are cut
_MOST_EVENTS: Final = 50  # kept while they cannot be posted
_LONGEST_MESSAGE: Final = 1024  # the API server refuses longer ones
_LONGEST_NAME: Final = 253
_REFUSED_S: Final = 60.0  # for so long a refused event is tried again: an API server that has just started refuses what it allows a second later


@dataclass(frozen=True, slots=True)
class Target:
    """The node that is published, the boot it is in (None: unknown), and how often its status is written although nothing changed."""

    node_name: str
    boot_id: str | None
    heartbeat_s: float


@dataclass(frozen=True, slots=True)
class Clocks:
    """Time that only goes on, in seconds, the time of day, and how time is let pass."""

    monotonic: Callable[[], float] = time.monotonic
    day: Callable[[], datetime] = utc_now
    sleep: Callable[[float], None] = time.sleep


class Publisher:
    """What was written last, and how to write again."""

    def __init__(self, api: ApiServer, target: Target, metrics: Metrics, clocks: Clocks) -> None:
        self._api = api
        self._node_name = target.node_name
        self._target = target
        self._metrics = metrics
        self._clocks = clocks
        self._path = f"/apis/{GROUP}/{VERSION}/{PLURAL}/{target.node_name}"
        self._spec: JsonObject | None = None  # as applied, with owner and boot; None: to be applied
        self._status: JsonObject | None = None  # as applied, without what heartbeats bring
        self._status_at = 0.0
        self._again: list[datetime] = []  # a status observed at such a time or later is written, whatever it says
        self._stored: tuple[str, int] | None = None  # UID and generation that the API server answered
        self._version = ""  # resourceVersion of its last answer to a write
        self._told: GPUTopology | None = None  # what events have told of
        self._events: deque[Change] = deque(maxlen=_MOST_EVENTS)
        self._refused_since: float | None = None  # the first of them
        self.node_uid: str | None = None

    # --- looking up -------------------------------------------------------------------------------------------------

    def published(self) -> JsonObject | None:
        """Return the whole object as it is stored now, None where there is none."""
        return self._api.get(self._path)

    def look_up(self) -> bool:
        """Learn the Node's UID, None where there is no such Node, and whether the object is still what was written; returns True where it is gone."""
        node = self._api.get(f"/api/v1/nodes/{self._node_name}", accept=METADATA_ONLY)
        self.node_uid = None if node is None else str(node["metadata"]["uid"])
        stored = self._api.get(self._path, accept=METADATA_ONLY)
        is_ours = self._stored is None or (stored is not None and _identity(stored) == self._stored)
        if not is_ours:
            self._forget()
        elif stored is not None and stored["metadata"].get("resourceVersion") != self._version:
            self._status = None  # written since, or the API server's cache is behind: then it is written once more for nothing
        return not is_ours and stored is None

    def told(self, topology: GPUTopology) -> None:
        """Take a topology that an earlier agent published as what people know."""
        self._told = topology

    def _forget(self) -> None:
        self._spec = self._status = self._stored = None

    # --- writing ----------------------------------------------------------------------------------------------------

    def publish(self, topology: GPUTopology) -> None:
        """Write what differs, and the heartbeat when it is due; raises NoAnswerError, RefusedError. Without a Node nothing is written."""
        if self.node_uid is None:
            return
        item = topology.to_object()
        steps = [self._write_spec, self._write_status]
        if self._spec is not None and _uuids(self._spec) == _uuids(item):
            # A GPU that is lost, or works again: its health does not wait for the links. Not with other GPUs, whose status means nothing yet.
            steps.reverse()
        for step in steps:
            step(item)
        if self._told is not None:
            self._events.extend(changes(self._told, topology))
        self._told = topology
        self._post_events()

    def publish_status(self, topology: GPUTopology) -> None:
        """Write the status of an object that is there, where it differs from what was written last; raises as `publish` does."""
        self._write_status(topology.to_object())

    def again_at(self, *times: datetime) -> None:
        """Write the first status that was observed at each of these times or later, also where nothing has changed."""
        self._again.extend(times)

    @property
    def next_again(self) -> datetime | None:
        """When an observation is waited for that will be written whatever it says."""
        return min(self._again, default=None)

    def _write_spec(self, item: JsonObject) -> None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node_name, "uid": self.node_uid}
        metadata: JsonObject = {"name": self._node_name, "ownerReferences": [owner]}
        if self._target.boot_id is not None:
            metadata["annotations"] = {BOOT_ID: self._target.boot_id}
        wanted = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": item["spec"]}
        if wanted == self._spec:
            return
        answer = self._apply(self._path, wanted)
        if self._stored is None or self._stored[0] != _identity(answer)[0]:
            self._status = None  # a new object has none
        self._spec, self._stored = wanted, _identity(answer)
        self._metrics.published("spec")

    def _write_status(self, item: JsonObject) -> None:
        lasting, observed_at = _lasting(item["status"]), _observed_at(item["status"])
        is_due = self._clocks.monotonic() - self._status_at >= self._target.heartbeat_s
        again = [when for when in self._again if observed_at is not None and when <= observed_at]
        if lasting == self._status and not is_due and not again:
            return
        try:
            self._apply(
                f"{self._path}/status", {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": self._node_name}, "status": item["status"]}
            )
        except RefusedError as error:
            if error.status == 404:
                self._forget()  # deleted since: the next round writes it anew
            raise
        self._again = [when for when in self._again if when not in again]
        if observed_at is not None and _holders(self._status) - _holders(lasting):
            # Whoever reads it asks whether this look came after a deletion, by the times of two clocks, cut to seconds: a later one leaves no doubt.
            self.again_at(observed_at + _AGAIN_AFTER)
        self._status, self._status_at = lasting, self._clocks.monotonic()
        self._metrics.published("status")

    def _apply(self, path: str, value: JsonObject) -> JsonObject:
        answer = self._api.request("PATCH", path, _APPLY_QUERY, Body(value, APPLY))
        self._version = answer["metadata"].get("resourceVersion", "")
        return answer

    # --- events -----------------------------------------------------------------------------------------------------

    def _post_events(self) -> None:
        """Post what waits; what is refused for long is dropped, and all behind it, which would be refused alike."""
        while self._events:
            try:
                self._api.request("POST", "/api/v1/namespaces/default/events", body=Body(self._event(self._events[0])))
            except NoAnswerError:
                self._metrics.failed("publish")
                return
            except RefusedError:
                self._metrics.failed("publish")
                now = self._clocks.monotonic()
                self._refused_since = now if self._refused_since is None else self._refused_since
                if now - self._refused_since < _REFUSED_S:
                    return
                self._events.clear()
            else:
                self._metrics.published("event")
                self._events.popleft()
            self._refused_since = None

    def _event(self, change: Change) -> JsonObject:
        """Return a core/v1 Event about the Node; those of cluster-scoped objects lie in `default`."""
        now = self._clocks.day().strftime("%Y-%m-%dT%H:%M:%SZ")
        suffix = f".{uuid4().hex[:16]}"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self._node_name[: _LONGEST_NAME - len(suffix)] + suffix, "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": self._node_name, "uid": self.node_uid},
            "reason": change.reason,
            "message": _shortened(change.message),
            "type": "Warning" if change.is_warning else "Normal",
            "source": {"component": FIELD_MANAGER, "host": self._node_name},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def _identity(stored: Mapping[str, Any]) -> tuple[str, int]:
    """Return UID and generation: the latter counts the changes of the spec, whoever makes them."""
    return str(stored["metadata"]["uid"]), int(stored["metadata"].get("generation", 0))


def _uuids(item: Mapping[str, Any]) -> set[str]:
    return {gpu["uuid"] for gpu in item["spec"]["gpus"]}


def _lasting(status: Mapping[str, Any]) -> JsonObject:
    """Return the status without what always changes: the time, and used memory, which goes with the next heartbeat."""
    gpus = [{key: value for key, value in gpu.items() if key != "memoryUsedMiB"} for gpu in status["gpus"]]
    return {**{key: value for key, value in status.items() if key != "observedAt"}, "gpus": gpus}


def _observed_at(status: Mapping[str, Any]) -> datetime | None:
    found = status.get("observedAt")
    return datetime.fromisoformat(found) if found else None


def _holders(status: Mapping[str, Any] | None) -> set[tuple[str, ...]]:
    """Return who holds what, as one word a part."""
    gpus = status["gpus"] if status else ()
    return {
        (gpu["uuid"], one["namespace"], one["name"], one.get("container", ""), one.get("uid", "")) for gpu in gpus for one in gpu.get("holders", ())
    }


def _shortened(message: str) -> str:
    return message if len(message.encode()) <= _LONGEST_MESSAGE else message.encode()[: _LONGEST_MESSAGE - 3].decode(errors="ignore") + "…"
