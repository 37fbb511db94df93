"""Prices that come from another process are those of this one, to the last bit."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.placement.apart import answered, requested, worked_out
from extender.placement.prices import Question, worth_of_rest

questions = st.builds(
    lambda capacity, counts: (tuple(sorted({max(1, capacity // n) for n in counts}, reverse=True)), capacity, counts),
    st.integers(1, 96),
    st.dictionaries(st.integers(1, 7), st.floats(1e-3, 1.0), min_size=1, max_size=4),
).map(lambda told: (told[0], tuple(list(told[2].values())[: len(told[0])]), told[1]))


@settings(deadline=None, max_examples=25)
@given(st.lists(questions, max_size=3, unique=True))
def test_answers_are_those_of_this_process(asked: list[Question]):
    """Each to its question."""
    found = answered(asked, worked_out(requested(asked)))
    assert list(found) == asked
    for question, worth in found.items():
        assert worth.tolist() == worth_of_rest(*question).tolist()
        assert not worth.flags.writeable


def test_the_program_answers_one_request():
    asked: list[Question] = [((20, 10), (1.0, 1.0), 24)]
    run = subprocess.run([sys.executable, "-m", "extender.placement.apart"], input=requested(asked), capture_output=True, check=True)
    assert answered(asked, run.stdout)[asked[0]].tolist() == worth_of_rest(*asked[0]).tolist()
    assert run.stderr == b""


def test_an_output_that_is_none_is_an_error():
    with pytest.raises(ValueError):
        answered([((10,), (1.0,), 20)], b"")
