"""The picture is well-formed, has a line a policy in each panel, and stays inside its frame."""

from xml.etree import ElementTree as ET

from extender.simulate.jobs import Job
from extender.simulate.plot import plot
from extender.simulate.replay import Moment, Run
from tests.builders import pod

JOBS = [Job(pod("a").gpus(1).build(), 0), Job(pod("b").gpus(1).build(), 9)]
RUNS = [Run(policy, 8, JOBS, moments=[Moment(0, 1, 1, 0, broken), Moment(9, 2, 8, 0, None)]) for policy, broken in (("pack", 0.02), ("count", 0.07))]


def test_a_line_a_policy_in_each_panel():
    """Two panels, two policies: four lines, and the names once."""
    root = ET.fromstring(plot(RUNS, "a <title>"))
    lines = root.findall("{*}polyline")
    assert len(lines) == 4
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("pack") == words.count("count") == 1
    assert root.find("{*}title").text == "a <title>"  # type: ignore[union-attr]


def test_every_point_is_inside_the_frame():
    """The panel of fragmentation ends at the first round figure above the highest value."""
    text = plot(RUNS, "title")
    root = ET.fromstring(text)
    _, _, width, height = map(float, root.get("viewBox", "").split())
    for line in root.findall("{*}polyline"):
        for point in line.get("points", "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 40 <= y <= height
    assert ">8</text>" in text
    assert plot(RUNS, "title") == text
