"""Pods that no node can take wait with a sentence, and are bound within seconds of the change that lets them in, whoever hears of it first.

kube-scheduler watches no topologies, and hears of an ended pod when the extender, behind a watch that lags, does not know it yet. So what wakes a pod is the
extender's own touch of a Node. Nothing else happens in these clusters that could.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from extender.sample_machines import DGX1V
from tests.builders import PodBuilder, pod
from tests.e2e.agents import start_agent
from tests.e2e.calls import HTTP
from tests.e2e.checks import check_cluster, check_extender, indices_of
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender, serve, shipped_configuration
from tests.e2e.fault_proxy import FaultProxy
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.objects import pod_object
from tests.e2e.program import wait_until
from topology.api import GPUTopology

SOON_S = 10
Damage = Callable[[GPUTopology], GPUTopology | None]
NODES = r"^/api/v1/nodes/"


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
def on_time(way: FaultProxy) -> Iterator[None]:
    """End every fault with the test."""
    yield
    way.clear()


def without_nvlink(topology: GPUTopology) -> GPUTopology:
    """Return the topology of a machine that came up without its NVLinks."""
    rows = tuple(tuple("SYS" if code.startswith("NV") else code for code in row) for row in topology.spec.links.gpus)
    links = topology.spec.links.model_copy(update={"gpus": rows})
    return topology.model_copy(update={"spec": topology.spec.model_copy(update={"links": links, "nvlink": "none"})})


def observed(topology: GPUTopology, age_s: float = 0, unhealthy: tuple[int, ...] = ()) -> GPUTopology:
    """Return the topology as observed so long ago, with some GPUs unhealthy."""
    gpus = tuple(gpu.model_copy(update={"healthy": position not in unhealthy}) for position, gpu in enumerate(topology.status.gpus))
    status = topology.status.model_copy(update={"observed_at": datetime.now(UTC) - timedelta(seconds=age_s), "gpus": gpus})
    return topology.model_copy(update={"status": status})


def shown(extender: RunningExtender, topology: GPUTopology) -> bool:
    """Whether the extender shows the node with this topology's links and health."""
    node = extender.get(f"nodes/{topology.name}")
    links = [list(row) for row in topology.spec.links.gpus]
    return node.get("links") == links and node["healthy"] == sum(gpu.healthy for gpu in topology.status.gpus)


def fill_but_two_halves(cluster: LiveCluster, topology: GPUTopology) -> None:
    """Leave one GPU of each of two bridge pairs free: two by count, but no bridge. `first` holds the other half of GPU 2."""
    uuids = [gpu.uuid for gpu in topology.spec.gpus]
    for builder in (
        pod("first").holding("bridges", uuids[0]),
        pod("second").holding("bridges", uuids[1]),
        pod("rest").holding("bridges", *uuids[4:]),
    ):
        cluster.make_pod(builder)


def wait_refused(cluster: LiveCluster, builder: PodBuilder, sentence: str) -> None:
    """Create a pod and wait until kube-scheduler has told it our sentence."""
    cluster.make_pod(builder)
    cluster.wait_event(sentence, builder.name, reason="FailedScheduling")
    assert cluster.node_of(builder.name) is None


def test_a_floor_that_no_node_meets_leaves_the_pod_pending_with_our_sentences(cluster: LiveCluster, extender: RunningExtender) -> None:
    for kind in ("dgx1v", "pcie"):
        cluster.make_machine(kind, kind)
    extender.wait_open("dgx1v", "pcie")
    wait_refused(cluster, pod("fast").gpus(2).min_bandwidth(400), "0/2 nodes are available")
    message = cluster.wait_event("linkwise", "fast", reason="FailedScheduling")["message"]
    assert "1 linkwise: best pair 50 GB/s over NV2, min-bandwidth 400 asked" in message
    assert "1 linkwise: best pair 27 GB/s over PIX, min-bandwidth 400 asked" in message
    condition = next(condition for condition in cluster.pod("fast")["status"]["conditions"] if condition["type"] == "PodScheduled")
    assert condition["reason"] == "Unschedulable"
    assert "min-bandwidth 400 asked" in condition["message"]


