from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import MachineOracle
from topology.collective import simplex
from topology.collective.rings import Cycles, packed_rate


def hops(size: int, gb_per_s: float, **pairs: float) -> np.ndarray:
    """A mesh with one rate everywhere, but for ``pairs`` named `p01` and so on."""
    mesh = gb_per_s * (np.ones((size, size)) - np.eye(size))
    for name, rate in pairs.items():
        a, b = int(name[1]), int(name[2])
        mesh[a, b] = mesh[b, a] = rate
    return mesh


def drawn(size: int, random: Random, *rates: float) -> np.ndarray:
    """A mesh in which every pair has one of these rates."""
    mesh = np.zeros((size, size))
    for a in range(size):
        for b in range(a):
            mesh[a, b] = mesh[b, a] = random.choice(rates)
    return mesh


def packed(mesh: np.ndarray) -> float:
    """GB/s of all rings through the whole mesh."""
    cycles = Cycles.of(mesh > 0).in_set((1 << len(mesh)) - 1)
    return packed_rate(mesh, cycles) if len(cycles) else 0.0


# --- cycles


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 6), st.randoms(use_true_random=False))
def test_the_cycles_of_every_set_are_those_that_brute_force_finds(size: int, random: Random):
    """In whatever order and direction: a cycle is known by its pairs."""
    linked = drawn(size, random, 0.0, 25.0) > 0
    cycles = Cycles.of(linked)
    for mask in range(1 << size):
        gpus = [gpu for gpu in range(size) if mask >> gpu & 1]
        orders = permutations(gpus) if len(gpus) >= 3 else ()
        expected = {pairs_of(order) for order in orders if all(linked[a, b] for a, b in zip(order, (*order[1:], order[0]), strict=True))}
        assert cycles.counts[mask] == len(expected)
        if len(gpus) >= 3:
            found = [pairs_of(ring) for ring in cycles.in_set(mask).tolist()]
            assert set(found) == expected
            assert len(found) == len(expected), "each once"


def pairs_of(order: tuple[int, ...] | list[int]) -> frozenset[frozenset[int]]:
    return frozenset(frozenset(pair) for pair in zip(order, (*order[1:], order[0]), strict=True))


def test_a_full_mesh_of_eight_has_2520_cycles_and_one_of_sixteen_more_than_anybody_could_list():
    assert Cycles.of(~np.eye(8, dtype=np.bool_)).counts[-1] == 2520
    assert Cycles.of(~np.eye(16, dtype=np.bool_)).counts[-1] == 653_837_184_000


# --- packing


@pytest.mark.parametrize("size", range(3, 9))
def test_the_closed_form_of_a_uniform_mesh_is_what_the_linear_program_finds(size: int):
    assert packed(hops(size, 100.0)) == pytest.approx(100.0 * (size - 1))


@pytest.mark.parametrize(
    ("mesh", "gb_per_s"),
    [
        pytest.param(hops(3, 25.0, p01=50.0), 50.0, id="a triangle has one cycle: its weakest pair, both ways round"),
        pytest.param(hops(4, 25.0, p02=0.0, p13=0.0), 50.0, id="a square has one cycle"),
        pytest.param(hops(4, 25.0, p01=0.0), 50.0, id="four without one pair keep one cycle of three"),
        pytest.param(hops(4, 25.0, p01=0.0, p02=0.0), 0.0, id="a GPU that only one other reaches is in no ring"),
        pytest.param(hops(4, 100.0, p01=50.0), 250.0, id="two cycles share the weak pair, the third has the rest of the others"),
        pytest.param(hops(5, 14.0625), 56.25, id="rates that are no whole numbers"),
    ],
)
def test_known_packings(mesh: np.ndarray, gb_per_s: float):
    assert packed(mesh) == gb_per_s


def test_half_a_ring_counts_as_half():
    """K5 with two pairs doubled is packed by fractions: no two whole rings fill it."""
    codes = [["X" if a == b else "NV1" for b in range(5)] for a in range(5)]
    codes[0][1] = codes[1][0] = codes[0][2] = codes[2][0] = "NV2"
    oracle = MachineOracle(codes, None, 25.0, 18, 3)
    assert packed(hops(5, 25.0, p01=50.0, p02=50.0)) == pytest.approx(oracle.bandwidth(oracle.everything))


@settings(deadline=None, max_examples=40)
@given(st.integers(3, 6), st.randoms(use_true_random=False))
def test_numbering_the_gpus_anew_changes_not_even_the_last_digit(size: int, random: Random):
    mesh = drawn(size, random, 0.0, 14.0625, 25.0, 50.0, 75.0)
    orders = list(permutations(range(size)))
    assert len({packed(mesh[np.ix_(order, order)]) for order in random.sample(orders, 5)}) == 1


@settings(deadline=None, max_examples=40)
@given(st.integers(3, 6), st.randoms(use_true_random=False))
def test_a_further_link_never_takes_bandwidth_away(size: int, random: Random):
    mesh = drawn(size, random, 0.0, 25.0, 50.0)
    before = packed(mesh)
    a, b = random.sample(range(size), 2)
    mesh[a, b] = mesh[b, a] = mesh[a, b] + 25.0
    assert packed(mesh) >= before


def test_what_our_own_solver_cannot_prove_is_solved_by_scipy(monkeypatch: pytest.MonkeyPatch):
    mesh = hops(5, 25.0, p01=50.0, p23=0.0)
    ours = packed(mesh)
    monkeypatch.setattr(simplex, "_MOST_STEPS", 0)
    assert packed(mesh) == ours > 0
