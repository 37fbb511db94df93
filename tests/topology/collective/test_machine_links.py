from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from tests.machines import (
    A40_4,
    A100X4_NV4,
    A6000_PAIR_PLUS_SINGLE,
    BRIDGES_8,
    CUBEMESH_16,
    DGX1P,
    DGX1V,
    DGX2_16,
    HGX_A100_8,
    HGX_H100_8,
    HGX_H800_8,
    HOPPER4_NV6,
    MACHINES,
    NDV2,
    PCIE8_PHB,
    Machine,
    irregular_machines,
    matrix_of,
    oracle_of,
    uniform,
)
from tests.oracles import LEVELS
from topology.collective import MachineLinks, machine_links, matched_gpus, numa_of, slot_of
from topology.inventory import Gpu, Inventory
from topology.links import Distance
from topology.matrix import GpuRow, LinkMatrix, from_codes


def links_of(machine: Machine) -> MachineLinks:
    return machine_links(machine.matrix, machine.inventory)


def pcie_names(links: MachineLinks) -> list[list[str]]:
    return [["X" if i == j else LEVELS[code] for j, code in enumerate(row)] for i, row in enumerate(links.pcie_distance.tolist())]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_numbers_of_a_pair_are_those_of_its_code(machine: Machine):
    links = links_of(machine)
    for i, j, code in machine.matrix.pairs():
        assert code is not None
        assert links.nvlinks[i, j] == links.nvlinks[j, i] == code.nvlinks
        assert links.distance[i, j] == links.distance[j, i] == code.distance
        assert links.nvlink_gb_per_s[i, j] == (machine.nvlink_gb_per_s if code.nvlinks else 0.0)
        assert links.pcie_gb_per_s[i, j] == pytest.approx(oracle_of(machine).pcie_hop(i, j))


@pytest.mark.parametrize(
    ("machine", "switched"),
    [
        pytest.param(HGX_H100_8, True, id="8 x H100 with 18 links in every cell"),
        pytest.param(HGX_A100_8, True, id="8 x A100 with 12 links in every cell"),
        pytest.param(HGX_H800_8, True, id="8 x H800, which has only 8 links"),
        pytest.param(DGX2_16, True, id="16 x V100: 15 x 6 links where a V100 has 6"),
        pytest.param(A100X4_NV4, False, id="4 x A100 NV4: 3 x 4 links are the 12 of an A100"),
        pytest.param(HOPPER4_NV6, False, id="4 x Hopper NV6: 3 x 6 links are the 18 of a Hopper"),
        pytest.param(DGX1V, False, id="cube mesh of V100"),
        pytest.param(DGX1P, False, id="cube mesh of P100"),
        pytest.param(BRIDGES_8, False, id="NV12 bridges: two GPUs are no switch"),
        pytest.param(PCIE8_PHB, False, id="no NVLink"),
        pytest.param(CUBEMESH_16, False, id="a paper machine whose rows add up to 7 of 6 links"),
    ],
)
def test_switch_and_mesh_are_told_apart_by_the_links_of_the_model(machine: Machine, switched: bool):
    assert links_of(machine).switched is switched


@pytest.mark.parametrize(
    ("rows", "switched"),
    [
        pytest.param(uniform(4, "NV4"), False, id="4 x NV4: 12 links fit into 18"),
        pytest.param(uniform(4, "NV6"), False, id="4 x NV6: 18 links fit into 18"),
        pytest.param(uniform(4, "NV8"), True, id="4 x NV8: 24 links do not fit into 18"),
        pytest.param(uniform(8, "NV18"), True, id="8 x NV18"),
        pytest.param(uniform(3, "NV18"), True, id="3 of 8 x NV18 in a container"),
        pytest.param(uniform(2, "NV18"), False, id="2 of 8 x NV18 in a container: nothing to tell, nothing to lose"),
    ],
)
def test_an_unknown_model_is_taken_to_have_eighteen_links(rows: tuple[str, ...], switched: bool):
    assert machine_links(matrix_of(*rows)).switched is switched


def with_cells(machine: Machine, gpu: int, code: str) -> LinkMatrix:
    codes = [[code if gpu in (i, j) and i != j else cell for j, cell in enumerate(row)] for i, row in enumerate(machine.codes)]
    return from_codes(codes, machine.numa)


def test_nvswitch_is_seen_although_one_gpu_has_lost_all_its_links():
    links = machine_links(with_cells(HGX_H100_8, 3, "NODE"), HGX_H100_8.inventory)
    assert links.nvswitch.tolist() == [True, True, True, False, True, True, True, True]


