"""The extender on a socket of its own, and kube-scheduler's part against it: filter, prioritize, bind over real HTTP.

Called by `tour`. `serving` runs what `linkwise serve --snapshot` runs, on a free port of the loopback interface, in a thread with its own loop.
`OverHttp` does for one pod what kube-scheduler does: it asks with the nodes in an order of its own, takes the node with the best score (asks for none
where one node is left), and has the extender bind. Of the in-tree filters only the node selector is played, so that the extender judges every other node itself and can
be asked about it afterwards. What the pod got is read from the stored pod, as the node's agent would read it; a finished pod is deleted there, as an
API server would tell it.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar

import httpx
import orjson

from extender.app import embedded
from extender.demo.hardware import NodeHardware, Placed
from extender.demo.stream import NAMESPACE, StreamPod
from extender.protocol import JsonObject
from extender.server import listen, server, url_of
from extender.settings import Settings
from extender.snapshot_file import Snapshot, SnapshotCluster
from topology.api import Allocation
from topology.api.annotations import ALLOCATION
from topology.errors import InternalError

_PATIENCE_S: Final = 30.0  # for the start, the end and every call: far above what a loaded laptop needs
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Served:
    """A running extender: where it answers, and the stored objects behind it, which live on its loop."""

    url: str
    _source: SnapshotCluster
    _loop: asyncio.AbstractEventLoop

    def stored_pod(self, name: str) -> JsonObject:
        """Return a pod as it is stored now."""
        pod = self._there(self._source.read_pod(NAMESPACE, name))
        if pod is None:
            raise InternalError(f"pod {NAMESPACE}/{name} is not in the demo's snapshot")
        return pod

    def delete_pod(self, name: str) -> None:
        """Delete a pod that has finished."""

        async def delete() -> None:
            """Do it on the extender's own loop."""
            self._source.delete_pod(NAMESPACE, name)

        self._there(delete())

    def _there(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run on the extender's loop: one loop owns the state."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)


@contextmanager
def serving(snapshot: Snapshot) -> Iterator[Served]:
    """Serve a snapshot until the block ends; raises InternalError where the server does not come up."""
    # model_construct: the defaults alone, so that LINKWISE_… variables of the user's shell do not change what the demo shows.
    app, source, problems = embedded(snapshot, Settings.model_construct())
    if problems:
        raise InternalError(f"the demo's snapshot cannot be read: {'; '.join(problems)}")
    listener = listen("127.0.0.1", 0)
    started = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    def announce(_: str) -> None:
        loops.append(asyncio.get_running_loop())
        started.set()

    url = url_of(listener)
    http = server(app, announce, url)
    thread = threading.Thread(target=http.run, kwargs={"sockets": [listener]}, name="linkwise-demo", daemon=True)
    thread.start()
    try:
        if not started.wait(_PATIENCE_S):
            raise InternalError("the demo's extender did not start")
        yield Served(url, source, loops[0])
    finally:
        http.should_exit = True
        thread.join(_PATIENCE_S)
        listener.close()


class OverHttp:
    """kube-scheduler's part, one pod at a time; ``seconds`` has one entry a decision."""

    def __init__(self, served: Served, client: httpx.Client, hardware: Mapping[str, NodeHardware], seed: int) -> None:
        self._served = served
        self._client = client
        self._hardware = hardware
        self._draw = Random(seed)  # noqa: S311 - repeatable on purpose
        self.seconds: list[float] = []

    def place(self, pod: StreamPod) -> Placed | None:
        """Schedule the pod; None where the extender leaves no node."""
        names = [name for name in self._hardware if pod.node in (None, name)]
        self._draw.shuffle(names)
        started = time.perf_counter()
        node = self._decide(pod, names)
        self.seconds.append(time.perf_counter() - started)
        return None if node is None else self._placed(pod)

    def finish(self, pod: StreamPod) -> None:
        """Delete a pod that has run to its end."""
        self._served.delete_pod(pod.name)

    def decision(self, pod: StreamPod) -> JsonObject:
        """Return what the extender tells about its last decision on the pod."""
        response = self._client.get(f"/api/v1/pods/{NAMESPACE}/{pod.name}/decision").raise_for_status()
        answer: JsonObject = response.json()
        return answer

    def _decide(self, pod: StreamPod, names: list[str]) -> str | None:
        """Make the three calls; returns the node that the pod was bound to."""
        raw = pod.to_object()
        fitting = self._call("filter", {"Pod": raw, "Nodes": None, "NodeNames": names})["NodeNames"]
        if not fitting:
            return None
        node: str = fitting[0]
        if len(fitting) > 1:
            # The in-tree scores are left out: they would be equal, or work against any choice by links.
            scores = self._call("prioritize", {"Pod": raw, "Nodes": None, "NodeNames": fitting})
            node = max(scores, key=lambda one: int(one["Score"]))["Host"]
        error = self._call("bind", {"PodName": pod.name, "PodNamespace": NAMESPACE, "PodUID": pod.uid, "Node": node})["Error"]
        if error:
            raise InternalError(f"the demo is the only scheduler of its cluster, and yet: {error}")
        return node

    def _call(self, verb: str, body: JsonObject) -> Any:
        response = self._client.post(f"/{verb}", content=orjson.dumps(body), headers={"Content-Type": "application/json"})
        return orjson.loads(response.raise_for_status().content)

    def _placed(self, pod: StreamPod) -> Placed:
        allocation = Allocation.decode(self._served.stored_pod(pod.name)["metadata"]["annotations"][ALLOCATION])
        node = self._hardware[allocation.node]
        return Placed(allocation.node, tuple(node.mask_of(gpu.uuid for gpu in gpus) for gpus in allocation.containers.values()))


@contextmanager
def calling(url: str) -> Iterator[httpx.Client]:
    """Open kube-scheduler's connection; proxies of the environment are none of the loopback interface's business."""
    with httpx.Client(base_url=url, timeout=_PATIENCE_S, trust_env=False) as client:
        yield client
