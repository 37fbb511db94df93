"""The extender on a real cluster: everything put together, started, and stopped in the right order.

Called by `linkwise serve` without a snapshot. Tasks: four reflectors (pods, nodes, topologies, ConfigMaps of unhealthy GPUs), the lease, events, the startup taint, and a round every fifth of a
second for what has to be looked after: stale nodes, waiting pods, notices. `Gate` says when a call may be answered: state synced and fresh, and this replica leads.
Stopping: no new calls, what is in flight ends, the Lease is given up, and only then the process goes.
"""

import asyncio
import gc
import math
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote
from uuid import uuid4

import structlog
from starlette.types import ASGIApp

from extender import log_keys
from extender.app import make_app, make_probe_app
from extender.calls import Closed
from extender.cluster import Cluster, RefusedPod, View
from extender.cluster.startup_taint import Awaited
from extender.kube.bind import KubeBinder
from extender.kube.client import MERGE_PATCH, ApiRefusedError, Body, KubeClient, NoAnswerError
from extender.kube.events import KubeEvents
from extender.kube.lease import Leadership, LeaseName
from extender.kube.rest import rest_until
from extender.kube.sinks import ConfigMapSink, NodeSink, PodSink, TopologySink
from extender.kube.untaint import Untainter
from extender.kube.watch import NODES, PODS, TOPOLOGIES, UNHEALTHY, Reflector
from extender.metrics import Metrics
from extender.protocol import JsonObject
from extender.server import Tls, background_server, listen, server, url_of
from extender.settings import Settings
from extender.verbs import Clocks, Verbs
from topology.api import annotations

_log = structlog.get_logger()
_ROUND_S: Final = 0.2
_WAKE_EVERY_S: Final = 1.0
_STALE_EVERY_S: Final = 2.0
_STALE_TOGETHER: Final = 200  # nodes that are closed or opened in one go: a millisecond
_DEAF_AFTER_S: Final = 10.0
_HEARTBEATS_IN_STALE: Final = 3  # agents write every 60 s; after 180 s a node is stale
_AGAIN_AFTER_S: Final = 1.0
_FIRST_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, and with which certificates; ``probe_port`` serves health and metrics without TLS, 0 for none."""

    host: str
    port: int
    tls: Tls | None = None
    probe_port: int = 0


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the API server; both None inside a pod."""

    kubeconfig: Path | None = None
    context: str | None = None


class Gate:
    """When a call may be answered, and when this replica is ready."""

    def __init__(self, reflectors: tuple[Reflector, ...], leadership: Leadership, settings: Settings) -> None:
        self._reflectors = reflectors
        self._leadership = leadership
        self._settings = settings

    @property
    def age_s(self) -> float:
        """Seconds for which the state may have missed something."""
        return max(reflector.age_s for reflector in self._reflectors)

    def closed(self) -> Closed | None:
        """Return why a call must not be answered now, None where it may."""
        unready = self.unready()
        if unready:
            return Closed(unready, close_connection=True)
        age = self.age_s
        leads = self._leadership.leads
        if age > self._settings.most_state_age_s:
            allowed = f"up to {self._settings.most_state_age_s:g} s are allowed"
            return Closed(f"the state is {age:.0f} s old, because the API server does not answer; {allowed}", close_connection=not leads)
        if not leads:
            trouble = self._leadership.trouble
            why = f"its lease could not be renewed ({trouble})" if trouble else "the Service reaches the one that does"
            return Closed(f"this replica does not lead; {why}", close_connection=True)
        return None

    def unready(self) -> str:
        """Return why this replica is not ready, empty where it is: every synced replica is, whoever leads."""
        return "" if all(reflector.synced.is_set() for reflector in self._reflectors) else "the state is not synced with the API server yet"


