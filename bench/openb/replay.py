"""Pods arrive one by one and never leave; what fits nowhere is dropped.

Generic over the `Placer`: the replay owns the cluster, asks where the next pod goes, checks the answer and takes it. A placer with a state of its own (production code,
say) brings it along in `place`: what it answers is what happens. Called by `bench.placement_quality`, once for every policy, trace and seed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bench.openb.cluster import Cluster, Placement
from bench.openb.fragmentation import Fragmentation
from bench.openb.trace import Pod
from bench.openb.workload import PodClass

PERCENTS = 131  # arrived GPU is recorded at 0 to 130 percent of the cluster's


class Placer(Protocol):
    """A policy at work on one cluster."""

    def place(self, pod: Pod) -> Placement | None:
        """Return where the pod goes, or None if it fits nowhere; asked once for each pod, in the order of arrival. The answer is carried out before the next call."""


class LeavingPlacer(Placer, Protocol):
    """A policy at work where pods leave again."""

    def leave(self, pod: Pod) -> None:
        """Hear that a pod that was placed leaves; the cluster has taken back what it had."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a placer is given: the cluster (to read), the target workload M, F under it, and the seed of its own random choices."""

    cluster: Cluster
    target: tuple[PodClass, ...]
    fragmentation: Fragmentation
    seed: int


Policy = Callable[[Surroundings], LeavingPlacer]


@dataclass(frozen=True, slots=True)
class Curves:
    """What one run gave, at each percent of GPU arrived over the cluster's GPU (index 0 to 130).

    allocated: GPU allocated, percent of the cluster. fragmentation: F, percent of the cluster. occupied: nodes with a pod. NaN where no pod arrived near that percent.
    """

    allocated: tuple[float, ...]
    fragmentation: tuple[float, ...]
    occupied: tuple[float, ...]
    dropped: int


def run(surroundings: Surroundings, placer: Placer, arrivals: Iterable[Pod]) -> Curves:
    """Return the curves of one run. Raises ValueError where the placer answers with a place that the pod does not fit in."""
    cluster, measure = surroundings.cluster, surroundings.fragmentation
    by_node = measure.of_nodes(cluster)
    arrived, allocated, fragments, occupied, dropped = 0, 0, float(by_node.sum()), 0, 0
    seen: set[int] = set()
    records: list[tuple[int, int, float, int]] = []
    for pod in arrivals:
        placement = placer.place(pod)
        arrived += pod.demand.total_gpu_milli
        if placement is None:
            dropped += 1
        else:
            cluster.take(pod.demand, placement)
            row = placement.row
            now = float(measure.of_nodes(cluster, slice(row, row + 1))[0])
            fragments += now - by_node[row]
            by_node[row] = now
            allocated += pod.demand.total_gpu_milli
            seen.add(row)
            occupied = len(seen)
        records.append((arrived, allocated, fragments, occupied))
    return _curves(records, cluster.capacity_milli, dropped)


def _curves(records: Sequence[tuple[int, int, float, int]], capacity_milli: int, dropped: int) -> Curves:
    """Return the mean of all records whose arrived percent rounds to each integer: as the artefact makes its curves discrete."""
    arrived, allocated, fragments, occupied = np.array(records).T
    percent = np.rint(100 * arrived / capacity_milli).astype(np.int64)

    def mean(values: NDArray[np.float64]) -> tuple[float, ...]:
        counts = np.bincount(percent, minlength=PERCENTS)[:PERCENTS]
        sums = np.bincount(percent, weights=values, minlength=PERCENTS)[:PERCENTS]
        return tuple(float(value) for value in np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))

    return Curves(mean(100 * allocated / capacity_milli), mean(100 * fragments / capacity_milli), mean(occupied), dropped)
