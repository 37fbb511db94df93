"""Whoever got a list keeps what it got, whatever is written afterwards."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from extender.cluster import pieces as module
from extender.cluster.pieces import Frozen, Pieces


class Lists(RuleBasedStateMachine):
    """A list in pieces of two beside a plain one."""

    @initialize()
    def begin(self) -> None:
        self.list, self.plain = Pieces[int](), list[int]()
        self.held: list[tuple[Frozen[int], list[int]]] = []

    @rule(value=st.integers())
    def append(self, value: int) -> None:
        self.list.append(value)
        self.plain.append(value)

    @rule(at=st.integers(0, 20), value=st.integers())
    def write(self, at: int, value: int) -> None:
        if self.plain:
            self.list[at % len(self.plain)] = value
            self.plain[at % len(self.plain)] = value

    @rule()
    def hand_out(self) -> None:
        self.held.append((self.list.handed_out(), list(self.plain)))

    @invariant()
    def every_reader_has_what_it_got(self) -> None:
        assert len(self.list) == len(self.plain)
        assert [self.list[at] for at in range(len(self.plain))] == self.plain
        for found, expected in self.held:
            assert (list(found), len(found), found[:]) == (expected, len(expected), expected)
            assert [found[at] for at in range(-len(expected), len(expected))] == expected * 2


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BITS", 1)
    monkeypatch.setattr(module, "_INSIDE", 1)


TestLists = Lists.TestCase


def test_what_is_not_there_cannot_be_read():
    """Entries that came later are not those of an earlier reader."""
    numbers = Pieces[int]()
    numbers.append(1)
    found = numbers.handed_out()
    numbers.append(2)
    with pytest.raises(IndexError, match="place 1 of 1"):
        _ = found[1]


def test_writing_copies_the_piece_that_is_written_and_no_other():
    """With thousands of nodes, that is what makes a change of one of them cheap."""
    numbers = Pieces[int]()
    for number in range(6):
        numbers.append(number)
    first = numbers.handed_out()
    numbers[0] = 9
    second = numbers.handed_out()
    assert [a is b for a, b in zip(first._pieces, second._pieces, strict=True)] == [False, True, True]
