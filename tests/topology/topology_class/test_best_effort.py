"""The rule of NVIDIA's device plugin against its recorded answers, and against the slow reference that the benchmarks use."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench.reference import LinkTable, gpuallocator
from bench.topology_quality import golden
from tests.machines import SMALL_MACHINES, Machine, irregular_machines
from tests.oracles import best_effort_partitions, bits
from tests.shared_data import DATA, needs_data
from topology.collective import MachineLinks
from topology.links import Distance
from topology.matrix import from_codes
from topology.topology_class import members, topology_class
from topology.topology_class.best_effort import BestEffort, pair_scores


@needs_data
@pytest.mark.parametrize("name", golden.PRODUCTS)
def test_every_recorded_question_is_answered_as_nvidias_allocator_did(name: str):
    """Every free set and every size of seven machines, from what `topo -m` prints."""
    machine = next(found for found in golden.machines(DATA) if found.name == name)
    kind = topology_class(from_codes(machine.codes))
    answers = [kind.allocator_set(row.free, row.k) for row in machine.topo_rows]
    assert [answer and answer.mask for answer in answers] == [row.chosen for row in machine.topo_rows]


@needs_data
@pytest.mark.parametrize("name", golden.PRODUCTS)
def test_with_every_pcie_level_known_the_answers_are_those_that_it_gives_on_hardware(name: str):
    """A class never knows them all, but the rule is the same."""
    machine = next(found for found in golden.machines(DATA) if found.name == name)
    rule = BestEffort(scores_in(machine.table(pcie_known=True)))
    assert [rule.choose(row.free, row.k) for row in machine.rows] == [row.chosen for row in machine.rows]


@needs_data
@pytest.mark.parametrize(
    ("name", "numa", "other"),
    [
        pytest.param("dgx1-v100", "00001111", 57, id="DGX-1V, 126 without"),
        pytest.param("dgx1-p100", "00001111", 124, id="DGX-1P, 157 without"),
        pytest.param("v100x4-nv2-full", "0011", 0, id="four V100, 2 without"),
        pytest.param("a100x4-nv4-full", "0123", 0, id="four A100, a NUMA node each"),
        pytest.param("a100pcie8-nv4-pairs", "00001111", 0, id="bridged pairs"),
    ],
)
def test_numa_nodes_tell_most_of_what_nvlinks_hide(name: str, numa: str, other: int):
    """On hardware the allocator knows the PCIe level of every pair; ``other`` of its answers differ from ours."""
    machine = next(found for found in golden.machines(DATA) if found.name == name)
    kind = topology_class(from_codes(machine.codes, tuple(numa)))
    answers = [kind.allocator_set(row.free, row.k) for row in machine.rows]
    assert sum(answer is None or answer.mask != row.chosen for answer, row in zip(answers, machine.rows, strict=True)) == other


@pytest.mark.parametrize(
    ("code", "numa", "same"),
    [
        pytest.param("NV18", "00001111", "NODE", id="HGX H100, two sockets of four"),
        pytest.param("NV12", "00112233", "PXB", id="DGX A100, a PCIe switch for each pair and NUMA node"),
    ],
)
def test_behind_nvswitch_the_rule_sees_pcie_alone(code: str, numa: str, same: str):
    """NVML names the switch as the far end of every link, so no link counts as one between two GPUs."""
    kind = topology_class(from_codes([["X" if a == b else code for b in range(8)] for a in range(8)], tuple(numa)))
    seen = LinkTable(tuple(tuple("X" if a == b else same if numa[a] == numa[b] else "SYS" for b in range(8)) for a in range(8)), {}, socket=4)
    for free in range(1, 256):
        for k in range(1, free.bit_count() + 1):
            answer = kind.allocator_set(free, k)
            assert answer is not None
            assert answer.mask == gpuallocator.choose(seen, free, k)


def scores_in(table: LinkTable) -> NDArray[np.int64]:
    """Scores of all pairs as the reference counts them."""
    return np.array([[0 if a == b else gpuallocator.score(table, 1 << a | 1 << b) for b in range(table.size)] for a in range(table.size)])


def as_seen(machine: Machine, links: MachineLinks) -> LinkTable:
    """The machine for the reference: the class's levels under NVLinks where all NUMA nodes are told, and instead of links to an NVSwitch."""
    levels = tuple(tuple("X" if a == b else Distance(links.pcie_distance[a, b]).name for b in range(machine.size)) for a in range(machine.size))
    codes = tuple(
        tuple(levels[a][b] if links.nvswitch[a] and links.nvswitch[b] else machine.codes[a][b] for b in range(machine.size))
        for a in range(machine.size)
    )
    told = machine.numa is not None and all(cell.isdigit() for cell in machine.numa)
    return LinkTable(codes, {}, socket=machine.size, pcie=levels if told else None)


