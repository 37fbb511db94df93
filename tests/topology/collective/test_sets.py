from functools import lru_cache
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.machines import (
    A100X4_NV4,
    A6000_PAIR_PLUS_SINGLE,
    BRIDGES_8,
    CUBEMESH_16,
    DELOS_4,
    DGX1P,
    DGX1V,
    DGX2_16,
    HGX_A100_8,
    HGX_H100_8,
    HOPPER4_NV6,
    PCIE4_PHB,
    PCIE8_PHB,
    SMALL_MACHINES,
    Machine,
    irregular_machines,
    matrix_of,
    oracle_of,
    relabelled,
    uniform,
)
from tests.oracles import bits
from topology.collective import Depth, machine_links, set_bandwidths, set_rates
from topology.errors import TopologyError
from topology.matrix import from_codes


@lru_cache
def table(machine: Machine) -> NDArray[np.float64]:
    return set_bandwidths(machine_links(machine.matrix, machine.inventory))


def mask(*gpus: int) -> int:
    return bits(frozenset(gpus))


@pytest.mark.parametrize("machine", SMALL_MACHINES, ids=lambda machine: machine.name)
def test_every_set_of_every_machine_equals_brute_force(machine: Machine):
    expected = {bits(gpus): gb_per_s for gpus, gb_per_s in oracle_of(machine).bandwidths.items()}
    assert dict(enumerate(table(machine).tolist())) == pytest.approx(expected)


@settings(deadline=None)
@given(irregular_machines())
def test_every_set_of_an_irregular_machine_equals_brute_force(machine: Machine):
    expected = {bits(gpus): gb_per_s for gpus, gb_per_s in oracle_of(machine).bandwidths.items()}
    assert dict(enumerate(set_bandwidths(machine_links(machine.matrix, machine.inventory)).tolist())) == pytest.approx(expected)


@settings(deadline=None)
@given(st.sets(st.integers(0, 15), min_size=2, max_size=6))
def test_small_sets_of_a_sixteen_gpu_mesh_equal_brute_force(gpus: set[int]):
    assert table(CUBEMESH_16)[bits(frozenset(gpus))] == pytest.approx(oracle_of(CUBEMESH_16).bandwidth(frozenset(gpus)))


@settings(deadline=None)
@given(irregular_machines(), st.randoms(use_true_random=False))
def test_numbering_the_gpus_anew_changes_no_figure(machine: Machine, random: Random):
    order = list(range(machine.size))
    random.shuffle(order)
    before, after = table(machine), table(relabelled(machine, order))
    for gpus in range(1 << machine.size):
        assert after[gpus] == before[mask(*(order[i] for i in range(machine.size) if gpus >> i & 1))]


