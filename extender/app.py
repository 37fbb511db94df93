"""Bytes in, bytes out: the HTTP face of the extender. The routes that kube-scheduler calls are raw, the read API is ordinary FastAPI (`read_routes`).

`extender.cli serve` and the tests make an app with `make_app`; the walk of a pod goes on in `verbs`. A body that is no extender call gets 400; every
other trouble is HTTP 200 with `Error`, because kube-scheduler treats any other status as an outage of the extender.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np
import orjson
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount
from starlette.routing import Route as PathRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from extender.calls import GPUSHARE_PREFIX, Calls, Gate, OpenGate, Route
from extender.cluster import Cluster
from extender.deepening import Deepening
from extender.metrics import Metrics
from extender.placement import fragmentation
from extender.pricing import Pricing
from extender.protocol import Binder
from extender.reasons import Refusal
from extender.settings import Settings
from extender.snapshot_file import Snapshot, SnapshotCluster, SnapshotFile
from extender.verbs import Clocks, Verbs

_log = structlog.get_logger()
_RESOLVE_EVERY_S: Final = 1.0
_BYTES_PER_MIB: Final = 1024 * 1024
_GPUSHARE_VERBS: Final = ("filter", "bind")


def make_app(verbs: Verbs, binder: Binder, metrics: Metrics, settings: Settings, gate: Gate | None = None) -> Calls:
    """Return the app over an extender; without a gate every call is answered."""
    gate = gate or OpenGate()
    metrics.answering.set_function(lambda: float(gate.closed() is None))
    paths = [*_probes(verbs, metrics, gate), Mount("/", _LoadedWhenAsked(partial(_read_app, verbs, binder, gate)))]
    return Calls(_routes(verbs), Starlette(routes=paths, lifespan=_lifespan(verbs, gate)), metrics, gate, settings.most_body_bytes)


class _LoadedWhenAsked:
    """An ASGI app that is made when it is first called, in a thread, so that the calls of kube-scheduler go on meanwhile."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._made: asyncio.Task[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._made is None:
            self._made = asyncio.create_task(asyncio.to_thread(self._make))
        app = await asyncio.shield(self._made)  # a caller that hangs up does not end it for the others
        await app(scope, receive, send)


def _read_app(verbs: Verbs, binder: Binder, gate: Gate) -> ASGIApp:
    from extender.read_routes import make_read_app  # with FastAPI, which no start waits for

    return make_read_app(verbs, binder, gate)


def _routes(verbs: Verbs) -> dict[str, Route]:
    """Return who answers kube-scheduler, by path."""
    at_once = {"filter": verbs.filter, "prioritize": verbs.prioritize, "preempt": verbs.preempt}
    routes = {f"/{verb}": Route(verb, at_once=answer) for verb, answer in at_once.items()} | {"/bind": Route("bind", later=verbs.bind)}
    return routes | {f"{GPUSHARE_PREFIX}/{verb}": routes[f"/{verb}"] for verb in _GPUSHARE_VERBS}


def make_probe_app(verbs: Verbs, metrics: Metrics, gate: Gate) -> Starlette:
    """Return an app with nothing but health and metrics: for a port without TLS, since kubelet shows no client certificate."""
    return Starlette(routes=_probes(verbs, metrics, gate))


def _lifespan(verbs: Verbs, gate: Gate) -> Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if not gate.unready():
            verbs.placement.look_ahead(verbs.cluster.view())  # nobody waits for an answer yet
        deepening = Deepening(verbs.cluster, lambda: not gate.unready())
        pricing = Pricing(verbs.cluster, verbs.placement, lambda: not gate.unready())
        tasks = [asyncio.create_task(run()) for run in (partial(_resolve_for_ever, verbs), deepening.run, pricing.run)]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    return lifespan


async def _resolve_for_ever(verbs: Verbs) -> None:
    while True:
        await asyncio.sleep(_RESOLVE_EVERY_S)
        try:
            await verbs.bindings.resolve_open()
        except Exception:  # noqa: BLE001 - the loop must outlive whatever one round runs into
            _log.exception("asking after open promises failed")


def _probes(verbs: Verbs, metrics: Metrics, gate: Gate) -> list[PathRoute]:
    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_: Request) -> Response:
        unready = gate.unready()
        return PlainTextResponse(unready or "ok", 503 if unready else 200)

    async def version_(_: Request) -> Response:
        return Response(orjson.dumps({"version": version("linkwise")}), media_type="application/json")

    async def metrics_(_: Request) -> Response:
        _count(verbs.cluster, metrics)
        _count_work(verbs, metrics)
        _measure_fragmentation(verbs, metrics)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return [PathRoute(path, answer) for path, answer in (("/healthz", healthz), ("/readyz", readyz), ("/version", version_), ("/metrics", metrics_))]


def _count(cluster: Cluster, metrics: Metrics) -> None:
    """Bring the gauges up to date: they are read rarely, so nobody pays for them but the reader."""
    view = cluster.view()
    metrics.promises.set(cluster.ledger.promised())
    metrics.allocation_edits.set(cluster.allocation_edits)
    for kind, count in cluster.hand_off_differences().items():
        metrics.hand_off_differences.labels(kind).set(count)
    healthy, free = (int(np.bitwise_count(masks).sum()) for masks in (view.usable, view.free))
    metrics.gpus.labels("free").set(free)
    metrics.gpus.labels("held").set(healthy - free)
    metrics.memory_offered.set(int(view.offered_now().sum()) * _BYTES_PER_MIB)
    metrics.memory_left.set(int(view.left.sum()) * _BYTES_PER_MIB)
    closed = np.bincount(view.closed, minlength=max(Refusal) + 1)
    for refusal in Refusal:
        if refusal is Refusal.FITS or refusal.is_closure:
            metrics.nodes.labels(refusal.name).set(int(closed[refusal]))


def _count_work(verbs: Verbs, metrics: Metrics) -> None:
    metrics.waiting_pods.set(len(verbs.waiting))
    for answer, work in verbs.placement.work.items():
        metrics.worked(answer, work.kept, work.anew, work.rows)


def _measure_fragmentation(verbs: Verbs, metrics: Metrics) -> None:
    metrics.fragmentation.clear()  # a class whose last node is gone is no class any more
    for measured in fragmentation(verbs.cluster.view(), verbs.placement):
        metrics.fragmentation.labels(measured.key, measured.models).set(measured.ratio)


def from_snapshot(snapshot: Snapshot | SnapshotFile, settings: Settings, bindings_file: Path | None = None) -> tuple[Calls, list[str]]:
    """Return an app over a snapshot, and sentences about what in it could not be read."""
    app, _, problems = embedded(snapshot, settings, bindings_file)
    return app, problems


def embedded(snapshot: Snapshot | SnapshotFile, settings: Settings, bindings_file: Path | None = None) -> tuple[Calls, SnapshotCluster, list[str]]:
    """Return what `from_snapshot` does and the stored objects behind it, for a caller that plays the rest of the cluster: touch them on the app's loop only."""
    cluster = Cluster(settings.whole_gpu_resource, time.monotonic, reserve_mib=settings.gpu_reserve_mib)
    source = SnapshotCluster(snapshot, cluster, bindings_file)
    problems = source.feed()
    metrics = Metrics()
    verbs = Verbs(cluster, source, metrics, settings, Clocks(time.monotonic, lambda: datetime.now(UTC)))
    verbs.follow_demands(at_once=True)
    return make_app(verbs, source, metrics, settings), source, problems
