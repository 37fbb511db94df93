"""The Service in front of two replicas, as far as kube-scheduler sees it: one address that leads to the pod with the leader label, if that pod is ready.

No kubelet and no kube-proxy run here, so a thread plays both: it asks each replica's /readyz (three failures in a row make it unready), reads the labels of
the replicas' Pod objects, and forwards new connections. As in a real cluster, connections that are open stay where they are.
"""

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import httpx

from tests.e2e.api_server import ApiServer
from tests.e2e.control_plane import NAMESPACE
from tests.e2e.extender import RunningExtender
from tests.e2e.program import free_port

LEADER = "linkwise.dev/leader"
PROBE_S = 1.0
FAILURES = 3


class LeaderService:
    """A context manager; ``replicas`` by the names of their Pod objects in the namespace of Linkwise."""

    def __init__(self, api: ApiServer, replicas: Mapping[str, RunningExtender]) -> None:
        self._api = api
        self._replicas = dict(replicas)
        self._failures = dict.fromkeys(replicas, 0)
        self._port = free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="leader-service")
        self._end: asyncio.Event
        self._listening = threading.Event()
        self._open: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """What kube-scheduler calls."""
        return f"http://127.0.0.1:{self._port}"

    def endpoint(self) -> str:
        """Return the name of the pod that new connections go to, empty where there is none."""
        ready = [name for name, failures in self._failures.items() if failures < FAILURES]
        labelled = {item["metadata"]["name"] for item in self._api.items("Pod", NAMESPACE, labels=f"{LEADER}=true")}
        return next((name for name in ready if name in labelled), "")

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        server = await asyncio.start_server(self._forward, "127.0.0.1", self._port)
        probing = [asyncio.create_task(self._probe(name)) for name in self._replicas]
        self._listening.set()
        await self._end.wait()
        server.close()
        for task in (*probing, *self._open):
            task.cancel()
        await asyncio.gather(*probing, *self._open, return_exceptions=True)

    async def _probe(self, name: str) -> None:
        async with httpx.AsyncClient(base_url=self._replicas[name].url, timeout=PROBE_S) as http:
            while True:
                try:
                    ready = (await http.get("/readyz")).status_code == 200
                except httpx.HTTPError:
                    ready = False
                self._failures[name] = 0 if ready else self._failures[name] + 1
                await asyncio.sleep(PROBE_S)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            name = await asyncio.to_thread(self.endpoint)
            if name:
                host, _, port = self._replicas[name].url.removeprefix("http://").partition(":")
                there = await asyncio.open_connection(host, int(port))
                await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))
        except OSError:
            pass  # the connection ends, as it would there
        finally:
            writer.close()
            self._open.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