async def serve_cluster(access: Access, address: Address, settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until a signal."""
    async with await KubeClient.connect(access.kubeconfig, access.context) as client:
        metrics = Metrics()
        cluster = Cluster(settings.whole_gpu_resource, time.monotonic, needs_observation=True, reserve_mib=settings.gpu_reserve_mib)

        def adopt(pod: JsonObject) -> None:
            """Note a pod that waits because of another replica's refusal."""
            if not leadership.leads:  # a leader knows better which pods it refused
                verbs.adopt(pod)

        def note_refused(pod: JsonObject, refused: RefusedPod, *, is_news: bool) -> None:
            """Note a pod that kubelet refused, whoever leads: the next leader has to know as well."""
            verbs.note_refused(pod, refused, is_news=is_news)

        topologies = Reflector(client, TOPOLOGIES, TopologySink(cluster), time.monotonic)
        pods = Reflector(client, PODS, PodSink(cluster, adopt, note_refused), time.monotonic)
        nodes_and_more = (
            Reflector(client, NODES, NodeSink(cluster), time.monotonic),
            Reflector(client, UNHEALTHY, ConfigMapSink(cluster), time.monotonic),
        )
        reflectors = (topologies, *nodes_and_more, pods)

        async def list_afresh() -> None:
            """See everything as it is now."""
            await asyncio.gather(*(reflector.list_afresh() for reflector in reflectors))
            # Not only in the next round: what is listed may be old already, and calls are answered from now on.
            rounds.close_stale()
            verbs.follow_demands(at_once=True)

        leadership = Leadership(client, lease_name(settings), list_afresh, time.monotonic)
        events = KubeEvents(client, "linkwise", lambda: leadership.leads, lambda: verbs.bindings.any_in_hand)
        binder = KubeBinder(client, leadership.may_take_s)
        verbs = Verbs(cluster, binder, metrics, settings, Clocks(time.monotonic, lambda: datetime.now(UTC)), events)
        gate = Gate(reflectors, leadership, settings)
        untainter = Untainter(client, lambda: cluster.tainted(datetime.now(UTC), settings.stale_after_s), lambda: leadership.leads, time.monotonic)
        _show(metrics, gate, events, cluster, settings)
        app = make_app(verbs, binder, metrics, settings, gate)
        rounds = _Rounds(client, verbs, leadership, settings, gate)

        async def first_the_lease() -> None:
            """Let a process that can have the Lease at once list once: a list from before would not be fresh enough to lead."""
            await rest_until(leadership.looked, _FIRST_LOOK_S)

        async def first_the_topologies() -> None:
            """Let pods come to nodes that are known: whatever came before its node's GPUs were known would be counted twice."""
            await first_the_lease()
            await topologies.synced.wait()

        runs: list[Callable[[], Awaitable[None]]] = [partial(_after, first_the_lease, reflector.run) for reflector in (topologies, *nodes_and_more)]
        runs.append(partial(_after, first_the_topologies, pods.run))
        runs += [leadership.run, events.run, rounds.run, untainter.run]
        tasks = [asyncio.create_task(_kept_running(run)) for run in runs]
        try:
            await _serve(app, make_probe_app(verbs, metrics, gate), address, announce)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if not verbs.bindings.any_may_take_effect():  # else nobody may lead before the Lease has run out
                await leadership.release()


def _show(metrics: Metrics, gate: Gate, events: KubeEvents, cluster: Cluster, settings: Settings) -> None:
    """Let gauges be read where their numbers are, when somebody asks for them."""
    metrics.state_age.set_function(lambda: gate.age_s)
    metrics.events_waiting.set_function(lambda: events.waiting)
    metrics.kubelet_refusals.set_function(lambda: len(cluster.kubelet_refusals))
    for awaited in Awaited:
        metrics.startup_taints.labels(awaited).set_function(partial(_count_awaiting, cluster, settings, awaited))


def _count_awaiting(cluster: Cluster, settings: Settings, awaited: Awaited) -> int:
    """Count the Nodes whose startup taint waits for that."""
    return sum(each is awaited for _, each in cluster.tainted(datetime.now(UTC), settings.stale_after_s))


async def _after(first: Callable[[], Awaitable[None]], run: Callable[[], Awaitable[None]]) -> None:
    await first()
    await run()


async def _kept_running(run: Callable[[], Awaitable[None]]) -> None:
    """Run for ever: an error that nobody thought of must not end one of the tasks while the others go on as if nothing had happened."""
    while True:
        try:
            await run()
        except Exception:  # noqa: BLE001 - whatever it is, it is logged and the task starts again
            _log.exception("a task failed and is started again, please report")
        await asyncio.sleep(_AGAIN_AFTER_S)


async def _serve(app: ASGIApp, probes: ASGIApp, address: Address, announce: Callable[[str], None]) -> None:
    """Serve the calls, and the probes beside them where they have a port of their own; ends when a signal ends the calls."""
    listener = listen(address.host, address.port)
    main = server(app, announce, url_of(listener, address.tls), address.tls)
    if not address.probe_port:
        await main.serve(sockets=[listener])
        return
    probe_listener = listen(address.host, address.probe_port)
    beside = background_server(probes)
    serving = asyncio.create_task(beside.serve(sockets=[probe_listener]))
    try:
        await main.serve(sockets=[listener])
    finally:
        beside.should_exit = True
        await serving


def lease_name(settings: Settings) -> LeaseName:
    """Return our Lease and a fresh identity: a restarted process is a new one, and waits like any other."""
    pod = os.environ.get("POD_NAME", "")
    namespace = os.environ.get("POD_NAMESPACE") or settings.lease_namespace
    return LeaseName(namespace, settings.lease_name, f"{pod or socket.gethostname()}_{uuid4().hex[:8]}", settings.lease_duration_s, pod)


class _Rounds:
    """What has to be looked after while nobody calls."""

    def __init__(self, client: KubeClient, verbs: Verbs, leadership: Leadership, settings: Settings, gate: Gate) -> None:
        self._client = client
        self._verbs = verbs
        self._leadership = leadership
        self._settings = settings
        self._gate = gate
        self._deaf_at = -math.inf  # when the API server was last out of reach
        self._seen = -1
        self._woke_at = 0.0
        self._absent: set[str] = set()  # nodes that cannot be touched, until another one could
        self._stale_at = 0.0
        self._frozen = False

    async def run(self) -> None:
        """Go round until cancelled."""
        while True:
            await asyncio.sleep(_ROUND_S)
            now = time.monotonic()
            if now - self._stale_at >= _STALE_EVERY_S:
                self._stale_at = now
                while self.close_stale(_STALE_TOGETHER):  # noqa: ASYNC110 - it does the work, a few at a time
                    await asyncio.sleep(0)  # calls go between
            self._keep_out_of_garbage()
            self._verbs.cluster.forget_gone()
            self._verbs.report_edits()
            self._verbs.report_differences()
            self._verbs.follow_demands()
            await self._wake(now)

    def _keep_out_of_garbage(self) -> None:
        """Take the first synced state out of every search for garbage: going through it takes a second at 100,000 pods, and next to nothing of it ever becomes any."""
        if not self._frozen and not self._gate.unready():
            gc.freeze()
            self._frozen = True

    def close_stale(self, most: int | None = None) -> bool:
        """Close nodes whose agent is silent, and open those heard of again, ``most`` of each; tells whether that left some.

        None is closed while nobody can be heard, nor before every agent has had the time of a heartbeat after that.
        """
        now = time.monotonic()
        if self._gate.age_s > _DEAF_AFTER_S and not self._gate.unready():
            self._deaf_at = now
        closing = now - self._deaf_at > self._settings.stale_after_s / _HEARTBEATS_IN_STALE
        return self._verbs.cluster.close_stale(datetime.now(UTC), self._settings.stale_after_s, closing=closing, most=most)

    async def _node_that_may_help(self, view: View) -> str | None:
        for node in self._verbs.waiting.nodes_that_may_help(view, self._absent):
            if node is not None:
                return node
            await asyncio.sleep(0)  # calls go between
        return None

    async def _wake(self, now: float) -> None:
        """Touch a Node where a change may let a refused pod in: one event wakes every pod that an extender refused."""
        view = self._verbs.cluster.view()
        if view.generation == self._seen or not self._leadership.leads or now - self._woke_at < _WAKE_EVERY_S:
            return
        self._seen = view.generation
        node = await self._node_that_may_help(view)
        if node is None:
            self._absent.clear()
            return
        self._woke_at = now
        patch = {"metadata": {"annotations": {annotations.TOPOLOGY_GENERATION: f"{view.generation}-{uuid4().hex[:6]}"}}}
        try:
            await self._client.raw("PATCH", f"/api/v1/nodes/{quote(node, safe='')}", body=Body(patch, MERGE_PATCH), timeout_s=5.0)
        except (NoAnswerError, ApiRefusedError) as error:
            self._seen = -1  # again in the next round
            if isinstance(error, ApiRefusedError) and error.status == 404:
                self._absent.add(node)  # its GPUTopology has outlived it for a while
            _log.warning("waiting pods not woken", **{log_keys.NODE: node, log_keys.REASON: str(error)})
        else:
            self._absent.clear()
            self._verbs.waiting.woken(view.generation)
