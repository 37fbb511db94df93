"""The order for ranks is that of the best ring."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.agent.handoff.ring import ring_order


def slowest(order: list[int], hops: "np.typing.NDArray[np.float64]") -> float:
    """Return the slowest hop of a ring."""
    return float(min(hops[a, b] for a, b in zip(order, [*order[1:], order[0]], strict=True)))


def symmetric(rates: list[float], size: int) -> "np.typing.NDArray[np.float64]":
    """Return the matrix of the pairs."""
    hops = np.zeros((size, size))
    hops[np.triu_indices(size, 1)] = rates
    return hops + hops.T


@given(
    st.integers(2, 6).flatmap(
        lambda size: st.tuples(
            st.just(size), st.lists(st.sampled_from([12.5, 25.0, 50.0]), min_size=size * (size - 1) // 2, max_size=size * (size - 1) // 2)
        )
    )
)
def test_no_other_order_has_a_faster_slowest_hop(case: tuple[int, list[float]]) -> None:
    """Compared with every order there is."""
    size, rates = case
    hops = symmetric(rates, size)
    order = ring_order(hops)
    assert sorted(order) == list(range(size))
    assert order[0] == 0
    assert slowest(order, hops) == max(slowest(list(other), hops) for other in permutations(range(size)))


@pytest.mark.parametrize("size", [9, 12, 16])
def test_many_gpus_on_one_ring_of_fast_links_are_ordered_by_it(size: int) -> None:
    """A ring of NVLinks among slow paths, numbered at random."""
    order = np.random.default_rng(size).permutation(size)
    hops = np.full((size, size), 10.0) - 10.0 * np.eye(size)
    for a, b in zip(order, np.roll(order, -1), strict=True):
        hops[a, b] = hops[b, a] = 50.0
    assert slowest(ring_order(hops), hops) == 50.0
