"""One Lease, one leader: who may bind, and for how much longer.

Run by `serving`. The leader renews every two seconds; its right to bind ends by its own monotonic clock, counted from *before* the renewal was sent, so a
process that was stopped, or whose renewals get lost, loses the right before anybody else can have it. Others take over when the Lease has not changed for
its whole duration as they saw it; clocks of different machines are never compared. A process that has never seen one goes by the label: where a pod has it, the Lease was deleted, and
its holder believes in it for as long as it would have lasted. Where it still names this process nobody else has led meanwhile, and
it goes on at once. Whoever leads anew, also after such a gap, lists everything afresh before it binds, and renews while it does.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from extender import log_keys
from extender.kube.client import MERGE_PATCH, ApiRefusedError, Body, KubeClient, NoAnswerError
from extender.kube.rest import rest_until

_log = structlog.get_logger()
JsonObject = dict[str, Any]

RENEW_EVERY_S: Final = 2.0
_JUST_AFTER_S: Final = 0.05
MARGIN_S: Final = 2.0  # a POST must have ended this long before the lease can be taken
_LABEL_AGAIN_S: Final = 10.0
_GIVEN_UP_S: Final = 1  # duration of a Lease that its holder gave up, as client-go writes it; of one that a person cleared it is what it was
LEADER_LABEL: Final = "linkwise.dev/leader"


@dataclass(frozen=True, slots=True)
class LeaseName:
    """Where the Lease is and who we are; ``pod`` is our own pod, whose label the Service selects, empty outside a cluster."""

    namespace: str
    name: str
    identity: str
    duration_s: int = 12
    pod: str = ""

    @property
    def path(self) -> str:
        """Path of the Lease object."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{self.name}"