@settings(deadline=None)
@given(irregular_machines(largest=7) | st.sampled_from(SMALL_MACHINES), st.data())
def test_any_machine_is_answered_as_by_the_reference(machine: Machine, data: st.DataObject):
    """The reference shares no code with the tables and walks from mask to mask."""
    kind = topology_class(machine.matrix, machine.inventory)
    table = as_seen(machine, kind.links)
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


pair_lists = st.lists(st.sampled_from([0, 10, 20, 50, 100, 200, 300]), min_size=15, max_size=15)


@given(pair_lists, st.integers(1, 63), st.integers(2, 4), st.data())
def test_within_limits_the_best_partition_with_an_allowed_set_decides_and_in_it_the_allowed_set_that_scores_most(
    pairs: list[int], free: int, k: int, data: st.DataObject
):
    """Where the rule's own choice is not allowed; checked against every partition, one by one."""
    scores = np.zeros((6, 6), dtype=np.int64)
    for (a, b), score in zip(combinations(range(6), 2), pairs, strict=True):
        scores[a, b] = scores[b, a] = score
    gpus = members(free)
    every = list(combinations(gpus, k))
    assume(every)
    allowed = sorted(data.draw(st.sets(st.sampled_from(every), min_size=1)))
    rule = BestEffort(scores)

    def own(group: tuple[int, ...]) -> int:
        return int(sum(scores[a, b] for a, b in combinations(group, 2)))

    found = members(rule.best_of(free, k, np.array([bits(frozenset(group)) for group in allowed])))
    chosen = members(rule.choose(free, k))
    options = [(sum(map(own, groups)), own(group), group) for groups in best_effort_partitions(gpus, k) for group in groups if group in allowed]
    most = max(option[:2] for option in options)
    assert found == (chosen if chosen in allowed else min(group for total, score, group in options if (total, score) == most))


def test_a_bridged_pair_that_is_not_allowed_gives_way_to_the_next():
    """Two bridged pairs and two single GPUs: without the first pair the second is taken, without both the two singles."""
    scores = np.full((6, 6), 10)
    scores[[0, 1, 2, 3], [1, 0, 3, 2]] = 400
    rule = BestEffort(scores)
    pairs = np.array([(1 << a) | (1 << b) for a, b in combinations(range(6), 2)])
    assert rule.choose(0b111111, 2) == 0b11
    assert rule.best_of(0b111111, 2, pairs[pairs != 0b11]) == 0b1100
    assert rule.best_of(0b111111, 2, pairs[(pairs != 0b11) & (pairs != 0b1100)]) == 0b110000
    assert rule.best_of(0b111111, 1, np.array([0b10, 0b100])) == 0b10


@pytest.mark.parametrize(
    ("numa", "expected"),
    [
        pytest.param(None, [200, 50, 40, 30, 20, 10], id="NUMA nodes not told: links alone"),
        pytest.param("0001111", [220, 50, 40, 30, 20, 10], id="one NUMA node: links, and the farthest level inside it"),
        pytest.param("0100111", [210, 50, 40, 30, 20, 10], id="two NUMA nodes: links, and SYS"),
    ],
)
def test_a_pair_scores_its_links_or_its_level(numa: str | None, expected: list[int]):
    """Every printed code has its own score."""
    codes = ("NV2", "PIX", "PXB", "PHB", "NODE", "SYS")
    rows = [["X", *codes], *([code, *("X" if a == b else "SYS" for b in range(6))] for a, code in enumerate(codes))]
    links = topology_class(from_codes(rows, None if numa is None else tuple(numa))).links
    assert pair_scores(links, numa_told=numa is not None)[0, 1:].tolist() == expected


def test_weights_of_demands_change_no_choice_and_no_table():
    """What the cluster is asked for is none of NVIDIA's business, and a class under other weights fills nothing twice."""
    kind = topology_class(SMALL_MACHINES[0].matrix, SMALL_MACHINES[0].inventory)
    other = kind.under({1: 1.0})
    assert other._best_effort is kind._best_effort
    everything = (1 << kind.size) - 1
    assert [other.allocator_set(everything, k) for k in range(1, 5)] == [kind.allocator_set(everything, k) for k in range(1, 5)]


def test_sixteen_gpus_leave_no_hole_in_the_answer():
    """NVIDIA's own answers with fewer GPUs than asked for where the left-overs score more than a whole set."""
    scores = np.full((16, 16), 10)
    scores[0, 1] = scores[1, 0] = 400
    rule = BestEffort(scores)
    for k in range(1, 17):
        assert rule.choose((1 << 16) - 1, k).bit_count() == k
    assert rule.choose(0b11111, 3).bit_count() == 3
