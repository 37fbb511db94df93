"""Places on the sheet: nothing lies on anything else, and nothing lies outside."""

from itertools import combinations

from hypothesis import given

from tests.graphs import graph_by_hand, graph_of, machine_graphs
from tests.machines import DGX1V, HGX_H100_8, MACHINES, PCIE8_PHB, uniform
from topology.graph import MachineGraph
from topology.graph.layout import Layout, arc_height, layout
from topology.graph.svg import Box


def apart(one: Box, other: Box) -> bool:
    return one.right <= other.x or other.right <= one.x or one.bottom <= other.y or other.bottom <= one.y


def within(inner: Box, outer: Box) -> bool:
    slack = 0.01
    return inner.x >= outer.x - slack and inner.y >= outer.y - slack and inner.right <= outer.right + slack and inner.bottom <= outer.bottom + slack


def check(placed: Layout) -> None:
    sheet = Box(0, 0, placed.width, placed.height)
    devices = [*placed.gpus.values(), *(cluster.box for cluster in placed.clusters)]
    assert all(apart(one, other) for one, other in combinations(devices, 2))
    assert all(within(part.box, sheet) for part in placed.parts)
    assert all(apart(one.box, other.box) for one, other in combinations(placed.parts, 2))
    for part in placed.parts:
        assert all(within(placed.gpus[gpu], part.box) for gpu in part.part.gpus)
    for bracket in placed.brackets:
        assert all(not box.y < bracket.y < box.bottom for box in placed.gpus.values())
        assert 0 < bracket.y < placed.height
    assert all(cluster.box.bottom <= placed.height + 0.01 for cluster in placed.clusters)


def test_every_known_machine_fits_its_sheet() -> None:
    for machine in MACHINES.values():
        check(layout(graph_of(machine), nics=True))


@given(machine_graphs())
def test_any_machine_fits_its_sheet(graph: MachineGraph) -> None:
    check(layout(graph, nics=True))


def test_an_nvswitch_stands_between_the_rows_and_below_a_single_one() -> None:
    two = layout(graph_of(HGX_H100_8), nics=True)
    assert two.nvswitch is not None
    assert two.gpus["GPU0"].bottom < two.nvswitch.y
    assert two.nvswitch.bottom < two.gpus["GPU4"].y
    one = layout(graph_by_hand(*uniform(4, "NV18")), nics=True)
    assert one.nvswitch is not None
    assert one.gpus["GPU0"].bottom < one.nvswitch.y


def test_arcs_have_room_on_the_outer_side() -> None:
    placed = layout(graph_of(DGX1V), nics=True)
    assert placed.outer("GPU0") - placed.parts[0].box.y > arc_height(3)
    assert placed.parts[1].box.bottom - placed.outer("GPU4") > arc_height(3)
    assert (placed.outer("GPU0"), placed.inner("GPU0")) == (placed.gpus["GPU0"].y, placed.gpus["GPU0"].bottom)


def test_nics_can_be_left_out() -> None:
    graph = graph_by_hand("X", nics={"mlx5_0": "PIX"})
    assert layout(graph, nics=True).clusters
    assert not layout(graph, nics=False).clusters
    assert layout(graph, nics=False).height < layout(graph, nics=True).height


def test_brackets_start_where_their_parts_are() -> None:
    placed = layout(graph_of(PCIE8_PHB), nics=True)
    pix, phb = placed.brackets[0], placed.brackets[4]
    assert [x for x, _ in pix.drops] == [placed.gpus["GPU0"].middle, placed.gpus["GPU1"].middle]
    assert (pix.middle, pix.y) in phb.drops


def test_the_result_is_at_least_as_wide_as_asked() -> None:
    assert layout(graph_by_hand("X"), nics=True, least_width=777.0).width == 777
