"""In which order the GPUs of a set make the best ring: the order that a launcher gives its ranks.

Called by `contents`. A ring is as fast as its slowest hop, so the slowest hop is made as fast as possible, and then the sum of the hops. Up to 8 GPUs every
order is tried (at most 2,520); beyond, a ring is grown from each GPU by its fastest hops and mended by turning stretches of it around, which is good and not
always the best. NCCL builds several rings of its own; this is one, for ranks.
"""

from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import Final

import numpy as np
from numpy.typing import NDArray

_TRY_ALL_UP_TO: Final = 8


def ring_order(hops: NDArray[np.float64]) -> list[int]:
    """Return the positions in the order of the best ring, from position 0 on; ``hops`` (n, n): GB/s of each pair, symmetric.

    >>> ring_order(np.array([[0, 25, 50, 25], [25, 0, 25, 50], [50, 25, 0, 25], [25, 50, 25, 0]], dtype=np.float64))
    [0, 1, 3, 2]
    """
    size = len(hops)
    if size < 4:
        return list(range(size))  # one ring, whichever way round
    rates = hops.tolist()
    orders = _every_order(size) if size <= _TRY_ALL_UP_TO else (_mended(_grown(rates, start), rates) for start in range(size))
    return list(_turned(max(orders, key=lambda order: _worth(order, rates))))


def _worth(order: list[int], rates: list[list[float]]) -> tuple[float, float]:
    """Return the slowest hop, and the sum of all; rounded, so that equal rings are equal."""
    hops = [rates[a][b] for a, b in zip(order, [*order[1:], order[0]], strict=True)]
    return round(min(hops), 6), round(sum(hops), 6)


def _every_order(size: int) -> Iterator[list[int]]:
    """Yield every ring once, in one direction."""
    for rest in permutations(range(1, size)):
        if rest[0] < rest[-1]:
            yield [0, *rest]


def _grown(rates: list[list[float]], start: int) -> list[int]:
    order = [start]
    while len(order) < len(rates):
        order.append(max((other for other in range(len(rates)) if other not in order), key=lambda other: (rates[order[-1]][other], -other)))
    return order


def _mended(order: list[int], rates: list[list[float]]) -> list[int]:
    """Turn stretches around as long as that helps (2-opt)."""
    best = _worth(order, rates)
    while True:
        found = max(_with_a_stretch_turned(order), key=lambda other: _worth(other, rates))
        if _worth(found, rates) <= best:
            return order
        order, best = found, _worth(found, rates)


def _with_a_stretch_turned(order: list[int]) -> Iterator[list[int]]:
    for first in range(1, len(order) - 1):
        for last in range(first + 1, len(order)):
            yield [*order[:first], *reversed(order[first : last + 1]), *order[last + 1 :]]


def _turned(order: list[int]) -> Iterable[int]:
    """Return the ring from position 0 on, towards the lower of its neighbours."""
    at = order.index(0)
    ring = [*order[at:], *order[:at]]
    return ring if ring[1] < ring[-1] else [ring[0], *reversed(ring[1:])]
