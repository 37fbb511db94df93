"""What is left of CPU and memory on a node, as the extender tells it, against the requests of the pods that the API server has."""

from tests.builders import pod
from tests.e2e.extender import RunningExtender
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.program import wait_until

CPU, MEMORY = 128_000, 1024 * 1024  # millicores and MiB of every test node


def wait_left(extender: RunningExtender, name: str, cpu_milli: int, memory_mib: int) -> None:
    def told() -> bool:
        node = extender.get(f"nodes/{name}")
        return (node["cpuLeftMilli"], node["hostMemoryLeftMiB"]) == (CPU - cpu_milli, MEMORY - memory_mib)

    wait_until(told, what=f"{cpu_milli} millicores and {memory_mib} MiB of {name} are counted as requested")


def test_requests_of_all_pods_count_from_their_binding_to_their_end(cluster: LiveCluster, extender: RunningExtender) -> None:
    """With GPUs and without, by requests and by limits, of which the API server makes requests; a restart counts the same."""
    cluster.make_machine("dgx1v", "node-a")
    extender.wait_open("node-a")
    wait_left(extender, "node-a", 0, 0)
    cluster.make_pod(pod("web").plain(cpu="2500m", memory="3Gi").bound_to("node-a"))
    by_limits = {"name": "main", "image": "registry.example/none", "resources": {"limits": {"cpu": "1", "memory": "512Mi"}}}
    cluster.make_pod(pod("limited").bound_to("node-a"), containers=[by_limits])
    wait_left(extender, "node-a", 3500, 3584)

    cluster.make_pod(pod("train").gpus(2).plain(cpu="8", memory="64Gi"))
    cluster.wait_bound("train")
    wait_left(extender, "node-a", 11_500, 69_120)

    assert extender.stop() == 0
    extender.start().wait_leads()
    wait_left(extender, "node-a", 11_500, 69_120)

    cluster.end_pod("web")
    wait_left(extender, "node-a", 9000, 66_048)
    cluster.api.delete("Pod", "train", grace_s=0)
    cluster.api.delete("Pod", "limited", grace_s=0)
    wait_left(extender, "node-a", 0, 0)
