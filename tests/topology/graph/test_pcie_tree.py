"""The tree of PCIe bridges that link codes tell of."""

from hypothesis import given

from tests.graphs import graph_by_hand, graph_of, machine_graphs
from tests.machines import BRIDGES_8, DGX1V, PCIE8_PHB
from topology.graph import MachineGraph
from topology.graph.pcie_tree import brackets, components, gpu_labels
from topology.links import Distance


def test_components_grow_with_the_distance() -> None:
    graph = graph_of(PCIE8_PHB)
    assert components(graph, Distance.PIX)["GPU1"] == ("GPU0", "GPU1")
    assert components(graph, Distance.PHB)["GPU3"] == ("GPU0", "GPU1", "GPU2", "GPU3")
    assert components(graph, Distance.SYS)["GPU7"] == tuple(f"GPU{i}" for i in range(8))


def test_every_merging_is_one_bracket_nearest_first() -> None:
    found = [(bracket.code, len(bracket.gpus())) for bracket in brackets(graph_of(PCIE8_PHB))]
    assert found == [("PIX", 2)] * 4 + [("PHB", 4)] * 2 + [("SYS", 8)]


def test_gpus_that_nvlink_joins_are_one_part_from_the_start() -> None:
    node, *_ = brackets(graph_of(BRIDGES_8))
    assert node.code == "NODE"
    assert node.parts == (("GPU0", "GPU1"), ("GPU2", "GPU3"))


def test_a_mesh_of_nvlinks_has_no_brackets() -> None:
    assert not list(brackets(graph_of(DGX1V)))


def test_a_bracket_knows_the_code_as_printed_and_its_rates() -> None:
    (soc,) = brackets(graph_by_hand("X SOC", "SOC X"))
    assert (soc.code, soc.distance, soc.assumed) == ("SOC", Distance.SYS, True)
    assert soc.rates is not None
    assert soc.rates[0] == soc.rates[1] > 0


def test_gpus_without_any_printed_link_stand_alone() -> None:
    assert not list(brackets(graph_by_hand("X ?", "? X")))


@given(machine_graphs())
def test_brackets_merge_every_component_exactly_once(graph: MachineGraph) -> None:
    found = list(brackets(graph))
    apart = len(set(components(graph, Distance.NVLINK).values()))
    together = len(set(components(graph, Distance.SYS).values()))
    assert sum(len(bracket.parts) - 1 for bracket in found) == apart - together
    assert all(len(set(bracket.gpus())) == len(bracket.gpus()) for bracket in found)
    assert set().union(*(bracket.gpus() for bracket in found)) <= set(gpu_labels(graph))
