"""Where pods go on five kinds of machine, decided by Linkwise through a real kube-scheduler; the topologies come from the real agents.

Nodes are made and agents started once for the file; each test leaves them without pods.
"""

from collections.abc import Iterator

import pytest

from extender.sample_machines import SAMPLE_MACHINES
from tests.builders import PodBuilder, pod
from tests.e2e.agents import start_agent
from tests.e2e.api_server import JsonObject
from tests.e2e.checks import allocation_of, check_cluster, check_extender, indices_of
from tests.e2e.control_plane import ControlPlane
from tests.e2e.extender import RunningExtender
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.objects import GPU
from tests.e2e.program import wait_until

SIZES = {kind: machine.size for kind, machine in SAMPLE_MACHINES.items()}
CROWDED = "pcie-24"  # says that it has 24 GPUs, and has 8: kube-scheduler's own count is an upper bound, nothing more


@pytest.fixture(scope="module")
def machines(control_plane: ControlPlane, extender: RunningExtender, tmp_path_factory: pytest.TempPathFactory) -> LiveCluster:
    """Return a cluster of one node of each kind, named as its kind, and a second `pcie` whose Node counts too many GPUs."""
    cluster = LiveCluster(control_plane)
    for node, kind in [*zip(SIZES, SIZES, strict=True), (CROWDED, "pcie")]:
        crowded = node == CROWDED
        cluster.make_node(node, SIZES[kind], {"tests": "crowded" if crowded else "mixed"}, {GPU: "24"} if crowded else None)
        start_agent(control_plane, tmp_path_factory.mktemp(node), kind, node)
    extender.wait_open(*SIZES, CROWDED)
    return cluster


@pytest.fixture
def cluster(machines: LiveCluster, extender: RunningExtender) -> Iterator[LiveCluster]:
    """Give the machines without pods."""
    yield machines
    machines.clear(("Pod", "Event"))
    check_extender(extender, machines.api)


def place(cluster: LiveCluster, builder: PodBuilder, node: str) -> tuple[list[int], float | None, str | None]:
    """Create a pod that must go to a node; return the indices of its GPUs, their GB/s and worst link."""
    cluster.make_pod(builder, nodeSelector={"kubernetes.io/hostname": node})
    bound = cluster.wait_bound(builder.name)
    allocation = allocation_of(bound)
    return indices_of(bound), allocation.get("bandwidthGBps"), allocation.get("worstLink")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param("nvswitch", ([0, 1], 450, "NV18"), id="behind NVSwitch every pair is as good"),
        pytest.param("dgx1v", ([0, 3], 50, "NV2"), id="the double link of a cube mesh, not the single one between 0 and 1"),
        pytest.param("bridges", ([0, 2], 300, "NV12"), id="the bridged pair, not 0 and 1 across the sockets"),
        pytest.param("mesh", ([0, 1], 100, "NV4"), id="any pair of a full mesh"),
        pytest.param("pcie", ([0, 1], pytest.approx(26.8, abs=0.1), "PIX"), id="without NVLink the pair behind one switch"),
    ],
)
def test_a_two_gpu_pod_gets_the_best_pair_although_lower_numbered_gpus_are_free(
    cluster: LiveCluster, node: str, expected: tuple[list[int], float, str]
) -> None:
    assert place(cluster, pod("pair").gpus(2), node) == expected
    check_cluster(cluster.api)


def test_a_two_gpu_pod_gets_a_whole_bridge_although_the_lowest_free_gpus_share_none(cluster: LiveCluster) -> None:
    assert place(cluster, pod("single").gpus(1), "bridges")[0] == [0]
    # 2 has lost its partner; 1 and 3 are the lowest that are still bridged.
    assert place(cluster, pod("pair").gpus(2), "bridges") == ([1, 3], 300, "NV12")


