"""What disjoint sets are worth together: exact, bounded from above where that takes a while, and known beforehand to be quick."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machines import CUBEMESH_16, DGX1V, DGX2_16, HGX_H100_8, SUMMIT_6, Machine, irregular_machines, oracle_of
from tests.oracles import bits
from topology.collective import Depth, machine_links, set_bandwidths
from topology.topology_class.packing import KB_PER_GB, Tables, at_most, is_quick, packing


def bandwidths(machine: Machine) -> np.ndarray:
    return set_bandwidths(machine_links(machine.matrix, machine.inventory), Depth.AT_ONCE)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_a_packing_is_the_best_of_all_ways_to_take_disjoint_sets(k: int):
    oracle, found = oracle_of(SUMMIT_6), packing(bandwidths(SUMMIT_6), k)
    for size in range(7):
        for free in oracle.subsets(oracle.everything, size):
            assert found[bits(free)] == pytest.approx(oracle.packing(free, k) * KB_PER_GB, abs=k)


@settings(deadline=None)
@given(irregular_machines(), st.integers(1, 6))
def test_the_bound_from_above_is_one_and_grows_with_every_gpu(machine: Machine, k: int):
    table = bandwidths(machine)
    bound = at_most(table, k)
    assert (packing(table, k) <= bound).all()
    for gpu in range(machine.size):
        halves = bound.reshape(-1, 2, 1 << gpu)
        assert (halves[:, 0] <= halves[:, 1]).all()


def test_behind_nvswitch_the_bound_is_exact():
    table = bandwidths(DGX2_16)
    assert all(at_most(table, k).tolist() == packing(table, k).tolist() for k in (2, 5, 8))


@pytest.mark.parametrize(
    ("machine", "quick"),
    [
        pytest.param(DGX1V, True, id="8 GPUs"),
        pytest.param(DGX2_16, True, id="16 behind NVSwitch"),
        pytest.param(CUBEMESH_16, False, id="16 that differ"),
    ],
)
def test_only_many_gpus_that_differ_take_a_while(machine: Machine, quick: bool):
    assert is_quick(bandwidths(machine)) is quick


def test_tables_hold_the_packings_of_large_machines_alone():
    small, large = (Tables.of(machine_links(machine.matrix, machine.inventory), Depth.SOON) for machine in (HGX_H100_8, DGX2_16))
    assert small.packings == {}
    assert list(large.packings) == [2, 3, 4, 5, 6, 7, 8], "sets of more than half of the GPUs fit only once"
    assert large.packings[4].tolist() == packing(large.rates.gb_per_s, 4).tolist()
