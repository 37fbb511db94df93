"""A stand-in for gpushare's device plugin and for the part of kubelet that calls it: Allocate as the plugin answers it, for one node.

Written from what the plugin does on the wire, independently of `extender.handoff`: of the Pending pods of its node that carry ASSUME_TIME and ASSIGNED
"false" it takes those of the oldest ASSUME_TIME first, and of these the first whose total is the number of devices that kubelet asks for; it patches ASSIGNED
"true" and the time. It answers one call after the other. Without a match it hands out the GPU of a node with one GPU, and nothing that runs elsewhere. Pods are raw objects and come from whoever
holds them; a patch goes back there.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

JsonObject = dict[str, Any]

RESOURCE = "aliyun.com/gpu-mem"
IDX, ASSIGNED, ASSUME_TIME = (f"ALIYUN_COM_GPU_MEM_{name}" for name in ("IDX", "ASSIGNED", "ASSUME_TIME"))
NO_GPU = "-1"


@dataclass
class PluginStandIn:
    """The plugin on one node; ``visible`` maps the UID of every admitted pod to the index in its environment, NO_GPU where it cannot start."""

    node: str
    gpus: int
    pods: Callable[[], Iterable[JsonObject]]
    patch: Callable[[JsonObject, dict[str, str]], None]
    visible: dict[str, str] = field(default_factory=dict)
    _one_call: threading.Lock = field(default_factory=threading.Lock)

    def to_admit(self) -> list[JsonObject]:
        """Return the pods that kubelet has not admitted yet, in no order that anybody may rely on."""
        return [pod for pod in self._pending() if pod["metadata"]["uid"] not in self.visible]

    def admit(self, pod: JsonObject) -> str:
        """Admit a pod as kubelet does: one Allocate a container, without a word of the pod; return the index that its last container sees."""
        index = NO_GPU
        for container in pod["spec"]["containers"]:
            devices = _units(container)
            if devices:
                index = self.allocate(devices)
        self.visible[pod["metadata"]["uid"]] = index
        return index

    def allocate(self, devices: int) -> str:
        """Answer Allocate for that many devices."""
        with self._one_call:
            return self._allocate(devices)

    def _allocate(self, devices: int) -> str:
        assumed = [pod for pod in self._pending() if _annotations(pod).get(ASSIGNED) == "false" and ASSUME_TIME in _annotations(pod)]
        assumed.sort(key=lambda pod: int(_annotations(pod)[ASSUME_TIME]))
        for pod in assumed:
            if sum(map(_units, pod["spec"]["containers"])) == devices:
                index: str = _annotations(pod)[IDX]
                self.patch(pod, {ASSIGNED: "true", ASSUME_TIME: str(time.time_ns())})
                return index
        return "0" if self.gpus == 1 else NO_GPU

    def _pending(self) -> list[JsonObject]:
        return [pod for pod in self.pods() if pod["spec"].get("nodeName") == self.node and pod["status"]["phase"] == "Pending"]


def _annotations(pod: JsonObject) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"].get("annotations") or {}
    return found


def _units(container: JsonObject) -> int:
    return int(((container.get("resources") or {}).get("limits") or {}).get(RESOURCE, 0))
