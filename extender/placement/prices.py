"""What a part of a GPU is worth, by what it can still be cut into: the prices of the cutting-stock problem that the demanded sizes make.

Every GPU is a rod of ``capacity`` GiB, every share that pods ask for a piece of it. "The fewest GPUs that cover all pieces" is a linear program over cutting patterns
(Gilmore and Gomory); its dual prices say what a piece of each size is worth in GPUs. What is left of a GPU is then worth the best sum of prices that fits into
it: 10 GiB left are worth half a GPU where pods ask for 10 of 20, and nothing where they ask for 12 alone.

Called by `extender.placement.outlook_tables` through `Prices`, which keeps what is known. In an extender that answers calls the programs, tens of milliseconds each, are solved in another process
(`extender.pricing`, `apart`), and what is not known yet is guessed; everywhere else at once. Knows no node and no pod.

References: P. C. Gilmore, R. E. Gomory, A Linear Programming Approach to the Cutting-Stock Problem, Operations Research 9 (1961).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

Question = tuple[tuple[int, ...], tuple[float, ...], int]  # what `worth_of_rest` is asked: sizes, counts, capacity
Found = Mapping[Question, NDArray[np.float64]]

_KEPT: Final = 64  # a cluster has few sizes of GPUs, and old demands do not come back
_ROUNDS: Final = 500  # patterns added; a few dozen are enough, and a round that adds nothing new ends it
_TINY: Final = 1e-7  # a pattern worth no more than that above a GPU is no better than those that are known


class Prices:
    """What is known of the worth of parts; with ``beside``, what is not known is wanted of somebody else, and guessed until `learn` tells it."""

    def __init__(self) -> None:
        self.beside = False
        self._known: LRUCache[Question, NDArray[np.float64]] = LRUCache(4 * _KEPT)
        self._wanted: dict[Question, None] = {}

    def worth(self, question: Question) -> NDArray[np.float64]:
        """Return the answer of `worth_of_rest`, or a guess at it."""
        known = self._known.get(question)
        if known is not None:
            return known
        if self.beside:
            self._wanted[question] = None
            return first_guess(*question)
        found = self._known[question] = worth_of_rest(*question)
        return found

    def is_known(self, question: Question) -> bool:
        """Tell whether `worth` does not guess."""
        return not self.beside or question in self._known

    def wanted(self) -> list[Question]:
        """Return what was asked and is not known."""
        return list(self._wanted)

    def learn(self, found: Found) -> None:
        """Go by these answers from now on."""
        self._known.update(found)
        for question in found:
            self._wanted.pop(question, None)


@lru_cache(maxsize=_KEPT)
def first_guess(sizes: tuple[int, ...], counts: tuple[float, ...], capacity: int) -> NDArray[np.float64]:  # noqa: ARG001 - as `worth_of_rest`
    """Return what `worth_of_rest` might, shape (capacity + 1,), without a linear program: a piece is worth what it takes of the GPU.

    >>> first_guess((20, 10), (1.0, 1.0), 20)[[9, 10, 19, 20]].tolist()
    [0.0, 0.5, 0.5, 1.0]
    """
    worth = _best_cuts(sizes, np.array(sizes) / capacity, capacity)[0] if sizes else np.zeros(capacity + 1)
    return _of_a_gpu(worth)


@lru_cache(maxsize=_KEPT)
def worth_of_rest(sizes: tuple[int, ...], counts: tuple[float, ...], capacity: int) -> NDArray[np.float64]:
    """Return what 0 to ``capacity`` GiB left of a GPU are worth, shape (capacity + 1,), in GPUs: 0.0 to 1.0, never falling.

    ``sizes`` (GiB, each once, 1 to ``capacity``) are asked for ``counts`` times, all above 0; ``capacity`` itself stands for a whole GPU. What is asked for together never
    costs more than the fewest GPUs that hold it.

    >>> worth_of_rest((20, 10), (1.0, 1.0), 20)[[9, 10, 19, 20]].tolist()
    [0.0, 0.5, 0.5, 1.0]
    """
    patterns = [np.eye(len(sizes))[at] * (capacity // size) for at, size in enumerate(sizes)]
    worth = np.zeros(capacity + 1)
    for _ in range(_ROUNDS if sizes else 0):
        worth, best = _best_cuts(sizes, _prices(patterns, counts), capacity)
        if worth[-1] <= 1 + _TINY or any((best == known).all() for known in patterns):
            break
        patterns.append(best)
    return _of_a_gpu(worth)


def _of_a_gpu(worth: NDArray[np.float64]) -> NDArray[np.float64]:
    worth = worth / worth[-1] if worth[-1] > 0 else worth
    worth[-1] = 1.0  # of a GPU that nobody asks to cut, only the whole is worth something
    worth.flags.writeable = False
    return worth


def _prices(patterns: Sequence[NDArray[np.float64]], counts: tuple[float, ...]) -> NDArray[np.float64]:
    """Return what one piece of each size is worth, in GPUs, shape (sizes,): the dual prices of covering ``counts`` by these patterns alone."""
    from scipy.optimize import linprog  # most of a second, which the first answer of a new process must not wait for

    columns = np.array(patterns).T
    # Where several answers are best, which one comes depends on the method: the figures of decision 16 were measured with this one.
    found = linprog(np.ones(columns.shape[1]), A_ub=-columns, b_ub=-np.array(counts), bounds=(0, None), method="highs-ipm")
    prices: NDArray[np.float64] = np.maximum(-found.ineqlin.marginals, 0.0)
    return prices


def _best_cuts(sizes: tuple[int, ...], prices: NDArray[np.float64], capacity: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the best sum of prices that fits into 0 to ``capacity`` GiB, shape (capacity + 1,), and how often each size is cut from a whole GPU for it."""
    price = prices.tolist()
    worth, cut = [0.0] * (capacity + 1), [-1] * (capacity + 1)
    for gib in range(1, capacity + 1):
        worth[gib] = worth[gib - 1]
        for at, size in enumerate(sizes):
            if size <= gib and worth[gib - size] + price[at] > worth[gib] + 1e-12:
                worth[gib], cut[gib] = worth[gib - size] + price[at], at
    pattern, rest = np.zeros(len(sizes)), capacity
    while rest > 0:
        if cut[rest] < 0:
            rest -= 1
        else:
            pattern[cut[rest]] += 1
            rest -= sizes[cut[rest]]
    return np.array(worth), pattern
