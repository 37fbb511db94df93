"""A report as a picture."""

from xml.etree import ElementTree as ET

import pytest

from topology.errors import InternalError
from topology.inspection import dot_of, inspect, svg_of, unreadable

PAIR = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"


def test_the_picture_tells_what_the_best_sets_get() -> None:
    svg = svg_of(inspect("m", PAIR))
    ET.fromstring(svg)
    assert "best 2 GPUs 56.2 GB/s" in svg


def test_the_graph_is_named_after_its_source() -> None:
    assert dot_of(inspect('a "file"', PAIR)).startswith('graph "a \\"file\\"" {')


def test_a_report_without_a_machine_cannot_be_drawn() -> None:
    for draw in (svg_of, dot_of):
        with pytest.raises(InternalError, match="cannot be drawn"):
            draw(unreadable("m", "no"))