class Leadership:
    """Holds, or waits for, the Lease; ``prepare`` is awaited after taking it, while it is renewed, and before anything may be bound."""

    def __init__(self, client: KubeClient, lease: LeaseName, prepare: Callable[[], Awaitable[None]], clock: Callable[[], float]) -> None:
        self._client = client
        self._lease = lease
        self._prepare = prepare
        self._clock = clock
        self._until = -math.inf  # monotonic; our right to bind ends here
        self._prepared = False
        self._preparing: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()  # prepared: no need to wait for the next round
        self._seen: tuple[str, float] | None = None  # the Lease's resourceVersion (empty: deleted), and since when it has been that
        self._lasts_s = float(lease.duration_s)  # of the Lease as it was last seen
        self._patience_s = lease.duration_s / 3  # of one request: a single one that hangs must not cost the Lease
        self._labelled: bool | None = None
        self._labelled_at = 0.0
        self.trouble = ""  # why the last round failed, empty where it did not
        self.looked = asyncio.Event()  # the first round is over, however it went

    @property
    def leads(self) -> bool:
        """True while this process holds the Lease and has a fresh state."""
        return self._prepared and self._holds

    @property
    def _holds(self) -> bool:
        return self._clock() < self._until

    def may_take_s(self) -> float:
        """Return for how long a POST that starts now may take."""
        return self._until - self._clock() - MARGIN_S if self._prepared else 0.0

    async def run(self) -> None:
        """Renew or wait, until cancelled."""
        try:
            while True:
                started = self._clock()
                await self._round()
                self.looked.set()
                await self._rest(max(0.1, min(RENEW_EVERY_S - (self._clock() - started), self._runs_out_in_s())))
        finally:
            self._drop_preparation()

    async def release(self) -> None:
        """Give the Lease up, so that another replica need not wait for it to run out; call when `run` has ended and nothing can take effect any more."""
        if not self._holds:
            return
        self._until = -math.inf
        try:
            current = await self._read()
            if current is not None and current["spec"].get("holderIdentity") == self._lease.identity:
                current["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": _GIVEN_UP_S}
                await self._client.request("PUT", self._lease.path, body=Body(current), timeout_s=self._patience_s)
        except (NoAnswerError, ApiRefusedError) as error:
            _log.warning("lease not released", **{log_keys.REASON: str(error)})

    async def _round(self) -> None:
        try:
            await self._renew_or_take()
        except (NoAnswerError, ApiRefusedError, ValueError) as error:
            self.trouble = str(error)
            _log.warning("lease not renewed", **{log_keys.REASON: self.trouble})
        else:
            self.trouble = ""
        if not self._holds:
            self._stand_down()
        elif not self._prepared and (self._preparing is None or self._preparing.done()):
            self._preparing = asyncio.create_task(self._get_ready())
        try:
            await self._label()
        except (NoAnswerError, ApiRefusedError, ValueError) as error:
            _log.warning("leader label not written", **{log_keys.REASON: str(error)})

    async def _renew_or_take(self) -> None:
        before = self._clock()
        if not self._holds:
            self._stand_down()  # also after a long stop of the process: what it knew is old, whoever led meanwhile
        current = await self._read()
        if current is None and self._seen is None and not self._holds and await self._labelled_pods():
            self._seen = ("", self._clock())  # somebody leads, or did: this Lease was deleted, perhaps a moment ago
        self._look(current)
        if current is None:
            if self._is_free(None):
                await self._write("POST", self._lease.path.rsplit("/", 1)[0], self._fresh(), before)
        elif current["spec"].get("holderIdentity") == self._lease.identity:
            # Nobody has taken it, or the name would be another; should somebody be about to, only one of the two writes meets this resourceVersion.
            await self._write("PUT", self._lease.path, self._renewed(current), before)
        elif self._is_free(current):
            self._stand_down()
            await self._write("PUT", self._lease.path, self._renewed(current, takes=True), before)
        else:
            self._stand_down()

    async def _get_ready(self) -> None:
        try:
            await self._prepare()
        except Exception:  # noqa: BLE001 - whatever the bug, the next round tries again
            _log.exception("preparing to lead failed, please report")
            return
        self._prepared = True
        self._ready.set()
        _log.info("leading", **{log_keys.IDENTITY: self._lease.identity})

    def _stand_down(self) -> None:
        """Stop leading: whoever leads next, this process or another one, must prepare for it."""
        self._until = -math.inf
        self._prepared = False
        self._drop_preparation()

    def _drop_preparation(self) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
            self._preparing = None

    async def _rest(self, seconds: float) -> None:
        self._ready.clear()
        await rest_until(self._ready, seconds)

    async def _read(self) -> JsonObject | None:
        try:
            current: JsonObject = await self._client.request("GET", self._lease.path, timeout_s=self._patience_s)
        except ApiRefusedError as error:
            if error.status == 404:
                return None
            raise
        current.setdefault("spec", {})
        return current

    def _look(self, current: JsonObject | None) -> None:
        """Note since when the Lease has been as it is; one that was deleted has changed."""
        version = "" if current is None else str(current["metadata"]["resourceVersion"])
        if self._seen is None and current is None:
            return
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, self._clock())

    def _is_free(self, current: JsonObject | None) -> bool:
        """Tell whether nobody holds the Lease: there has never been one, it was given up, or it has not changed for its duration as this process saw it.

        The holder of one that somebody deleted, or of which somebody cleared the holder, believes in it until it would have run out.
        """
        if self._seen is None or (current is None and self._holds):
            return True
        spec = {} if current is None else current["spec"]
        if current is not None and not spec.get("holderIdentity") and spec.get("leaseDurationSeconds") == _GIVEN_UP_S:
            return True
        self._lasts_s = float(spec.get("leaseDurationSeconds") or self._lease.duration_s)
        return self._clock() - self._seen[1] > self._lasts_s

    def _runs_out_in_s(self) -> float:
        """Return when it is time to look whether another replica's Lease has run out: not a whole round later than it could be taken."""
        if self._holds or self._seen is None:
            return RENEW_EVERY_S
        left = self._seen[1] + self._lasts_s - self._clock()
        return left + _JUST_AFTER_S if left > 0 else RENEW_EVERY_S

    async def _write(self, method: str, path: str, value: JsonObject, before: float) -> None:
        try:
            await self._client.request(method, path, body=Body(value), timeout_s=self._patience_s)
        except ApiRefusedError as error:
            if error.status != 409:
                raise
            return  # somebody was quicker; the next round sees who
        self._until = before + self._lease.duration_s

    def _fresh(self) -> JsonObject:
        now = _now()
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._lease.name, "namespace": self._lease.namespace},
            "spec": {
                "holderIdentity": self._lease.identity,
                "leaseDurationSeconds": self._lease.duration_s,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        }

    def _renewed(self, current: JsonObject, *, takes: bool = False) -> JsonObject:
        spec = {**current["spec"], "renewTime": _now(), "leaseDurationSeconds": self._lease.duration_s}
        if takes:
            spec |= {"holderIdentity": self._lease.identity, "acquireTime": _now(), "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        return {**current, "spec": spec}

    # --- the label that the Service selects ---

    async def _label(self) -> None:
        """Put the leader label on our own pod while we lead, and take it from every other pod that still has it."""
        # Not only when the role changes: another replica, or a person, may have taken the label away since.
        recent = self._clock() - self._labelled_at < _LABEL_AGAIN_S
        if not self._lease.pod or (self._labelled == self.leads and recent):
            return
        leads = self.leads
        await self._patch_label(self._lease.pod, "true" if leads else None)
        if leads:
            for pod in await self._labelled_pods():
                if pod != self._lease.pod and self.leads:
                    await self._patch_label(pod, None)
        self._labelled = leads
        self._labelled_at = self._clock()

    async def _labelled_pods(self) -> list[str]:
        """Return the pods that carry the leader label; none outside a cluster, where nobody carries one."""
        if not self._lease.pod:
            return []
        pods = f"/api/v1/namespaces/{self._lease.namespace}/pods"
        found = await self._client.request("GET", pods, {"labelSelector": f"{LEADER_LABEL}=true"}, timeout_s=5.0)
        return [str(pod["metadata"]["name"]) for pod in found.get("items") or ()]

    async def _patch_label(self, pod: str, value: str | None) -> None:
        path = f"/api/v1/namespaces/{self._lease.namespace}/pods/{pod}"
        await self._client.request("PATCH", path, body=Body({"metadata": {"labels": {LEADER_LABEL: value}}}, MERGE_PATCH), timeout_s=5.0)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
