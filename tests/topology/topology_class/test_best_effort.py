"""The rule of NVIDIA's device plugin against its recorded answers, and against the slow reference that the benchmarks use."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reference import LinkTable, gpuallocator
from bench.topology_quality import golden
from tests.machines import Machine, irregular_machines
from tests.shared_data import DATA, needs_data
from topology.links import Distance
from topology.matrix import from_codes
from topology.topology_class import topology_class
from topology.topology_class.best_effort import NVLINK_SCORE, PCIE_SCORE, BestEffort, pair_scores


@needs_data
@pytest.mark.parametrize("name", golden.PRODUCTS)
def test_every_recorded_question_is_answered_as_nvidias_allocator_did(name: str):
    """Every free set and every size of seven machines, from what `topo -m` prints."""
    machine = next(found for found in golden.machines(DATA) if found.name == name)
    kind = topology_class(from_codes(machine.codes))
    answers = [kind.allocator_set(row.free, row.k) for row in machine.topo_rows]
    assert [answer and answer.mask for answer in answers] == [row.chosen for row in machine.topo_rows]


@settings(deadline=None)
@given(irregular_machines(largest=7), st.data())
def test_any_machine_is_answered_as_by_the_reference(machine: Machine, data: st.DataObject):
    """The reference shares no code with the tables and walks from mask to mask."""
    kind = topology_class(machine.matrix, machine.inventory)
    table = LinkTable(tuple(map(tuple, machine.codes)), {}, socket=machine.size)
    free = data.draw(st.integers(1, machine.everything))
    for k in range(1, free.bit_count() + 1):
        answer = kind.allocator_set(free, k)
        assert answer is not None
        assert answer.mask == gpuallocator.choose(table, free, k)
        assert answer.bandwidth == kind.bandwidth[answer.mask], "told is what the set gets, not what its pairs score"


@settings(deadline=None)
@given(irregular_machines(largest=6), st.data())
def test_a_limit_leaves_a_set_exactly_where_the_tables_have_one_and_the_set_meets_it(machine: Machine, data: st.DataObject):
    """Otherwise filter and bind would disagree under this policy."""
    kind = topology_class(machine.matrix, machine.inventory)
    free = data.draw(st.integers(1, machine.everything))
    k = data.draw(st.integers(1, machine.size))
    ceiling = data.draw(st.sampled_from(Distance))
    floor = data.draw(st.sampled_from([0.0, 10.0, 25.0, 50.0, 75.0]))
    numa = data.draw(st.booleans())
    ours, theirs = kind.best_set(free, k, ceiling, floor, one_numa=numa), kind.allocator_set(free, k, ceiling, floor, one_numa=numa)
    assert (ours is None) == (theirs is None)
    if theirs is not None:
        assert theirs.mask & ~free == 0
        assert theirs.mask.bit_count() == k
        assert theirs.bandwidth >= floor
        assert kind.worst[theirs.mask] <= ceiling
        assert not numa or kind.on_one_numa_node[theirs.mask]


def test_where_its_own_choice_is_not_allowed_the_best_partition_with_an_allowed_set_decides():
    """Two bridged pairs and two single GPUs: without the first pair the second is taken, without both the two singles."""
    codes = [["X" if a == b else "NV4" if {a, b} in ({0, 1}, {2, 3}) else "SYS" for b in range(6)] for a in range(6)]
    links = topology_class(from_codes(codes)).links
    rule = BestEffort(pair_scores(links.nvlinks, links.distance))
    pairs = np.array([(1 << a) | (1 << b) for a, b in combinations(range(6), 2)])
    assert rule.choose(0b111111, 2) == 0b11
    assert rule.best_of(0b111111, 2, pairs[pairs != 0b11]) == 0b1100
    assert rule.best_of(0b111111, 2, pairs[(pairs != 0b11) & (pairs != 0b1100)]) == 0b110000
    assert rule.best_of(0b111111, 1, np.array([0b100, 0b10])) == 0b10


def test_a_pair_scores_its_links_or_its_level():
    """Every printed code has its own score."""
    codes = ("NV2", "PIX", "PXB", "PHB", "NODE", "SYS")
    rows = [["X", *codes], *([code, *("X" if a == b else "SYS" for b in range(6))] for a, code in enumerate(codes))]
    links = topology_class(from_codes(rows)).links
    assert pair_scores(links.nvlinks, links.distance)[0, 1:].tolist() == [2 * NVLINK_SCORE, 50, 40, 30, 20, 10]
    assert sorted(PCIE_SCORE.values()) == [10, 20, 30, 40, 50]


def test_sixteen_gpus_leave_no_hole_in_the_answer():
    """NVIDIA's own answers with fewer GPUs than asked for where the left-overs score more than a whole set."""
    scores = np.full((16, 16), 10)
    scores[0, 1] = scores[1, 0] = 400
    rule = BestEffort(scores)
    for k in range(1, 17):
        assert rule.choose((1 << 16) - 1, k).bit_count() == k
    assert rule.choose(0b11111, 3).bit_count() == 3
