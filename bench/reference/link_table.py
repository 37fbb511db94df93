"""`LinkTable`: one machine as the reference policies see it: a code and GB/s a pair, and the figures of rings that MAPA ranks sets by.

Made by the benchmarks from the link tables of a data set or from the matrix of a sample machine. It shares no code with `topology`, so that a policy cannot
inherit what it is compared with.

MAPA's jobs are rings. A ring's *aggregated* bandwidth is the sum over its edges; a ring of two counts its pair twice, once each way.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations

from bench.reference.effective_bandwidth import predicted


@dataclass(frozen=True, slots=True)
class Ring:
    """What MAPA ranks a set by: GB/s of the best ring over it, by each of its two measures."""

    aggregated: float  # the greatest sum over the edges
    predicted: float  # the greatest effective bandwidth that the regression predicts; NaN where it knows no such links


@dataclass(frozen=True, eq=False)
class LinkTable:
    """Codes (n, n) as text, `X` on the diagonal, `NV#` where NVLinks join a pair, and the GB/s of every code of the machine.

    ``pcie`` are the codes of the PCIe paths also under NVLinks, None where they are not known. GPUs ``0..socket-1``, ``socket..2*socket-1``, … share a socket.
    """

    codes: tuple[tuple[str, ...], ...]
    gb_per_s: dict[str, float]
    socket: int
    pcie: tuple[tuple[str, ...], ...] | None = None
    _rings: dict[int, Ring] = field(default_factory=dict, init=False, repr=False)

    @property
    def size(self) -> int:
        """Number of GPUs."""
        return len(self.codes)

    def nvlinks(self, a: int, b: int) -> int:
        """Return the number of NVLinks of a pair."""
        code = self.codes[a][b]
        return int(code[2:]) if code.startswith("NV") else 0

    def rate(self, a: int, b: int) -> float:
        """Return GB/s of a pair."""
        return self.gb_per_s[self.codes[a][b]]

    def ring(self, mask: int) -> Ring:
        """Return the figures of the best rings over a set of two or more: every order is tried once."""
        if mask not in self._rings:
            first, *others = members(mask)
            # A ring and its mirror image are one; two GPUs have one order.
            orders = [(first, *order) for order in permutations(others) if len(order) < 2 or order[0] < order[-1]]
            self._rings[mask] = Ring(max(map(self._aggregated, orders)), max(map(self._predicted, orders)))
        return self._rings[mask]

    def left_over(self, mask: int) -> float:
        """Return the sum of NVLink GB/s over all pairs inside a mask: what MAPA's preserve wants to keep."""
        return sum(self.rate(a, b) for a, b in combinations(members(mask), 2) if self.nvlinks(a, b))

    def _aggregated(self, order: Sequence[int]) -> float:
        return sum(self.rate(a, b) for a, b in _edges(order))

    def _predicted(self, order: Sequence[int]) -> float:
        links = [self.nvlinks(a, b) for a, b in _edges(order)]
        if max(links) > 2:  # the regression knows single and double NVLinks only
            return math.nan
        return predicted(links.count(2), links.count(1), links.count(0))


def _edges(order: Sequence[int]) -> Iterable[tuple[int, int]]:
    return zip(order, [*order[1:], order[0]], strict=True)


def members(mask: int) -> list[int]:
    """Return the GPUs of a mask, lowest first."""
    return [gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1]


def mask_of(gpus: Iterable[int]) -> int:
    """Return the mask of some GPUs."""
    return sum(1 << gpu for gpu in gpus)


def sets_of(free: int, k: int) -> list[int]:
    """Return all sets of ``k`` among the free GPUs, in the order of their indices."""
    return [mask_of(chosen) for chosen in combinations(members(free), k)]
