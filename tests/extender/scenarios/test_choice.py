"""Which node, which set: what other systems got wrong, as the public reports tell it, and what holds here."""

from itertools import product

import pytest

from extender.settings import Policy, Settings
from tests.builders import PodBuilder, cluster, extender_on, pod
from topology.api.allocation import Allocation

ALL = cluster().nvswitch("switched").dgx1v("cube").bridges("bridged").pcie("plain").mesh("mesh")


CELLS = list(product(Policy, ("best", "none"), ("pack", "spread", "gpuallocator", None)))


@pytest.mark.parametrize(
    "pods", [pytest.param(pod().gpus(2), id="one container"), pytest.param(pod().gpus(2, "a").gpus(1, "b"), id="two containers")]
)
@pytest.mark.parametrize(("configured", "topology", "asked"), CELLS)
def test_no_policy_turns_the_order_by_bandwidth_over(configured: Policy, topology: str, asked: str | None, pods: PodBuilder):
    """HAMi 2973: a spread policy inverts the topology score there. Every cell of policy x topology is here."""
    extender = extender_on(ALL, Settings(policy=configured))
    scores = extender.prioritize(pods.annotated(topology=topology, **({"policy": asked} if asked else {})))
    if topology == "best":
        assert scores == {"switched": 10, "cube": 0, "bridged": 5, "plain": 0, "mesh": 1}
    else:
        assert max(scores, key=scores.__getitem__) == "plain", "who does not care takes the pair that nobody will miss"


@pytest.mark.parametrize(
    ("wanted", "free", "chosen"),
    [
        pytest.param(
            pod("asked").gpus(2),
            [0, 1, 2, 6],
            {"best": ("NV2", {"main": [1, 2]}), "none": ("SYS", {"main": [0, 6]}), "gpuallocator": ("NV1", {"main": [0, 1]})},
            id="one container",
        ),
        pytest.param(
            pod("asked").gpus(2, "a").gpus(1, "b"),
            [0, 2, 4, 5],
            {
                "best": ("NV2", {"a": [0, 4], "b": [2]}),
                "none": ("NV2", {"a": [0, 4], "b": [2]}),
                "gpuallocator": ("NV1", {"a": [0, 2], "b": [4]}),
            },
            id="two containers",
        ),
    ],
)
@pytest.mark.parametrize(("configured", "topology", "asked"), CELLS)
async def test_the_pods_own_policy_says_whose_set_it_gets_and_the_configured_one_where_it_is_silent(
    configured: Policy, topology: str, asked: str | None, wanted: PodBuilder, free: list[int], chosen: dict[str, tuple[str, dict[str, list[int]]]]
):
    """NVIDIA's plugin pairs off all free GPUs by their links, so it gives one NVLink where two are to be had; what this pod does not care for changes nothing."""
    built = cluster().dgx1v("cube")
    held = [uuid for gpu, uuid in enumerate(built.uuids("cube")) if gpu not in free]
    extender = extender_on(built.with_pods(pod("holder").holding("cube", *held)), Settings(policy=configured))
    await extender.place(wanted.annotated(topology=topology, **({"policy": asked} if asked else {})), "cube")
    stored = await extender.binder.read_pod("default", "asked")
    assert stored is not None
    allocation = Allocation.decode(stored["metadata"]["annotations"]["linkwise.dev/allocation"])
    parts = {name: [gpu.index for gpu in gpus] for name, gpus in allocation.containers.items()}
    assert (allocation.worst_link, parts) == chosen["gpuallocator" if (asked or configured) == "gpuallocator" else topology]


@pytest.mark.parametrize(
    ("kind", "free", "chosen"),
    [
        pytest.param("dgx1v", [0, 1, 4], [0, 4], id="two NVLinks to the other socket before one NVLink in the same"),
        pytest.param("nvswitch", [3, 4, 5], [4, 5], id="equal links: the pair on one socket"),
    ],
)
async def test_numa_breaks_ties_and_nothing_more(kind: str, free: list[int], chosen: list[int]):
    """HAMi 1806: NUMA preferred before everything else there."""
    built = cluster().machine(kind, "node")
    uuids = built.uuids("node")
    extender = extender_on(built.with_pods(pod("holder").holding("node", *(uuid for index, uuid in enumerate(uuids) if index not in free))))
    assert await extender.place(pod("asked").gpus(2), "node") == chosen


def test_gpus_scattered_over_nodes_are_no_place():
    """Kueue 4329: admitted by the sum of free GPUs, unable to run."""
    built = cluster().mesh("a", "b", "c")
    holders = [pod(f"on-{node}").holding(node, *built.uuids(node)[:3]) for node in ("a", "b", "c")]
    extender = extender_on(built.with_pods(*holders))
    assert extender.filter(pod("two").gpus(2))["NodeNames"] == []
    assert extender.filter(pod("one").gpus(1))["NodeNames"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("kind", "pairs"),
    [
        pytest.param("bridges", [[0, 2], [0, 2], [0, 2], [0, 2], [1, 3]], id="four parts of 20 GiB a bridged pair of 80 GiB"),
        pytest.param("dgx1v", [[0, 3], [1, 2], [4, 7]], id="one part a pair of 32 GiB, and the second in the quad of the first"),
        pytest.param("pcie", [[0, 1], [0, 1], [2, 3]], id="two parts a pair behind one switch"),
    ],
)
async def test_parts_of_two_gpus_get_the_best_linked_pair_before_anything_else(kind: str, pairs: list[list[int]]):
    """Links count for parts as for whole GPUs: with them as full as they are, a pair that is linked worse is never taken for its room."""
    extender = extender_on(cluster().machine(kind, "node"))
    assert [await extender.place(pod(f"part-{number}").shared(40).annotated(gpu_count="2"), "node") for number, _ in enumerate(pairs)] == pairs
