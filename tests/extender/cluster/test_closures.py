"""A node is closed as long as one reason is left, and says all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.closures import Closure, Closures
from extender.cluster.columns import Columns
from extender.reasons import Refusal

CLOSING = [refusal for refusal in Refusal if refusal.is_closure]


@pytest.fixture
def columns() -> Columns:
    """Columns with one node that has a class."""
    made = Columns()
    made.class_index[made.row("a")] = 0
    return made


def shown(columns: Columns, node: str = "a") -> tuple[Refusal, str]:
    """Return what the columns say of a node."""
    row = columns.row_of[node]
    return Refusal(int(columns.closed[row])), columns.closed_by[row]


def test_the_first_reason_is_told_with_the_details_of_all(columns: Columns):
    """First in the order of the codes, whatever came first."""
    closures = Closures(columns)
    closures.close("a", "uid-1", Refusal.UNKNOWN_HOLDER, "pod b")
    closures.close("a", "agent", Refusal.STALE, "silent")
    assert shown(columns) == (Refusal.STALE, "silent; pod b")
    closures.open("a", "agent")
    assert shown(columns) == (Refusal.UNKNOWN_HOLDER, "pod b")
    closures.open("a", "uid-1")
    assert shown(columns) == (Refusal.FITS, "")


def test_a_node_without_a_class_is_closed_though_nothing_closes_it(columns: Columns):
    """Nobody has told its GPUs."""
    closures = Closures(columns)
    closures.show("new")
    assert shown(columns, "new") == (Refusal.NO_TOPOLOGY, "")
    assert closures.of("new") == Closure(Refusal.NO_TOPOLOGY)


def test_what_would_close_it_without_some_reasons_is_told(columns: Columns):
    """Those of the victims of a preemption, which will be gone."""
    closures = Closures(columns)
    closures.close("a", "uid-1", Refusal.UNKNOWN_HOLDER, "pod b")
    assert closures.of("a", without={"uid-1"}) == Closure(Refusal.FITS)
    assert (closures.has("a", "uid-1"), closures.has("a", "uid-2"), closures.has("b", "uid-1")) == (True, False, False)
    assert closures.nodes_with("uid-1") == {"a"}


def test_what_changes_nothing_touches_no_row(columns: Columns):
    """A touched row costs every cached answer."""
    closures = Closures(columns)
    closures.close("a", "agent", Refusal.STALE, "silent")
    before = columns.generation
    closures.close("a", "agent", Refusal.STALE, "silent")
    closures.open("a", "never closed")
    assert columns.generation == before
    closures.close("a", "agent", Refusal.STALE, "still silent")
    assert columns.generation > before


@given(st.lists(st.tuples(st.sampled_from("kl"), st.none() | st.sampled_from(CLOSING)), max_size=12))
def test_what_is_shown_is_what_is_left_of_the_reasons(steps: list[tuple[str, Refusal | None]]):
    """After any sequence of closing and opening."""
    columns, left = Columns(), dict[str, Refusal]()
    columns.class_index[columns.row("a")] = 0
    closures = Closures(columns)
    closures.show("a")
    for key, refusal in steps:
        left.pop(key, None)
        if refusal is None:
            closures.open("a", key)
        else:
            left[key] = refusal
            closures.close("a", key, refusal, key)
        assert shown(columns)[0] is min(left.values(), default=Refusal.FITS)
        assert sorted(shown(columns)[1].split("; ")) == (sorted(left) or [""])