def test_nvswitch_is_seen_although_one_gpu_has_lost_some_links():
    links = machine_links(with_cells(HGX_H100_8, 3, "NV16"), HGX_H100_8.inventory)
    assert links.nvswitch.all()
    assert links.nvlinks[3, 4] == 16


def test_the_weaker_direction_of_an_asymmetric_pair_counts():
    links = machine_links(matrix_of("X NV2 PIX", "NV1 X SYS", "PHB SYS X"))
    assert links.nvlinks[0, 1] == links.nvlinks[1, 0] == 1
    assert links.distance[0, 2] == Distance.PHB


@pytest.mark.parametrize(
    ("machine", "pair", "path"),
    [
        pytest.param(DGX1V, (0, 1), Distance.NODE, id="same NUMA node, nothing nearer known"),
        pytest.param(DGX1V, (0, 4), Distance.SYS, id="other NUMA node"),
        pytest.param(BRIDGES_8, (0, 1), Distance.NODE, id="both NODE from the same neighbours"),
        pytest.param(NDV2, (0, 6), Distance.NODE, id="one NUMA node"),
        pytest.param(A6000_PAIR_PLUS_SINGLE, (0, 1), Distance.NODE, id="bridged pair beside a single GPU"),
        pytest.param(A40_4, (0, 1), Distance.PXB, id="printed, nothing to infer"),
        pytest.param(replace(DGX1V, numa=None), (0, 1), Distance.SYS, id="no NUMA column"),
        pytest.param(replace(DGX1V, numa=("0-1",) * 8), (0, 1), Distance.SYS, id="a range is no NUMA node"),
        pytest.param(replace(DGX1V, numa=("N/A",) * 8), (0, 1), Distance.SYS, id="N/A is no NUMA node"),
        pytest.param(
            replace(A6000_PAIR_PLUS_SINGLE, rows=("X NV4 PIX", "NV4 X PHB", "PIX PHB X")), (0, 1), Distance.PHB, id="the longer part of the detour"
        ),
    ],
)
def test_the_path_that_nvlinks_hide_is_the_longest_that_fits(machine: Machine, pair: tuple[int, int], path: Distance):
    assert links_of(machine).pcie_distance[pair] == path


@settings(deadline=None)
@given(irregular_machines())
def test_hidden_paths_equal_the_walk_over_levels(machine: Machine):
    assert pcie_names(links_of(machine)) == oracle_of(machine).pcie


def test_hidden_paths_are_said_to_be_assumed():
    assert "The PCIe path under NVLinks is not printed; the longest that fits is assumed: NODE for 4 pairs." in links_of(BRIDGES_8).assumptions


def test_nothing_is_assumed_where_everything_is_told():
    told = Inventory(tuple(replace(gpu, pcie_generation=3, pcie_width=16) for gpu in PCIE8_PHB.inventory.gpus))
    assert machine_links(PCIE8_PHB.matrix, told).assumptions == ()


def test_a_pair_without_a_code_counts_as_sys_and_is_named():
    links = machine_links(matrix_of("X ? PIX", "? X PIX", "PIX PIX X"))
    assert links.distance[0, 1] == links.pcie_distance[0, 1] == Distance.SYS
    assert links.assumptions[0] == "No code was printed for GPU0-GPU1: SYS is assumed, the longest path."


def test_a_code_printed_in_one_direction_only_is_no_gap():
    links = machine_links(matrix_of("X ? ", "PIX X"))
    assert links.distance[0, 1] == Distance.PIX


def test_without_an_inventory_the_lowest_rates_are_taken_and_said():
    links = machine_links(matrix_of("X NV4", "NV4 X"))
    assert links.nvlink_gb_per_s[0, 1] == 14.0625
    assert links.pcie_gb_per_s[0, 1] == pytest.approx(0.98462 * 16 * 0.58)
    assert links.assumptions == (
        "The NVLink generation of GPU0, GPU1 was not told: 14.0625 GB/s per NVLink assumed: NVLink 3 (GA10x bridge) is the slowest with 4 links or more.",
        "The PCIe path under NVLinks is not printed; the longest that fits is assumed: SYS for 1 pair.",
        "The PCIe slot of GPU0, GPU1 was not told: generation 3 x16 is assumed.",
    )


def test_joined_gpus_are_of_one_generation_so_the_one_with_most_links_tells():
    links = machine_links(matrix_of("X NV4 SYS", "NV4 X NV4", "SYS NV4 X"))
    assert set(links.nvlink_gb_per_s[links.nvlinks > 0].tolist()) == {25.0}, "eight links at one GPU are no GA10x bridge"


