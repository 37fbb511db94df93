"""What is left of a GPU is priced by the pieces that pods ask for: the prices pay for the fewest GPUs, and no GPU is worth more than one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.placement.prices import worth_of_rest
from tests.outlook_oracle import fewest_gpus


@st.composite
def cuttings(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    """Up to four sizes, how often each is asked for, and what a GPU holds."""
    capacity = draw(st.integers(1, 24))
    sizes = draw(st.lists(st.integers(1, capacity), unique=True, min_size=1, max_size=4))
    return tuple(sizes), tuple(draw(st.floats(0.01, 1.0)) for _ in sizes), capacity


@settings(deadline=None, max_examples=50)
@given(cuttings())
def test_the_prices_of_all_pieces_together_are_the_fewest_gpus_that_hold_them(cutting: tuple[tuple[int, ...], tuple[float, ...], int]):
    """The dual of the cutting stock: a price list is right if no pattern costs more than a GPU, and the pieces cost what they need."""
    sizes, counts, capacity = cutting
    worth = worth_of_rest(sizes, counts, capacity)
    assert sum(count * worth[size] for size, count in zip(sizes, counts, strict=True)) >= fewest_gpus(sizes, counts, capacity) - 1e-6
    for left in range(1, capacity + 1):
        for size in sizes:
            assert size > left or worth[left] >= worth[left - size] + worth[size] - 1e-9, "what fits beside each other is worth the sum at least"


@settings(deadline=None, max_examples=50)
@given(cuttings())
def test_worth_rises_from_nothing_to_one_gpu(cutting: tuple[tuple[int, ...], tuple[float, ...], int]):
    """More memory is never worth less, and a whole GPU is worth exactly one."""
    worth = worth_of_rest(*cutting)
    assert worth[-1] == 1.0
    assert worth[0] == 0.0
    assert (np.diff(worth) >= -1e-12).all()


@pytest.mark.parametrize(
    ("sizes", "capacity", "expected"),
    [
        pytest.param((), 4, [0, 0, 0, 0, 1], id="nobody asks: only the whole is worth something"),
        pytest.param((4,), 4, [0, 0, 0, 0, 1], id="whole GPUs alone"),
        pytest.param((4, 2), 4, [0, 0, 0.5, 0.5, 1], id="halves: a quarter is worth nothing"),
        pytest.param((3,), 4, [0, 0, 0, 1, 1], id="what is left beside the only size is worth nothing"),
        pytest.param((), 0, [1], id="a GPU that gives nothing away in parts"),
    ],
)
def test_worth_of_what_is_left(sizes: tuple[int, ...], capacity: int, expected: list[float]):
    """Small cuttings that can be done in the head."""
    assert worth_of_rest(sizes, (1.0,) * len(sizes), capacity).tolist() == pytest.approx(expected)


def test_what_is_kept_cannot_be_written():
    """The same array is handed out again and again."""
    with pytest.raises(ValueError, match="read-only"):
        worth_of_rest((2,), (1.0,), 4)[0] = 1.0
