"""How an extender starts on a large cluster: quickly, and without writing to any node."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import httpx
import pytest

from extender.sample_machines import SAMPLE_MACHINES, sample
from tests.builders import pod
from tests.e2e.api_server import JsonObject
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender, serve
from tests.e2e.fault_proxy import FaultProxy
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.objects import pod_object

KINDS = tuple(SAMPLE_MACHINES)
NODES = {f"node-{number}": KINDS[number % len(KINDS)] for number in range(1000)}
PODS_A_NODE = 5
FIRST_ANSWER_S = 5.0


@pytest.fixture
def large(live: LiveCluster, accounts: None) -> LiveCluster:
    """Give 1,000 nodes and 5,000 bound pods: four with an allocation and one without GPUs on each."""

    def make(name: str) -> None:
        kind = NODES[name]
        live.make_node(name, SAMPLE_MACHINES[kind].size)
        live.publish(sample(kind, name, observed_at=datetime.now(UTC)))
        uuids = SAMPLE_MACHINES[kind].uuids(name)
        for number in range(PODS_A_NODE - 1):
            live.make_pod(pod(f"{name}-{number}").holding(name, uuids[number]))
        live.make_pod(pod(f"{name}-plain").plain().bound_to(name))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(make, NODES))
    return live


def first_answer(control_plane: ControlPlane, server: str) -> tuple[RunningExtender, JsonObject, float]:
    """Start an extender; return it, its first answer, and the seconds that this took."""
    call = {"Pod": pod_object(pod("first").gpus(1)), "NodeNames": list(NODES)}
    started_at = time.monotonic()
    extender = serve(control_plane, server=server)
    while time.monotonic() - started_at < 60:
        try:
            answer: JsonObject = httpx.post(f"{extender.url}/filter", json=call, timeout=10).json()
        except httpx.HTTPError:
            time.sleep(0.05)
        else:
            if not answer["Error"]:
                return extender, answer, time.monotonic() - started_at
    raise AssertionError(f"no answer within a minute\n{extender.program.tail()}")


def test_the_first_answer_comes_within_5_s_and_no_node_is_written_to(
    large: LiveCluster, control_plane: ControlPlane, fault_proxy: FaultProxy
) -> None:
    versions = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in large.api.items("Node")}
    took: list[float] = []
    # A machine that does something else as well may be slow once.
    while not took or (took[-1] > FIRST_ANSWER_S and len(took) < 3):
        extender, answer, seconds = first_answer(control_plane, fault_proxy.url)
        took.append(seconds)
        assert len(answer["NodeNames"]) == sum(SAMPLE_MACHINES[kind].size > PODS_A_NODE - 1 for kind in NODES.values())
        free = {name: node["free"] for name, node in extender.nodes().items()}
        assert free == {name: SAMPLE_MACHINES[kind].size - (PODS_A_NODE - 1) for name, kind in NODES.items()}
        assert extender.stop() == 0
    assert versions == {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in large.api.items("Node")}
    assert fault_proxy.seen("PATCH|PUT|POST|DELETE", "/nodes") == []
    assert min(took) < FIRST_ANSWER_S, took
