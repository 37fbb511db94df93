"""An API server for benchmarks, in a process of its own: pages of lists and watch streams from bytes that were made before, so that it costs the measured side next to nothing.

`python -m bench.watch_stream_server --nodes N --pods M [--lives L]` prints its URL. It answers lists of pods, Nodes, GPUTopologies and ConfigMaps with `limit` and `continue`, holds watches open,
takes every other write as done (Leases are kept, so that an extender can lead), and on `POST /bench/storm?rate=R&seconds=S` sends the pods' watch that many events a second. Each event
carries the time at which it was due, so that whoever holds up the stream does not make its own lag smaller, and the time at which it was sent, as this process may be late as well.
"""

import asyncio
import contextlib
import time
from typing import Annotated, Any, Final

import orjson
import typer
import uvloop
from aiohttp import web

from bench import api_objects

_TICK_S: Final = 0.005
_CRD: Final = "/apis/linkwise.dev/v1alpha1/gputopologies"
_KINDS: Final = {
    "/api/v1/nodes": ("v1", "Node"),
    "/api/v1/pods": ("v1", "Pod"),
    _CRD: ("linkwise.dev/v1alpha1", "GPUTopology"),
    "/api/v1/namespaces/kube-system/configmaps": ("v1", "ConfigMap"),
}


class Server:
    """The lists by path, and the open watches."""

    def __init__(self, made: api_objects.Objects, events: list[bytes]) -> None:
        self._lists = {"/api/v1/nodes": made.nodes, "/api/v1/pods": made.pods, _CRD: made.topologies}
        # Split at the time that is put in when an event is sent.
        self._events = [tuple(event.split(api_objects.NEVER, 1)) for event in events]
        self._watches: dict[str, set[web.StreamResponse]] = {path: set() for path in _KINDS}
        self._kept: dict[str, Any] = {}
        self._sent = 0
        self._version = 2

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one call."""
        if request.path.startswith("/bench/"):
            return await self._command(request)
        if request.method != "GET":
            return await self._write(request)
        if request.path not in _KINDS:
            known = self._kept.get(request.path)
            return web.json_response(known) if known else web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        return await self._watch(request) if request.query.get("watch") else self._list(request)

    def _list(self, request: web.BaseRequest) -> web.Response:
        items = self._lists.get(request.path, [])
        version, kind = _KINDS[request.path]
        first, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 0)) or len(items)
        rest = len(items) - first - limit
        metadata = {"resourceVersion": "2", **({"continue": str(first + limit), "remainingItemCount": rest} if rest > 0 else {})}
        head = orjson.dumps({"kind": f"{kind}List", "apiVersion": version, "metadata": metadata})[:-1]
        body = head + b',"items":[' + b",".join(items[first : first + limit]) + b"]}\n"
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        watches = self._watches[request.path]
        watches.add(response)
        version, kind = _KINDS[request.path]
        try:
            while True:
                bookmark = {"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "2"}}}
                await response.write(orjson.dumps(bookmark) + b"\n")
                await asyncio.sleep(30)
        except ConnectionError:
            pass  # whoever watched is gone
        finally:
            watches.discard(response)
        return response

    async def _write(self, request: web.BaseRequest) -> web.Response:
        body = orjson.loads(await request.read() or b"{}")
        if "/leases" in request.path:
            self._version += 1
            body["metadata"]["resourceVersion"] = str(self._version)
            path = request.path if request.method == "PUT" else f"{request.path}/{body['metadata']['name']}"
            self._kept[path] = body
        return web.json_response(body, status=201 if request.method == "POST" else 200)

    # --- what only a benchmark asks for ---

    async def _command(self, request: web.BaseRequest) -> web.Response:
        command = request.path.removeprefix("/bench/")
        if command == "storm":
            asyncio.create_task(self._storm(float(request.query["rate"]), float(request.query["seconds"])))  # noqa: RUF006 - it ends by itself, or with the process
        elif command == "event":  # one event of any kind: `path` says of which
            await self._send(request.query["path"], await request.read() + b"\n")
        elif command == "cut":  # all watches end: everybody lists again
            for watches in self._watches.values():
                for response in tuple(watches):
                    response._payload_writer.transport.abort()  # type: ignore[union-attr]  # noqa: SLF001 - a benchmark's own way to cut a connection
        elif command == "expire":
            await self._send(
                request.query["path"], orjson.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}) + b"\n"
            )
        return web.json_response({"sent": self._sent})

    async def _send(self, path: str, data: bytes) -> None:
        for response in tuple(self._watches[path]):
            with contextlib.suppress(ConnectionError):
                await response.write(data)

    async def _storm(self, rate: float, seconds: float) -> None:
        """Send the events in their order, again from the first when all were sent; each is due at its place in time."""
        began, sent = time.monotonic_ns(), 0
        step_ns = 1e9 / rate
        while sent < rate * seconds:
            now = time.monotonic_ns()
            due = min(int((now - began) / step_ns) + 1, int(rate * seconds))
            parts: list[bytes] = []
            for number in range(sent, due):
                before, after = self._events[(self._sent + number - sent) % len(self._events)]
                parts += (before, b"%020d.%020d" % (int(began + number * step_ns), now), after)
            self._sent += due - sent
            sent = due
            await self._send("/api/v1/pods", b"".join(parts))
            await asyncio.sleep(_TICK_S)


async def _serve(server: Server) -> None:
    runner = web.ServerRunner(web.Server(server.answer, access_log=None))  # type: ignore[arg-type]  # handlers take what the server makes
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


def main(
    nodes: Annotated[int, typer.Option(min=1)] = 1000,
    pods: Annotated[int, typer.Option(min=0)] = 10_000,
    lives: Annotated[int, typer.Option(min=0, help="Short-lived pods in the storm, five events each.")] = 0,
    seed: int = 0,
) -> None:
    """Serve a synthetic cluster until the process is ended."""
    made = api_objects.make(nodes, pods, seed)
    uvloop.run(_serve(Server(made, list(api_objects.events(made, lives)))))


if __name__ == "__main__":
    typer.run(main)
