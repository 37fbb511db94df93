from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from random import Random
from weakref import ref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machines import (
    A100X4_NV4,
    BRIDGE_AND_PAIR,
    BRIDGES_8,
    BRIDGES_CROSSED,
    CUBEMESH_16,
    DGX1P,
    DGX1V,
    DGX2_16,
    HGX_H100_8,
    MACHINES,
    NDV2,
    PCIE4_PHB,
    PCIE8_PHB,
    SMALL_MACHINES,
    SUMMIT_6,
    Machine,
    irregular_machines,
    matrix_of,
    oracle_of,
    relabelled,
    uniform,
)
from tests.oracles import bits
from topology.collective import Depth
from topology.errors import InternalError, TopologyError
from topology.inventory import Gpu, Inventory
from topology.links import Distance, LinkCode
from topology.matrix import LinkMatrix, NicColumn, from_codes
from topology.topology_class import ALMOST, ISLAND, SEED_WEIGHTS, GpuSet, Tables, TopologyClass, members, topology_class

EVEN = {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}


def class_of(machine: Machine) -> TopologyClass:
    return topology_class(machine.matrix, machine.inventory)


def gpus_in(mask: int) -> frozenset[int]:
    return frozenset(members(mask))


def taken(kind: TopologyClass, mask: int, *sizes: int, careful: bool = True) -> list[tuple[int, ...]]:
    """GPUs of pods of these sizes, placed one after the other."""
    placed = []
    for size in sizes:
        chosen = kind.best_set(mask, size, careful=careful)
        assert chosen is not None
        placed.append(members(chosen.mask))
        mask &= ~chosen.mask
    return placed


# --- tables against brute force


@pytest.mark.parametrize("machine", SMALL_MACHINES, ids=lambda machine: machine.name)
def test_best_bandwidth_of_every_mask_and_size_equals_brute_force(machine: Machine):
    kind, oracle = class_of(machine), oracle_of(machine)
    for k in range(machine.size + 2):
        expected = [oracle.best_bandwidth(gpus_in(mask), k) for mask in range(1 << machine.size)]
        assert kind.best_bandwidths(k).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("ceiling", Distance)
@pytest.mark.parametrize("machine", [DGX1V, BRIDGES_8, PCIE8_PHB, A100X4_NV4], ids=lambda machine: machine.name)
def test_no_set_with_a_link_beyond_the_ceiling_counts(machine: Machine, ceiling: Distance):
    kind, oracle = class_of(machine), oracle_of(machine)
    for k in range(1, machine.size + 1):
        expected = [oracle.best_bandwidth(gpus_in(mask), k, ceiling) for mask in range(1 << machine.size)]
        assert kind.best_bandwidths(k, ceiling).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("machine", SMALL_MACHINES, ids=lambda machine: machine.name)
def test_worst_link_of_every_set_equals_brute_force(machine: Machine):
    kind, oracle = class_of(machine), oracle_of(machine)
    for mask in range(1 << machine.size):
        code = kind.worst_code(mask)
        assert kind.worst[mask] == oracle.worst(gpus_in(mask))
        assert (code is None) == (mask.bit_count() < 2)
        parsed = code and LinkCode.parse(code)
        assert not parsed or parsed.distance == kind.worst[mask]


@pytest.mark.parametrize("machine", SMALL_MACHINES, ids=lambda machine: machine.name)
def test_worth_of_every_remainder_equals_brute_force(machine: Machine):
    kind, oracle = class_of(machine), oracle_of(machine)
    for weights in (dict(SEED_WEIGHTS), EVEN):
        expected = [oracle.worth(gpus_in(mask), weights) for mask in range(1 << machine.size)]
        assert kind.worth_of_remainders(weights).tolist() == pytest.approx(expected, rel=1e-5)
    assert kind.worth is kind.worth_of_remainders(SEED_WEIGHTS)


@settings(deadline=None, max_examples=50)
@given(irregular_machines())
def test_tables_of_an_irregular_machine_equal_brute_force(machine: Machine):
    kind, oracle = class_of(machine), oracle_of(machine)
    masks = range(1 << machine.size)
    for k in range(1, machine.size + 1):
        assert kind.best_bandwidths(k).tolist() == pytest.approx([oracle.best_bandwidth(gpus_in(mask), k) for mask in masks])
    assert kind.worth_of_remainders(EVEN).tolist() == pytest.approx([oracle.worth(gpus_in(mask), EVEN) for mask in masks], rel=1e-5)


