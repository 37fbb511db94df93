"""The API server goes away for seconds or for two minutes, and lags: calls are refused with a reason, nothing crashes, and all is right again soon after.

It goes away for the extender alone (the fault injector refuses every connection), or stops in mid-air and answers nobody. kube-scheduler's calls are played by
the test where kube-scheduler itself would be without its API server.
"""

import math
import time
from collections.abc import Iterator

import pytest

from tests.builders import PodBuilder, pod
from tests.e2e.api_server import JsonObject
from tests.e2e.calls import HTTP
from tests.e2e.checks import check_cluster, check_extender, indices_of
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender, serve, shipped_configuration
from tests.e2e.fault_proxy import FaultProxy
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.objects import pod_object
from tests.e2e.program import wait_until

NODES = ("node-a", "node-b")
RIGHT_AGAIN_S = 10
OLD = "s old, because the API server does not answer; up to 30 s are allowed"
NOT_LEADING = "this replica does not lead; its lease could not be renewed"


@pytest.fixture(scope="module")
def way(control_plane: ControlPlane) -> Iterator[FaultProxy]:
    """Stand between the extender and the API server."""
    with FaultProxy(control_plane.url, control_plane.certificate_authority) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def extender(control_plane: ControlPlane, accounts: None, way: FaultProxy) -> Iterator[RunningExtender]:
    """Run the extender behind the fault injector, and kube-scheduler."""
    running = serve(control_plane, server=way.url).wait_leads()
    control_plane.start_scheduler(shipped_configuration(running.url))
    yield running
    LiveCluster(control_plane).empty()


@pytest.fixture
def machines(cluster: LiveCluster, extender: RunningExtender, way: FaultProxy) -> Iterator[LiveCluster]:
    """Give two nodes of four GPUs, and end every fault with the test."""
    for name in NODES:
        cluster.make_machine("mesh", name)
    extender.wait_open(*NODES)
    yield cluster
    way.clear()
    way.come_back()


def verb(extender: RunningExtender, verb: str, call: JsonObject) -> JsonObject:
    answer = HTTP.post(f"{extender.url}/{verb}", json=call)
    assert answer.status_code == 200
    found: JsonObject = answer.json()
    return found


def filtered(extender: RunningExtender, builder: PodBuilder) -> JsonObject:
    return verb(extender, "filter", {"Pod": pod_object(builder), "NodeNames": list(NODES)})


def wait_right_again(extender: RunningExtender, since: float) -> None:
    """Wait until a filter call is answered in full; it must be soon after the API server came back."""
    wait_until(lambda: filtered(extender, pod("probe").gpus(1)).get("NodeNames"), 30, "calls are answered")
    assert time.monotonic() - since < RIGHT_AGAIN_S


@pytest.mark.parametrize(
    "gone_s",
    [
        pytest.param(5, id="for 5 s: less than a lease"),
        pytest.param(120, id="for two minutes"),
    ],
)
def test_an_api_server_that_is_gone_costs_answers_and_nothing_else(
    machines: LiveCluster, extender: RunningExtender, way: FaultProxy, gone_s: float
) -> None:
    extender.stop()
    extender.start().wait_leads()  # after an earlier outage a watch may be open again seconds after calls are answered, and its age counts on
    pid = extender.program.pid
    machines.make_pod(pod("before").gpus(2))
    machines.wait_bound("before")
    way.go_away()
    gone_at = time.monotonic()
    told: dict[str, float] = {}
    while time.monotonic() - gone_at < gone_s:
        error = filtered(extender, pod("probe").gpus(1))["Error"]
        told.setdefault(OLD if OLD in error else NOT_LEADING if error.startswith(NOT_LEADING) else error, time.monotonic() - gone_at)
        assert extender.ready(), "a restart would not bring the API server back"
        time.sleep(0.25)
    bind = {"PodNamespace": "default", "PodName": "probe", "PodUID": "uid-default-probe", "Node": "node-a"}
    refused = verb(extender, "bind", bind)["Error"]
    # What changes meanwhile is not seen.
    machines.api.delete("Pod", "before", grace_s=0)
    machines.make_pod(pod("around").holding("node-b", *uuids(machines, "node-b")[:3]))
    way.come_back()
    came_back_at = time.monotonic()
    wait_right_again(extender, came_back_at)
    check_extender(extender, machines.api, timeout=max(0.1, RIGHT_AGAIN_S - (time.monotonic() - came_back_at)))

    if gone_s < 12:
        assert told.keys() == {""}, "the lease lasts longer, and the state is fresh enough"
        assert "Cannot connect" in refused
    else:
        assert list(told) == ["", NOT_LEADING, OLD]
        assert told[NOT_LEADING] <= 13
        assert 30 <= told[OLD] <= 33
        assert OLD in refused
    machines.make_pods([pod("after-1").gpus(1), pod("after-4").gpus(4)])
    for name, gpus in (("after-1", 1), ("after-4", 4)):
        assert len(indices_of(machines.wait_bound(name, timeout=20))) == gpus
    check_cluster(machines.api)
    check_extender(extender, machines.api)
    assert extender.program.pid == pid
    assert "Traceback" not in extender.program.text()