@pytest.mark.parametrize(
    ("node", "left", "bandwidth"),
    [
        pytest.param("bridges", [pod("left-a").gpus(2), pod("left-b").gpus(2)], 300, id="two whole bridge pairs"),
        pytest.param("dgx1v", [pod("left").gpus(4)], 50, id="a ring of four in the cube mesh"),
        pytest.param("nvswitch", [pod("left").gpus(4)], 450, id="four behind the switch"),
        pytest.param("pcie", [pod("left-a").gpus(2), pod("left-b").gpus(2)], 26, id="two pairs that share a PCIe switch"),
    ],
)
def test_four_one_gpu_pods_leave_the_other_half_whole(cluster: LiveCluster, node: str, left: list[PodBuilder], bandwidth: float) -> None:
    for number in range(4):
        place(cluster, pod(f"single-{number}").gpus(1), node)
    for builder in left:
        assert (place(cluster, builder.min_bandwidth(bandwidth), node)[1] or 0) >= bandwidth
    check_cluster(cluster.api)


def test_one_gpu_pods_go_where_they_take_no_nvlink_apart(cluster: LiveCluster) -> None:
    for number in range(8):
        cluster.make_pod(pod(f"single-{number}").gpus(1), nodeSelector={"tests": "mixed"})
        assert cluster.wait_bound(f"single-{number}")["spec"]["nodeName"] == "pcie"
    check_cluster(cluster.api)


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        pytest.param("pcie", "Insufficient nvidia.com/gpu", id="kube-scheduler counts eight"),
        pytest.param(CROWDED, "linkwise: fewer than 1 GPUs are free", id="kube-scheduler counts 24, and the filter is the only judge"),
    ],
)
def test_of_24_one_gpu_pods_at_one_node_of_eight_exactly_eight_are_bound(cluster: LiveCluster, node: str, sentence: str) -> None:
    names = [f"single-{number:02}" for number in range(24)]
    cluster.make_pods((pod(name).gpus(1) for name in names), nodeSelector={"kubernetes.io/hostname": node})
    refused = wait_settled(cluster, names, bound=8)
    assert len({uuid for uuids in check_cluster(cluster.api).values() for uuid in uuids}) == 8
    assert sentence in cluster.wait_event(sentence, refused[0], reason="FailedScheduling")["message"]


def test_of_40_pods_at_once_as_many_are_bound_as_there_are_gpus_each_once_and_none_wasted(cluster: LiveCluster) -> None:
    names = [f"single-{number:02}" for number in range(40)]
    cluster.make_pods((pod(name).gpus(1) for name in names), nodeSelector={"tests": "mixed"})
    wait_settled(cluster, names, bound=sum(SIZES.values()))
    assert len({uuid for uuids in check_cluster(cluster.api).values() for uuid in uuids}) == sum(SIZES.values())


def test_pods_of_mixed_sizes_fill_the_cluster_and_each_gets_the_bandwidth_that_it_asked_for(cluster: LiveCluster) -> None:
    waves = [
        [pod(f"fast-{number}").gpus(2).min_bandwidth(300) for number in range(8)],  # four pairs behind NVSwitch, four bridges
        [pod(f"pair-{number}").gpus(2).min_bandwidth(50) for number in range(4)],  # two of the full mesh, two double links of the cube mesh
        [pod(f"single-{number:02}").gpus(1) for number in range(12)],
    ]
    for wave in waves:
        cluster.make_pods(wave, nodeSelector={"tests": "mixed"})
        wait_settled(cluster, [builder.name for builder in wave], bound=len(wave))
    assert len({uuid for uuids in check_cluster(cluster.api).values() for uuid in uuids}) == sum(SIZES.values())


def wait_settled(cluster: LiveCluster, names: list[str], bound: int) -> list[str]:
    """Wait until so many of the pods are bound and kube-scheduler has said of all others that they have to wait; return those."""
    found: dict[str, str] = {}

    def settled() -> bool:
        found.update({item["metadata"]["name"]: _end_of(item) for item in cluster.api.items("Pod", "default")})
        return all(found[name] for name in names) and sum(found[name] == "bound" for name in names) == bound

    wait_until(settled, 60, f"{bound} of {len(names)} pods are bound")
    return [name for name in names if found[name] == "refused"]


def _end_of(item: JsonObject) -> str:
    if item["spec"].get("nodeName"):
        return "bound"
    return "refused" if any(condition.get("reason") == "Unschedulable" for condition in item["status"].get("conditions", [])) else ""
