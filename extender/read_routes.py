"""The read API as HTTP: nodes, pods, the target workload, and what gpushare's extender tells beside its verbs. Ordinary FastAPI; what is answered is `read_api`'s business.

`app` loads this module when one of these paths is asked for the first time, and not before: kube-scheduler asks for none of them, and FastAPI is a fifth of what a start imports (decision 23).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version
from itertools import islice
from typing import Any, Final

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from extender import read_api
from extender.calls import GPUSHARE_PREFIX, Gate
from extender.cluster import Cluster
from extender.protocol import Binder, JsonObject, error_answer
from extender.verbs import Verbs
from extender.workload import read_workload
from topology.errors import ApiServerError, InputError

_IN_FORCE_S: Final = 90.0  # longer than prices may take
_SMALL_BODY: Final = 64 * 1024
_SLICE: Final = 100  # nodes that are told in one go: 2 ms


def make_read_app(verbs: Verbs, binder: Binder, gate: Gate) -> FastAPI:
    """Return the app of everything that people and tools read; any path that is none of it is 404."""
    app = FastAPI(title="Linkwise", version=version("linkwise"), docs_url=None, redoc_url=None, openapi_url=None)
    _add_gpushare_api(app, verbs.cluster)
    _add_read_api(app, verbs, binder)
    _add_workload(app, verbs, gate)
    return app


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status_code=status, media_type="application/json")


def _add_gpushare_api(app: FastAPI, cluster: Cluster) -> None:
    """Add what gpushare's extender has beside the verbs."""

    @app.get(f"{GPUSHARE_PREFIX}/inspect")
    async def inspect() -> Response:
        return _json(orjson.dumps(read_api.gpushare_nodes(cluster)))

    @app.get(GPUSHARE_PREFIX + "/inspect/{name}")
    async def inspect_node(name: str) -> Response:
        return _json(orjson.dumps(read_api.gpushare_node(cluster, name)))

    @app.get(f"{GPUSHARE_PREFIX}/version")
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
