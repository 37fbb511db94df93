"""Target workload M: the classes of pods that are to be expected, each with its popularity.

Counted from the trace itself, as the paper does: a scheduler would count yesterday's pods. `fragmentation` measures by it; policies that look ahead are given it.
Memory is no part of a class, and rare classes are left out: the most frequent ones that make 95 percent of all pods stay.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bench.openb.trace import Pod

COVERED: Final = 0.95


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods alike: CPU in milli, GPUs, milli of each, models (none: any), and which share of all pods they are."""

    cpu_milli: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]
    popularity: float


def target(pods: Iterable[Pod]) -> tuple[PodClass, ...]:
    """Return M, the most frequent class first; popularities sum to 1. Equal counts: the larger demand first, as the artefact sorts."""
    counts = Counter((pod.demand.cpu_milli, pod.demand.gpu_milli, pod.demand.gpus, "|".join(pod.demand.models)) for pod in pods)
    kept: list[tuple[int, tuple[int, int, int, str]]] = []
    covered = 0
    for count, key in sorted(((count, key) for key, count in counts.items()), reverse=True):
        if covered >= COVERED * counts.total():
            break
        kept.append((count, key))
        covered += count
    return tuple(
        PodClass(cpu, gpus, milli, tuple(models.split("|")) if models else (), count / covered) for count, (cpu, milli, gpus, models) in kept
    )
