"""Which nodes kube-scheduler would let a pod on before it asks an extender: those with CPU and memory left that its nodeSelector names.

Called by `sides`. What is left is a column of the view; labels are read from the snapshot's Nodes. A node of which there is no Node object has room for everything
and no labels.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extender.cluster import View
from extender.protocol import JsonObject
from extender.requests import Requests


class Selectors:
    """The labels of the nodes; answers for a selector are kept."""

    def __init__(self, nodes: Iterable[JsonObject]) -> None:
        self._labels = {str(node["metadata"]["name"]): _mapping(node["metadata"].get("labels")) for node in nodes}
        self._selected: dict[tuple[Any, ...], NDArray[np.bool_]] = {}

    def open_rows(self, pod: JsonObject, requests: Requests, view: View) -> NDArray[np.bool_]:
        """Return which nodes have room for the pod beside their GPUs and are selected by it, shape (rows,)."""
        room: NDArray[np.bool_] = (view.cpu_left >= requests.cpu_milli) & (view.memory_left >= requests.memory_mib)
        selector = _mapping(pod["spec"].get("nodeSelector"))
        return room & self._selected_by(selector, view) if selector else room

    def _selected_by(self, selector: Mapping[str, Any], view: View) -> NDArray[np.bool_]:
        key = tuple(sorted((str(name), str(value)) for name, value in selector.items()))
        if key not in self._selected:
            labels = (self._labels.get(node, {}) for node in view.names)
            self._selected[key] = np.array([all(found.get(name) == value for name, value in selector.items()) for found in labels], bool)
        return self._selected[key]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
