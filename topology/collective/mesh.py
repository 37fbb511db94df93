"""What rings carry through one mesh, GPUs that NVLinks join without a switch: `bounds` for all sets, and `rings` packed where the bounds differ.

Called by `sets` for every mesh of a machine, with the depth to which the figures are wanted. Uniform meshes have a closed form at every depth. Others take the longer
the more sets have bounds that differ and the more cycles those have, which is known before the first linear program: so how far a depth goes is decided size by
size, by counts alone, and never by a clock or by the numbering of the GPUs.

A set whose bounds differ and that has more than `MOST_CYCLES` cycles is never packed: its lower bound is its figure. Sets of up to 8 GPUs have no more.
"""

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topology.collective.bounds import Rates, ring_bounds
from topology.collective.rings import Cycles, packed_rate


class Depth(IntEnum):
    """How much of a table is worked out; a figure never falls from one to the next."""

    AT_ONCE = 0  # 1 to 3 ms: no linear program, and nothing about the rings of irregular meshes of more than 8 GPUs
    SOON = 1  # below a second and a half: exact in meshes of up to 8 GPUs and in sparse ones of 16, bounds where more would have to be packed
    FULL = 2  # exact for every set of up to 8 GPUs, and for larger ones as far as half a minute goes


EXACT_UP_TO: Final = 8
MOST_CYCLES: Final = 2520  # as many as 8 GPUs can have; no set of MAPA's 16-GPU machines has more than 672
# A linear program takes scipy 1.3 ms and 4.5 us for every cycle (2 GHz Xeon), and `simplex` a fifth of that. In cycles: what the program itself costs, and what a depth may cost.
_PROGRAM: Final = 300
_MOST_WORK: Final = {Depth.AT_ONCE: 0, Depth.SOON: 150_000, Depth.FULL: 6_000_000}  # 8 GPUs need 74,000 at most, MAPA's machines up to 37,000
_CLOSE: Final = 1e-6  # GB/s: the packing is rounded to this


def is_uniform(hop: NDArray[np.float64]) -> bool:
    """Tell whether all pairs are linked alike, (n, n): then every set's rate has a closed form."""
    pairs = hop[np.triu_indices(len(hop), 1)]
    return bool(pairs.min() == pairs.max())


def mesh_rates(hop: NDArray[np.float64], depth: Depth) -> tuple[Rates, Rates]:
    """Return what rings through all GPUs of every set carry, GB/s, (2**n,), as far as the depth goes, and what they carry at most, which is the same where it is exact.

    ``hop`` (n, n), symmetric, three or more GPUs: GB/s of each pair's NVLinks, one direction, 0.0 without. Sets below three GPUs have 0.0.
    """
    sizes = np.bitwise_count(np.arange(1 << len(hop)))
    if is_uniform(hop):
        rates = np.where(sizes >= 3, hop[0, 1] * (sizes - 1.0), 0.0)
        return rates, rates
    if depth is Depth.AT_ONCE and len(hop) > EXACT_UP_TO:
        return np.zeros(len(sizes)), np.where(sizes >= 3, np.inf, 0.0)  # which sets have a ring takes a tenth of a second
    rates, most = ring_bounds(hop)
    if depth is not Depth.AT_ONCE:
        cycles = Cycles.of(hop > 0)
        known: dict[bytes, float] = {}
        for mask in _to_pack(most - rates > _CLOSE, cycles.counts, depth):
            rates[mask] = most[mask] = _packed(hop, cycles, mask, known)
    return rates, most


def _to_pack(differs: NDArray[np.bool_], counts: Rates, depth: Depth) -> list[int]:
    """Return the sets to pack, smaller ones first, a size as a whole or not at all."""
    sizes = np.bitwise_count(np.arange(len(differs)))
    chosen: list[int] = []
    work = 0.0
    for size in range(3, int(sizes[-1]) + 1):
        of_size = np.flatnonzero(differs & (sizes == size) & (counts <= MOST_CYCLES))
        work += float((counts[of_size] + _PROGRAM).sum())
        if work > _MOST_WORK[depth] and not (depth is Depth.FULL and size <= EXACT_UP_TO):
            break
        chosen += of_size.tolist()
    return chosen


def _packed(hop: NDArray[np.float64], cycles: Cycles, mask: int, known: dict[bytes, float]) -> float:
    """Return the packed rate of a set; ``known`` are those of the sets before it, by shape."""
    chosen = [at for at in range(len(hop)) if mask >> at & 1]
    shape = _in_common_order(hop[np.ix_(chosen, chosen)]).tobytes()
    if shape not in known:
        known[shape] = packed_rate(hop, cycles.in_set(mask))
    return known[shape]


def _in_common_order(hop: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the set's GPUs in an order that sets of equal shape often share: by what each one's links carry, and then its neighbours'."""
    carried = np.round(hop.sum(axis=1), 6)
    order = np.lexsort((np.round(hop @ carried, 6), carried))
    return np.ascontiguousarray(hop[np.ix_(order, order)])
