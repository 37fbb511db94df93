"""Slow, obvious versions of F and of the six scores: one node, one pod, written from the paper's formulas without tables; they share no code with `bench.openb`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.openb.trace import Demand
from bench.openb.workload import PodClass


@dataclass(frozen=True)
class OneNode:
    """What is left on one node; ``kinds`` are those of its pods: "part", or a number of whole GPUs."""

    cpu_left: int
    memory_left: int
    gpu_left: tuple[int, ...]
    model: str
    kinds: tuple[str | int, ...] = ()


def fits(node: OneNode, demand: Demand | PodClass) -> bool:
    """Return whether CPU, model and GPUs suffice."""
    enough = sum(left >= demand.gpu_milli for left in node.gpu_left)
    return node.cpu_left >= demand.cpu_milli and enough >= demand.gpus and (not demand.models or node.model in demand.models)


def fragmentation(node: OneNode, target: Sequence[PodClass]) -> float:
    """Return F of one node, the sum over M written out."""
    found = 0.0
    for one in target:
        if one.gpus == 0 or not fits(node, one):
            found += one.popularity * sum(node.gpu_left)
        else:
            found += one.popularity * sum(left for left in node.gpu_left if left < one.gpu_milli)
    return found


def after(node: OneNode, demand: Demand, gpus: Sequence[int]) -> OneNode:
    """Return the node with the pod on those GPUs."""
    left = tuple(milli - demand.gpu_milli * (gpu in gpus) for gpu, milli in enumerate(node.gpu_left))
    return OneNode(node.cpu_left - demand.cpu_milli, node.memory_left - demand.memory_mib, left, node.model, node.kinds)


def best_fit_gpus(node: OneNode, demand: Demand) -> tuple[int, ...]:
    """Return the GPUs with the least left that is enough, the first of equal ones."""
    enough = sorted((left, gpu) for gpu, left in enumerate(node.gpu_left) if left >= demand.gpu_milli)
    return tuple(sorted(gpu for _, gpu in enough[: demand.gpus]))


def fgd_descents(node: OneNode, demand: Demand, target: Sequence[PodClass]) -> dict[tuple[int, ...], float]:
    """Return F before minus F after for each set of GPUs that FGD looks at, in the order of indices."""
    before = fragmentation(node, target)
    if demand.gpus == 1 and demand.gpu_milli < 1000:
        sets = [(gpu,) for gpu, left in enumerate(node.gpu_left) if left >= demand.gpu_milli]
    else:
        sets = [best_fit_gpus(node, demand)]
    return {gpus: before - fragmentation(after(node, demand, gpus), target) for gpus in sets}


def dotprod(node: OneNode, demand: Demand) -> float:
    cpu = node.cpu_left / 128000 * demand.cpu_milli / 128000
    gpu = sum(node.gpu_left) / 8000 * demand.gpus * demand.gpu_milli / 8000
    return 100 * (1 - (cpu + gpu) / 2)


def bestfit(node: OneNode, demand: Demand) -> float:
    cpu = 0.5 * (node.cpu_left - demand.cpu_milli) / 128000
    gpu = 0.5 * (sum(node.gpu_left) - demand.gpus * demand.gpu_milli) / 8000
    return 100 * (1 - cpu - gpu)


def clustering(node: OneNode, demand: Demand) -> int:
    if demand.gpus == 0:
        return 0
    this = "part" if demand.gpu_milli < 1000 else demand.gpus
    kinds = set(node.kinds)
    base = 75 if kinds == {this} else 50 if this in kinds else 25 if not kinds else 0
    return base + 25 * (8000 - sum(node.gpu_left)) // 8000


def packing(node: OneNode, demand: Demand) -> int:
    if demand.gpus == 0:
        return 0
    idle = sum(left == 1000 for left in node.gpu_left)
    if idle == len(node.gpu_left):
        return max(33 - idle, idle)
    taken = [node.gpu_left[gpu] for gpu in best_fit_gpus(node, demand)]
    if 1000 in taken:
        return max(33, 50 - taken.count(1000))
    return max(50, 100 - sum(math.floor(left / 10) for left in taken) // 10)
