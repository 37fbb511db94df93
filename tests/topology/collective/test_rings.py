from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import MachineOracle
from topology.collective.rings import EXACT_UP_TO, packed_rate


def hops(size: int, gb_per_s: float, **pairs: float) -> np.ndarray:
    """A mesh with one rate everywhere, but for ``pairs`` named `p01` and so on."""
    mesh = gb_per_s * (np.ones((size, size)) - np.eye(size))
    for name, rate in pairs.items():
        a, b = int(name[1]), int(name[2])
        mesh[a, b] = mesh[b, a] = rate
    return mesh


@pytest.mark.parametrize("size", range(3, EXACT_UP_TO + 1))
def test_the_closed_form_of_a_uniform_mesh_is_what_the_linear_program_finds(size: int):
    almost = hops(size, 100.0, p01=100.001)  # irregular, so that the closed form is not taken; the surplus is of no use to anybody
    assert packed_rate(hops(size, 100.0)) == 100.0 * (size - 1)
    assert packed_rate(almost) == pytest.approx(100.0 * (size - 1), rel=1e-4)


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
    assert packed_rate(mesh) == gb_per_s


def test_half_a_ring_counts_as_half():
    """K5 with one pair doubled is packed by fractions: no two whole rings fill it."""
    codes = [["X" if a == b else "NV1" for b in range(5)] for a in range(5)]
    codes[0][1] = codes[1][0] = codes[0][2] = codes[2][0] = "NV2"
    oracle = MachineOracle(codes, None, 25.0, 18, 3)
    assert packed_rate(hops(5, 25.0, p01=50.0, p02=50.0)) == pytest.approx(oracle.bandwidth(oracle.everything))


@settings(deadline=None, max_examples=40)
@given(st.integers(3, 6), st.randoms(use_true_random=False))
def test_numbering_the_gpus_anew_changes_not_even_the_last_digit(size: int, random: Random):
    mesh = np.zeros((size, size))
    for a in range(size):
        for b in range(a):
            mesh[a, b] = mesh[b, a] = random.choice([0.0, 14.0625, 25.0, 50.0, 75.0])
    orders = list(permutations(range(size)))
    assert len({packed_rate(mesh[np.ix_(order, order)]) for order in random.sample(orders, 5)}) == 1


@settings(deadline=None, max_examples=40)
@given(st.integers(3, 6), st.randoms(use_true_random=False))
def test_a_further_link_never_takes_bandwidth_away(size: int, random: Random):
    mesh = np.zeros((size, size))
    for a in range(size):
        for b in range(a):
            mesh[a, b] = mesh[b, a] = random.choice([0.0, 25.0, 50.0])
    before = packed_rate(mesh)
    a, b = random.sample(range(size), 2)
    mesh[a, b] = mesh[b, a] = mesh[a, b] + 25.0
    assert packed_rate(mesh) >= before


@settings(deadline=None, max_examples=40)
@given(st.integers(4, 10), st.randoms(use_true_random=False))
def test_no_packing_exceeds_the_links_of_any_gpu(size: int, random: Random):
    """Each ring comes in over one link of the GPU and leaves over another, both ways round."""
    mesh = np.zeros((size, size))
    for a in range(size):
        for b in range(a):
            mesh[a, b] = mesh[b, a] = random.choice([0.0, 0.0, 25.0, 50.0])
    assert packed_rate(mesh) <= mesh.sum(axis=1).min() + 1e-6


def test_where_not_all_cycles_are_looked_at_a_packing_of_those_found_is_the_answer():
    """Twelve GPUs, all joined but one pair: 18 million cycles, of which the first few thousand already carry something."""
    mesh = hops(12, 25.0, p01=0.0)
    assert 0.0 < packed_rate(mesh) <= 10 * 25.0