@pytest.mark.parametrize(
    ("machine", "gpus", "gb_per_s"),
    [
        pytest.param(DGX1V, (0, 3), 50.0, id="DGX-1V, pair with two links"),
        pytest.param(DGX1V, (0, 1), 25.0, id="DGX-1V, pair with one link"),
        pytest.param(DGX1V, (0, 1, 2), 50.0, id="DGX-1V, triangle"),
        pytest.param(DGX1V, (0, 1, 2, 3), 100.0, id="DGX-1V, a quad: two cycles"),
        pytest.param(DGX1V, tuple(range(8)), 150.0, id="DGX-1V, all 8 GPUs: three cycles"),
        pytest.param(DGX1V, (0, 4, 5, 6, 7), 15.75392 * 0.58, id="DGX-1V, a quad and one GPU that only one of it reaches: PCIe"),
        pytest.param(DGX1P, (0, 1), 20.0, id="DGX-1P, 2 GPUs"),
        pytest.param(DGX1P, (0, 1, 2), 40.0, id="DGX-1P, 3 GPUs"),
        pytest.param(DGX1P, (0, 1, 2, 3), 60.0, id="DGX-1P, 4 GPUs"),
        pytest.param(DGX1P, (0, 1, 2, 3, 4), 15.75392 * 0.58, id="DGX-1P, 5 GPUs: no ring, PCIe"),
        pytest.param(DGX1P, (0, 1, 2, 3, 4, 5), 40.0, id="DGX-1P, 6 GPUs"),
        pytest.param(DGX1P, (0, 1, 2, 3, 4, 5, 6), 60.0, id="DGX-1P, 7 GPUs"),
        pytest.param(DGX1P, tuple(range(8)), 80.0, id="DGX-1P, all 8 GPUs: two cycles"),
        pytest.param(BRIDGES_8, (0, 1), 300.0, id="A100 bridge"),
        pytest.param(BRIDGES_8, (0, 2), 31.50768 * 0.70, id="A100, unbridged pair"),
        pytest.param(BRIDGES_8, (0, 1, 2), 31.50768 * 0.70, id="bridge and a third: the ring runs over PCIe"),
        pytest.param(BRIDGES_8, (0, 1, 2, 4), 31.50768 * 0.58, id="across sockets"),
        pytest.param(A100X4_NV4, (0, 1), 100.0, id="4 x A100 NV4, pair"),
        pytest.param(A100X4_NV4, (0, 1, 2), 200.0, id="4 x A100 NV4, triple"),
        pytest.param(A100X4_NV4, (0, 1, 2, 3), 300.0, id="4 x A100 NV4, all: three cycles"),
        pytest.param(HOPPER4_NV6, (0, 1), 150.0, id="4 x Hopper NV6, pair"),
        pytest.param(HOPPER4_NV6, (0, 1, 2), 300.0, id="4 x Hopper NV6, triple"),
        pytest.param(HOPPER4_NV6, (0, 1, 2, 3), 450.0, id="4 x Hopper NV6, all: three cycles"),
        pytest.param(A6000_PAIR_PLUS_SINGLE, (0, 1), 56.25, id="A6000 bridge"),
        pytest.param(DELOS_4, (0, 1, 2, 3), 50.0, id="ring whose slowest side has one link: two directions of 25"),
        pytest.param(DELOS_4, (0, 1, 2), 15.75392 * 0.58, id="three of a ring are no ring"),
        pytest.param(PCIE8_PHB, (0, 1), 15.75392 * 0.85, id="PIX pair"),
        pytest.param(PCIE8_PHB, (0, 1, 2, 3), 15.75392 * 0.7617, id="a socket: its host bridge decides"),
        pytest.param(PCIE4_PHB, (0, 1, 2, 3), 63.01536 * 0.7617, id="PCIe 5"),
    ],
)
def test_known_values(machine: Machine, gpus: tuple[int, ...], gb_per_s: float):
    assert table(machine)[mask(*gpus)] == pytest.approx(gb_per_s)


def test_the_best_set_of_every_size_of_a_dgx1v():
    values, sizes = table(DGX1V), np.bitwise_count(np.arange(256))
    assert [values[sizes == k].max() for k in range(2, 9)] == [50.0, 50.0, 100.0, 50.0, 100.0, 100.0, 150.0]


@pytest.mark.parametrize(
    ("machine", "gb_per_s"),
    [
        pytest.param(HGX_H100_8, 450.0, id="8 x H100"),
        pytest.param(HGX_A100_8, 300.0, id="8 x A100"),
        pytest.param(DGX2_16, 150.0, id="DGX-2"),
    ],
)
def test_behind_nvswitch_every_set_of_two_or_more_has_all_links_of_a_gpu(machine: Machine, gb_per_s: float):
    values = table(machine)
    several = np.bitwise_count(np.arange(len(values))) >= 2
    assert set(values[several].tolist()) == {gb_per_s}
    assert set(values[~several].tolist()) == {0.0}


