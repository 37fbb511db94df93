from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.topology_class.subsets import best_inside, members, over_pairs, packed

SIZES = st.integers(0, 6)


def subsets_of(mask: int) -> list[int]:
    return [part for part in range(mask + 1) if part & ~mask == 0]


def test_members_of_a_mask_stand_lowest_first():
    assert members(0) == ()
    assert members(0b10010110) == (1, 2, 4, 7)
    assert members(np.int64(0b101)) == (0, 2)  # type: ignore[arg-type]  # what a table of masks holds


@settings(deadline=None)
@given(st.data(), SIZES)
def test_over_pairs_combines_every_pair_inside_once(data: st.DataObject, size: int):
    half = {pair: data.draw(st.integers(0, 50)) for pair in combinations(range(size), 2)}
    values = np.array([[half.get((min(i, j), max(i, j)), 0) for j in range(size)] for i in range(size)], dtype=np.int64).reshape(size, size)
    sums, farthest = over_pairs(values, np.add), over_pairs(values, np.maximum)
    for mask in range(1 << size):
        inside = [half[pair] for pair in combinations(members(mask), 2)]
        assert sums[mask] == sum(inside)
        assert farthest[mask] == max(inside, default=0)


@settings(deadline=None)
@given(st.data(), SIZES)
def test_best_inside_is_the_greatest_of_all_parts(data: st.DataObject, size: int):
    own = np.array(data.draw(st.lists(st.floats(-1, 500), min_size=1 << size, max_size=1 << size)))
    assert best_inside(own).tolist() == [max(own[part] for part in subsets_of(mask)) for mask in range(1 << size)]


def best_packing(own: list[int], mask: int, k: int) -> int:
    parts = [part for part in subsets_of(mask) if part.bit_count() == k]
    return max((own[part] + best_packing(own, mask & ~part, k) for part in parts), default=0)


@settings(deadline=None, max_examples=50)
@given(st.data(), SIZES, st.integers(1, 4))
def test_packed_is_the_best_sum_over_disjoint_parts(data: st.DataObject, size: int, k: int):
    own = data.draw(st.lists(st.integers(0, 500), min_size=1 << size, max_size=1 << size))
    table = packed(np.array(own, dtype=np.int64), np.bitwise_count(np.arange(1 << size)), k)
    assert table.tolist() == [best_packing(own, mask, k) for mask in range(1 << size)]


def test_packed_finds_both_halves_of_sixteen():
    own = np.zeros(1 << 16, dtype=np.int64)
    own[0b1010101010101010], own[0b0101010101010101], own[0xFF] = 3, 4, 6
    assert packed(own, np.bitwise_count(np.arange(1 << 16)), 8)[0xFFFF] == 7


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_the_tables_are_not_written_to(k: int):
    own = np.arange(1 << 4, dtype=np.int64)
    before = own.copy()
    packed(own, np.bitwise_count(np.arange(1 << 4)), k)
    best_inside(own)
    assert own.tolist() == before.tolist()
