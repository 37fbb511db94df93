"""The pods of the trace without GPUs, 13 percent of them with 22 percent of the CPU: who chooses their nodes, and what a pod or kube-scheduler's configuration says for it.

An extender sees the pods that name one of its managedResources, so these pods never meet Linkwise by themselves; but they take the CPU beside idle GPUs. Three ways besides are here to be
compared by `bench.placement_real`. None adds `cpu` to the managedResources: kube-scheduler takes extended resources alone there.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from extender.protocol import JsonObject
from topology.api.annotations import GPU_MEMORY, WHOLE_GPU

_BALANCE: Final = "NodeResourcesBalancedAllocation"


class CpuPods(StrEnum):
    """Who chooses the nodes of pods without GPUs."""

    LINKWISE = "linkwise"
    IN_TREE = "in-tree"
    BALANCED = "balanced"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Way:
    """How it is done: ``sentence`` completes "pods without GPUs …", ``limits`` they have beside CPU and memory."""

    sentence: str
    limits: JsonObject


WAYS: Final = {
    # kube-scheduler looks for the name of a managed resource, whatever the amount.
    CpuPods.LINKWISE: Way("ask for `nvidia.com/gpu: 0`, so that kube-scheduler asks Linkwise for their nodes too", {WHOLE_GPU: "0"}),
    CpuPods.IN_TREE: Way("name no GPU, and the profile's own plugins choose their nodes", {}),
    CpuPods.BALANCED: Way(f"name no GPU; {_BALANCE} of CPU, GPUs and GPU memory is added to the profile", {}),
    CpuPods.ALL: Way("name no GPU; kube-scheduler asks Linkwise for every pod, as the configuration has no managedResources", {}),
}


def configured(shipped: JsonObject, who: CpuPods) -> JsonObject:
    """Return the KubeSchedulerConfiguration of a way; of the first two it is the shipped one."""
    if who is CpuPods.ALL:
        return {**shipped, "extenders": [{key: value for key, value in one.items() if key != "managedResources"} for one in shipped["extenders"]]}
    if who is CpuPods.BALANCED:
        return {**shipped, "profiles": [_balanced(one) if one["schedulerName"] == "linkwise" else one for one in shipped["profiles"]]}
    return shipped


def _balanced(profile: JsonObject) -> JsonObject:
    resources = [{"name": name, "weight": 1} for name in ("cpu", WHOLE_GPU, GPU_MEMORY)]
    arguments = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": f"{_BALANCE}Args", "resources": resources}
    off = [plugin for plugin in profile["plugins"]["score"]["disabled"] if plugin["name"] != _BALANCE]
    return {**profile, "plugins": {"score": {"disabled": off}}, "pluginConfig": [{"name": _BALANCE, "args": arguments}]}
