"""The small linear program: what it says is what scipy says, and what it cannot prove it does not say."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.collective import simplex
from topology.collective.rings import packed_by_scipy
from topology.collective.simplex import most_packed

Program = tuple[np.ndarray, np.ndarray]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Some resources with rates that links have, none or several, and things that use two or more of them."""
    rows, columns = draw(st.integers(2, 8)), draw(st.integers(1, 30))
    random = draw(st.randoms(use_true_random=False))
    uses = np.zeros((rows, columns))
    for column in range(columns):
        uses[random.sample(range(rows), random.randint(2, rows)), column] = 1.0
    return uses, np.array([random.choice([0.0, 14.0625, 20.0, 25.0, 50.0, 75.0]) for _ in range(rows)])


@settings(deadline=None)
@given(programs())
def test_the_most_is_what_scipy_finds(program: Program):
    """Programs with links of no rate are degenerate: many tables in a row have the same sum."""
    assert most_packed(*program) == pytest.approx(packed_by_scipy(*program), abs=1e-9)


def test_programs_as_large_as_eight_gpus_make_are_proved():
    """Two thousand five hundred and twenty cycles through 28 links, half of them doubled."""
    random = Random(0)
    pairs = [(a, b) for a in range(8) for b in range(a)]
    cycles = [random.sample(range(8), 8) for _ in range(2520)]
    uses = np.zeros((28, 2520))
    for column, cycle in enumerate(cycles):
        for a, b in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            uses[pairs.index((max(a, b), min(a, b))), column] = 1.0
    room = np.array([random.choice([25.0, 50.0]) for _ in pairs])
    assert most_packed(uses, room) == pytest.approx(packed_by_scipy(uses, room), abs=1e-9)


def test_what_takes_too_long_is_not_said(monkeypatch: pytest.MonkeyPatch):
    """The table of the first step is no answer, and its prices prove nothing."""
    monkeypatch.setattr(simplex, "_MOST_STEPS", 1)
    assert most_packed(np.eye(2), np.array([25.0, 50.0])) is None
