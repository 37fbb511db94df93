"""Colours and widths."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from topology.graph.palette import line_width, nvlink_colour, pcie_colour, pcie_pen
from topology.links import Distance


def luminance(colour: str) -> float:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@given(st.integers(1, 98))
def test_more_nvlinks_are_darker(nvlinks: int) -> None:
    assert luminance(nvlink_colour(nvlinks)) >= luminance(nvlink_colour(nvlinks + 1))


def test_one_and_two_nvlinks_can_be_told_apart() -> None:
    assert luminance(nvlink_colour(1)) - luminance(nvlink_colour(2)) > 20


def test_longer_pcie_paths_are_fainter() -> None:
    shades = [luminance(pcie_colour(distance)) for distance in list(Distance)[1:]]
    assert all(a < b for a, b in pairwise(shades))
    assert pcie_pen(Distance.SYS).dash
    assert not pcie_pen(Distance.PIX).dash


def test_a_faster_link_is_thicker_within_bounds() -> None:
    widths = [line_width(rate) for rate in (None, 9.1, 25.0, 50.0, 300.0, 450.0)]
    assert widths[0] == min(widths)
    assert all(a < b for a, b in pairwise(widths[1:]))
    assert line_width(1e9) <= 16