def check_choice(machine: Machine, mask: int, k: int, *, careful: bool) -> None:
    """Check that the chosen set is within 1 percent of the best (if that counts) and that no other such set leaves a remainder of more worth."""
    kind, oracle = class_of(machine), oracle_of(machine)
    chosen = kind.best_set(mask, k, careful=careful)
    competing = oracle.subsets(gpus_in(mask), k)
    if not competing:
        assert chosen is None
        return
    assert chosen is not None
    best = max(oracle.bandwidths[gpus] for gpus in competing)
    if careful:
        competing = [gpus for gpus in competing if oracle.bandwidths[gpus] >= 0.99 * best]
    assert gpus_in(chosen.mask) in competing
    assert chosen.bandwidth == pytest.approx(oracle.bandwidths[gpus_in(chosen.mask)])
    if not careful or k == 1:
        fewest = min(oracle.islands_broken(gpus_in(mask), gpus) for gpus in competing)
        competing = [gpus for gpus in competing if oracle.islands_broken(gpus_in(mask), gpus) == fewest]
        assert gpus_in(chosen.mask) in competing
    remainders = [oracle.worth(gpus_in(mask) - gpus, dict(SEED_WEIGHTS)) for gpus in competing]
    assert kind.worth[mask & ~chosen.mask] == pytest.approx(max(remainders), rel=1e-5)


@pytest.mark.parametrize("machine", [DGX1V, BRIDGES_CROSSED, PCIE8_PHB, SUMMIT_6, BRIDGE_AND_PAIR], ids=lambda machine: machine.name)
def test_the_chosen_set_of_every_mask_and_size_equals_brute_force(machine: Machine):
    for mask in range(0, 1 << machine.size, 3 if machine.size > 6 else 1):
        for k in range(1, machine.size + 1):
            check_choice(machine, mask, k, careful=True)
            check_choice(machine, mask, k, careful=False)


@settings(deadline=None, max_examples=50)
@given(irregular_machines(), st.data(), st.booleans())
def test_the_chosen_set_of_an_irregular_machine_equals_brute_force(machine: Machine, data: st.DataObject, careful: bool):
    check_choice(machine, data.draw(st.integers(0, machine.everything)), data.draw(st.integers(1, machine.size)), careful=careful)


# --- properties


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_one_more_free_gpu_never_lowers_the_best_and_always_raises_the_worth(machine: Machine):
    kind = class_of(machine)
    masks = np.arange(1 << machine.size)
    for i in range(machine.size):
        without = masks[masks >> i & 1 == 0]
        for k in (1, 2, 3, 4, 8):
            assert (kind.best_bandwidths(k)[without | 1 << i] >= kind.best_bandwidths(k)[without]).all()
        assert (kind.worth[without | 1 << i] > kind.worth[without]).all()


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_a_set_has_the_bandwidth_that_the_table_promised_for_its_mask(machine: Machine):
    kind, random = class_of(machine), Random(7)
    for mask in random.sample(range(1 << machine.size), min(40, 1 << machine.size)):
        for k in range(1, mask.bit_count() + 1):
            chosen = kind.best_set(mask, k)
            assert chosen is not None
            assert (chosen.mask & ~mask, chosen.mask.bit_count()) == (0, k)
            assert kind.best_bandwidths(k)[mask] >= chosen.bandwidth >= ALMOST * kind.best_bandwidths(k)[mask]


def renumbered(mask: int, order: list[int]) -> int:
    """Return the mask in the numbering before `relabelled`."""
    return bits(frozenset(order[i] for i in members(mask)))


def assert_same_figures(machine: Machine, order: list[int]) -> None:
    before, after = class_of(machine), class_of(relabelled(machine, order))
    there = np.array([renumbered(mask, order) for mask in range(1 << machine.size)])
    assert after.bandwidth.tolist() == before.bandwidth[there].tolist()
    assert after.worst.tolist() == before.worst[there].tolist()
    assert after.worth.tolist() == before.worth[there].tolist()
    assert [after.worst_code(mask) for mask in range(1 << machine.size)] == [before.worst_code(mask) for mask in there]
    for k in range(1, machine.size + 1):
        assert after.best_bandwidths(k, Distance.NODE).tolist() == before.best_bandwidths(k, Distance.NODE)[there].tolist()
        for mask in range(0, 1 << machine.size, 5):
            for careful in (True, False):
                mine, theirs = after.best_set(mask, k, careful=careful), before.best_set(int(there[mask]), k, careful=careful)
                assert (mine is None) == (theirs is None)
                if mine and theirs:
                    assert (mine.bandwidth, mine.worst) == (theirs.bandwidth, theirs.worst)
                    assert after.worth[mask & ~mine.mask] == before.worth[int(there[mask]) & ~theirs.mask]


