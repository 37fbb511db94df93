"""Bindings whose answer never came, or came wrong: the pod ends bound once with its allocation, or not at all, and its GPUs never have two holders.

The fault injector stands between the extender and the API server. Whatever it does, only the stored pod tells what happened, and everything below is
read from there.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.builders import pod
from tests.e2e.checks import check_cluster, check_extender, indices_of
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender, serve, shipped_configuration
from tests.e2e.fault_proxy import FaultProxy
from tests.e2e.fault_rules import Rule
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.program import wait_until

BINDING = "/pods/train/binding$"
# A promise without an answer is asked after every second, and given up 5 s after its POST; kube-scheduler tries again after 1, 2, 4 ... s.
SETTLED_S = 20


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
    for name in ("node-a", "node-b"):
        cluster.make_machine("mesh", name)
    extender.wait_open("node-a", "node-b")
    yield cluster
    way.clear()


def settle(cluster: LiveCluster, extender: RunningExtender) -> None:
    """Wait until no promise is open, and check everything."""
    wait_until(lambda: extender.metric("linkwise_promises") == 0, SETTLED_S, "no promise is open")
    check_cluster(cluster.api)
    check_extender(extender, cluster.api)


@pytest.mark.parametrize(
    ("fault", "lag_s"),
    [
        pytest.param(lambda way: way.drop("POST", BINDING, times=1), 0, id="lost on its way"),
        pytest.param(lambda way: way.cut_after_send("POST", BINDING, times=1), 0, id="taken, and the answer is lost"),
        pytest.param(lambda way: way.cut_after_send("POST", BINDING, times=1), 2, id="taken, the answer is lost, and the pod watch lags"),
        pytest.param(lambda way: way.answer_after_send(500, "POST", BINDING, times=1), 0, id="an error after the deed"),
        pytest.param(lambda way: way.answer_after_send(504, "POST", BINDING, times=1), 2, id="a time-out after the deed, and the pod watch lags"),
        pytest.param(lambda way: way.delay(4.5, "POST", BINDING, times=1), 2, id="late, when the extender has given it up, and the pod watch lags"),
        pytest.param(lambda way: way.answer(429, "POST", BINDING, times=1), 0, id="turned away"),
    ],
)
def test_the_pod_is_bound_once_with_its_allocation(
    machines: LiveCluster, extender: RunningExtender, way: FaultProxy, fault: Callable[[FaultProxy], Rule], lag_s: float
) -> None:
    if lag_s:
        way.hold_watch_events(lag_s, "/pods$")
    rule = fault(way)
    machines.make_pod(pod("train").gpus(2))
    rule.wait_hit()
    # Others come while nobody knows what became of the first: they take what is certainly free.
    machines.make_pods(pod(f"beside-{number}").gpus(2) for number in range(3))
    bound = machines.wait_bound("train", timeout=SETTLED_S)
    assert len(indices_of(bound)) == 2
    for number in range(3):
        machines.wait_bound(f"beside-{number}", timeout=SETTLED_S)
    settle(machines, extender)
    assert [extender.nodes()[name]["free"] for name in ("node-a", "node-b")] == [0, 0]


def test_a_pod_that_somebody_else_bound_meanwhile_is_where_it_is_and_its_promise_is_forgotten(
    machines: LiveCluster, extender: RunningExtender, way: FaultProxy
) -> None:
    held = way.hold("POST", BINDING, times=1)
    machines.make_pod(pod("train").gpus(2))
    held.wait_hit()
    machines.api.bind("train", "node-b")
    held.release()
    wait_until(lambda: extender.metric("linkwise_promises") == 0, SETTLED_S, "the promise is forgotten")
    extender.wait_closed("node-b", "pod default/train uses 2 nvidia.com/gpu and carries no allocation")
    assert extender.nodes()["node-a"]["free"] == 4
    assert machines.node_of("train") == "node-b"
    check_cluster(machines.api, around={"default/train"})


def test_a_pod_that_is_deleted_while_its_binding_is_under_way_leaves_no_trace(
    machines: LiveCluster, extender: RunningExtender, way: FaultProxy
) -> None:
    held = way.hold("POST", BINDING, times=1)
    machines.make_pod(pod("train").gpus(4))
    held.wait_hit()
    machines.api.delete("Pod", "train", grace_s=0)
    held.release()
    settle(machines, extender)
    assert [extender.nodes()[name]["free"] for name in ("node-a", "node-b")] == [4, 4]


def test_a_binding_never_reaches_a_pod_that_was_created_again_under_the_same_name(
    machines: LiveCluster, extender: RunningExtender, way: FaultProxy
) -> None:
    held = way.hold("POST", BINDING, times=1)
    first = machines.make_pod(pod("train").gpus(4))
    held.wait_hit()
    machines.api.delete("Pod", "train", grace_s=0)
    second = machines.make_pod(pod("train").gpus(2))
    held.release()
    bound = machines.wait_bound("train", timeout=SETTLED_S)
    assert first["metadata"]["uid"] != second["metadata"]["uid"] == bound["metadata"]["uid"]
    assert len(indices_of(bound)) == 2
    settle(machines, extender)


def test_while_nobody_knows_the_gpus_stay_promised_and_a_caller_is_told_where(
    machines: LiveCluster, extender: RunningExtender, way: FaultProxy
) -> None:
    way.drop("POST", BINDING)
    held = way.hold("GET", "/pods/train$")
    machines.make_pod(pod("train").gpus(4))
    wait_until(lambda: extender.metric("linkwise_promises") == 1, what="the promise stands")
    free = {name: node["free"] for name, node in extender.nodes().items()}
    assert sorted(free.values()) == [0, 4]
    held.wait_hit()
    machines.wait_event("got no answer", "train", reason="FailedScheduling")
    machines.wait_event("its GPUs stay promised until the pod tells", "train", reason="LinkwiseBindFailed")
    way.clear()
    machines.wait_bound("train", timeout=SETTLED_S)
    settle(machines, extender)
