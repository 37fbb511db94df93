import re
from collections.abc import Callable

import pytest

from extender.demo import Tour, for_people, time_line, tour
from extender.demo.report import MOST_ROWS
from topology.inspection.text import plain


def test_shipped_report_is_the_golden_one(shipped: Tour, golden: Callable[[str, str], None]) -> None:
    golden("demo.txt", plain(for_people(shipped), width=100))


@pytest.mark.parametrize("seed", [5, 11])
def test_every_line_fits_into_80_columns(seed: int) -> None:
    assert [line for line in plain(for_people(tour(24, seed)), width=100).splitlines() if len(line) > 80] == []


def test_refusal_tells_its_numbers(shipped: Tour) -> None:
    lines = plain(for_people(shipped), width=100).splitlines()
    assert sum(bool(re.fullmatch(r"  \S+: \d of \d GPUs free, best pair \d+ GB/s over \w+, 600 asked", line)) for line in lines) >= 3


def test_time_stands_on_one_line_of_its_own(shipped: Tour) -> None:
    assert re.fullmatch(r"Time: \d+\.\d ms a pod \(filter, prioritize and bind over HTTP; median of \d+\)", time_line(shipped))
    assert " ms " not in plain(for_people(shipped), width=100)


def test_a_long_stream_is_cut_and_says_so() -> None:
    found = tour(80, 1)
    several = sum(pod.largest > 1 for pod in found.pods)
    text = plain(for_people(found), width=100)
    assert several > MOST_ROWS
    assert f"… and {several - MOST_ROWS} more pods" in text


def test_shortest_stream_is_told_as_well() -> None:
    text = plain(for_people(tour(2, 1)), width=100)
    assert "mean GB/s, all 1 " in text
    assert "extreme-02" in text
