"""The legend of a drawing."""

from tests.graphs import graph_by_hand, graph_of
from tests.machines import DGX1V
from topology.graph.legend import draw_legend, least_width, link_classes


def test_the_classes_are_counted_the_strongest_first() -> None:
    found = [(str(one.code), one.pairs, one.rates) for one in link_classes(graph_of(DGX1V))]
    assert found[:2] == [("NV2", 8, (50.0, 50.0)), ("NV1", 8, (25.0, 25.0))]
    assert found[2][:2] == ("SYS", 12)


def test_a_class_that_is_not_drawn_says_so() -> None:
    graph = graph_of(DGX1V)
    assert "12 pairs, not drawn" in draw_legend(graph, 600, set(), nics=True).body
    assert "not drawn" not in draw_legend(graph, 600, {"SYS"}, nics=True).body


def test_assumed_rates_are_marked_and_the_mark_is_explained() -> None:
    body = draw_legend(graph_of(DGX1V, told=False), 600, set(), nics=True).body
    assert "NV2 · ≈ 50 GB/s" in body
    assert "≈ assumed" in body
    assert "NV2 · 50 GB/s" in draw_legend(graph_of(DGX1V), 600, set(), nics=True).body


def test_nics_are_explained_where_they_are_drawn() -> None:
    graph = graph_by_hand("X", nics={"mlx5_0": "PIX"})
    assert "NIC" in draw_legend(graph, 600, set(), nics=True).body
    assert draw_legend(graph, 600, set(), nics=False).body == ""


def test_a_narrow_legend_wraps_and_a_single_gpu_needs_none() -> None:
    graph = graph_of(DGX1V)
    assert draw_legend(graph, 200, set(), nics=True).height > draw_legend(graph, 2000, set(), nics=True).height
    assert least_width(graph_by_hand("X")) == 0
    assert draw_legend(graph_by_hand("X"), 600, set(), nics=True).height == 0