@pytest.mark.parametrize("lag_s", [pytest.param(0, id="watch on time"), pytest.param(3, id="pod watch three seconds late")])
@pytest.mark.parametrize(
    "how",
    [
        pytest.param("ends", id="ends by itself"),
        pytest.param("deleted", id="is deleted"),
        pytest.param("terminates", id="is deleted and takes its time"),
    ],
)
@pytest.mark.usefixtures("on_time")
def test_a_waiting_pod_is_bound_soon_after_a_pod_frees_the_set_that_it_needs(
    cluster: LiveCluster, extender: RunningExtender, way: FaultProxy, how: str, lag_s: float
) -> None:
    topology = cluster.make_machine("bridges", "bridges")
    fill_but_two_halves(cluster, topology)
    extender.wait_free("bridges", 2)
    way.hold_watch_events(lag_s, "/pods$")
    wait_refused(cluster, pod("waits").gpus(2).min_bandwidth(300), "best pair 18 GB/s over SYS, min-bandwidth 300 asked")
    if how == "terminates":
        cluster.api.delete("Pod", "first")
        assert cluster.pod("first")["metadata"]["deletionTimestamp"]
    if how == "ends":
        cluster.end_pod("first")
    else:
        cluster.api.delete("Pod", "first", grace_s=0)
    assert indices_of(cluster.wait_bound("waits", timeout=SOON_S)) == [0, 2]
    check_cluster(cluster.api)
    way.clear()
    check_extender(extender, cluster.api)


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        pytest.param(without_nvlink, "best pair 9.1 GB/s over SYS, min-bandwidth 50 asked", id="NVLink is back after a boot"),
        pytest.param(
            lambda found: observed(found, unhealthy=(0, 1, 2, 3, 4, 5, 6)), "the node has fewer than 2 healthy GPUs", id="GPUs are healthy again"
        ),
        pytest.param(lambda _: None, "no GPUTopology is published for the node", id="the topology is there at last"),
    ],
)
@pytest.mark.usefixtures("on_time")
def test_a_waiting_pod_is_bound_soon_after_the_repaired_topology_is_published(
    cluster: LiveCluster, extender: RunningExtender, way: FaultProxy, now: Damage, sentence: str
) -> None:
    whole = cluster.make_machine("dgx1v", "dgx1v")
    broken = now(whole)
    if broken is None:
        cluster.api.delete("GPUTopology", "dgx1v")
        extender.wait_closed("dgx1v", sentence)
    else:
        cluster.publish(broken)
        wait_until(lambda: shown(extender, broken), what="the extender knows the broken topology")
    way.hold_watch_events(3, "/pods$")
    wait_refused(cluster, pod("waits").gpus(2).min_bandwidth(50), sentence)
    cluster.publish(observed(whole))
    assert indices_of(cluster.wait_bound("waits", timeout=SOON_S)) == [0, 3]


def test_a_waiting_pod_is_bound_soon_after_the_agent_of_a_rebooted_node_has_found_its_nvlinks_again(
    control_plane: ControlPlane, cluster: LiveCluster, extender: RunningExtender, tmp_path: Path
) -> None:
    cluster.make_node("dgx1v")
    rows = tuple(" ".join("SYS" if cell.startswith("NV") else cell for cell in row.split()) for row in DGX1V.gpu_rows)
    agent = start_agent(control_plane, tmp_path / "without", replace(DGX1V, gpu_rows=rows, nvlinks=0), "dgx1v")
    extender.wait_open("dgx1v", timeout=30)
    wait_refused(cluster, pod("waits").gpus(2).min_bandwidth(50), "best pair 9.1 GB/s over SYS, min-bandwidth 50 asked")
    agent.stop()
    again = start_agent(control_plane, tmp_path / "with", DGX1V, "dgx1v")
    cluster.wait_event("NVLink", "dgx1v")
    assert indices_of(cluster.wait_bound("waits", timeout=SOON_S)) == [0, 3]
    again.stop()


