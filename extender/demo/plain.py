"""Placing by counting alone, as Kubernetes does without Linkwise: how many GPUs are free, never which.

Called by `tour` beside the extender. The node is the one with the largest share of free GPUs (the scheduler's LeastAllocated, counted on GPUs; among
equals at random, as the scheduler does it), and on it the pod gets the free GPUs with the lowest positions, container by container. The scheduler
cannot see links, so a floor or a ceiling means nothing here; a wish for a model becomes the node selector on NVIDIA's product label that a user
without Linkwise would write.

Left out on purpose: NVIDIA's device plugin can prefer well linked GPUs among those of the node. It is asked after the node was chosen, by size alone.
"""

from fnmatch import fnmatchcase
from random import Random

from extender.demo.hardware import Placed
from extender.demo.scene import HOSTNAME_LABEL, PRODUCT_LABEL, Scene
from extender.demo.stream import StreamPod
from extender.protocol import JsonObject
from topology.api import Allocation
from topology.api.annotations import ALLOCATION, GPU_MODEL, WHOLE_GPU


class PlainCounting:
    """The state of a cluster in which GPUs are only counted."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self._nodes: dict[str, JsonObject] = {node["metadata"]["name"]: node for node in scene.nodes}
        self._free = {name: _everything(node) for name, node in self._nodes.items()}
        self._placed: dict[str, Placed] = {}
        self._draw = Random(seed)  # noqa: S311 - repeatable on purpose
        uuids = {topology.name: [gpu.uuid for gpu in topology.spec.gpus] for topology in scene.topologies}
        for pod in scene.running:
            allocation = Allocation.decode(pod["metadata"]["annotations"][ALLOCATION])
            for uuid in allocation.uuids():
                self._free[allocation.node] ^= 1 << uuids[allocation.node].index(uuid)

    def place(self, pod: StreamPod) -> Placed | None:
        """Take GPUs for the pod; None where no node has so many free."""
        nodes = [name for name, node in self._nodes.items() if _selected(pod, node) and self._free[name].bit_count() >= pod.total]
        if not nodes:
            return None
        most = max(map(self._share_free, nodes))
        node = self._draw.choice([name for name in nodes if self._share_free(name) == most])
        masks = []
        for count in pod.gpus:
            masks.append(_lowest(self._free[node], count))
            self._free[node] ^= masks[-1]
        self._placed[pod.name] = Placed(node, tuple(masks))
        return self._placed[pod.name]

    def finish(self, pod: StreamPod) -> None:
        """Give the pod's GPUs back."""
        placed = self._placed.pop(pod.name)
        self._free[placed.node] |= placed.union

    def _share_free(self, node: str) -> float:
        return self._free[node].bit_count() / _allocatable(self._nodes[node])


def _allocatable(node: JsonObject) -> int:
    return int(node["status"]["allocatable"][WHOLE_GPU])


def _everything(node: JsonObject) -> int:
    return (1 << _allocatable(node)) - 1


def _selected(pod: StreamPod, node: JsonObject) -> bool:
    labels, model = node["metadata"]["labels"], pod.wish(GPU_MODEL)
    return pod.node in (None, labels[HOSTNAME_LABEL]) and (model is None or fnmatchcase(labels[PRODUCT_LABEL], model))


def _lowest(mask: int, count: int) -> int:
    """Return the lowest bits of a mask.

    >>> bin(_lowest(0b11010, 2))
    '0b1010'
    """
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest
