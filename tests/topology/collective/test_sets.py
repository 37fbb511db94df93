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
from tests.oracles import MachineOracle, bits
from topology.collective import Depth, depths, machine_links, set_bandwidths
from topology.errors import TopologyError
from topology.inventory import Gpu, Inventory
from topology.matrix import from_codes


@lru_cache
def table(machine: Machine) -> NDArray[np.float64]:
    return set_bandwidths(machine_links(machine.matrix, machine.inventory), Depth.UP_TO_8)


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


# --- depths ---------------------------------------------------------------------------------------------------------

TORUS = [
    ["X" if a == b else "NV1" if a // 3 == b // 3 or a % 3 == b % 3 else "SYS" for b in range(9)] for a in range(9)
]  # 3 x 3: more GPUs than eight


@settings(deadline=None)
@given(irregular_machines())
def test_what_is_known_at_once_is_never_more_than_what_is_found_later(machine: Machine):
    links = machine_links(machine.matrix, machine.inventory)
    at_once, later = (set_bandwidths(links, depth) for depth in (Depth.AT_ONCE, Depth.FULL))
    assert (at_once <= later + 1e-6).all()
    assert ((at_once > 0) == (later > 0)).all()
    if depths(links) == (Depth.AT_ONCE,):
        assert np.array_equal(at_once, later)


def test_a_mesh_of_more_than_eight_gpus_is_packed_as_far_as_the_depth_goes():
    gpus = tuple(Gpu(index=at, model="NVIDIA H100 80GB HBM3", pcie_generation=5, pcie_width=16) for at in range(9))
    links = machine_links(from_codes(TORUS), Inventory(gpus))
    oracle = MachineOracle(TORUS, None, 25.0, 18, 5)
    at_once, up_to_8, full = (set_bandwidths(links, depth) for depth in Depth)
    sizes = np.bitwise_count(np.arange(512))
    assert (at_once <= up_to_8).all()
    assert (up_to_8 <= full).all()
    assert np.array_equal(up_to_8[sizes <= 8], full[sizes <= 8])
    for chosen in ((0, 1, 2), (0, 1, 3, 4), (0, 1, 2, 3, 4, 5), tuple(range(8)), tuple(range(9))):
        assert full[mask(*chosen)] == pytest.approx(oracle.bandwidth(frozenset(chosen))), chosen
    assert (at_once[-1], up_to_8[-1]) == (pytest.approx(63.01536 * 0.58), 50.0), "at once nothing is known of rings; the best single one, both ways"
    assert full[-1] == 100.0, "two rings each way: every GPU has four links"


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        pytest.param(HGX_H100_8, (Depth.AT_ONCE,), id="NVSwitch"),
        pytest.param(DGX2_16, (Depth.AT_ONCE,), id="16 GPUs behind NVSwitch"),
        pytest.param(A100X4_NV4, (Depth.AT_ONCE,), id="a uniform mesh"),
        pytest.param(BRIDGES_8, (Depth.AT_ONCE,), id="bridges"),
        pytest.param(PCIE8_PHB, (Depth.AT_ONCE,), id="no NVLink"),
        pytest.param(DGX1V, (Depth.AT_ONCE, Depth.UP_TO_8), id="a cube mesh of 8"),
        pytest.param(CUBEMESH_16, tuple(Depth), id="a cube mesh of 16"),
    ],
)
def test_only_irregular_meshes_have_more_than_is_known_at_once(machine: Machine, expected: tuple[Depth, ...]):
    assert depths(machine_links(machine.matrix, machine.inventory)) == expected


@pytest.mark.parametrize("size", [0, 1, 2])
def test_small_machines_have_tables_too(size: int):
    assert set_bandwidths(machine_links(matrix_of(*uniform(size, "NV12")))).tolist() == [0.0, 0.0, 0.0, 300.0][: 1 << size]


def test_more_than_sixteen_gpus_are_refused_in_a_sentence():
    with pytest.raises(TopologyError, match=r"^the machine has 17 GPUs in one link matrix; accepted: up to 16$"):
        set_bandwidths(machine_links(matrix_of(*uniform(17, "SYS"))))
