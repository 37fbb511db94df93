"""How much several rings carry at once through the NVLinks of one set of GPUs: the packing of Hamiltonian cycles, a linear program.

Called by `mesh` for the sets whose `bounds` differ. A ring visits every GPU of the set once; several rings share the links, and each may carry any fraction of a
link. A cycle is run both ways round, so it loads each of its links with its own rate in both directions and brings twice that rate. What is packed is GB/s, so links
of different generations may mix.

    maximise   2 * sum of x_c          over the Hamiltonian cycles c of the set
    subject to sum of x_c over the cycles through a pair <= GB/s of that pair, one direction

`Cycles` counts the cycles of all sets of a mesh by one recurrence, and reads those of one set back out of it: without a dead end, however sparse the mesh.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topology.collective.simplex import most_packed
from topology.errors import InternalError

_ROUND: Final = 6  # digits of GB/s kept: answers are exact to 1e-7, as a rule to 1e-12, and equal sets must compare equal


@dataclass(frozen=True, slots=True, eq=False)
class Cycles:
    """The Hamiltonian cycles of every set of GPUs of a mesh; made by `of`.

    ``counts`` (2**n,) float64 (16 GPUs have 6.5e11): how many a set has, each once and not once a direction; 0 below three GPUs.
    """

    counts: NDArray[np.float64]
    _linked: NDArray[np.bool_]  # (n, n)
    _paths: NDArray[np.float64]  # (2**n, n) number of paths through the whole set from its lowest member to that GPU

    @staticmethod
    def of(linked: NDArray[np.bool_]) -> "Cycles":
        """Count the cycles of the mesh in which these pairs (n, n) are linked.

        >>> Cycles.of(~np.eye(4, dtype=np.bool_)).counts[[0b0011, 0b0111, 0b1111]].tolist()
        [0.0, 1.0, 3.0]
        """
        size = len(linked)
        masks, bits, links = np.arange(1 << size), 1 << np.arange(size), linked.astype(np.float64)
        sizes, lowest = np.bitwise_count(masks), masks & -masks
        paths = np.zeros((1 << size, size))
        paths[bits, np.arange(size)] = 1.0
        for members in range(2, size + 1):
            level = masks[sizes == members]
            longer = np.einsum("slp,pl->sl", paths[level[:, None] ^ bits], links)  # over (sets, last, last but one)
            # As in `bounds.best_rings`, ``^`` finds nothing for a last GPU outside the set; and a path does not return to its start.
            longer[bits == lowest[level][:, None]] = 0.0
            paths[level] = longer
        start = np.bitwise_count(lowest - 1) % max(size, 1)  # the empty set has none, and no path either
        counts = np.where(sizes >= 3, (paths * links[start]).sum(axis=1) / 2.0, 0.0) if size else np.zeros(1)
        return Cycles(counts, linked, paths)

    def in_set(self, mask: int) -> NDArray[np.int64]:
        """Return the cycles of one set as rows of positions, in the order of the ring, (cycles, members).

        >>> Cycles.of(~np.eye(4, dtype=np.bool_)).in_set(0b1111).tolist()
        [[0, 1, 2, 3], [0, 1, 3, 2], [0, 2, 1, 3]]
        """
        size, start = len(self._linked), (mask & -mask).bit_length() - 1
        rings, rest = np.array([[start]]), np.array([mask])
        for _ in range(mask.bit_count() - 1):
            # From the end of the ring back to its start: every step is the last one of a path that is there.
            row, before = np.nonzero(self._linked[rings[:, -1]] & (self._paths[rest] > 0) & (np.arange(size) != start))
            rings = np.concatenate([rings[row], before[:, None]], axis=1)
            rest = rest[row] ^ (1 << before)
        return rings[rings[:, 1] < rings[:, -1]]  # each was met in both directions


def packed_rate(hop: NDArray[np.float64], cycles: NDArray[np.int64]) -> float:
    """Return GB/s that these ``cycles`` (rows of positions, one or more) carry together; ``hop`` (n, n): GB/s of each pair's NVLinks, one direction.

    Raises
    ------
    InternalError
        The solver failed, which no input of this form makes it do.

    Examples
    --------
    >>> four = 100.0 * (np.ones((4, 4)) - np.eye(4))  # 4 x A100, NV4 between all
    >>> packed_rate(four, Cycles.of(four > 0).in_set(0b1111))
    300.0
    """
    following = np.roll(cycles, -1, axis=1)
    pairs, used = np.unique(np.minimum(cycles, following) * len(hop) + np.maximum(cycles, following), return_inverse=True)
    uses = np.zeros((len(pairs), len(cycles)))
    uses[used.reshape(cycles.shape), np.arange(len(cycles))[:, None]] = 1.0
    packed = most_packed(uses, hop.ravel()[pairs])
    if packed is None:
        packed = packed_by_scipy(uses, hop.ravel()[pairs])
    return round(2.0 * packed, _ROUND)


def packed_by_scipy(uses: NDArray[np.float64], room: NDArray[np.float64]) -> float:
    """Return what `most_packed` does, by scipy; raises InternalError where it fails."""
    from scipy.optimize import linprog  # half a second of import that next to no machine needs

    solved = linprog(-np.ones(uses.shape[1]), A_ub=uses, b_ub=room, method="highs")
    if not solved.success or solved.fun is None:
        raise InternalError(f"packing {uses.shape[1]} rings failed: {solved.message}")
    return -float(solved.fun)
