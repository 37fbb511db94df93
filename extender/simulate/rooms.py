"""CPU and memory left on every node, and which nodes a pod's nodeSelector allows: what kube-scheduler checks before it asks an extender.

Each side of a simulation has its own. Rows are those of the cluster's view. A node of which the snapshot holds no Node object has room for everything.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from extender.protocol import JsonObject

UNKNOWN: Final = 2**62
_AMOUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]{0,2})")
_UNITS: Final = {
    "": 1.0,
    "m": 0.001,
    **{prefix: 1000.0**power for power, prefix in enumerate("kMGTP", start=1)},
    **{f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTP", start=1)},
}


@dataclass(frozen=True, slots=True)
class Requests:
    """CPU in milli and memory in MiB."""

    cpu_milli: int = 0
    memory_mib: int = 0


class Rooms:
    """What is left; ``names`` are the nodes in the order of the rows."""

    def __init__(self, names: Iterable[str], nodes: Iterable[JsonObject], pods: Iterable[JsonObject]) -> None:
        by_name = {node["metadata"]["name"]: node for node in nodes}
        self._row_of = {name: row for row, name in enumerate(names)}
        found = [_allocatable(by_name.get(name)) for name in self._row_of]
        self.cpu_left = np.array([one.cpu_milli for one in found], np.int64)  # (rows,) milli
        self.memory_left = np.array([one.memory_mib for one in found], np.int64)  # (rows,) MiB
        self._labels = [_mapping(_mapping((by_name.get(name) or {}).get("metadata")).get("labels")) for name in self._row_of]
        self._selected: dict[tuple[tuple[str, str], ...], NDArray[np.bool_]] = {}
        for pod in pods:
            node = pod.get("spec", {}).get("nodeName")
            if node in self._row_of and _mapping(pod.get("status")).get("phase") not in ("Succeeded", "Failed"):
                self.take(self._row_of[node], requests_of(pod))

    def take(self, row: int, asked: Requests, times: int = 1) -> None:
        """Charge a pod to a node; ``times`` -1 takes it back."""
        self.cpu_left[row] -= times * asked.cpu_milli
        self.memory_left[row] -= times * asked.memory_mib

    def open_to(self, pod: JsonObject, asked: Requests) -> NDArray[np.bool_]:
        """Return which nodes have room for the pod and are selected by it, shape (rows,)."""
        room: NDArray[np.bool_] = (self.cpu_left >= asked.cpu_milli) & (self.memory_left >= asked.memory_mib)
        selector = pod.get("spec", {}).get("nodeSelector")
        return room & self._selected_by(tuple(sorted(selector.items()))) if isinstance(selector, dict) and selector else room

    def _selected_by(self, selector: tuple[tuple[str, str], ...]) -> NDArray[np.bool_]:
        if selector not in self._selected:
            self._selected[selector] = np.array([all(labels.get(key) == value for key, value in selector) for labels in self._labels], bool)
        return self._selected[selector]


def requests_of(pod: Mapping[str, Any]) -> Requests:
    """Return the sum over the containers of a pod."""
    cpu = memory = 0.0
    for container in _mapping(pod.get("spec")).get("containers") or ():
        resources = _mapping(_mapping(container).get("resources"))
        amounts = {**_mapping(resources.get("limits")), **_mapping(resources.get("requests"))}
        cpu += _quantity(amounts.get("cpu"))
        memory += _quantity(amounts.get("memory"))
    return Requests(round(cpu * 1000), -(-round(memory) // 2**20))


def _allocatable(node: JsonObject | None) -> Requests:
    found = _mapping(_mapping((node or {}).get("status")).get("allocatable"))
    return Requests(
        round(_quantity(found["cpu"]) * 1000) if "cpu" in found else UNKNOWN,
        int(_quantity(found["memory"])) // 2**20 if "memory" in found else UNKNOWN,
    )


def _quantity(value: object) -> float:
    match = _AMOUNT.fullmatch(str(value))
    return float(match.group(1)) * _UNITS.get(match.group(2), 0.0) if match else 0.0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
