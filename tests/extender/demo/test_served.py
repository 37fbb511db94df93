from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from extender.demo.hardware import Placed, hardware_of
from extender.demo.scene import PICTURED_NODE, make_scene
from extender.demo.served import OverHttp, Served, calling, serving
from extender.demo.stream import StreamPod
from topology.api import Allocation
from topology.api.annotations import ALLOCATION, MIN_BANDWIDTH

SCENE = make_scene()
HARDWARE = hardware_of(SCENE.topologies)


@contextmanager
def scheduler_for(*pods: StreamPod, seed: int = 1) -> Iterator[tuple[OverHttp, Served]]:
    with serving(SCENE.snapshot(pods)) as served, calling(served.url) as client:
        yield OverHttp(served, client, HARDWARE, seed), served


def test_a_placed_pod_is_bound_with_the_allocation_that_is_told() -> None:
    pod = StreamPod("a", (2,))
    with scheduler_for(pod) as (scheduler, served):
        placed = scheduler.place(pod)
        stored = served.stored_pod("a")
    assert placed is not None
    allocation = Allocation.decode(stored["metadata"]["annotations"][ALLOCATION])
    assert stored["spec"]["nodeName"] == allocation.node == placed.node
    assert HARDWARE[placed.node].mask_of(allocation.uuids()) == placed.union
    assert HARDWARE[placed.node].figures(placed).gb_per_s == allocation.bandwidth_gb_per_s == 450.0


def test_the_order_of_the_nodes_does_not_change_the_choice() -> None:
    pod = StreamPod("a", (4,))
    chosen = set()
    for seed in range(4):
        with scheduler_for(pod, seed=seed) as (scheduler, _):
            chosen.add(scheduler.place(pod))
    assert len(chosen) == 1


def test_a_node_selector_leaves_one_node_and_no_scores_are_asked_for() -> None:
    pod = StreamPod("a", (4,), node=PICTURED_NODE)
    with scheduler_for(pod) as (scheduler, served), httpx.Client(base_url=served.url) as reader:
        placed = scheduler.place(pod)
        metrics = reader.get("/metrics").text
    assert placed == Placed(PICTURED_NODE, (0b11110000,))
    assert 'verb="filter"' in metrics
    assert 'linkwise_calls_total{outcome="answered",verb="prioritize"}' not in metrics


def test_a_floor_above_all_hardware_finds_no_node_and_the_extender_can_tell_why() -> None:
    pod = StreamPod("a", (2,), ((MIN_BANDWIDTH, "600"),))
    with scheduler_for(pod) as (scheduler, _):
        assert scheduler.place(pod) is None
        decision = scheduler.decision(pod)
    reasons = {node["node"]: node["reason"] for node in decision["nodes"]}
    assert reasons["nvswitch-1"] == "8 of 8 GPUs free, best pair 450 GB/s over NV18, 600 asked"
    assert reasons[PICTURED_NODE] == "7 of 8 GPUs free, best pair 50 GB/s over NV2, 600 asked"
    assert set(reasons) == set(HARDWARE)


def test_a_finished_pod_gives_its_gpus_back() -> None:
    first, second = StreamPod("a", (7,), node=PICTURED_NODE), StreamPod("b", (7,), node=PICTURED_NODE)
    with scheduler_for(first, second) as (scheduler, _):
        assert scheduler.place(first) is not None
        assert scheduler.place(second) is None
        scheduler.finish(first)
        assert scheduler.place(second) is not None
    assert len(scheduler.seconds) == 3


def test_nothing_answers_after_the_block() -> None:
    with serving(SCENE.snapshot()) as served:
        assert httpx.get(f"{served.url}/healthz").text == "ok"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{served.url}/healthz")


def test_settings_of_the_users_shell_do_not_reach_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKWISE_WHOLE_GPU_RESOURCE", "example.com/gpu")
    pod = StreamPod("a", (2,))
    with scheduler_for(pod) as (scheduler, served):
        assert scheduler.place(pod) is not None
        assert ALLOCATION in served.stored_pod("a")["metadata"]["annotations"]