@settings(deadline=None, max_examples=40)
@given(irregular_machines(), st.randoms(use_true_random=False))
def test_numbering_the_gpus_anew_changes_no_figure_to_the_last_bit(machine: Machine, random: Random):
    order = list(range(machine.size))
    random.shuffle(order)
    assert_same_figures(machine, order)


@pytest.mark.parametrize("machine", [DGX1V, DGX1P, BRIDGES_8, PCIE8_PHB], ids=lambda machine: machine.name)
def test_numbering_a_real_machine_anew_changes_no_figure_to_the_last_bit(machine: Machine):
    for seed in range(3):
        assert_same_figures(machine, Random(seed).sample(range(machine.size), machine.size))


def test_the_same_question_has_the_same_answer_in_a_fresh_class():
    asked = [(mask, k) for mask in range(0, 256, 7) for k in range(1, 9)]
    first, again = (TopologyClass("", DGX1V.matrix, DGX1V.inventory.gpus, class_of(DGX1V).links) for _ in range(2))
    assert [first.best_set(*question) for question in asked] == [again.best_set(*question) for question in reversed(asked)][::-1]


# --- what a cluster administrator expects


def test_single_gpus_leave_a_quad_of_a_dgx1v_whole():
    kind = class_of(DGX1V)
    first, second = taken(kind, DGX1V.everything, 1, 1)
    left = DGX1V.everything & ~bits(frozenset(first + second))
    assert kind.best_bandwidths(4)[left] == kind.best_bandwidths(4)[DGX1V.everything]
    assert taken(kind, left, 2, 4)


@pytest.mark.parametrize("machine", [BRIDGES_8, BRIDGES_CROSSED], ids=lambda machine: machine.name)
def test_the_second_single_gpu_takes_the_partner_of_the_first(machine: Machine):
    first, second = taken(class_of(machine), machine.everything, 1, 1)
    assert machine.matrix.between(first[0], second[0]) == LinkCode("NV12")


@pytest.mark.parametrize("order", set(permutations((1, 1, 1, 1, 2, 2))), ids=str)
@pytest.mark.parametrize("machine", [BRIDGES_8, BRIDGES_CROSSED], ids=lambda machine: machine.name)
def test_pairs_stay_bridged_in_whatever_order_ones_and_twos_come(machine: Machine, order: tuple[int, ...]):
    kind = class_of(machine)
    pairs = [gpus for gpus in taken(kind, machine.everything, *order) if len(gpus) == 2]
    assert [kind.worst_code(bits(frozenset(pair))) for pair in pairs] == ["NV12", "NV12"]


def test_two_gpu_pods_get_the_bridged_pairs_of_the_crossed_layout():
    assert taken(class_of(BRIDGES_CROSSED), BRIDGES_CROSSED.everything, 2, 2, 2, 2) == [(0, 2), (1, 3), (4, 5), (6, 7)]


def test_a_two_gpu_pod_gets_the_bridged_pair_beside_an_unbridged_one():
    assert taken(class_of(BRIDGE_AND_PAIR), BRIDGE_AND_PAIR.everything, 2, 2) == [(0, 1), (2, 3)]


def test_a_single_gpu_pod_leaves_the_bridged_pair_beside_an_unbridged_one():
    assert taken(class_of(BRIDGE_AND_PAIR), BRIDGE_AND_PAIR.everything, 1, 1, 2) == [(2,), (3,), (0, 1)]


def test_a_two_gpu_pod_gets_a_double_link_although_lower_gpus_are_free():
    assert taken(class_of(DGX1V), DGX1V.everything, 2) == [(0, 3)]


def test_a_pod_that_does_not_care_leaves_the_bridges_to_those_who_do():
    kind = class_of(BRIDGE_AND_PAIR)
    assert taken(kind, BRIDGE_AND_PAIR.everything, 2, careful=False) == [(2, 3)]


def test_single_gpus_leave_switch_pairs_and_sockets_whole_where_there_is_no_nvlink():
    assert taken(class_of(PCIE8_PHB), PCIE8_PHB.everything, 1, 1, 1, 1) == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize("order", list(permutations((24_564, 46_068, 46_068, 24_570))), ids=str)
