"""The flame graph tells of the product alone."""

import pytest

from bench.flame import titled
from bench.machine import RESULTS
from topology.errors import InputError

DRAWN = '<svg><text id="title" fill="rgb(0,0,0)" x="50%">/home/somebody/py-spy record --pid 7</text><text id="details"> </text></svg>'


def test_the_title_is_ours_and_not_the_command_line_of_whoever_drew_it():
    """The rest stays as it was."""
    assert titled(DRAWN, "The hot path") == DRAWN.replace("/home/somebody/py-spy record --pid 7", "The hot path")


def test_a_drawing_of_another_form_is_refused():
    with pytest.raises(InputError, match="has no title to replace"):
        titled("<svg></svg>", "The hot path")


def test_the_result_that_is_kept_has_no_path_of_a_machine():
    assert "py-spy record" not in (RESULTS / "hot_path.svg").read_text(encoding="utf-8")
