"""In which band of a drawing a PCIe bracket runs."""

from tests.graphs import graph_by_hand, graph_of
from tests.machines import A40_4, PCIE8_PHB, Machine, uniform
from topology.graph import MachineGraph
from topology.graph.arrangement import arrange
from topology.graph.bracket_levels import Band, Level, bracket_levels, steps
from topology.graph.pcie_tree import brackets


def levels(graph: MachineGraph) -> list[Level]:
    return bracket_levels(list(brackets(graph)), arrange(graph))


def placed(machine: Machine) -> list[tuple[str, Band, int, int]]:
    return [(level.bracket.code, level.band, level.row, level.step) for level in levels(graph_of(machine))]


def test_nearer_brackets_run_nearer_to_the_gpus() -> None:
    assert placed(PCIE8_PHB) == [
        ("PIX", Band.INSIDE, 0, 0),
        ("PIX", Band.INSIDE, 0, 0),
        ("PIX", Band.INSIDE, 1, 0),
        ("PIX", Band.INSIDE, 1, 0),
        ("PHB", Band.INSIDE, 0, 1),
        ("PHB", Band.INSIDE, 1, 1),
        ("SYS", Band.JOINT, 0, 0),
    ]


def test_boxes_of_one_row_meet_beyond_their_edges() -> None:
    assert placed(A40_4)[-1] == ("SYS", Band.BEYOND, 0, 0)


def test_a_band_has_as_many_steps_as_it_has_distances() -> None:
    found = levels(graph_of(PCIE8_PHB))
    assert [steps(found, band, 0) for band in Band] == [2, 0, 1]
    assert steps(levels(graph_by_hand(*uniform(2, "NV1"))), Band.INSIDE, 0) == 0