def test_of_unlike_cards_with_equal_links_those_with_the_least_memory_are_taken_first(order: tuple[int, ...]):
    """The larger card stays for a pod that needs one; some MiB more or less, as firmware reserves them, make no larger card."""
    matrix = matrix_of(*uniform(4, "NODE"))
    kind = topology_class(matrix, Inventory(tuple(Gpu(index=at, memory_mib=mib) for at, mib in enumerate(order))))
    small = tuple(at for at, mib in enumerate(order) if mib < 40_000)
    large = tuple(at for at, mib in enumerate(order) if mib > 40_000)
    assert taken(kind, 0b1111, 2, 2) == [small, large]
    assert taken(kind, 0b1111, 1, 1, 1, 1, careful=False) == [(at,) for at in (*small, *large)]


def test_equal_sets_behind_nvswitch_are_taken_near_together_and_from_the_front():
    matrix = matrix_of(*uniform(8, "NV18"), numa=("0", "1", "0", "1", "0", "1", "0", "1"))
    assert taken(topology_class(matrix, HGX_H100_8.inventory), 0xFF, 4, 4) == [(0, 2, 4, 6), (1, 3, 5, 7)]


def test_a_full_dgx2_serves_two_halves():
    kind = class_of(DGX2_16)
    assert taken(kind, DGX2_16.everything, 8, 8) == [tuple(range(8)), tuple(range(8, 16))]
    eights = kind.worth_of_remainders({1: 0.1, 8: 1.0})
    assert eights[0xFFFF] == pytest.approx(0.1 * 16 + 2 * 8 * 150)
    assert eights[0xFFFE] == pytest.approx(0.1 * 15 + 8 * 150)


def test_what_sets_of_a_size_are_worth_together_is_part_of_the_worth():
    kind = class_of(DGX2_16)
    assert kind.packed(8)[[0xFFFF, 0xFFFE, 0x7F]].tolist() == [2 * 8 * 150, 8 * 150, 0]
    assert not kind.packed(17).any()
    counted = 0.1 * np.bitwise_count(np.arange(1 << 16)) + 0.5 * kind.packed(4) + 0.5 * kind.packed(2)
    assert kind.worth_of_remainders({2: 0.5, 4: 0.5}) == pytest.approx(counted)


# --- floors, ceilings, edges


def test_a_floor_that_no_set_meets_gives_none():
    kind = class_of(DGX1V)
    assert kind.best_set(DGX1V.everything, 2, floor=50.0) == GpuSet(0b1001, 50.0, "NV2")
    assert kind.best_set(DGX1V.everything, 2, floor=50.1) is None
    assert kind.sets(DGX1V.everything, 2, floor=50.1).tolist() == []


def test_a_floor_holds_for_pods_that_do_not_care_too():
    chosen = class_of(BRIDGE_AND_PAIR).best_set(0b1111, 2, floor=100.0, careful=False)
    assert chosen == GpuSet(0b0011, 300.0, "NV12")


def test_a_ceiling_that_no_set_meets_gives_none():
    kind = class_of(PCIE8_PHB)
    assert kind.best_set(0xFF, 2, Distance.NVLINK) is None
    assert kind.best_set(0xFF, 2, Distance.PIX) == GpuSet(0b11, pytest.approx(15.75392 * 0.85), "PIX")
    assert kind.best_set(0xFF, 3, Distance.PIX) is None
    assert kind.best_set(0xFF, 4, Distance.PHB) is not None


def test_a_single_gpu_has_no_link_and_no_bandwidth():
    kind = class_of(DGX1V)
    assert kind.best_set(0b100, 1, Distance.NVLINK) == GpuSet(0b100, 0.0, None)
    assert kind.best_set(0b100, 1, floor=1.0) is None
    assert kind.best_bandwidths(1)[:3].tolist() == [-1.0, 0.0, 0.0]


def test_no_gpus_are_the_empty_set():
    kind = class_of(DGX1V)
    assert kind.best_set(0xFF, 0) == GpuSet(0, 0.0, None)
    assert set(kind.best_bandwidths(0).tolist()) == {0.0}