def test_the_generation_of_a_known_model_is_taken_before_the_lowest():
    links = links_of(HGX_H100_8)
    assert links.pcie_gb_per_s[0, 1] == pytest.approx(3.93846 * 16 * 0.70)
    assert "The PCIe slot of GPU0, GPU1, GPU2, GPU3 and 4 more was not told: generation 5 x16 is assumed." in links.assumptions


@pytest.mark.parametrize(
    ("first", "second", "gb_per_s"),
    [
        pytest.param((4, 16), (4, 16), 1.96923 * 16 * 0.85, id="equal slots"),
        pytest.param((4, 16), (3, 16), 0.98462 * 16 * 0.85, id="older generation at one end"),
        pytest.param((4, 8), (3, 16), min(1.96923 * 8, 0.98462 * 16) * 0.85, id="half the lanes against half the rate"),
        pytest.param((5, 4), (3, 16), 0.98462 * 16 * 0.85, id="four lanes of generation 5 are as fast as sixteen of 3"),
        pytest.param((4, 16), (None, None), 0.98462 * 16 * 0.85, id="one end not told"),
        pytest.param((4, 16), (9, 16), 0.98462 * 16 * 0.85, id="a generation that is not in the table"),
    ],
)
def test_the_slower_slot_of_both_ends_decides(first: tuple[int, int], second: tuple[int | None, int | None], gb_per_s: float):
    gpus = tuple(Gpu(index=i, pcie_generation=slot[0], pcie_width=slot[1]) for i, slot in enumerate((first, second)))
    links = machine_links(matrix_of("X PIX", "PIX X"), Inventory(gpus))
    assert links.pcie_gb_per_s[0, 1] == links.pcie_gb_per_s[1, 0] == pytest.approx(gb_per_s, rel=1e-4)


@pytest.mark.parametrize(
    ("gpu", "slot"),
    [
        pytest.param(Gpu(model="Tesla T4", pcie_generation=4, pcie_width=8), (4, 8), id="what is told counts"),
        pytest.param(Gpu(model="NVIDIA L4", pcie_width=8), (4, 8), id="the generation of the model"),
        pytest.param(Gpu(model="NVIDIA L4"), (4, 16), id="sixteen lanes where nothing tells"),
        pytest.param(Gpu(), (3, 16), id="the lowest where nothing is told at all"),
    ],
)
def test_slot_of_a_gpu(gpu: Gpu, slot: tuple[int, int]):
    assert slot_of(gpu) == slot


def test_a_measured_nvlink_rate_tells_what_an_unknown_model_does_not():
    gpus = tuple(Gpu(index=i, nvlink_gb_per_s=14.062) for i in range(2))
    links = machine_links(matrix_of("X NV4", "NV4 X"), Inventory(gpus))
    assert links.nvlink_gb_per_s[0, 1] == 14.0625
    assert not any("NVLink generation" in sentence for sentence in links.assumptions)


def test_the_sysfs_numa_node_is_taken_before_the_printed_one():
    assert numa_of(GpuRow(0, numa="0"), Gpu(numa_node=1)) == 1
    assert numa_of(GpuRow(0, numa="0"), Gpu(numa_node=-1)) == 0


def test_gpus_are_matched_by_index_not_by_position():
    matrix = LinkMatrix((GpuRow(3), GpuRow(1)), (), matrix_of("X PIX", "PIX X").gpu_cells, ((), ()))
    inventory = Inventory((Gpu(index=1, model="one"), Gpu(index=3, model="three"), Gpu(index=None, model="none")))
    assert [gpu.model for gpu in matched_gpus(matrix, inventory)] == ["three", "one"]


def test_a_gpu_that_the_inventory_does_not_list_is_bare():
    assert matched_gpus(matrix_of("X"), Inventory()) == (Gpu(index=0),)


def test_arrays_are_read_only():
    links = links_of(DGX1V)
    for array in (links.nvlinks, links.nvlink_gb_per_s, links.nvswitch, links.distance, links.pcie_distance, links.pcie_gb_per_s):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = np.zeros_like(array)


@pytest.mark.parametrize("size", [0, 1])
def test_a_machine_without_pairs_has_no_links_and_assumes_nothing(size: int):
    links = machine_links(matrix_of(*uniform(size, "SYS")))
    assert (links.size, links.switched, links.assumptions) == (size, False, ())