def test_a_node_whose_agent_is_silent_takes_no_pods_until_it_is_heard_again(cluster: LiveCluster, extender: RunningExtender) -> None:
    topology = cluster.make_machine("mesh", "mesh")
    cluster.publish(observed(topology, age_s=600))
    extender.wait_closed("mesh", "silent for too long")
    wait_refused(cluster, pod("waits").gpus(2), "closed: the agent of the node has been silent for too long")
    cluster.publish(observed(topology))
    cluster.wait_bound("waits", timeout=SOON_S)


@pytest.mark.usefixtures("on_time")
def test_the_first_answer_of_a_new_extender_knows_silent_agents_already(control_plane: ControlPlane, cluster: LiveCluster, way: FaultProxy) -> None:
    cluster.publish(observed(cluster.make_machine("mesh", "mesh"), age_s=600))
    # The lists of a large cluster take their time; this is when nobody has looked yet how old the observations are.
    way.delay(0.5, "GET", "/gputopologies$")
    environment = {"LINKWISE_LEASE_NAME": "second"}
    second = serve(control_plane, user="admin", server=way.url, environment=environment).wait_leads()
    call = {"Pod": pod_object(pod("asks").gpus(2)), "NodeNames": ["mesh"], "Nodes": None}
    answer = HTTP.post(f"{second.url}/filter", json=call).json()
    assert "silent for too long" in answer["FailedAndUnresolvableNodes"]["mesh"]
    assert second.stop() == 0


@pytest.mark.usefixtures("on_time")
def test_a_waiting_pod_is_bound_soon_after_a_promise_is_forgotten(cluster: LiveCluster, extender: RunningExtender, way: FaultProxy) -> None:
    cluster.make_machine("mesh", "mesh")
    extender.wait_open("mesh")
    lost = way.drop("POST", "/pods/promised/binding$")
    way.hold_watch_events(3, "/pods$")
    cluster.make_pod(pod("promised").gpus(4))
    lost.wait_hit()
    # Its GPUs stay promised: whether the binding arrived, only the pod can tell.
    wait_refused(cluster, pod("waits").gpus(4), "linkwise: fewer than 4 GPUs are free")
    cluster.api.delete("Pod", "promised", grace_s=0)
    cluster.wait_bound("waits", timeout=SOON_S)
    check_extender(extender, cluster.api)


@pytest.mark.usefixtures("on_time")
def test_one_touch_of_a_node_wakes_all_who_wait_and_a_change_that_helps_nobody_touches_none(
    cluster: LiveCluster, extender: RunningExtender, way: FaultProxy
) -> None:
    topology = cluster.make_machine("bridges", "bridges")
    fill_but_two_halves(cluster, topology)
    extender.wait_free("bridges", 2)
    names = [f"waits-{number}" for number in range(12)]
    for name in names:
        cluster.make_pod(pod(name).gpus(2).min_bandwidth(300))
    for name in names:
        cluster.wait_event("min-bandwidth 300 asked", name, reason="FailedScheduling")
    before = len(way.seen("PATCH", NODES))
    # GPUs of a bridge that is held by half: nothing for a pair.
    uuids = [gpu.uuid for gpu in topology.spec.gpus]
    cluster.make_pod(pod("more").holding("bridges", uuids[2]))
    extender.wait_free("bridges", 1)
    cluster.end_pod("more")
    extender.wait_free("bridges", 2)
    assert len(way.seen("PATCH", NODES)) == before

    # Two whole bridges at once; whoever hears of it from kube-scheduler is refused, since the extender does not know yet.
    way.hold_watch_events(2, "/pods$")
    cluster.end_pod("rest")
    wait_until(lambda: sum(cluster.node_of(name) is not None for name in names) == 2, SOON_S, "two of the waiting pods are bound")
    assert len(way.seen("PATCH", NODES)) == before + 1
    check_cluster(cluster.api)
