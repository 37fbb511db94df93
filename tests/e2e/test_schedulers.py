"""Several kube-schedulers and profiles on one extender, and the older form of the call with whole Node objects: nothing is promised twice.

Beside the scheduler of the shipped configuration runs a second one for the name `second`, which sends `Nodes` and understands only those.
"""

import pytest

from tests.builders import pod
from tests.e2e.checks import allocation_of, check_cluster, check_extender, indices_of
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender, shipped_configuration
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.program import wait_until


@pytest.fixture(scope="module", autouse=True)
def second(control_plane: ControlPlane, extender: RunningExtender) -> None:
    """Run a kube-scheduler that is not nodeCacheCapable."""
    configuration = shipped_configuration(extender.url, nodeCacheCapable=False)
    profile = next(profile for profile in configuration["profiles"] if profile["schedulerName"] == "linkwise")
    control_plane.start_scheduler({**configuration, "profiles": [{**profile, "schedulerName": "second"}]})


def test_a_scheduler_that_sends_whole_nodes_gets_the_same_placement_and_the_same_sentences(cluster: LiveCluster, extender: RunningExtender) -> None:
    for kind in ("bridges", "dgx1v", "pcie"):
        cluster.make_machine(kind, kind)
    extender.wait_open("bridges", "dgx1v", "pcie")
    cluster.make_pod(pod("pair").gpus(2), "second")
    bound = cluster.wait_bound("pair")
    assert (bound["spec"]["nodeName"], indices_of(bound), allocation_of(bound)["bandwidthGBps"]) == ("bridges", [0, 2], 300)
    cluster.make_pod(pod("fast").gpus(2).min_bandwidth(400), "second")
    message = cluster.wait_event("0/3 nodes are available", "fast", reason="FailedScheduling")["message"]
    assert "1 linkwise: best pair 300 GB/s over NV12, min-bandwidth 400 asked" in message


def test_a_scheduler_that_sends_whole_nodes_preempts_only_where_it_helps(cluster: LiveCluster, extender: RunningExtender) -> None:
    for name, value in (("low", -10), ("high", 1000)):
        cluster.api.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    for kind in ("mesh", "pcie"):
        cluster.make_machine(kind, kind)
        extender.wait_open(kind)
        cluster.make_pod(pod(f"low-{kind}").gpus(4 if kind == "mesh" else 8), "second", priorityClassName="low")
        cluster.wait_bound(f"low-{kind}")
    cluster.make_pod(pod("never").gpus(2).min_bandwidth(400), "second", priorityClassName="high")
    cluster.wait_event("0/2 nodes are available", "never", reason="FailedScheduling")
    cluster.make_pod(pod("fast").gpus(2).min_bandwidth(100), "second", priorityClassName="high")
    wait_until(lambda: "deletionTimestamp" in cluster.pod("low-mesh")["metadata"], what="the pod on the mesh is evicted")
    assert "deletionTimestamp" not in cluster.pod("low-pcie")["metadata"]
    cluster.api.delete("Pod", "low-mesh", grace_s=0)
    assert cluster.wait_bound("fast")["spec"]["nodeName"] == "mesh"


@pytest.mark.parametrize(
    "schedulers",
    [
        pytest.param(("linkwise", "second"), id="two kube-schedulers"),
        pytest.param(("linkwise", "default-scheduler"), id="two profiles"),
        pytest.param(("linkwise", "default-scheduler", "second"), id="both"),
    ],
)
def test_schedulers_that_compete_for_the_last_gpus_get_each_of_them_once_and_leave_none(
    cluster: LiveCluster, extender: RunningExtender, schedulers: tuple[str, ...]
) -> None:
    sizes = {"nvswitch": 8, "dgx1v": 8, "bridges": 8, "mesh": 4}
    for kind in sizes:
        cluster.make_machine(kind, kind)
    extender.wait_open(*sizes)
    # More than fit; the first two sizes can always be filled up by the last.
    builders = [pod(f"pod-{number:02}").gpus(2 if number < 10 else 1) for number in range(24)]
    for number, scheduler in enumerate(schedulers):
        cluster.make_pods(builders[number :: len(schedulers)], scheduler)
    wait_until(lambda: sum(map(len, check_cluster(cluster.api).values())) == sum(sizes.values()), 60, "every GPU is held")
    check_extender(extender, cluster.api)
