"""The policies that Linkwise is compared with do what their authors' do, or the comparison is worth nothing."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.reference import CHOICES, LinkTable, gpuallocator, mask_of, policy
from bench.reference.effective_bandwidth import predicted
from bench.reference.link_table import members
from bench.topology_quality import golden
from tests.machines import DGX1V
from tests.oracles import best_effort_partitions
from tests.shared_data import DATA, needs_data

RATES = {"NV1": 25.0, "NV2": 50.0, "SYS": 10.0}
CUBE_MESH = LinkTable(tuple(map(tuple, DGX1V.codes)), RATES, socket=4)


@needs_data
@pytest.mark.parametrize("pcie_known", [pytest.param(True, id="PCIe levels known"), pytest.param(False, id="what topo -m shows")])
@pytest.mark.parametrize("name", golden.PRODUCTS)
def test_best_effort_answers_every_recorded_question_as_nvidias_allocator_did(name: str, pcie_known: bool):
    machine = next(found for found in golden.machines(DATA) if found.name == name)
    table = machine.table(pcie_known=pcie_known)
    rows = machine.rows if pcie_known else machine.topo_rows
    assert len(rows) == len(machine.codes) * 2 ** (len(machine.codes) - 1)  # every free set, every size of it
    differ = [(row, gpuallocator.choose(table, row.free, row.k)) for row in rows if gpuallocator.choose(table, row.free, row.k) != row.chosen]
    assert differ == []
    assert all(gpuallocator.score(table, row.chosen) == row.score for row in rows)


@given(st.data(), st.integers(2, 6), st.integers(2, 4))
def test_best_effort_is_the_first_best_of_all_partitions(data: st.DataObject, size: int, k: int):
    codes = [["X"] * size for _ in range(size)]
    for a, b in combinations(range(size), 2):
        codes[a][b] = codes[b][a] = data.draw(st.sampled_from(["NV1", "NV2", "PIX", "SYS"]))
    table = LinkTable(tuple(map(tuple, codes)), RATES, socket=size)
    free = data.draw(st.integers(0, 2**size - 1).filter(lambda mask: mask.bit_count() >= k))

    def score(group: tuple[int, ...]) -> int:
        return gpuallocator.score(table, mask_of(group))

    gpus = members(free)
    best = max(best_effort_partitions(gpus, k), key=lambda groups: sum(map(score, groups)))
    assert gpuallocator.choose(table, free, k) == mask_of(max((group for group in best if len(group) == k), key=score))


def test_best_effort_never_answers_with_a_hole():
    codes = [["SYS"] * 5 for _ in range(5)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        codes[a][b] = codes[b][a] = "PXB"
    codes[3][4] = codes[4][3] = "NV4"
    table = LinkTable(tuple(map(tuple, codes)), {}, socket=5)
    assert gpuallocator.choose(table, 0b11111, 3) == 0b00111  # the original returns 3, 4 and an empty place


@pytest.mark.parametrize("name", CHOICES)
def test_every_policy_gives_k_of_the_free_gpus_or_nothing(name: str):
    choose = policy(name, CUBE_MESH)
    for free in range(256):
        for k in range(1, 6):
            for sensitive in (True, False):
                found = choose(free, k, sensitive)
                if free.bit_count() < k:
                    assert found is None
                else:
                    assert found is not None
                    assert found.bit_count() == k
                    assert found & ~free == 0


@pytest.mark.parametrize(
    ("name", "free", "k", "sensitive", "expected"),
    [
        pytest.param("lowest index", 0b11110110, 2, True, (1, 2), id="counting takes the lowest, whatever their link"),
        pytest.param("topo-aware", 0b11111000, 3, True, (4, 5, 6), id="three are held in one socket where one has room"),
        pytest.param("topo-aware", 0b11001100, 3, True, (2, 3, 6), id="counted from below where none has"),
        pytest.param("topo-aware", 0b11111000, 4, True, (3, 4, 5, 6), id="as many as a socket has are counted from below"),
        pytest.param("greedy", 0xFF, 2, True, (0, 3), id="greedy takes the first double link"),
        pytest.param("greedy", 0xFF, 1, True, (0,), id="greedy counts single GPUs"),
        pytest.param("preserve", 0b01111, 2, True, (0, 3), id="preserve gives a sensitive pair a double link"),
        pytest.param("preserve", 0b01011, 1, False, (1,), id="preserve takes the GPU that breaks no double link"),
        pytest.param("preserve", 0b11110110, 2, False, (1, 2), id="preserve leaves a whole quad to the others"),
    ],
)
def test_policy_takes(name: str, free: int, k: int, sensitive: bool, expected: tuple[int, ...]):
    assert policy(name, CUBE_MESH)(free, k, sensitive) == mask_of(expected)


def test_the_regression_ranks_by_sums_and_not_by_the_slowest_hop():
    assert predicted(0, 3, 2) > predicted(0, 5, 0) > predicted(0, 2, 0) > predicted(0, 0, 2)


def test_a_ring_over_links_that_the_regression_does_not_know_is_predicted_as_nothing():
    fast = LinkTable((("X", "NV4"), ("NV4", "X")), {"NV4": 100.0}, socket=2)
    assert fast.ring(0b11).predicted != fast.ring(0b11).predicted  # NaN
    assert fast.ring(0b11).aggregated == 200.0
