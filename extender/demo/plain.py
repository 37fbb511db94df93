"""Placing by counting alone, as Kubernetes does without Linkwise: how many GPUs are free, never which.

Called by `tour` beside the extender. The node is the one with the largest share of free GPUs (the scheduler's LeastAllocated, counted on GPUs; among
equals at random, as the scheduler does it), and on it the pod gets the free GPUs with the lowest positions, container by container. The scheduler
cannot see links, so a floor or a ceiling means nothing here; a wish for a model becomes the node selector on NVIDIA's product label that a user
without Linkwise would write.

A device plugin may know links and prefer a good set among the free GPUs of the node. It is asked when the node is chosen already, by count alone. What
that can bring at best is the same counting with ``pick`` taking the best set of the node (`best_set_picker`); the nodes are the same then, pod by pod.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from random import Random

from extender.demo.hardware import NodeHardware, Placed
from extender.demo.scene import HOSTNAME_LABEL, PRODUCT_LABEL, Scene
from extender.demo.stream import StreamPod
from extender.protocol import JsonObject
from topology.api import Allocation
from topology.api.annotations import ALLOCATION, GPU_MODEL, WHOLE_GPU
from topology.errors import InternalError

# node, mask of its free GPUs, how many of them -> mask of those taken
Picker = Callable[[str, int, int], int]


def lowest_picker(_: str, free: int, count: int) -> int:
    """Take the lowest free GPUs.

    >>> bin(lowest_picker("node", 0b11010, 2))
    '0b1010'
    """
    rest = free
    for _taken in range(count):
        rest &= rest - 1
    return free ^ rest


def best_set_picker(hardware: Mapping[str, NodeHardware]) -> Picker:
    """Return a picker that takes the best set of the node by Linkwise's own tables."""

    def pick(node: str, free: int, count: int) -> int:
        found = hardware[node].kind.best_set(free, count)
        if found is None:
            raise InternalError(f"node {node} has no {count} free GPUs")
        return found.mask

    return pick


class PlainCounting:
    """The state of a cluster in which GPUs are only counted; ``pick`` chooses among the free ones of the node."""

    def __init__(self, scene: Scene, seed: int, pick: Picker = lowest_picker) -> None:
        self._pick = pick
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
            masks.append(self._pick(node, self._free[node], count))
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
