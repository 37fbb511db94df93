"""How far the figures of a mesh go at each depth: decided by counts, the same for every numbering, and never falling."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.topology.collective.test_rings import drawn, hops
from topology.collective.bounds import over_members
from topology.collective.mesh import MOST_CYCLES, Depth, is_uniform, mesh_rates
from topology.collective.rings import Cycles, packed_rate

Mesh = NDArray[np.float64]


def torus(rows: int, columns: int) -> Mesh:
    """Every GPU linked with the next one in its row and in its column, round the end."""
    mesh = np.zeros((rows * columns, rows * columns))
    for at in range(len(mesh)):
        row, column = divmod(at, columns)
        for other in (row * columns + (column + 1) % columns, (row + 1) % rows * columns + column):
            mesh[at, other] = mesh[other, at] = 25.0
    return mesh


def dense(size: int) -> Mesh:
    return drawn(size, Random(size), 25.0, 50.0)


def sizes_of(mesh: Mesh) -> NDArray[np.uint8]:
    return np.bitwise_count(np.arange(1 << len(mesh)))


@settings(deadline=None, max_examples=30)
@given(st.integers(3, 7), st.randoms(use_true_random=False))
def test_a_mesh_of_up_to_eight_gpus_is_exact_soon(size: int, random: Random):
    mesh = drawn(size, random, *random.choice([(0.0, 25.0, 50.0), (25.0, 50.0, 75.0)]))
    rates, most = mesh_rates(mesh, Depth.SOON)
    cycles = Cycles.of(mesh > 0)
    expected = [packed_rate(mesh, cycles.in_set(mask)) if cycles.counts[mask] else 0.0 for mask in range(1 << size)]
    assert rates.tolist() == pytest.approx(expected)
    assert most.tolist() == pytest.approx(expected)


def test_also_the_one_with_the_most_rings_of_all():
    rates, most = mesh_rates(dense(8), Depth.SOON)
    assert np.abs(rates - most).max() < 1e-6


@pytest.mark.parametrize("mesh", [torus(3, 3), torus(4, 4), torus(2, 6)], ids=["3 x 3", "4 x 4", "2 x 6"])
def test_a_sparse_mesh_of_more_gpus_is_exact_soon_too(mesh: Mesh):
    rates, most = mesh_rates(mesh, Depth.SOON)
    assert np.abs(rates - most).max() < 1e-6
    assert rates.tolist() == mesh_rates(mesh, Depth.FULL)[0].tolist()


def test_a_torus_of_nine_carries_two_rings_each_way():
    """Every GPU has four links; at once nothing is known of the rings of a mesh of that size."""
    assert [mesh_rates(torus(3, 3), depth)[0][-1] for depth in Depth] == [0.0, 100.0, 100.0]
    assert mesh_rates(torus(3, 3), Depth.AT_ONCE)[1][-1] == np.inf


@pytest.mark.parametrize("mesh", [dense(5), dense(8), torus(3, 3), dense(10)], ids=["5 dense", "8 dense", "9 sparse", "10 dense"])
def test_no_figure_falls_and_no_bound_rises_from_one_depth_to_the_next(mesh: Mesh):
    found = [mesh_rates(mesh, depth) for depth in Depth]
    for (rates, most), (later, at_most) in pairwise(found):
        assert (rates <= later + 1e-6).all()
        assert (at_most <= most + 1e-6).all()
    assert all((rates <= most + 1e-6).all() for rates, most in found)


def test_what_has_too_many_rings_keeps_its_bounds_and_all_sets_of_up_to_eight_are_exact_in_the_end():
    mesh = hops(10, 50.0, p01=25.0)
    rates, most = mesh_rates(mesh, Depth.FULL)
    exact = most - rates < 1e-6
    assert exact[sizes_of(mesh) <= 8].all()
    assert not exact[-1]
    assert Cycles.of(mesh > 0).counts[-1] > MOST_CYCLES
    assert 9 * 25.0 <= rates[-1] < most[-1] <= 9 * 50.0


def test_where_not_all_is_packed_the_numbering_of_the_gpus_decides_nothing():
    """Twelve GPUs in which every pair is linked: soon only the smaller sets are packed, and a size is packed as a whole or not at all."""
    mesh = dense(12)
    order = Random(1).sample(range(12), 12)
    (rates, most), (again, at_most) = (mesh_rates(one, Depth.SOON) for one in (mesh, mesh[np.ix_(order, order)]))
    there = over_members([1 << gpu for gpu in order], np.add, 0).astype(int)
    assert again.tolist() == rates[there].tolist()
    assert at_most.tolist() == pytest.approx(most[there].tolist())
    assert (most - rates > 1e-6).any()


@pytest.mark.parametrize("depth", Depth)
def test_a_uniform_mesh_has_a_closed_form_at_every_depth_and_size(depth: Depth):
    rates, most = mesh_rates(hops(12, 25.0), depth)
    assert rates.tolist() == most.tolist() == [25.0 * (size - 1) if size >= 3 else 0.0 for size in sizes_of(hops(12, 25.0)).tolist()]


def test_a_mesh_is_uniform_where_all_pairs_are_alike():
    assert is_uniform(hops(4, 25.0))
    assert not is_uniform(hops(4, 25.0, p13=50.0))
    assert not is_uniform(torus(3, 3))
