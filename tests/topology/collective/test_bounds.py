"""What rings carry at least and at most, without packing them: never wrong, and never dependent on how GPUs are numbered."""

from itertools import combinations, permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topology.collective.test_rings import drawn, hops
from topology.collective.bounds import best_rings, over_members, ring_bounds, weakest_pairs
from topology.collective.rings import Cycles, packed_rate


def members(mask: int, size: int) -> list[int]:
    return [gpu for gpu in range(size) if mask >> gpu & 1]


@settings(deadline=None, max_examples=30)
@given(st.integers(3, 6), st.randoms(use_true_random=False))
def test_every_packing_lies_between_its_bounds(size: int, random: Random):
    mesh = drawn(size, random, *random.choice([(0.0, 25.0, 50.0), (25.0, 50.0, 75.0), (14.0625, 25.0)]))
    lower, upper = ring_bounds(mesh)
    cycles = Cycles.of(mesh > 0)
    for mask in range(1 << size):
        if not cycles.counts[mask]:
            assert (lower[mask], upper[mask]) == (0.0, 0.0)
        else:
            assert 0.0 < lower[mask] <= packed_rate(mesh, cycles.in_set(mask)) + 1e-6
            assert packed_rate(mesh, cycles.in_set(mask)) <= upper[mask] + 1e-6


@settings(deadline=None, max_examples=40)
@given(st.integers(3, 8), st.randoms(use_true_random=False))
def test_numbering_the_gpus_anew_changes_no_bound(size: int, random: Random):
    mesh = drawn(size, random, 0.0, 14.0625, 25.0, 50.0, 75.0)
    order = random.sample(range(size), size)
    before, after = ring_bounds(mesh), ring_bounds(mesh[np.ix_(order, order)])
    there = over_members([1 << gpu for gpu in order], np.add, 0).astype(int)
    assert after[0].tolist() == before[0][there].tolist()
    assert after[1].tolist() == before[1][there].tolist()


@pytest.mark.parametrize(
    ("mesh", "lower", "upper"),
    [
        pytest.param(hops(5, 25.0), 100.0, 100.0, id="a uniform mesh: all rings alike fill it"),
        pytest.param(hops(5, 25.0, p01=50.0, p12=50.0, p23=50.0, p34=50.0, p04=50.0), 150.0, 150.0, id="and a ring of wider links on top"),
        pytest.param(hops(4, 25.0, p01=0.0), 50.0, 50.0, id="without one pair: the best single ring, and two GPUs with two links"),
        pytest.param(hops(4, 100.0, p01=50.0), 250.0, 250.0, id="all rings alike as far as the weak pair goes, and one beside it"),
        pytest.param(hops(6, 25.0, p01=0.0, p23=0.0, p45=0.0), 50.0, 100.0, id="three pairs that are not linked: one ring at least, two at most"),
        pytest.param(hops(3, 25.0, p01=100.0), 50.0, 50.0, id="a link wider than all others of its GPU is of no use"),
    ],
)
def test_known_bounds(mesh: np.ndarray, lower: float, upper: float):
    found = ring_bounds(mesh)
    assert (found[0][-1], found[1][-1]) == (lower, upper)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 6), st.randoms(use_true_random=False))
def test_the_best_single_ring_is_the_best_of_all_orders(size: int, random: Random):
    mesh = drawn(size, random, 0.0, 10.0, 20.0, 30.0)
    found = best_rings(mesh)
    for mask in range(1 << size):
        gpus = members(mask, size)
        orders = permutations(gpus) if len(gpus) >= 3 else ()
        slowest = [min(mesh[a, b] for a, b in zip(order, (*order[1:], order[0]), strict=True)) for order in orders]
        assert found[mask] == max(slowest, default=0.0)


@settings(max_examples=40)
@given(st.integers(0, 6), st.randoms(use_true_random=False))
def test_tables_over_members_and_pairs_are_folds(size: int, random: Random):
    mesh = drawn(size, random, 0.0, 10.0, 20.0, 30.0)
    values = [float(random.randrange(9)) for _ in range(size)]
    sums, weakest = over_members(values, np.add, 0.0), weakest_pairs(mesh)
    for mask in range(1 << size):
        gpus = members(mask, size)
        assert sums[mask] == sum(values[gpu] for gpu in gpus)
        assert weakest[mask] == min((mesh[a, b] for a, b in combinations(gpus, 2)), default=np.inf)
