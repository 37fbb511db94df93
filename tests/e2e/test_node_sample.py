"""Five hundred nodes, and the only free one outside of kube-scheduler's sample: it must be used before anybody is evicted.

Below 100 percent kube-scheduler stops looking when it has found enough nodes by count (230 of 500 by default), and takes the extender's refusal of all of
them for a full cluster. That is why GPU pods belong into the profile `linkwise`. The other profile shows here what happens without it.

The only test of its file: where kube-scheduler starts its next round depends on every pod before.
"""

from concurrent.futures import ThreadPoolExecutor

from extender.sample_machines import sample
from tests.builders import pod
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import serve, shipped_configuration
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.program import wait_until

FULL, FREE = "full", "free"
ROUNDS = 6
SLOW = [f"slow-{number:03}" for number in range(498)]


def make_in_order(live: LiveCluster) -> None:
    """Make the full node first and the free one last: kube-scheduler, which runs already, goes through them in the order in which they came."""
    live.make_machine("nvswitch", FULL)
    live.make_nodes(SLOW)
    with ThreadPoolExecutor(8) as pool:
        # Without a status: an agent that has not told when it looked is not stale.
        list(pool.map(lambda name: live.api.apply({**sample("pcie", name).to_object(), "status": {}}), SLOW))
    live.make_machine("nvswitch", FREE)


def test_a_free_node_outside_of_the_default_sample_is_used_before_anybody_is_evicted(
    control_plane: ControlPlane, live: LiveCluster, accounts: None
) -> None:
    extender = serve(control_plane).wait_leads()
    control_plane.start_scheduler(shipped_configuration(extender.url))
    make_in_order(live)
    for name, value in (("low", -10), ("high", 1000)):
        live.api.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    live.make_pod(pod("low").gpus(8), priorityClassName="low", nodeSelector={"kubernetes.io/hostname": FULL})
    live.wait_bound("low")
    extender.wait_free(FREE, 8)
    assert len(extender.nodes()) == 500

    live.make_pod(pod("fast").gpus(8).min_bandwidth(400), priorityClassName="high")
    assert live.wait_bound("fast", timeout=30)["spec"]["nodeName"] == FREE
    assert "deletionTimestamp" not in live.pod("low")["metadata"]

    # The same pod in the default profile: 230 slow nodes are looked at, and the full one is emptied although the last one is free. Where a round starts is
    # kube-scheduler's own affair; each one starts where the last one ended, so that one of the next few misses the free node.
    for _ in range(ROUNDS):
        live.api.delete("Pod", "fast", grace_s=0)
        extender.wait_free(FREE, 8)
        live.make_pod(pod("fast").gpus(8).min_bandwidth(400), "default-scheduler", priorityClassName="high")
        wait_until(lambda: evicted(live) or live.pod("fast")["spec"].get("nodeName"), 30, "the default profile binds or evicts")
        if evicted(live):
            return
    raise AssertionError(f"in {ROUNDS} rounds the default profile never missed the free node")


def evicted(live: LiveCluster) -> bool:
    """Tell whether the pod of low priority was told to go, or is gone."""
    found = live.api.find("Pod", "low")
    return found is None or "deletionTimestamp" in found["metadata"]