@pytest.mark.parametrize("k", [3, 9, 10**9])
def test_more_gpus_than_free_ones_are_not_found(k: int):
    kind = class_of(DGX1V)
    assert kind.best_set(0b11, k) is None
    assert kind.sets(0b11, k).tolist() == []
    assert kind.best_bandwidths(k)[0b11] == -1.0


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda kind: kind.best_set(1 << 8, 1), id="a GPU that the class does not have"),
        pytest.param(lambda kind: kind.sets(-1, 1), id="a negative mask"),
        pytest.param(lambda kind: kind.best_bandwidths(-1), id="fewer than no GPUs"),
        pytest.param(lambda kind: kind.gpu_set(256), id="a set outside the class"),
    ],
)
def test_a_question_that_makes_no_sense_is_our_bug(ask: Callable[[TopologyClass], object]):
    with pytest.raises(InternalError, match="asked a class of 8 GPUs"):
        ask(class_of(DGX1V))


def test_sets_come_best_first_and_then_by_what_they_leave():
    kind = class_of(BRIDGES_8)
    found = kind.sets(0b00111111, 2)
    assert [members(mask) for mask in found[:3]] == [(4, 5), (0, 1), (2, 3)], "4-5 has lost its neighbours, the others are a whole socket"
    assert len(found) == 15
    keys = [(kind.bandwidth[mask], kind.worth[0b00111111 & ~mask]) for mask in found]
    assert keys == sorted(keys, reverse=True)


def test_sets_are_all_eligible_ones():
    kind = class_of(PCIE8_PHB)
    assert sorted(kind.sets(0xFF, 2, Distance.PIX).tolist()) == [0b11, 0b1100, 0b110000, 0b11000000]
    assert len(kind.sets(0xFF, 4, floor=10.0)) == 2


def test_a_set_out_of_a_table_of_masks_can_be_asked_for_by_its_number():
    kind = class_of(BRIDGES_8)
    assert kind.gpu_set(kind.sets(0xFF, 2)[0]) == GpuSet(0b11, 300.0, "NV12")


def test_the_worst_code_is_the_one_printed():
    kind = topology_class(matrix_of("X SOC NV1", "SOC X ?", "NV1 ? X"))
    assert [kind.worst_code(mask) for mask in (0b011, 0b101, 0b110)] == ["SOC", "NV1", "SYS"]
    assert class_of(DGX1V).worst_code(0b1111) == "NV1"