def uuids(cluster: LiveCluster, node: str) -> list[str]:
    return [gpu["uuid"] for gpu in cluster.api.get("GPUTopology", node)["spec"]["gpus"]]


def test_an_api_server_that_stops_in_mid_air_is_survived_as_well(
    machines: LiveCluster, extender: RunningExtender, control_plane: ControlPlane
) -> None:
    """Its connections stay open: nothing but its silence tells that it is gone."""
    control_plane.kube_apiserver.pause()
    try:
        wait_until(lambda: filtered(extender, pod("probe").gpus(1))["Error"].startswith(NOT_LEADING), 20, "the lease has run out")
        time.sleep(5)
    finally:
        control_plane.kube_apiserver.resume()
    wait_right_again(extender, time.monotonic())
    machines.make_pod(pod("after").gpus(4))
    machines.wait_bound("after", timeout=30)
    check_cluster(machines.api)
    check_extender(extender, machines.api)


def test_a_watch_that_lags_never_leads_to_a_double_promise(machines: LiveCluster, extender: RunningExtender, way: FaultProxy) -> None:
    lag = way.hold_watch_events(math.inf, "/pods$")
    names = [f"pod-{number}" for number in range(8)]
    machines.make_pods(pod(name).gpus(1) for name in names)
    for name in names:
        machines.wait_bound(name, timeout=20)
    check_cluster(machines.api)
    # All GPUs are taken, and no watch has said so. Two pods go, and the extender cannot know it: nobody gets their GPUs yet.
    for name in names[:2]:
        machines.api.delete("Pod", name, grace_s=0)
    machines.make_pods([pod("waits-1").gpus(1), pod("waits-2").gpus(1)])
    machines.wait_event("fewer than 1 GPU", "waits-1", reason="FailedScheduling")
    assert machines.node_of("waits-1") is machines.node_of("waits-2") is None
    lag.remove()
    for name in ("waits-1", "waits-2"):
        machines.wait_bound(name, timeout=RIGHT_AGAIN_S)
    check_cluster(machines.api)
    check_extender(extender, machines.api)


def test_pods_that_come_and_go_under_a_lagging_watch_that_is_cut_now_and_then_never_share_a_gpu(
    machines: LiveCluster, extender: RunningExtender, way: FaultProxy
) -> None:
    way.hold_watch_events(1.5, "/pods$")
    for number in range(30):
        machines.make_pod(pod(f"pod-{number}").gpus(1 + number % 2))
        if number >= 4:
            machines.api.delete("Pod", f"pod-{number - 4}", grace_s=0)
        if number % 10 == 9:
            way.cut_watches("/pods$")
        check_cluster(machines.api)
    for number in range(26, 30):
        machines.wait_bound(f"pod-{number}", timeout=20)
    check_cluster(machines.api)
    check_extender(extender, machines.api)
