"""The published measure: nothing is lost by whole machines, much by scattered GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.placement import Fragmentation, Placement, fragmentation, overall
from tests.builders import ClusterBuilder, cluster, extender_on, pod
from topology.topology_class import members


def measured(built: ClusterBuilder, weights: dict[int, float] | None = None) -> dict[str, float]:
    view = extender_on(built).cluster.view()
    return {found.models: found.ratio for found in fragmentation(view, Placement(weights))}


def with_held(built: ClusterBuilder, node: str, *bits: int) -> ClusterBuilder:
    uuids = built.uuids(node)
    return built.with_pods(pod(f"holder-of-{node}").holding(node, *(uuids[bit] for bit in bits)))


def test_idle_machines_and_full_ones_lose_nothing():
    assert measured(cluster().bridges("a").dgx1v("b")) == {"NVIDIA A100 80GB PCIe": 0.0, "Tesla V100-SXM2-32GB": 0.0}
    assert measured(with_held(cluster().bridges("a"), "a", *range(8))) == {"NVIDIA A100 80GB PCIe": 0.0}


def test_one_gpu_of_every_pair_loses_nearly_all_and_a_pair_nothing():
    scattered = measured(with_held(cluster().bridges("a"), "a", 0, 1, 4, 6), {2: 1.0})["NVIDIA A100 80GB PCIe"]
    together = measured(with_held(cluster().bridges("a"), "a", 0, 2, 4, 5), {2: 1.0})["NVIDIA A100 80GB PCIe"]
    assert scattered > 0.9
    assert together == 0.0


def test_closed_nodes_do_not_count_and_a_class_without_open_ones_is_not_told():
    closed = cluster().bridges("a").with_pods(pod("x").gpus(1).bound_to("a", "garbage"))
    assert measured(closed) == {}
    assert measured(with_held(closed.bridges("b"), "b", *range(8))) == {"NVIDIA A100 80GB PCIe": 0.0}


def test_what_counts_as_loss_is_what_the_cluster_is_asked_for():
    broken = with_held(cluster().nvswitch("a"), "a", 0)
    (of_eights,) = measured(broken, {8: 1.0}).values()
    (of_pairs,) = measured(broken, {2: 1.0}).values()
    assert of_eights > 0.9
    assert of_pairs < 0.2


@given(st.sampled_from(["nvswitch", "dgx1v", "bridges", "pcie", "mesh"]), st.sets(st.integers(0, 3)))
def test_the_ratio_is_a_share(kind: str, held: set[int]):
    built = cluster().machine(kind, "a")
    for found in fragmentation(extender_on(with_held(built, "a", *held) if held else built).cluster.view(), Placement()):
        assert isinstance(found, Fragmentation)
        assert 0.0 <= found.ratio <= 1.0


@pytest.mark.parametrize("weights", [{2: 1.0}, {4: 1.0}, {1: 1.0}])
def test_equal_nodes_are_one_figure(weights: dict[int, float]):
    one = measured(with_held(cluster().dgx1v("a"), "a", 0, 1), weights)
    two = with_held(with_held(cluster().dgx1v("a", "b"), "a", 0, 1), "b", 0, 1)
    assert measured(two, weights) == one


def test_the_figure_of_all_nodes_is_a_share_of_the_whole_cluster():
    """One GPU of each bridged pair is held: the other half of the node has lost nearly all of its worth, and beside an idle twin that is half as much of the cluster."""
    (kind,) = extender_on(cluster().bridges("a")).cluster.view().classes
    firsts = [min(members(pair)) for pair in kind.islands]
    halved, beside = (with_held(built, "a", *firsts) for built in (cluster().bridges("a"), cluster().bridges("a", "b")))
    alone, with_twin = (overall(extender_on(built).cluster.view(), Placement({2: 1.0})) for built in (halved, beside))
    assert 0.4 < alone <= 0.5
    assert with_twin == pytest.approx(alone / 2)
    assert overall(extender_on(cluster().bridges("a")).cluster.view(), Placement()) == 0.0
    assert overall(extender_on(cluster()).cluster.view(), Placement()) == 0.0
