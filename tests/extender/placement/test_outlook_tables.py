"""What follows from the target workload and the GPUs of a cluster: sizes, scarcity, r, and the tables by level; sums over nodes are in test_outlook."""

import numpy as np
import pytest

from extender.demand_class import SEED_TARGET, DemandClass
from extender.placement.outlook_tables import Expectation, GpuKind, NodeKind, gpu_tables, node_tables, supply_of
from tests.builders import cluster, extender_on
from topology.matrix import from_codes
from topology.topology_class import topology_class

GIB = 1024
T4, A100 = GpuKind("Tesla T4", 15), GpuKind("NVIDIA A100-SXM4-80GB", 79)


def test_a_model_that_many_ask_for_by_name_is_scarcer():
    """Half of the pods may have any, half want T4: three in four of what a T4 gets come on top."""
    target = (DemandClass(0, 1, popularity=0.5), DemandClass(0, 1, model="*t4*", popularity=0.5))
    found = Expectation(target, {T4: 10, GpuKind("P4", 15): 10}).scarcity
    assert (found[T4], found[GpuKind("P4", 15)]) == (pytest.approx(1.5), pytest.approx(0.5))


def test_gpus_that_everybody_accepts_are_equally_scarce_whatever_their_size():
    """Shares spread by memory and whole GPUs by number."""
    target = (DemandClass(0, 1, 10 * GIB, popularity=0.5), DemandClass(0, 8, popularity=0.5))
    assert Expectation(target, {T4: 10, A100: 30}).scarcity == {T4: pytest.approx(1.0), A100: pytest.approx(1.0)}


@pytest.mark.parametrize(
    ("target", "ratio"),
    [
        pytest.param((DemandClass(0, 1),), 1.0, id="whole GPUs alone: all count alike"),
        pytest.param((DemandClass(0, 1, 10 * GIB),), 79 / 15, id="shares alone: by memory"),
    ],
)
def test_gpus_count_by_what_is_asked_of_them(target: tuple[DemandClass, ...], ratio: float):
    """A GPU of five times the memory is five times as good for shares, and as good for whom the whole is for."""
    expected = Expectation(target, {T4: 10, A100: 30})
    assert expected.size(A100) / expected.size(T4) == pytest.approx(ratio)


def test_shares_that_only_large_gpus_hold_make_those_scarce():
    """A T4 has no room for 40 GiB, so it gets none of that demand."""
    found = Expectation((DemandClass(0, 1, 40 * GIB, popularity=1.0),), {T4: 10, A100: 10}).scarcity
    assert found[T4] == 0.0
    assert found[A100] > 1.0


@pytest.mark.parametrize(
    ("target", "supply"),
    [
        pytest.param(SEED_TARGET, {}, id="no GPUs"),
        pytest.param((DemandClass(4000, 0),), {T4: 1}, id="pods without GPUs alone"),
        pytest.param((DemandClass(0, 1, model="none"),), {T4: 1}, id="a model that nobody has"),
    ],
)
def test_where_nothing_is_known_all_gpus_count_alike(target: tuple[DemandClass, ...], supply: dict[GpuKind, int]):
    """Nothing divides by zero, and scarcity decides nothing."""
    expected = Expectation(target, supply)
    assert set(expected.scarcity.values()) <= {1.0}
    assert expected.size(GpuKind(None, 0)) == 1.0
    assert np.isfinite(gpu_tables(T4, expected).lost).all()


def test_r_is_the_cpu_that_pods_ask_for_with_their_gpu():
    """8 CPUs for a GPU and 2 for a fifth of one: 10,000 milli for 1,200."""
    expected = Expectation((DemandClass(8000, 1, popularity=0.5), DemandClass(2000, 1, 3 * GIB, popularity=0.5)), {T4: 1})
    assert expected.cpu_per_milli(1.0, 15) == pytest.approx(10_000 / 1_200)
    assert expected.cpu_per_milli(1.0, 2) == pytest.approx(8.0), "a GPU of 2 GiB holds no share of 3"


def test_what_a_gpu_is_worth_and_loses_by_what_is_left_of_it():
    """Half the pods want 5 GiB, half a whole one: 4 GiB are of no use to anybody, 5 are to one half, an idle GPU to all."""
    expected = Expectation((DemandClass(0, 1, 5 * GIB, popularity=0.5), DemandClass(0, 1, popularity=0.5)), {T4: 1})
    tables = gpu_tables(T4, expected)
    assert tables.price[[0, 4, 5, 10, 15, 16]].tolist() == pytest.approx([0, 0, 1000 / 3, 2000 / 3, 1000, 1000])
    enough_cpu = tables.lost[1]
    assert enough_cpu[[0, 4, 5, 16]].tolist() == pytest.approx([0, 1000 * 4 / 15, 500 / 3, 0])


def test_gpus_of_unknown_size_are_whole_or_nothing():
    """A GPU without memory in the inventory is worth one while it is idle."""
    tables = gpu_tables(GpuKind(None, 0), Expectation((DemandClass(0, 1),), {GpuKind(None, 0): 1}))
    assert tables.price.tolist() == [0.0, 1000.0]
    assert tables.lost[-1].tolist() == [0.0, 0.0]


def test_without_differences_between_links_idle_gpus_count_in_whole_sets():
    """FGD's count, rounded down to sets: three idle GPUs hold one pair."""
    kind = topology_class(from_codes([["X" if a == b else "SYS" for b in range(4)] for a in range(4)]))
    offered = np.full(16, 15 * GIB, np.int32)
    tables = node_tables(NodeKind.of(kind, offered), Expectation((DemandClass(0, 2),), {GpuKind(None, 15): 4}))
    assert tables.useful[0, [0b0, 0b1, 0b11, 0b111, 0b1111]].tolist() == pytest.approx([0, 0, 2000, 2000, 4000])


def test_sets_count_only_gpus_of_a_model_that_is_asked_for_and_need_their_cpu():
    """A pair of T4 on a node with one T4 is no set at all."""
    kind = topology_class(from_codes([["X", "SYS"], ["SYS", "X"]]))
    node = NodeKind(kind, (T4, A100))
    expected = Expectation((DemandClass(0, 2, model="*T4*", popularity=0.5), DemandClass(4000, 2, popularity=0.5)), {T4: 1, A100: 1})
    tables = node_tables(node, expected)
    assert len(tables.useful) == 1
    assert tables.shares[:, 0].tolist() == [0.0, 0.0, 0.5], "bands: below 0, below 4000, from 4000 on"


def test_the_supply_counts_healthy_gpus_by_kind():
    """Two machines of eight; what a GPU gives away is in whole GiB."""
    view = extender_on(cluster().dgx1v("a", "b").pcie("c")).cluster.view()
    supply = supply_of(view)
    assert sum(supply.values()) == int(np.bitwise_count(view.usable).sum())
    assert {gpu.gib for gpu in supply} == {int(amount) // GIB for row in range(view.rows) for amount in view.offered[row] if amount}
