"""What of one GPU is given away: the whole of it, or so many MiB of its memory. The lowest layer: amounts and rules, no cluster and no pod.

A demand for a part of a GPU becomes a *share*: MiB on each of its GPUs. Whole GPUs, shares, and whatever may come (time-slices, MIG) end in the same thing, a
bitmask of the GPUs that can host one share (`hosts`); who chooses sets from a mask does not know what it was made of.
Read by `extender.demand` (what is asked), `extender.cluster` (what is left) and `extender.placement` (what fits).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST_GPUS: Final = 16  # of one node; bits of a mask, columns of an array of amounts
MIB_PER_GIB: Final = 1024
MOST_GIB: Final = 65_536  # of one GPU, offered or asked: far above any there is, and keeps absurd numbers inside 32 bits
WHOLE: Final = 0  # as an amount of MiB: all of the GPU, and nobody else on it

_BITS: Final = np.left_shift(np.uint32(1), np.arange(MOST_GPUS, dtype=np.uint32))


def offered_mib(memory_mib: int | None, reserve_mib: int = 0) -> int:
    """Return how many MiB of a GPU are given away in shares: whole GiB below its size less the reserve, as many as the node advertises; 0 where the size is unknown.

    Never more than `MOST_GIB`, whatever an object says.

    >>> offered_mib(81_559), offered_mib(81_559, reserve_mib=700), offered_mib(None)
    (80896, 79872, 0)
    """
    if memory_mib is None:
        return 0
    return min(MOST_GIB, max(0, memory_mib - reserve_mib) // MIB_PER_GIB) * MIB_PER_GIB


def share_mib(gib: int, gpus: int) -> int:
    """Return MiB on each of ``gpus`` GPUs for ``gib`` in all: split evenly, and never less than was asked.

    >>> share_mib(40, 2), share_mib(10, 3)
    (20480, 3414)
    """
    return -(-gib * MIB_PER_GIB // gpus)


def hosts(mib: int, idle: NDArray[np.uint32], left: NDArray[np.int32]) -> NDArray[np.uint32]:
    """Return for each node the bits of the GPUs that can host one share of ``mib`` (`WHOLE`: an idle GPU), shape (n,).

    ``idle`` (n,): bits of GPUs that nobody holds; ``left`` (n, MOST_GPUS): MiB that shares may still take of each.
    """
    if mib == WHOLE:
        return idle
    return np.asarray((left >= mib).astype(np.uint32) @ _BITS)


def hosts_of_one(mib: int, idle: int, left: tuple[int, ...]) -> int:
    """Return what `hosts` does, for one node.

    >>> bin(hosts_of_one(4096, 0b100, (1024, 8192, 81920)))
    '0b110'
    """
    if mib == WHOLE:
        return idle
    return sum(1 << bit for bit, amount in enumerate(left) if amount >= mib)
