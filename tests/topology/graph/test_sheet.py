"""Files out of fragments."""

from xml.etree import ElementTree as ET

from tests.graphs import graph_of
from tests.machines import DGX1V, HGX_H100_8
from topology.graph import Fragment, Panel, draw_machine, side_by_side, standalone


def test_a_sheet_brings_its_own_ground_and_a_description() -> None:
    root = ET.fromstring(standalone(Fragment(100, 50, "<g/>"), "what <it> shows"))
    assert root.attrib["viewBox"] == "0 0 156 106"
    title, ground, *_ = root
    assert title.text == "what <it> shows"
    assert ground.attrib["fill"] == "#ffffff"


def test_a_sheet_has_one_element_a_line() -> None:
    text = standalone(draw_machine(graph_of(DGX1V)))
    assert "><" not in text
    assert text.endswith("</svg>\n")


def test_panels_are_scaled_to_one_height_with_captions_and_figures() -> None:
    left, right = draw_machine(graph_of(DGX1V)), draw_machine(graph_of(HGX_H100_8))
    panels = [Panel(left, "by default", "9 GB/s", "over PCIe", "#aa0000"), Panel(right, "by Linkwise", "450 GB/s")]
    row = side_by_side(panels, "The same pod", "nominal rates")
    for word in ("by default", "9 GB/s", "over PCIe", "by Linkwise", "450 GB/s", "The same pod", "nominal rates"):
        assert f">{word}<" in row.body
    assert row.width > left.width
    assert row.height > min(left.height, right.height)
    assert (left.height == right.height) or row.body.count("scale(") == 1
    ET.fromstring(standalone(row))
