"""A real control plane with the trace's nodes on it: etcd, kube-apiserver, kube-scheduler with the shipped configuration, KWOK, and `linkwise serve`.

Built and started by the harness of the end-to-end tests (`tests.e2e`), which needs Go the first time. Called by `bench.placement_real`, which then lets pods arrive (`arriving`).
Two things differ from an installation: no agents run, so nodes never count as silent; kubelets neither, KWOK plays them.
"""

import json
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from bench.openb.objects import name_of
from bench.openb.stored import NAMESPACE, node_of, topologies
from bench.openb.trace import Node
from extender.protocol import JsonObject
from tests.e2e import build
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import MANIFESTS, RunningExtender, serve, shipped_configuration
from tests.e2e.live_cluster import LiveCluster

_SETTINGS: Final = {"LINKWISE_STALE_AFTER_S": "864000"}  # what is published once at the start stays true
_PATIENCE_S: Final = 120.0  # without any change of any pod
_WATCH_S: Final = 36_000  # one watch for the whole run; the API server's own limit is 30 to 60 min
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"

Configure = Callable[[JsonObject], JsonObject]  # of the shipped KubeSchedulerConfiguration


@contextmanager
def running(nodes: Sequence[Node], workload: JsonObject, configure: Configure = lambda shipped: shipped) -> Iterator[ControlPlane]:
    """Run a cluster of these nodes, in this order, until the block ends; ``workload`` is what the extender is told to expect."""
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(build.programs(), Path(folder, "plane")).start()
        try:
            _install(plane)
            _publish(LiveCluster(plane), nodes)
            plane.start_kwok()
            extender = serve(plane, environment=_SETTINGS).wait_leads(timeout=120)
            extender.wait_open(*(name_of(row) for row in range(len(nodes))), timeout=120)
            _expect(extender, workload)
            plane.start_scheduler(configure(shipped_configuration(extender.url)))
            yield plane
        finally:
            plane.stop()


def _install(plane: ControlPlane) -> None:
    """Apply what the manifests bring into the cluster beside the programs: kind, rights, and who may write allocations."""
    api = plane.api()
    for name in ("crd.yaml", "rbac-extender.yaml", "rbac-agent.yaml", "admission-policy.yaml"):
        api.apply_file(MANIFESTS / name)
    plane.kubectl("wait", "--for=condition=Established", "--timeout=20s", "crd/gputopologies.linkwise.dev")


def _publish(cluster: LiveCluster, nodes: Sequence[Node]) -> None:
    """Create the nodes and what their agents say of them, several at a time."""
    found = topologies(nodes, datetime.now(UTC))

    def make(row: int) -> None:
        cluster.api.create(node_of(row, nodes[row]))
        cluster.api.patch("Node", name_of(row), {"spec": {"taints": None}})  # not-ready, which admission gives every new node
        cluster.publish(found[row])

    make(0)  # alone: the client looks up each kind once
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(1, len(nodes))))


def _expect(extender: RunningExtender, workload: JsonObject) -> None:
    answer = httpx.put(f"{extender.url}/api/v1/workload", content=orjson.dumps(workload), timeout=30, trust_env=False)
    answer.raise_for_status()


class PodsDoor:
    """The API server's pods, over two connections of the administrator: one to write, one to watch. A `bench.openb.arriving.Door`."""

    def __init__(self, plane: ControlPlane) -> None:
        config = json.loads(plane.kubeconfig().read_bytes())
        (cluster,), (user,) = config["clusters"], config["users"]
        trusted = ssl.create_default_context(cafile=cluster["cluster"]["certificate-authority"])
        headers = {"Authorization": f"Bearer {user['user']['token']}"}
        self._client = httpx.Client(base_url=cluster["cluster"]["server"], headers=headers, verify=trusted, timeout=_PATIENCE_S, trust_env=False)
        self._tails = plane.tails

    def post(self, pod: JsonObject) -> None:
        """Create a pod; raises httpx.HTTPStatusError where the API server refuses it."""
        self._client.post(_PODS, content=orjson.dumps(pod), headers={"Content-Type": "application/json"}).raise_for_status()

    def delete(self, name: str) -> None:
        """Delete a pod at once."""
        self._client.delete(f"{_PODS}/{name}", params={"gracePeriodSeconds": 0}).raise_for_status()

    def stored(self) -> list[dict[str, Any]]:
        """Return all pods as they are stored now."""
        found: list[dict[str, Any]] = orjson.loads(self._client.get(_PODS).raise_for_status().content)["items"]
        return found

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield each pod after each change, from now on."""
        version = orjson.loads(self._client.get(_PODS, params={"limit": 1}).raise_for_status().content)["metadata"]["resourceVersion"]
        return self._watched(version)

    def _watched(self, version: str) -> Iterator[dict[str, Any]]:
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(_WATCH_S)}
        with self._client.stream("GET", _PODS, params=query) as stream:
            stream.raise_for_status()
            try:
                for line in stream.iter_lines():
                    event = orjson.loads(line)
                    if event["type"] in ("ADDED", "MODIFIED"):
                        yield event["object"]
            except httpx.ReadTimeout as error:
                raise TimeoutError(f"no pod has changed for {_PATIENCE_S:g} s\n{self._tails()}") from error
        raise TimeoutError(f"the API server has ended the watch of pods\n{self._tails()}")

    def close(self) -> None:
        """Close both connections."""
        self._client.close()