def test_a_lame_gpu_behind_nvswitch_slows_only_its_own_sets():
    codes = [["NV16" if 3 in (i, j) and i != j else cell for j, cell in enumerate(row)] for i, row in enumerate(HGX_H100_8.codes)]
    values = set_bandwidths(machine_links(from_codes(codes), HGX_H100_8.inventory))
    assert {values[mask(*gpus)] for gpus in combinations((0, 1, 2, 4, 5, 6, 7), 3)} == {450.0}
    assert {values[mask(3, *gpus)] for gpus in combinations((0, 1, 2, 4, 5, 6, 7), 3)} == {400.0}


def test_a_gpu_that_nvswitch_lost_leaves_the_others_as_they_are():
    codes = [["NODE" if 3 in (i, j) and i != j else cell for j, cell in enumerate(row)] for i, row in enumerate(HGX_H100_8.codes)]
    values = set_bandwidths(machine_links(from_codes(codes), HGX_H100_8.inventory))
    assert {values[mask(*gpus)] for gpus in combinations((0, 1, 2, 4, 5, 6, 7), 4)} == {450.0}
    assert values[mask(0, 1, 3)] == pytest.approx(63.01536 * 0.70)


def test_a_pair_with_fewer_links_than_the_others_is_a_slower_edge():
    whole = set_bandwidths(machine_links(matrix_of(*uniform(4, "NV4")), A100X4_NV4.inventory))
    codes = [["NV2" if {i, j} == {0, 1} else cell for j, cell in enumerate(row)] for i, row in enumerate(A100X4_NV4.codes)]
    values = set_bandwidths(machine_links(from_codes(codes), A100X4_NV4.inventory))
    assert (whole[0b0011], values[0b0011]) == (100.0, 50.0)
    assert (whole[0b0111], values[0b0111]) == (200.0, 100.0)
    # Two of the three cycles use the lame pair and share its 50 GB/s; the third has what they leave of the other pairs, 75.
    assert (whole[0b1111], values[0b1111]) == (300.0, 250.0)


def test_pcie_is_taken_where_it_is_faster_than_nvlink():
    codes = [row.split() for row in uniform(3, "NV1")]
    slow_nvlink = set_bandwidths(machine_links(from_codes(codes)))  # unknown model: 14 GB/s a link, PCIe 3
    assert slow_nvlink[0b11] == 14.0625
    mixed = set_bandwidths(machine_links(matrix_of("X PIX SYS", "PIX X NV1", "SYS NV1 X"), PCIE4_PHB.inventory))
    assert mixed[0b110] == pytest.approx(63.01536 * 0.58), "PCIe 5 across sockets beats one NVLink of 14"


def test_the_order_of_codes_is_the_order_of_their_rates():
    nvlinks = [table(machine)[0b11] for machine in (HGX_H100_8, HGX_A100_8, A100X4_NV4)]
    codes = [["X"] * 6 for _ in range(6)]
    for i in range(1, 6):
        codes[0][i] = codes[i][0] = ("PIX", "PXB", "PHB", "NODE", "SYS")[i - 1]
    for i, j in combinations(range(1, 6), 2):
        codes[i][j] = codes[j][i] = "SYS"
    values = set_bandwidths(machine_links(from_codes(codes), HGX_H100_8.inventory))
    pcie = [values[1 | 1 << i] for i in range(1, 6)]
    assert nvlinks[0] > nvlinks[1] > nvlinks[2] > pcie[0]
    assert pcie == sorted(pcie, reverse=True)
    assert table(A6000_PAIR_PLUS_SINGLE)[0b11] > pcie[0], "the slowest bridge still beats the fastest PCIe path"


# --- meshes of more than eight GPUs -----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.sets(st.integers(0, 15), min_size=9, max_size=16))
def test_large_sets_of_a_sixteen_gpu_mesh_equal_the_packing_of_every_walk(gpus: set[int]):
    nvlink = oracle_of(CUBEMESH_16).nvlink_rings(frozenset(gpus))
    found = table(CUBEMESH_16)[bits(frozenset(gpus))]
    assert found == pytest.approx(nvlink) if nvlink else found < 25.0, "over PCIe where no ring closes"


