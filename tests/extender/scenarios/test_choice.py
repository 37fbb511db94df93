"""Which node, which set: what other systems got wrong, as the public reports tell it, and what holds here."""

from itertools import product

import pytest

from extender.settings import Policy, Settings
from tests.builders import cluster, extender_on, pod

ALL = cluster().nvswitch("switched").dgx1v("cube").bridges("bridged").pcie("plain").mesh("mesh")


@pytest.mark.parametrize(("configured", "topology", "asked"), list(product(Policy, ("best", "none"), ("pack", "spread", "gpuallocator", None))))
def test_no_policy_turns_the_order_by_bandwidth_over(configured: Policy, topology: str, asked: str | None):
    """HAMi 2973: a spread policy inverts the topology score there. Every cell of policy x topology is here."""
    extender = extender_on(ALL, Settings(policy=configured))
    wanted = pod().gpus(2).annotated(topology=topology, **({"policy": asked} if asked else {}))
    scores = extender.prioritize(wanted)
    if topology == "best":
        assert scores == {"switched": 10, "cube": 0, "bridged": 5, "plain": 0, "mesh": 1}
    else:
        assert max(scores, key=scores.__getitem__) == "plain", "who does not care takes the pair that nobody will miss"


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
