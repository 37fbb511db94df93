"""Why a set gets its bandwidth, in words that are true."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.machines import A40_4, BRIDGES_8, DELOS_4, DGX1V, HGX_H100_8, PCIE4_PHB, Machine, irregular_machines, matrix_of
from topology.inspection import Machine as Shown
from topology.inspection import machine_of
from topology.inspection.reasons import best_ring, reason
from topology.inventory import Gpu, Inventory


def shown(machine: Machine) -> Shown:
    return machine_of(machine.matrix, machine.inventory)


def why(machine: Shown, *positions: int) -> str:
    assert machine.sets is not None
    return reason(machine, positions, float(machine.sets.bandwidth[sum(1 << at for at in positions)]))


@pytest.mark.parametrize(
    ("machine", "positions", "words"),
    [
        pytest.param(DGX1V, (0, 3), "2 NVLinks of 25 GB/s", id="an NVLink pair"),
        pytest.param(DGX1V, (0, 1), "1 NVLink of 25 GB/s", id="a single NVLink"),
        pytest.param(DGX1V, (0, 7), "no NVLink: over PCIe, SYS", id="a pair without NVLink"),
        pytest.param(DGX1V, (0, 1, 2, 3), "2 rings over NVLink, both ways; the 4 NVLinks of GPU0 are full", id="a quad of a cube mesh"),
        pytest.param(DGX1V, (0, 1, 2), "NVLink ring, both ways; slowest GPU0-GPU1 NV1", id="a triangle of a cube mesh"),
        pytest.param(DGX1V, tuple(range(8)), "3 rings over NVLink, both ways; the 6 NVLinks of GPU0 are full", id="a whole cube mesh"),
        pytest.param(
            DGX1V,
            (0, 1, 2, 4, 5, 6),
            "2 rings over NVLink, both ways; the 4 NVLinks of GPU0 are full",
            id="six of a cube mesh",
        ),
        pytest.param(DGX1V, (0, 1, 6), "no NVLink ring: PCIe, slowest GPU0-GPU6 SYS", id="three that no ring joins"),
        pytest.param(DELOS_4, (0, 1, 2, 3), "NVLink ring, both ways; slowest GPU1-GPU3 NV1", id="a ring with a weak side"),
        pytest.param(HGX_H100_8, (0, 1), "18 NVLinks of 25 GB/s through NVSwitch", id="a pair behind NVSwitch"),
        pytest.param(HGX_H100_8, (0, 3, 5), "NVSwitch: every set gets 450 GB/s", id="a set behind NVSwitch"),
        pytest.param(BRIDGES_8, (0, 1, 2, 3), "no NVLink ring: PCIe, slowest GPU0-GPU3 NODE", id="two bridges"),
        pytest.param(PCIE4_PHB, (0, 1, 2), "over PCIe, slowest GPU0-GPU1 PHB", id="no NVLink in the machine"),
        pytest.param(A40_4, (0, 1, 2), "over PCIe, slowest GPU0-GPU2 SYS", id="two sockets"),
    ],
)
def test_the_words_name_the_way_and_the_slowest_hop(machine: Machine, positions: tuple[int, ...], words: str) -> None:
    assert why(shown(machine), *positions) == words


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        pytest.param("NV1", "at least 4 rings over NVLink, both ways", id="all rings alike, as far as the weak pair goes"),
        pytest.param("SYS", "at least one NVLink ring, both ways; slowest GPU0-GPU2 NV1", id="one pair that is not linked"),
    ],
)
def test_a_figure_that_is_a_lower_bound_is_told_as_one(pair: str, words: str) -> None:
    """Nine GPUs with one link between any two, two for the last one, and one weaker pair: too many rings to pack at a prompt."""
    codes = [["X" if a == b else pair if a + b == 1 else "NV2" if 8 in (a, b) else "NV1" for b in range(9)] for a in range(9)]
    machine = machine_of(matrix_of(*map(" ".join, codes)))
    assert why(machine, *range(9)) == words


def test_links_between_two_groups_that_are_full_are_named() -> None:
    rows = [
        "X NV2 NV2 NV1 SYS SYS",
        "NV2 X NV2 SYS NV1 SYS",
        "NV2 NV2 X SYS SYS NV1",
        "NV1 SYS SYS X NV2 NV2",
        "SYS NV1 SYS NV2 X NV2",
        "SYS SYS NV1 NV2 NV2 X",
    ]
    machine = machine_of(matrix_of(*rows), Inventory(tuple(Gpu(index=i, model="Tesla V100-SXM2-32GB") for i in range(6))))
    assert why(machine, *range(6)) == "1.5 rings over NVLink, both ways; the 3 NVLinks from GPU0, GPU1, GPU2 to the others are full"


def test_links_of_two_generations_are_not_counted_as_one() -> None:
    inventory = Inventory(tuple(Gpu(index=i, model="NVIDIA A100-SXM4-40GB" if i else "NVIDIA RTX A6000") for i in range(4)))
    machine = machine_of(matrix_of("X NV1 NV1 NV1", "NV1 X NV1 NV1", "NV1 NV1 X NV1", "NV1 NV1 NV1 X"), inventory)
    assert why(machine, 0, 1, 2, 3) == "several rings over NVLink, both ways; the 3 NVLinks of GPU0 are full"


@given(irregular_machines())
def test_no_group_of_gpus_has_links_too_few_for_what_its_set_gets_over_nvlink(machine: Machine) -> None:
    """The argument behind the words: rings never carry more than the links between some of the GPUs and the others."""
    found = shown(machine)
    hops = found.links.nvlinks * found.links.nvlink_gb_per_s
    assert found.sets is not None
    for size in range(3, machine.size + 1):
        for positions in combinations(range(machine.size), size):
            gb_per_s = float(found.sets.bandwidth[sum(1 << at for at in positions)])
            if "over NVLink" in why(found, *positions):
                assert all(hops[one, list(positions)].sum() >= gb_per_s - 1e-6 for one in positions)


def test_a_gpu_that_lost_links_to_its_nvswitch_is_named() -> None:
    rows = ["X NV12 NV12 NV6", "NV12 X NV12 NV6", "NV12 NV12 X NV6", "NV6 NV6 NV6 X"]
    machine = machine_of(matrix_of(*rows), Inventory(tuple(Gpu(index=i, model="NVIDIA A100-SXM4-40GB") for i in range(4))))
    assert why(machine, 0, 1, 2, 3) == "through NVSwitch, slowest GPU0-GPU3 NV6"


def test_pcie_that_is_faster_than_a_bridge_says_so() -> None:
    inventory = Inventory(tuple(Gpu(index=i, nvlink_gb_per_s=14.06, pcie_generation=5, pcie_width=16) for i in range(3)))
    machine = machine_of(matrix_of("X NV1 NV1", "NV1 X NV1", "NV1 NV1 X", numa=("0", "0", "0")), inventory)
    assert why(machine, 0, 1) == "over PCIe, faster than its 1 NVLink"
    assert why(machine, 0, 1, 2) == "over PCIe, faster than its NVLinks, slowest GPU0-GPU1 NODE"


def test_without_a_printed_code_the_longest_path_is_named() -> None:
    assert why(machine_of(matrix_of("X ?", "? X")), 0, 1) == "no NVLink: over PCIe, SYS"


@given(st.integers(3, 6).flatmap(lambda n: st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0]), min_size=n * n, max_size=n * n)))
def test_the_ring_found_is_the_best_of_all_orders(cells: list[float]) -> None:
    size = int(len(cells) ** 0.5)
    hops = np.array(cells).reshape(size, size)
    hops = np.triu(hops, 1) + np.triu(hops, 1).T
    slowest = max(min(hops[a, b] for a, b in zip((0, *rest), (*rest, 0), strict=True)) for rest in permutations(range(1, size)))
    ring = best_ring(hops, range(size))
    assert (ring.slowest if ring else 0.0) == slowest
    if ring:
        assert sorted(ring.order) == list(range(size))
        assert all(hops[pair] == slowest for pair in ring.slowest_hops)


def test_a_search_that_leads_nowhere_ends() -> None:
    """Two cliques of eight with one link between them: no ring, and more paths than anybody can try."""
    hops = np.zeros((16, 16))
    hops[:8, :8] = hops[8:, 8:] = 1.0
    hops[0, 8] = hops[8, 0] = 1.0
    assert best_ring(hops, range(16)) is None


@given(irregular_machines())
def test_every_set_of_any_machine_has_a_reason(machine: Machine) -> None:
    found = shown(machine)
    for size in range(2, machine.size + 1):
        for positions in combinations(range(machine.size), size):
            assert why(found, *positions)