def test_the_best_set_of_every_size_of_a_cube_mesh_of_sixteen():
    values, sizes = table(CUBEMESH_16), np.bitwise_count(np.arange(1 << 16))
    assert [values[sizes == k].max() for k in range(2, 17)] == [50.0, 50.0, 100.0, 50.0, 100.0, 100.0, 100.0, *[50.0] * 3, 75.0, *[100.0] * 3, 75.0]
    oracle = oracle_of(CUBEMESH_16)
    for k in (8, 12, 15, 16):
        best = int(np.flatnonzero((sizes == k) & (values == values[sizes == k].max()))[0])
        assert oracle.nvlink_rings(frozenset(gpu for gpu in range(16) if best >> gpu & 1)) == pytest.approx(values[best])


# --- depths ---------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(irregular_machines())
def test_what_is_known_at_once_is_never_more_than_what_is_found_later(machine: Machine):
    links = machine_links(machine.matrix, machine.inventory)
    at_once, later = set_rates(links, Depth.AT_ONCE), set_rates(links)
    assert (at_once.gb_per_s <= later.gb_per_s + 1e-6).all()
    assert ((at_once.gb_per_s > 0) == (later.gb_per_s > 0)).all()
    assert at_once.gb_per_s[at_once.exact] == pytest.approx(later.gb_per_s[at_once.exact])
    assert later.exact.all()


@pytest.mark.parametrize(
    ("machine", "at_once"),
    [
        pytest.param(HGX_H100_8, True, id="NVSwitch"),
        pytest.param(DGX2_16, True, id="16 GPUs behind NVSwitch"),
        pytest.param(A100X4_NV4, True, id="a uniform mesh"),
        pytest.param(BRIDGES_8, True, id="bridges"),
        pytest.param(PCIE8_PHB, True, id="no NVLink"),
        pytest.param(DGX1V, False, id="a cube mesh of 8"),
        pytest.param(CUBEMESH_16, False, id="a cube mesh of 16"),
    ],
)
def test_only_irregular_meshes_are_not_exact_at_once_and_real_ones_are_soon(machine: Machine, at_once: bool):
    links = machine_links(machine.matrix, machine.inventory)
    assert set_rates(links, Depth.AT_ONCE).exact.all() == at_once
    assert set_rates(links, Depth.SOON).exact.all()


def test_sixteen_gpus_behind_nvswitch_of_which_two_see_less_of_each_other_have_bounds_at_once():
    """Whether the lame pair can be avoided depends on the order of the ring; three GPUs cannot, four can."""
    codes = [["NV3" if {i, j} == {0, 1} else cell for j, cell in enumerate(row)] for i, row in enumerate(DGX2_16.codes)]
    links = machine_links(from_codes(codes), DGX2_16.inventory)
    at_once, soon = set_rates(links, Depth.AT_ONCE), set_rates(links, Depth.SOON)
    assert [soon.gb_per_s[mask(*gpus)] for gpus in ((0, 1), (0, 1, 2), (0, 1, 2, 3), (0, 2, 3))] == [75.0, 75.0, 150.0, 150.0]
    assert (at_once.gb_per_s <= soon.gb_per_s).all()
    assert at_once.exact.tolist() == [gpus.bit_count() < 3 or gpus & 0b11 != 0b11 for gpus in range(1 << 16)]
    assert soon.exact.all()


@pytest.mark.parametrize("size", [0, 1, 2])
def test_small_machines_have_tables_too(size: int):
    assert set_bandwidths(machine_links(matrix_of(*uniform(size, "NV12")))).tolist() == [0.0, 0.0, 0.0, 300.0][: 1 << size]


def test_more_than_sixteen_gpus_are_refused_in_a_sentence():
    with pytest.raises(TopologyError, match=r"^the machine has 17 GPUs in one link matrix; accepted: up to 16$"):
        set_bandwidths(machine_links(matrix_of(*uniform(17, "SYS"))))
