"""Linkwise's choice of a set as a policy: `TopologyClass.best_set` on the machine that a `LinkTable` describes.

Nothing is reimplemented: the class, its tables and its rule are those that the extender decides with. What a benchmark may replace is the bandwidth of the sets
(another model) and the weights of demands (another stream).
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bench.reference import LinkTable, Policy
from topology.collective import machine_links, matched_gpus
from topology.inventory import Gpu, Inventory
from topology.matrix import from_codes
from topology.topology_class import SEED_WEIGHTS, TopologyClass


def topology_class_of(
    codes: Sequence[Sequence[str]],
    model: str | None = None,
    *,
    bandwidth_of: Callable[[int], float] | None = None,
    weights: Mapping[int, float] = SEED_WEIGHTS,
) -> TopologyClass:
    """Return the tables of a machine; ``bandwidth_of`` gives GB/s of every set (a mask of two or more) in the place of ring packing."""
    matrix = from_codes(codes)
    inventory = Inventory(tuple(Gpu(index=i, model=model) for i in range(matrix.size)))
    bandwidth = None if bandwidth_of is None else np.array([bandwidth_of(mask) if mask.bit_count() > 1 else 0.0 for mask in range(1 << matrix.size)])
    return TopologyClass("bench", matrix, matched_gpus(matrix, inventory), machine_links(matrix, inventory), bandwidth=bandwidth).under(weights)


def predicted_up_to(table: LinkTable, largest: int) -> Callable[[int], float]:
    """Return MAPA's predicted bandwidth as a function of sets; 0.0 for sets larger than any job, which nobody asks for."""
    return lambda mask: table.ring(mask).predicted if mask.bit_count() <= largest else 0.0


def policy(kind: TopologyClass, *, insensitive_as_none: bool = False) -> Policy:
    """Return the choice of sets; ``insensitive_as_none``: jobs that are not sensitive carry `topology: none`, else all pods are alike, as by default."""

    def choose(free: int, k: int, sensitive: bool) -> int | None:
        found = kind.best_set(free, k, careful=sensitive or not insensitive_as_none)
        return None if found is None else found.mask

    return choose