def test_tables_are_read_only():
    kind = class_of(DGX1V)
    for array in (kind.bandwidth, kind.worst, kind.worth, kind.best_bandwidths(2), kind.sets(0xFF, 2)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_machine_without_gpus_has_a_class():
    kind = topology_class(LinkMatrix((), (), (), ()))
    assert (kind.size, kind.bandwidth.tolist(), kind.worth.tolist()) == (0, [0.0], [0.0])
    assert kind.best_set(0, 1) is None


def test_more_than_sixteen_gpus_are_refused_in_a_sentence():
    with pytest.raises(TopologyError, match="accepted: up to 16"):
        topology_class(matrix_of(*uniform(17, "SYS")))


def test_every_table_of_an_irregular_sixteen_gpu_machine_is_there():
    kind = class_of(CUBEMESH_16)
    chosen = kind.best_set(0xFFFF, 8)
    assert chosen is not None
    assert chosen.bandwidth == kind.best_bandwidths(8)[0xFFFF] == oracle_of(CUBEMESH_16).bandwidth(gpus_in(chosen.mask)) == 100.0


# --- islands


@pytest.mark.parametrize(
    ("machine", "islands", "cores"),
    [
        pytest.param(HGX_H100_8, [0xFF], [], id="all GPUs behind NVSwitch"),
        pytest.param(DGX1V, [0xFF], [0xF, 0xF0], id="a mesh in which some reach each other over others only: its quads"),
        pytest.param(BRIDGES_8, [0b11, 0b1100, 0b110000, 0b11000000], [], id="bridged pairs"),
        pytest.param(BRIDGE_AND_PAIR, [0b11], [], id="GPUs without NVLinks are in none"),
        pytest.param(PCIE8_PHB, [], [], id="no NVLinks at all"),
    ],
)
def test_an_island_is_what_nvlinks_join_and_its_cores_are_joined_to_all_of_each_other(machine: Machine, islands: list[int], cores: list[int]):
    kind = class_of(machine)
    assert (list(kind.islands), list(kind.cores)) == (islands, cores)
    for mask in range(1 << machine.size):
        whole = [sum(mask & group == group for group in groups) for groups in (islands, cores)]
        assert divmod(int(kind.whole_islands[mask]), ISLAND) == tuple(whole)


# --- depths


def test_a_class_is_kept_as_deep_as_it_was_ever_worked_out():
    """A deeper table, once known, is what every later node of the class gets; the shallow object stays as it is for those who hold it."""
    inventory = Inventory(tuple(replace(gpu, memory_mib=4711) for gpu in DGX1V.inventory.gpus))  # a class of this test's own
    shallow = topology_class(DGX1V.matrix, inventory, Depth.AT_ONCE)
    assert (shallow.depth, shallow.next_depth, shallow.bandwidth[-1]) == (Depth.AT_ONCE, Depth.SOON, 100.0)
    deep = shallow.deepened(Tables.of(shallow.links, Depth.SOON), Depth.SOON)
    assert (deep.key, deep.next_depth, deep.bandwidth[-1]) == (shallow.key, None, 150.0)
    assert deep.version != shallow.version
    assert topology_class(DGX1V.matrix, inventory, Depth.AT_ONCE) is topology_class(DGX1V.matrix, inventory) is deep
    assert shallow.deepened(Tables.of(shallow.links, Depth.AT_ONCE), Depth.AT_ONCE) is deep
    assert shallow.bandwidth[-1] == 100.0


def test_a_class_with_a_closed_form_has_nothing_left_to_find_out():
    assert topology_class(HGX_H100_8.matrix, HGX_H100_8.inventory, Depth.AT_ONCE) is class_of(HGX_H100_8)
    assert class_of(HGX_H100_8).next_depth is None
    assert topology_class(DGX2_16.matrix, DGX2_16.inventory, Depth.AT_ONCE).next_depth is None


def two_boxes(memory_mib: int) -> tuple[LinkMatrix, Inventory]:
    """Sixteen GPUs without NVLinks, eight behind each socket: all bandwidths are known at once, but what sets are worth together takes a while."""
    codes = [["X" if a == b else "PHB" if a // 8 == b // 8 else "SYS" for b in range(16)] for a in range(16)]
    return from_codes(codes), Inventory(tuple(Gpu(index=at, model="Tesla T4", memory_mib=memory_mib) for at in range(16)))


def test_in_a_hurry_remainders_of_many_gpus_are_worth_what_they_are_at_most():
    shallow = topology_class(*two_boxes(1), Depth.AT_ONCE)
    assert shallow.exact.all()
    assert (shallow.next_depth, topology_class(*two_boxes(2)).next_depth) == (Depth.SOON, None)
    deep = shallow.deepened(Tables.of(shallow.links, Depth.SOON), Depth.SOON)
    assert deep.next_depth is None
    assert deep.worth.tolist() == topology_class(*two_boxes(2)).worth.tolist()
    assert (shallow.worth >= deep.worth).all()
    assert shallow.best_set(0xFFFF, 4) == deep.best_set(0xFFFF, 4)


def test_tables_that_do_not_follow_from_bandwidths_are_shared_by_all_depths():
    shallow = topology_class(*two_boxes(3), Depth.AT_ONCE)
    worst = shallow.worst
    assert shallow.deepened(Tables.of(shallow.links, Depth.SOON), Depth.SOON).worst is worst


def test_a_class_that_is_prepared_has_nothing_left_that_takes_a_while():
    kind = topology_class(*two_boxes(4))
    kind.prepare()
    assert sorted(kind._packings) == [2, 3, 4, 5, 6, 7, 8]


# --- masks by model and NUMA node


def test_models_are_matched_by_glob_whatever_the_case():
    gpus = (Gpu(index=0, model="NVIDIA H100 80GB HBM3"), Gpu(index=1, model="NVIDIA A100-SXM4-80GB"), Gpu(index=2))
    kind = topology_class(matrix_of(*uniform(3, "SYS")), Inventory(gpus))
    assert kind.models == ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", None)
    assert [kind.model_mask(glob) for glob in ("*H100*", "*h100*", "nvidia*", "*", " * ", "*V100*", "H100", "*A100-SXM4-[48]0GB")] == [
        0b001,
        0b001,
        0b011,
        0b111,
        0b111,
        0,
        0,
        0b010,
    ]


def test_several_globs_match_what_any_of_them_matches():
    kind = topology_class(matrix_of(*uniform(3, "SYS")), Inventory((Gpu(index=0, model="V100M16"), Gpu(index=1, model="V100M32"), Gpu(index=2))))
    assert [kind.model_mask(globs) for globs in ("V100M16,V100M32", " v100m16 , T4", "T4,P100", "T4,*")] == [0b011, 0b001, 0, 0b111]


def test_numa_masks_hold_the_gpus_of_each_node():
    assert class_of(DGX1V).numa_masks() == {0: 0x0F, 1: 0xF0}
    kind = topology_class(matrix_of(*uniform(5, "SYS"), numa=("0", "8", "0-1", "N/A", "0-1")))
    assert kind.numa_masks() == {0: 0b00001, 8: 0b00010, "0-1": 0b10100}


# --- one object for equal nodes


def test_classes_that_nobody_uses_are_forgotten_but_for_the_last_ones() -> None:
    """A machine with 16 GPUs takes 4 MB, and links fail in hundreds of ways; one that is in use stays the same object whatever comes after it."""
    numas = list(permutations(range(4)))  # of four GPUs: a class each
    in_use = topology_class(with_numa_nodes(numas[0]))
    others = [ref(topology_class(with_numa_nodes(order))) for order in numas[1:]]
    assert topology_class(with_numa_nodes(numas[0])) is in_use
    assert [at for at, other in enumerate(others) if other() is not None] == list(range(len(others) - 16, len(others)))


def with_numa_nodes(order: tuple[int, ...]) -> LinkMatrix:
    """Return four bare GPUs on those NUMA nodes."""
    return from_codes([["X" if a == b else "SYS" for b in range(4)] for a in range(4)], numa=[str(node) for node in order])


def test_equal_nodes_share_one_class():
    other = Inventory(tuple(replace(gpu, uuid=f"GPU-other-{gpu.index}", bus_id=None, minor=9, cpus="0-3") for gpu in DGX1V.inventory.gpus))
    assert topology_class(DGX1V.matrix, DGX1V.inventory) is topology_class(DGX1V.matrix, other)


def one_gpu_changed(**change: object) -> tuple[LinkMatrix, Inventory]:
    first, *others = PCIE4_PHB.inventory.gpus
    return PCIE4_PHB.matrix, Inventory((replace(first, **change), *others))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("matrix", "inventory"),
    [
        pytest.param(PCIE4_PHB.matrix, None, id="no inventory"),
        pytest.param(*one_gpu_changed(model="Tesla T4"), id="another model"),
        pytest.param(*one_gpu_changed(memory_mib=1), id="another amount of memory"),
        pytest.param(*one_gpu_changed(pcie_generation=3), id="another PCIe generation"),
        pytest.param(*one_gpu_changed(pcie_width=8), id="another PCIe width"),
        pytest.param(*one_gpu_changed(numa_node=1), id="another NUMA node"),
        pytest.param(matrix_of(*uniform(4, "PIX"), numa=("0",) * 4), PCIE4_PHB.inventory, id="other codes"),
        pytest.param(
            replace(PCIE4_PHB.matrix, nics=(NicColumn("NIC0"),), nic_cells=((LinkCode("PIX"),),) * 4), PCIE4_PHB.inventory, id="a NIC beside them"
        ),
    ],
)
def test_nodes_that_differ_in_what_counts_have_different_classes(matrix: LinkMatrix, inventory: Inventory | None):
    assert topology_class(matrix, inventory).key != class_of(PCIE4_PHB).key


def test_the_key_is_short_and_of_the_hardware_alone():
    assert class_of(DGX1V).key == class_of(replace(DGX1V, name="another")).key
    assert len(class_of(DGX1V).key) == 16


# --- NUMA nodes and NICs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numa", "codes", "groups"),
    [
        pytest.param(("0", "0", "1", "1"), "NODE", {0b0011, 0b1100}, id="two nodes"),
        pytest.param(("0", "0", "N/A", "N/A"), "NODE", {0b0011, 0b0100, 0b1000}, id="GPUs of which nothing is told are together with none"),
        pytest.param(("0", "0", "0-1", "0-1"), "NODE", {0b0011, 0b0100, 0b1000}, id="a range is no node"),
        pytest.param(("0-1",) * 4, "NODE", {0b1111}, id="one range for all is one node"),
        pytest.param(("0-1",) * 4, "SYS", {1, 2, 4, 8}, id="unless a link leads to another node"),
        pytest.param(("N/A",) * 4, "PHB", {0b1111}, id="a machine that tells nothing is one node"),
        pytest.param(("N/A",) * 4, "SYS", {1, 2, 4, 8}, id="but not with a link between nodes"),
        pytest.param(("1",) * 4, "SYS", {0b1111}, id="a number is believed"),
    ],
)
def test_gpus_are_on_one_numa_node_only_where_that_is_known(numa: tuple[str, ...], codes: str, groups: set[int]) -> None:
    kind = topology_class(matrix_of(*uniform(4, codes), numa=numa))
    assert set(kind.numa_groups()) == groups
    together = [mask for mask in range(16) if kind.on_one_numa_node[mask]]
    assert together == [mask for mask in range(16) if mask == 0 or any(mask & ~group == 0 for group in groups)]


@pytest.mark.parametrize(
    ("farthest", "mask"),
    [
        pytest.param(Distance.PIX, 0b001, id="behind the same switch"),
        pytest.param(Distance.PHB, 0b001, id="a cell that was not printed is no NIC"),
        pytest.param(Distance.SYS, 0b011, id="any NIC"),
    ],
)
def test_the_gpus_with_a_near_nic(farthest: Distance, mask: int) -> None:
    bare = matrix_of(*uniform(3, "SYS"))
    cells = tuple(tuple(LinkCode(code) if code else None for code in row) for row in (("SYS", "PIX"), ("SYS", "SYS"), (None, None)))
    kind = topology_class(replace(bare, nics=(NicColumn("NIC0"), NicColumn("NIC1")), nic_cells=cells))
    assert kind.nic_mask(farthest) == mask
    assert topology_class(bare).nic_mask(farthest) == 0


@pytest.mark.parametrize("machine", SMALL_MACHINES, ids=lambda machine: machine.name)
def test_the_best_set_on_one_numa_node_equals_brute_force(machine: Machine) -> None:
    kind, oracle = topology_class(machine.matrix, machine.inventory), oracle_of(machine)
    for size in (1, 2, 3, 4):
        sets = [found for found in oracle.subsets(oracle.everything, size) if oracle.on_one_numa_node(found)]
        expected = max((oracle.bandwidth(found) for found in sets), default=-1.0)
        assert kind.best_bandwidths(size, one_numa=True)[machine.everything] == pytest.approx(expected)
        best = kind.best_set(machine.everything, size, one_numa=True)
        assert (best is None) == (not sets)
        assert {bits(found) for found in sets} == set(kind.sets(machine.everything, size, one_numa=True).tolist())


# --- other weights --------------------------------------------------------------------------------------------------


def test_other_weights_share_the_tables_and_choose_other_sets() -> None:
    """A single GPU from four bridges of which one is broken: whoever asks for quads only does not mind which pair goes."""
    kind = topology_class(DGX1V.matrix, DGX1V.inventory)
    pairs = kind.under({2: 1.0})
    assert pairs.bandwidth is kind.bandwidth
    assert pairs.worth.tolist() == kind.worth_of_remainders({2: 1.0}).tolist()
    assert kind.worth.tolist() == kind.worth_of_remainders().tolist(), "the class itself stays as it is"
    changed = [mask for mask in range(1, 256) if pairs.best_set(mask, 1) != kind.best_set(mask, 1)]
    assert changed, "some remainder is worth more to pairs than to the mixture"


@pytest.mark.parametrize("weights", [SEED_WEIGHTS, {1: 1.0, 2: 0.01, 4: 0.01, 8: 0.01}], ids=["seed", "nothing but singles"])
@pytest.mark.parametrize("machine", [DGX1V, DGX1P, NDV2, HGX_H100_8, BRIDGES_8, BRIDGES_CROSSED, A100X4_NV4], ids=lambda machine: machine.name)
def test_breaking_a_whole_island_costs_a_node_more_than_taking_what_a_broken_one_has_left(machine: Machine, weights: dict[int, float]) -> None:
    """So one or two GPUs without a care come from broken islands as long as any node of the kind has so many of them."""
    kind, oracle = class_of(machine).under(weights), oracle_of(machine)
    for k in (1, 2):
        costs: dict[bool, list[float]] = {True: [], False: []}
        for mask in range(1 << machine.size):
            chosen = kind.best_set(mask, k, careful=False)
            if chosen is None:
                continue
            breaks = any(island <= gpus_in(mask) and island & gpus_in(chosen.mask) for island in oracle.islands)
            assert not (breaks and len(oracle.in_broken_islands(gpus_in(mask))) >= k)
            costs[breaks].append(float(kind.worth[mask] - kind.worth[mask ^ chosen.mask]))
        assert min(costs[True]) > max(costs[False])
