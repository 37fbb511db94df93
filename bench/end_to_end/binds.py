"""Binds alone, from many connections at once: onto one node, onto as many nodes as pods, and by clients that decide nothing.

kube-scheduler is not running: the pods are made for nobody, filtered by hand (so that the extender knows them, as it does after kube-scheduler's call) and then bound from `CONNECTIONS` connections. They ask for a GiB
of GPU memory, of which one node has room for hundreds. Rounds are interleaved, so that noise hits all alike.
"""

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from bench.end_to_end.cluster import ARRIVING, LoadedCluster, pods_path
from bench.end_to_end.door import Call
from bench.end_to_end.programs import asked
from bench.end_to_end.variants import Who
from tests.builders import pod
from tests.e2e.objects import pod_object
from tests.e2e.share_checks import wrong_on

JsonObject = dict[str, Any]

CONNECTIONS: Final = 16
PODS: Final = 240
_NOBODY: Final = "nobody"  # schedulerName: no kube-scheduler has such a profile

Bind = Callable[[JsonObject, str], None]  # a stored pod, and its node


@dataclass(frozen=True, slots=True)
class Binds:
    """How fast binds went: ``who`` made them, ``onto`` one node or distinct ones; binds a second, and the median and 99th percentile of one, seconds."""

    who: str
    onto: str
    pods_per_s: float
    p50_s: float
    p99_s: float


def measure(cluster: LoadedCluster, rounds: int, pods: int = PODS) -> list[Binds]:
    """Return one figure a round for each who and where."""
    targets = chosen(cluster.free_gib(), pods)
    found: list[Binds] = []
    for _ in range(rounds):
        for who in (Who.NOBODY, Who.NULL, Who.LINKWISE):
            for onto, nodes in targets.items():
                found.append(_round(cluster, who, onto, nodes))
                cluster.clear()
    return found


def chosen(free_gib: dict[str, int], pods: int) -> dict[str, list[str]]:
    """Return a node for every pod of a GiB, by what is to be compared: the roomiest for all, or one after the other of those that have room for as many as they get."""
    roomiest = max(free_gib, key=lambda name: free_gib[name])
    count = min(pods, free_gib[roomiest])
    roomy = [name for name, gib in free_gib.items() if gib * len(free_gib) >= 4 * count]
    return {"one node": [roomiest] * count, "distinct nodes": [roomy[at % len(roomy)] for at in range(count)]}


def _round(cluster: LoadedCluster, who: Who, onto: str, nodes: Sequence[str]) -> Binds:
    batch = cluster.batch()
    made = [pod_object(pod(f"{batch}-{number:04}").shared(1), _NOBODY) for number in range(len(nodes))]
    cluster.door.each(Call("POST", pods_path(ARRIVING), orjson.dumps(item)) for item in made)
    stored = sorted(cluster.door.items(pods_path(ARRIVING)), key=lambda item: str(item["metadata"]["name"]))
    wanted = list(zip(stored, nodes, strict=True))
    with asked(cluster, who) as (url, _, _), closing(Caller(url)) as extender:
        if who is not Who.NOBODY:
            extender.filter(wanted)
        found = timed(who.value, onto, _by_api_server(cluster) if who is Who.NOBODY else extender.bind, wanted)
    if who is Who.LINKWISE:
        _check(cluster)
    return found


def timed(who: str, onto: str, bind: Bind, wanted: Sequence[tuple[JsonObject, str]]) -> Binds:
    """Bind all from `CONNECTIONS` threads."""

    def one(pair: tuple[JsonObject, str]) -> float:
        began = time.perf_counter()
        bind(*pair)
        return time.perf_counter() - began

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        started = time.perf_counter()
        seconds = sorted(threads.map(one, wanted))
        took = time.perf_counter() - started
    return Binds(who, onto, len(wanted) / took, seconds[len(seconds) // 2], seconds[int(0.99 * (len(seconds) - 1))])


def _by_api_server(cluster: LoadedCluster) -> Bind:
    def bind(item: JsonObject, node: str) -> None:
        name = item["metadata"]["name"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": ARRIVING, "uid": item["metadata"]["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        cluster.door.send(Call("POST", f"{pods_path(ARRIVING)}/{name}/binding", orjson.dumps(body)))

    return bind


class Caller:
    """An extender over one connection a thread, opened anew where it has closed it."""

    def __init__(self, url: str) -> None:
        self._where = urlsplit(url).netloc
        self._mine = threading.local()
        self._all: list[http.client.HTTPConnection] = []

    def filter(self, wanted: Sequence[tuple[JsonObject, str]]) -> None:
        """Ask about every pod on its node, as kube-scheduler does before it binds; raises AssertionError where it does not fit there."""
        for item, node in wanted:
            answer = self._post("/filter", {"Pod": item, "NodeNames": [node], "Nodes": None})
            assert answer["NodeNames"] == [node], answer

    def bind(self, item: JsonObject, node: str) -> None:
        """Bind a stored pod to a node; raises AssertionError where it is refused."""
        metadata = item["metadata"]
        answer = self._post("/bind", {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"], "Node": node})
        assert not answer["Error"], answer

    def _post(self, path: str, value: JsonObject) -> Any:
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = http.client.HTTPConnection(self._where, timeout=30)
            self._all.append(connection)
        connection.request("POST", path, orjson.dumps(value), {"Content-Type": "application/json"})
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        return orjson.loads(body)

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._all:
            connection.close()


def _check(cluster: LoadedCluster) -> None:
    """Raise AssertionError where a GPU gives more than it has, or a pod got another amount than it asked for."""
    by_node: dict[str, list[JsonObject]] = {}
    for item in cluster.door.items("/api/v1/pods", fieldSelector="spec.nodeName!="):
        by_node.setdefault(item["spec"]["nodeName"], []).append(item)
    wrong = list(_wrong(cluster, by_node))
    assert not wrong, "\n".join(wrong[:10])


def _wrong(cluster: LoadedCluster, by_node: dict[str, list[JsonObject]]) -> Iterator[str]:
    for topology in cluster.topologies:
        yield from wrong_on(by_node.get(topology["metadata"]["name"], ()), topology)
