"""What costs know of every row is the same whether rows were looked at one change after the other or all at once."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.placement.outlook import Outlook
from extender.placement.outlook_tables import GpuKind, supply_of
from extender.placement.row_facts import RowFacts, gpus_left
from extender.sample_machines import sample
from tests.builders import changed, cluster, extender_on, pod

NODES = cluster().dgx1v("b", "a").pcie("c")
HELD = pod("p").gpus(2).holding("a", *NODES.uuids("a")[:2])


def test_changes_one_by_one_and_a_first_look_tell_the_same():
    """Only the rows that changed are looked at again."""
    extender = extender_on(NODES)
    step, at_once = RowFacts(), RowFacts()
    assert step.follow(extender.cluster.view())
    assert step.taken == 0.0
    extender.cluster.apply_pod(HELD.build())
    view, outlook = extender.cluster.view(), Outlook()
    assert not step.follow(view), "the supply is what it was"
    at_once.follow(view)
    assert step.taken == at_once.taken == pytest.approx(2 / int(np.bitwise_count(view.usable).sum()))
    assert step.numbers(view, outlook).tolist() == at_once.numbers(view, outlook).tolist()
    assert step.supply == at_once.supply == supply_of(view)


def test_a_view_that_was_seen_is_not_looked_at_again():
    """The same generation has the same facts."""
    facts, view = RowFacts(), extender_on(NODES).cluster.view()
    assert facts.follow(view)
    assert not facts.follow(view)


def test_names_are_ranked_whatever_the_order_of_rows():
    """Rows stand as nodes came: b, a, c."""
    view = extender_on(NODES).cluster.view()
    assert [view.names[at] for at in np.argsort(RowFacts().name_ranks(view))] == ["a", "b", "c"]


@given(st.lists(st.integers(0, 99), unique=True, min_size=1, max_size=12), st.integers(1, 12))
def test_names_that_come_later_find_the_place_that_sorting_all_gives_them(numbers: list[int], first: int):
    """Names never change, rows are only added."""
    names = [f"node-{number:02d}" for number in numbers]
    view, facts = extender_on(NODES).cluster.view(), RowFacts()
    for rows in range(min(first, len(names)), len(names) + 1):
        ranks = facts.name_ranks(replace(view, names=names, closed=np.zeros(rows, np.int8)))
        assert ranks.tolist() == [sorted(names[:rows]).index(name) for name in names[:rows]]


def test_names_are_ranked_anew_where_rows_have_other_names():
    """As many rows as before, of other nodes: what was gone for good was forgotten, and others have come."""
    extender, facts = extender_on(cluster().pcie("b", "c")), RowFacts()
    assert facts.name_ranks(extender.cluster.view()).tolist() == [0, 1]
    extender.cluster.remove_topology("b")
    extender.cluster.forget_gone(1)
    (topology,) = cluster().pcie("a").topologies
    extender.cluster.apply_topology(topology)
    view = extender.cluster.view()
    assert list(view.names) == ["c", "a"]
    assert facts.name_ranks(view).tolist() == [1, 0]


def test_a_node_that_changes_is_numbered_anew_and_no_other_is(monkeypatch: pytest.MonkeyPatch):
    """One node may lose a GPU among thousands that do not."""
    extender, facts, outlook = extender_on(NODES), RowFacts(), Outlook()
    first = extender.cluster.view()
    facts.follow(first)
    before = facts.numbers(first, outlook).tolist()
    asked: list[int] = []
    plain = outlook.numbers
    monkeypatch.setattr(outlook, "numbers", lambda *told: (asked.append(len(told[1])), plain(*told))[1])
    extender.cluster.apply_topology(changed(NODES.topologies[2], unhealthy=[0]))
    extender.cluster.apply_topology(sample("mesh", "d").to_object())
    extender.cluster.remove_topology("a")
    view = extender.cluster.view()
    facts.follow(view)
    found = facts.numbers(view, outlook).tolist()
    assert asked == [2], "c and d; a has no class any more"
    assert [found[view.row_of[name]] for name in ("b", "a", "c")] == [before[first.row_of["b"]], -1, before[first.row_of["c"]]]
    assert found == RowFacts().numbers(view, outlook).tolist()


def test_a_gpu_of_which_a_part_is_left_counts_as_that_part():
    """Eight GPUs less two held ones."""
    view = extender_on(NODES.with_pods(HELD)).cluster.view()
    assert gpus_left(view, np.array([view.row_of["a"]])).tolist() == [6.0]
    assert {gpu.gib > 0 for gpu in supply_of(view) if isinstance(gpu, GpuKind)} == {True}


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([0, 3, 7, 11]), max_size=12))
def test_few_rows_have_as_many_gpus_left_as_many_tell(shares: list[int]):
    """Parts are counted alike, and so is a GPU whose size nobody knows."""
    extender = extender_on(NODES)
    for number, gib in enumerate(shares):
        asked = pod(f"p{number}").shared(gib) if gib else pod(f"p{number}").gpus(1)
        node = extender.names()[number % 3]
        extender.filter(asked, node)
        asyncio.run(extender.bind(asked, node))
    view = extender.cluster.view()
    for looked_at in (view, replace(view, offered=np.zeros_like(view.offered), left=np.zeros_like(view.left))):
        many = gpus_left(looked_at, np.array([0, 1, 2, 0, 1]))
        assert many.tolist() == [gpus_left(looked_at, np.array([row]))[0] for row in (0, 1, 2, 0, 1)]
        assert (many <= 8).all()
