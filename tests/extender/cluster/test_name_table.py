"""The table finds the rows that a dict finds, for names that it has and that it lacks, while names are added; its text is the names as JSON."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.cluster.name_table import UNKNOWN_ROW, NameTable
from extender.node_names import NodeNames
from extender.text_columns import Column, written

NAMES = st.from_regex(r"[a-c]{1,3}(-[0-9]{1,20})?", fullmatch=True) | st.text(max_size=6)


class Growing(RuleBasedStateMachine):
    """Names come, and calls name some of them and others."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.table = NameTable(self.names)

    @rule(added=st.lists(NAMES, max_size=40))
    def add(self, added: list[str]) -> None:
        """Let names come that are not there yet."""
        self.names.extend(name for name in dict.fromkeys(added) if name not in self.names)

    @rule(asked=st.lists(NAMES, max_size=10), data=st.data())
    def ask(self, asked: list[str], data: st.DataObject) -> None:
        """Ask after some names: the row is the position, for those that are there."""
        asked = data.draw(st.permutations([*asked, *self.names]))
        expected = [self.names.index(name) if name in self.names else UNKNOWN_ROW for name in asked]
        assert self.table.rows_of(NodeNames.of(asked)).tolist() == expected

    @invariant()
    def text_is_the_names(self) -> None:
        """Written as a list, the names of a call are themselves, whether all of them are known or not."""
        for asked in (self.names, [*self.names, "stranger"]):
            names = NodeNames.of(asked)
            text = self.table.text_of(names, self.table.rows_of(names))
            assert json.loads(written([b"[", Column(text, end=b","), b"]"])) == asked


TestGrowing = Growing.TestCase


@given(numbers=st.lists(st.integers(0, 9999), unique=True, max_size=300), first=st.integers(0, 9999))
def test_numbered_names_as_clusters_have_them_are_told_apart(numbers: list[int], first: int):
    names = [f"gpu-node-{number:04d}.example.internal" for number in numbers]
    table = NameTable(names)
    assert table.rows_of(NodeNames.of(names)).tolist() == list(range(len(names)))
    stranger = f"gpu-node-{first:04d}.example.interna"
    assert table.rows_of(NodeNames.of([stranger])).tolist() == [UNKNOWN_ROW]


def test_ten_thousand_names_in_any_order_have_their_rows():
    """Among so many, hundreds share a slot, and some of them another one in the next table."""
    names = [f"ip-10-{number // 256}-{number % 256}-7.eu-west-1.compute.internal" for number in range(10_000)]
    order = np.random.default_rng(1).permutation(10_000)
    asked = NodeNames.of([names[at] for at in order])
    assert (NameTable(names).rows_of(asked) == order).all()
