"""The most that can be packed: a small linear program, solved by the simplex method and proved by its own dual.

Called by `rings`. scipy's solvers do the same, but loading them takes 0.3 s of every start on a machine with an irregular mesh, and each call five times as long as this one, most of it
for options that nobody uses here. What comes out of here is certain: the prices that the last table holds prove that nothing better exists (weak duality), and where the proof fails, by rounding or
because it took too long, the answer is None and the caller asks scipy.

    maximise   sum of x_c   subject to   uses @ x <= room,   x >= 0

References: V. Chvatal, Linear Programming (1983), chapters 2 and 5.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_MOST_STEPS: Final = 2000  # tens are usual; only a program that goes in circles takes more
_ZERO: Final = 1e-9  # tables hold small multiples of the coefficients, which are 0 and 1
_PROVED: Final = 1e-7  # units of ``room``, GB/s; answers are rounded to more than that

Floats = NDArray[np.float64]


def most_packed(uses: Floats, room: Floats) -> float | None:
    """Return the largest sum of ``x``, None where that could not be proved.

    ``uses`` (resources, things), 0.0 or 1.0, every thing uses something; ``room`` (resources,), 0.0 or more.

    >>> most_packed(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]), np.array([2.0, 2.0, 2.0]))
    3.0
    """
    rows, columns = uses.shape
    # One row a resource with its slack, and below them what one more of each thing would bring, negative; the last column is what is left, and the sum so far.
    table = np.zeros((rows + 1, columns + rows + 1))
    table[:rows, :columns], table[:rows, columns:-1], table[:rows, -1], table[-1, :columns] = uses, np.eye(rows), room, -1.0
    basis = np.arange(columns, columns + rows)
    for _ in range(_MOST_STEPS):
        enters = int(table[-1, :-1].argmin())
        if table[-1, enters] > -_ZERO:
            break
        _exchange(table, basis, enters)
    packed = np.zeros(columns + rows)
    packed[basis] = table[:-1, -1]
    return _proved(uses, room, packed[:columns], prices=table[-1, columns:-1])


def _exchange(table: Floats, basis: NDArray[np.int64], enters: int) -> None:
    """Let a thing in for the one that runs out of room first."""
    column = table[:-1, enters]
    steps = np.full(len(column), np.inf)
    np.divide(table[:-1, -1], column, out=steps, where=column > _ZERO)
    leaves = int(steps.argmin())
    basis[leaves] = enters
    table[leaves] /= table[leaves, enters]
    others = table[:, enters].copy()
    others[leaves] = 0.0
    table -= others[:, None] * table[leaves]


def _proved(uses: Floats, room: Floats, packed: Floats, prices: Floats) -> float | None:
    """Return the sum where it fits, where ``prices`` of the resources make no thing cheaper than what it brings, and where all room costs just that sum: then nothing brings more."""
    total = float(packed.sum())
    fits = packed.min() >= -_ZERO and (uses @ packed <= room + _PROVED).all()
    bounds = prices.min() >= -_ZERO and (prices @ uses >= 1.0 - _ZERO).all()
    return total if fits and bounds and abs(float(prices @ room) - total) <= _PROVED else None
