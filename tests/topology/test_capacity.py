"""Amounts of one GPU: what is offered, what a share is, and which GPUs can host one; nothing is given away that is not there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.capacity import MIB_PER_GIB, MOST_GPUS, WHOLE, hosts, hosts_of_one, offered_mib, share_mib

amounts = st.lists(st.integers(0, 100_000), min_size=MOST_GPUS, max_size=MOST_GPUS)
masks = st.integers(0, (1 << MOST_GPUS) - 1)


@pytest.mark.parametrize(
    ("memory", "reserve", "offered"),
    [
        pytest.param(81_559, 0, 79 * 1024, id="an 80 GB H100 gives 79 GiB"),
        pytest.param(81_920, 0, 80 * 1024, id="a whole number of GiB is given whole"),
        pytest.param(81_919, 0, 79 * 1024, id="one MiB less costs a GiB"),
        pytest.param(81_920, 1, 79 * 1024, id="so does a reserve of one MiB"),
        pytest.param(1_023, 0, 0, id="less than a GiB gives nothing"),
        pytest.param(0, 0, 0, id="no memory gives nothing"),
        pytest.param(8_192, 9_000, 0, id="a reserve above the size leaves nothing, never less"),
        pytest.param(None, 0, 0, id="a GPU of unknown size is not shared"),
    ],
)
def test_offered_are_whole_gib_below_size_and_reserve(memory: int | None, reserve: int, offered: int):
    """As many as the node advertises, so that what kube-scheduler counts stays an upper bound."""
    assert offered_mib(memory, reserve) == offered


@given(st.integers(0, 2**50), st.integers(0, 2**20))
def test_no_size_that_an_object_may_hold_is_too_large_for_the_arrays(memory: int, reserve: int):
    """A GPUTopology may say any number; the arrays hold 32 bits."""
    offered = offered_mib(memory, reserve)
    assert 0 <= offered <= memory
    assert int(np.array([offered], np.int32)[0]) == offered


@given(st.integers(1, 65_536), st.integers(1, MOST_GPUS))
def test_a_share_is_never_less_than_was_asked_and_less_than_one_mib_a_gpu_more(gib: int, gpus: int):
    share = share_mib(gib, gpus)
    assert gib * MIB_PER_GIB <= share * gpus < gib * MIB_PER_GIB + gpus


@pytest.mark.parametrize(("gib", "gpus", "share"), [(40, 2, 20_480), (10, 3, 3_414), (1, 16, 64), (79, 1, 80_896)])
def test_the_amount_is_split_evenly(gib: int, gpus: int, share: int):
    assert share_mib(gib, gpus) == share


@given(st.integers(1, 100_000), st.lists(st.tuples(masks, amounts), min_size=1, max_size=4))
def test_a_share_is_hosted_by_exactly_the_gpus_that_have_as_much_left(mib: int, nodes: list[tuple[int, list[int]]]):
    idle = np.array([mask for mask, _ in nodes], np.uint32)
    left = np.array([amount for _, amount in nodes], np.int32)
    found = hosts(mib, idle, left)
    assert found.shape == (len(nodes),)
    for mask, (_, of_node) in zip(found.tolist(), nodes, strict=True):
        assert [bool(mask >> bit & 1) for bit in range(MOST_GPUS)] == [amount >= mib for amount in of_node]


@given(st.integers(0, 100_000), masks, amounts)
def test_one_node_is_answered_as_among_many(mib: int, idle: int, left: list[int]):
    together = hosts(mib, np.array([idle], np.uint32), np.array([left], np.int32))
    assert hosts_of_one(mib, idle, tuple(left)) == int(together[0])


def test_a_whole_gpu_is_hosted_by_idle_ones_whatever_their_memory():
    idle = np.array([0b1010, 0], np.uint32)
    assert hosts(WHOLE, idle, np.zeros((2, MOST_GPUS), np.int32)).tolist() == [0b1010, 0]
