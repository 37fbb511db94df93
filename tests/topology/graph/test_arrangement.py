"""Who stands beside whom in a drawing."""

import pytest
from hypothesis import given

from tests.graphs import graph_by_hand, graph_of, machine_graphs
from tests.machines import BRIDGES_CROSSED, DGX1V, HGX_H100_8, NDV2, PCIE8_PHB, Machine, uniform
from topology.graph import MachineGraph
from topology.graph.arrangement import NicCluster, arrange, nic_clusters
from topology.graph.pcie_tree import gpu_labels


def rows(graph: MachineGraph) -> list[list[str]]:
    return [[gpu.removeprefix("GPU") for part in parts for gpu in part.gpus] for parts in arrange(graph).rows]


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        pytest.param(HGX_H100_8, ["0 1 2 3", "4 5 6 7"], id="a row a socket"),
        pytest.param(DGX1V, ["0 1 2 3", "4 5 6 7"], id="a cube mesh whose edges are straight as it is"),
        pytest.param(NDV2, ["0 1 2 3", "6 7 4 5"], id="a cube mesh whose lower row is turned so that they are"),
        pytest.param(BRIDGES_CROSSED, ["0 2 1 3", "4 5 6 7"], id="bridged GPUs stand together"),
    ],
)
def test_rows_keep_what_belongs_together(machine: Machine, expected: list[str]) -> None:
    assert rows(graph_of(machine)) == [row.split() for row in expected]


def test_up_to_four_gpus_stand_in_one_row() -> None:
    assert rows(graph_by_hand(*uniform(4, "SYS"), numa=("0", "0", "1", "1"))) == [["0", "1", "2", "3"]]
    assert len(rows(graph_by_hand(*uniform(5, "SYS"), numa=("0", "0", "1", "1", "1")))) == 2


def test_one_numa_node_over_two_rows_is_one_box() -> None:
    plan = arrange(graph_by_hand(*uniform(6, "PHB"), numa=("0",) * 6))
    assert plan.shared
    assert [len(parts[0].gpus) for parts in plan.rows] == [3, 3]


def test_a_numa_node_is_not_cut_through_a_pcie_switch() -> None:
    graph = graph_by_hand("X PIX PIX PHB PHB", "PIX X PIX PHB PHB", "PIX PIX X PHB PHB", "PHB PHB PHB X PIX", "PHB PHB PHB PIX X", numa=("0",) * 5)
    assert rows(graph) == [["0", "1", "2"], ["3", "4"]]
    graph = graph_by_hand("X PIX PHB PHB PHB", "PIX X PHB PHB PHB", "PHB PHB X PIX PIX", "PHB PHB PIX X PIX", "PHB PHB PIX PIX X", numa=("0",) * 5)
    assert rows(graph) == [["0", "1"], ["2", "3", "4"]]


def test_cells_that_tell_nothing_make_one_box_of_their_own() -> None:
    plan = arrange(graph_by_hand(*uniform(3, "SYS"), numa=("N/A", "1", "N/A")))
    assert [(part.numa, part.gpus) for part in plan.rows[0]] == [(None, ("GPU0", "GPU2")), ("1", ("GPU1",))]


@given(machine_graphs())
def test_every_gpu_has_exactly_one_place(graph: MachineGraph) -> None:
    placed = [gpu for parts in arrange(graph).rows for part in parts for gpu in part.gpus]
    assert sorted(placed) == sorted(gpu_labels(graph))


def test_nics_stand_with_the_gpus_nearest_to_them() -> None:
    graph = graph_by_hand(
        *uniform(3, "SYS"), nics={"a": "PIX SYS SYS", "b": "SYS PHB PHB", "c": "PIX NODE SYS", "d": "SYS SYS SYS", "e": "? ? ?", "f": "? SOC ?"}
    )
    assert nic_clusters(graph) == [
        NicCluster(("a", "c"), ("GPU0",), "PIX"),
        NicCluster(("b",), ("GPU1", "GPU2"), "PHB"),
        NicCluster(("d",), ("GPU0", "GPU1", "GPU2"), "SYS"),
        NicCluster(("e",), (), None),
        NicCluster(("f",), ("GPU1",), "SOC"),
    ]


def test_a_machine_of_pcie_switches_keeps_its_pairs() -> None:
    assert rows(graph_of(PCIE8_PHB)) == [["0", "1", "2", "3"], ["4", "5", "6", "7"]]
