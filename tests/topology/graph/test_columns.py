"""Places across the sheet."""

import itertools

from tests.graphs import graph_by_hand, graph_of
from tests.machines import HGX_H100_8, uniform
from topology.graph.arrangement import Part, arrange
from topology.graph.columns import GPU_WIDTH, columns, header, part_width


def test_gpus_stand_apart_and_inside_their_boxes() -> None:
    found = columns(arrange(graph_of(HGX_H100_8)), 0.0)
    (upper,), (lower,) = found.parts
    assert upper == lower
    lefts = sorted(found.gpus[f"GPU{i}"] for i in range(4))
    assert upper[0] < lefts[0]
    assert lefts[-1] + GPU_WIDTH < upper[1] <= found.width
    assert all(b - a > GPU_WIDTH for a, b in itertools.pairwise(lefts))


def test_a_narrower_row_is_centred() -> None:
    numa = ("0", "1", "2", "3", "3", "3", "3")
    found = columns(arrange(graph_by_hand(*uniform(7, "SYS"), numa=numa)), 0.0)
    (left, right) = found.parts[1][0]
    assert left == found.width - right


def test_a_box_alone_in_its_row_fills_the_least_width() -> None:
    found = columns(arrange(graph_by_hand("X")), 900.0)
    assert found.width == 900
    assert found.parts == (((0.0, 900.0),),)
    assert found.gpus["GPU0"] == (900 - GPU_WIDTH) / 2


def test_a_box_has_room_for_its_header() -> None:
    assert header(Part("0-1", "0-7", ("GPU0",))) == ("NUMA 0-1", "CPUs 0-7")
    assert header(Part(None, None, ("GPU0",))) == ("NUMA node not told", "")
    assert part_width(Part("a very long cell " * 10, None, ("GPU0",))) > part_width(Part("0", None, ("GPU0",)))
