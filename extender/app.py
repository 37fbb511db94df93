"""Bytes in, bytes out: the HTTP face of the extender. The routes that kube-scheduler calls are raw, the read API is ordinary FastAPI.

`extender.cli serve` and the tests make an app with `make_app`; the walk of a pod goes on in `verbs`. A body that is no extender call gets 400; every
other trouble is HTTP 200 with `Error`, because kube-scheduler treats any other status as an outage of the extender.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import structlog
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from extender import read_api
from extender.calls import Calls, Gate, OpenGate, Route
from extender.cluster import Cluster
from extender.deepening import Deepening
from extender.metrics import Metrics
from extender.placement import fragmentation
from extender.pricing import Pricing
from extender.protocol import Binder, JsonObject, error_answer
from extender.reasons import Refusal
from extender.settings import Settings
from extender.snapshot_file import Snapshot, SnapshotCluster, SnapshotFile
from extender.verbs import Clocks, Verbs
from extender.workload import read_workload
from topology.errors import ApiServerError, InputError

_log = structlog.get_logger()
_RESOLVE_EVERY_S: Final = 1.0
_IN_FORCE_S: Final = 90.0  # longer than prices may take
_SMALL_BODY: Final = 64 * 1024
_SLICE: Final = 100  # nodes that are told in one go: 2 ms
_BYTES_PER_MIB: Final = 1024 * 1024
_GPUSHARE_PREFIX: Final = "/gpushare-scheduler"  # where configurations point that were written for gpushare's extender
_GPUSHARE_VERBS: Final = ("filter", "bind")


def make_app(verbs: Verbs, binder: Binder, metrics: Metrics, settings: Settings, gate: Gate | None = None) -> Calls:
    """Return the app over an extender; without a gate every call is answered."""
    gate = gate or OpenGate()
    app = FastAPI(title="Linkwise", version=version("linkwise"), lifespan=_lifespan(verbs, gate), docs_url=None, redoc_url=None, openapi_url=None)
    _add_gpushare_api(app, verbs.cluster)
    _add_read_api(app, verbs, binder)
    _add_workload(app, verbs, gate)
    _add_probes(app, verbs, metrics, gate)
    return Calls(_routes(verbs), app, metrics, gate, settings.most_body_bytes)


def _routes(verbs: Verbs) -> dict[str, Route]:
    """Return who answers kube-scheduler, by path."""
    at_once = {"filter": verbs.filter, "prioritize": verbs.prioritize, "preempt": verbs.preempt}
    routes = {f"/{verb}": Route(verb, at_once=answer) for verb, answer in at_once.items()} | {"/bind": Route("bind", later=verbs.bind)}
    return routes | {f"{_GPUSHARE_PREFIX}/{verb}": routes[f"/{verb}"] for verb in _GPUSHARE_VERBS}


def make_probe_app(verbs: Verbs, metrics: Metrics, gate: Gate) -> FastAPI:
    """Return an app with nothing but health and metrics: for a port without TLS, since kubelet shows no client certificate."""
    app = FastAPI(title="Linkwise probes", docs_url=None, redoc_url=None, openapi_url=None)
    _add_probes(app, verbs, metrics, gate)
    return app


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status_code=status, media_type="application/json")


def _lifespan(verbs: Verbs, gate: Gate) -> Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
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


def _add_probes(app: FastAPI, verbs: Verbs, metrics: Metrics, gate: Gate) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        return Response(b"ok", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        unready = gate.unready()
        return Response(unready or "ok", status_code=503 if unready else 200, media_type="text/plain")

    @app.get("/version")
    async def version_() -> Response:
        return _json(orjson.dumps({"version": version("linkwise")}))

    @app.get("/metrics")
    async def metrics_() -> Response:
        _count(verbs.cluster, metrics)
        _count_work(verbs, metrics)
        _measure_fragmentation(verbs, metrics)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_gpushare_api(app: FastAPI, cluster: Cluster) -> None:
    """Add what gpushare's extender has beside the verbs."""

    @app.get(f"{_GPUSHARE_PREFIX}/inspect")
    async def inspect() -> Response:
        return _json(orjson.dumps(read_api.gpushare_nodes(cluster)))

    @app.get(_GPUSHARE_PREFIX + "/inspect/{name}")
    async def inspect_node(name: str) -> Response:
        return _json(orjson.dumps(read_api.gpushare_node(cluster, name)))

    @app.get(f"{_GPUSHARE_PREFIX}/version")
    async def gpushare_version() -> Response:
        return Response(version("linkwise"), media_type="text/plain")  # plain text there, JSON at our own /version


def _add_read_api(app: FastAPI, verbs: Verbs, binder: Binder) -> None:
    @app.get("/api/v1/nodes")
    async def nodes() -> Response:
        return _json(b'{"nodes":[%b]}' % b",".join([part async for part in _in_slices(read_api.nodes(verbs.cluster))]))

    @app.get("/api/v1/nodes/{name}")
    async def node(name: str) -> Response:
        return _found(read_api.node(verbs.cluster, name), f"no node {name} with a GPUTopology is known")

    @app.get("/api/v1/pods/{namespace}/{name}/decision")
    async def decision(namespace: str, name: str) -> Response:
        try:
            found = await read_api.decision(verbs, binder, namespace, name)
        except ApiServerError as error:
            return _json(error_answer(str(error)), status=503)
        return _found(found, f"no decision about pod {namespace}/{name} is kept, and no such pod is known")


def _add_workload(app: FastAPI, verbs: Verbs, gate: Gate) -> None:
    """Add the histogram of demands: what it weighs now, and the setting of it by hand, which only the replica takes that decides."""

    def now() -> Response:
        return _json(orjson.dumps(read_api.workload(verbs)))

    def refused() -> Response | None:
        closed = gate.closed()
        return None if closed is None else _json(error_answer(closed.sentence), status=503)

    @app.get("/api/v1/workload")
    async def workload() -> Response:
        return now()

    @app.put("/api/v1/workload")
    async def fix_workload(request: Request) -> Response:
        try:
            told = read_workload(await _json_of(request))
            if (answer := refused()) is not None:
                return answer
            verbs.fix_workload(told.weights, told.classes)
            await _in_force(verbs)
        except InputError as error:
            return _json(error_answer(str(error)), status=400)
        return now()

    @app.delete("/api/v1/workload")
    async def reset_workload() -> Response:
        if (answer := refused()) is not None:
            return answer
        verbs.reset_workload()
        await _in_force(verbs)
        return now()


async def _in_force(verbs: Verbs) -> None:
    """Wait until what was told is what placement goes by; not for ever, whatever becomes of the prices."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_IN_FORCE_S):
            while verbs.placement.awaits_prices:  # noqa: ASYNC110 - what is waited for knows no loop
                await asyncio.sleep(0.02)


async def _json_of(request: Request) -> object:
    """Return the body of a small call; raises InputError for one that is no JSON or too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _SMALL_BODY:
            raise InputError(f"the body is larger than {_SMALL_BODY} bytes")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InputError(f"the body is no JSON: {error}") from error


async def _in_slices(objects: Iterator[JsonObject]) -> AsyncIterator[bytes]:
    """Yield the entries of an array as JSON, a few at a time, and let others have the loop between them."""
    while some := list(islice(objects, _SLICE)):
        yield orjson.dumps(some)[1:-1]
        await asyncio.sleep(0)


def _found(value: dict[str, Any] | None, sentence: str) -> Response:
    return _json(error_answer(sentence), status=404) if value is None else _json(orjson.dumps(value))


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
