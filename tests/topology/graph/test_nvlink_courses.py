"""The courses of NVLinks through a drawing."""

import re

from tests.graphs import graph_of
from tests.machines import DGX1V, HOPPER4_NV6, Machine
from topology.graph.layout import layout
from topology.graph.nvlink_courses import nvlink_courses


def courses(machine: Machine) -> dict[tuple[str, str], str]:
    graph = graph_of(machine)
    links = [(a, b) for a, b, data in graph.edges(data=True) if data["nvlinks"]]
    return nvlink_courses(layout(graph, nics=False), links)


def starts_and_ends(path: str) -> tuple[tuple[str, str], tuple[str, str]]:
    numbers = re.findall(r"-?[\d.]+", path)
    return (numbers[0], numbers[1]), (numbers[-2], numbers[-1])


def test_neighbours_are_joined_by_a_level_line() -> None:
    (_, from_y), (_, to_y) = starts_and_ends(courses(DGX1V)["GPU0", "GPU1"])
    assert from_y == to_y


def test_an_edge_of_the_cube_is_a_plumb_line() -> None:
    (from_x, _), (to_x, _) = starts_and_ends(courses(DGX1V)["GPU0", "GPU4"])
    assert from_x == to_x


def test_an_arc_leads_over_the_gpus_between() -> None:
    assert "C" in courses(DGX1V)["GPU0", "GPU3"]


def test_no_two_links_begin_at_one_point() -> None:
    for machine in (DGX1V, HOPPER4_NV6):
        ends = [(link[at], end) for link, path in courses(machine).items() for at, end in enumerate(starts_and_ends(path))]
        assert len(ends) == len(set(ends))
