"""How much several rings carry at once through the NVLinks of one set of GPUs: the packing of Hamiltonian cycles, a linear program.

Called by `sets` for every set of an irregular mesh that has an NVLink ring at all. A ring visits every GPU of the set once; several rings share the links, and
each may carry any fraction of a link. A cycle is run both ways round, so it loads each of its links with its own rate in both directions and brings twice that
rate. What is packed is GB/s, so links of different generations may mix.

    maximise   2 * sum of x_c          over the Hamiltonian cycles c of the set
    subject to sum of x_c over the cycles through a pair <= GB/s of that pair, one direction

Uniform meshes have a closed form; others are solved exactly up to `EXACT_UP_TO` GPUs (2,520 cycles) and, where they have no more than `MOST_CYCLES`, beyond. Of
larger sets with more cycles those that are found first are packed. That is a lower bound; no packing exceeds the NVLinks of the GPU that has the fewest to the others.
"""

from itertools import count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topology.errors import InternalError

EXACT_UP_TO: Final = 8
MOST_CYCLES: Final = 2520  # as many as 8 GPUs can have; MAPA's 16-GPU cube mesh has 200
_MOST_STEPS: Final = 50_000  # of the search for them, above 8 GPUs: a tenth of a second
_ROUND: Final = 6  # digits of GB/s kept: the solver's answers are exact to 1e-9, equal sets must compare equal


def packed_rate(hop: NDArray[np.float64]) -> float:
    """Return GB/s that rings through all GPUs of ``hop`` carry together; 0.0 where no ring is found.

    ``hop`` (k, k), symmetric, k of 3 and more: GB/s of each pair's NVLinks, one direction, 0.0 without. Exact up to `EXACT_UP_TO` GPUs.

    Raises
    ------
    InternalError
        The solver failed, which no input of this form makes it do.

    References
    ----------
    Uniform meshes: every pair lies on equally many of the Hamiltonian cycles of a complete graph, so using all of them alike fills every link:
    k * sum(x) = rate * k * (k - 1) / 2.

    Examples
    --------
    >>> packed_rate(100.0 * (np.ones((4, 4)) - np.eye(4)))  # 4 x A100, NV4 between all
    300.0
    """
    size = len(hop)
    pairs = hop[np.triu_indices(size, 1)]
    if is_uniform(hop):
        return float(pairs[0]) * (size - 1)
    uses = _cycles(hop > 0)
    if not len(uses):
        return 0.0
    from scipy.optimize import linprog  # half a second of import that most machines never need

    solved = linprog(-np.ones(len(uses)), A_ub=uses.T, b_ub=pairs, method="highs")
    if not solved.success or solved.fun is None:
        raise InternalError(f"packing rings into {size} GPUs failed: {solved.message}")
    return round(-2.0 * float(solved.fun), _ROUND)


def is_uniform(hop: NDArray[np.float64]) -> bool:
    """Tell whether all pairs of a set are linked alike, (k, k): then the rate has a closed form."""
    pairs = hop[np.triu_indices(len(hop), 1)]
    return bool(pairs.min() == pairs.max())


def _cycles(linked: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return Hamiltonian cycles as rows of 0 and 1 over the pairs (in the order of np.triu_indices), each once: all of them up to `EXACT_UP_TO` GPUs."""
    size = len(linked)
    number = np.zeros((size, size), np.int64)
    number[np.triu_indices(size, 1)] = np.arange(size * (size - 1) // 2)
    number += number.T
    rows: list[list[int]] = []
    neighbours = [np.nonzero(linked[i])[0].tolist() for i in range(size)]
    steps = count() if size <= EXACT_UP_TO else iter(range(_MOST_STEPS))

    def extend(path: list[int], left: set[int]) -> None:
        if len(rows) == MOST_CYCLES or next(steps, None) is None:
            return
        if not left:
            # Each cycle is met in both directions; the one whose second GPU has the lower number counts.
            if linked[path[-1], path[0]] and path[1] < path[-1]:
                rows.append([int(number[a, b]) for a, b in zip(path, [*path[1:], path[0]], strict=True)])
            return
        for following in neighbours[path[-1]]:
            if following in left:
                extend([*path, following], left - {following})

    extend([0], set(range(1, size)))
    uses = np.zeros((len(rows), size * (size - 1) // 2))
    for at, row in enumerate(rows):
        uses[at, row] = 1.0
    return uses
