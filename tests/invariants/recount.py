"""The oracle: who holds what, counted anew from the pods as they are stored, with nothing but `json`.

It shares no code with the ledger. A pod holds what its allocation says from the write that bound it to the end of its containers: whole GPUs, or so many MiB of a GPU.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

JsonObject = dict[str, Any]
KEY = "linkwise.dev/allocation"
WHOLE_GPU, MEMORY, UNITS = "nvidia.com/gpu", "linkwise.dev/gpu-memory", "aliyun.com/gpu-mem"
Usage = dict[str, float]  # UUID -> MiB, ALL for a GPU that is held whole
ALL = float("inf")


def running(pod: JsonObject) -> bool:
    """Bound, and not all of its containers have ended; a deletion that was only asked for changes nothing."""
    return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] not in ("Succeeded", "Failed")


def allocation(pod: JsonObject) -> JsonObject | None:
    """What is written on the pod, None where nothing is or where it is no allocation."""
    try:
        found: JsonObject = json.loads(pod["metadata"]["annotations"][KEY])
        return found if isinstance(found["containers"], dict) else None
    except (KeyError, TypeError, ValueError):
        return None


def given(pod: JsonObject) -> dict[str, list[JsonObject]]:
    """GPUs written on the pod, by container."""
    return (allocation(pod) or {"containers": {}})["containers"]


def uuids(pod: JsonObject) -> set[str]:
    """GPUs written on the pod, whole or in part."""
    return {gpu["uuid"] for gpus in given(pod).values() for gpu in gpus if "uuid" in gpu}


def usage(pod: JsonObject) -> Usage:
    """What the pod may use of each GPU at the moment of its life at which that is most: containers start one after the other, init containers end before the next starts."""
    most: dict[str, float] = defaultdict(float)
    in_use: dict[str, float] = defaultdict(float)
    init = pod["spec"].get("initContainers") or []
    for container in [*init, *pod["spec"]["containers"]]:
        before = dict(in_use)
        for gpu in [gpu for gpu in given(pod).get(container["name"], []) if "uuid" in gpu]:
            in_use[gpu["uuid"]] += gpu.get("memoryMiB", ALL) if gpu.get("shared") else ALL
            most[gpu["uuid"]] = max(most[gpu["uuid"]], in_use[gpu["uuid"]])
        if container in init and container.get("restartPolicy") != "Always":
            in_use = defaultdict(float, before)
    return dict(most)


def use_of_gpus(pods: Iterable[JsonObject]) -> dict[str, dict[str, float]]:
    """UUID of each GPU -> UIDs of the pods that hold it -> MiB, ALL for the whole of it."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for pod in pods:
        if running(pod):
            for uuid, mib in usage(pod).items():
                found[uuid][pod["metadata"]["uid"]] = mib
    return found


def is_more_than(use: Iterable[float], offered: int) -> bool:
    """Whether pods hold more of a GPU than there is: more MiB than it offers, or anything beside a pod that holds all of it."""
    held = list(use)
    return (len(held) > 1 and (ALL in held or sum(held) > offered)) or (len(held) == 1 and held[0] != ALL and held[0] > offered)


def offered(topologies: Iterable[JsonObject]) -> dict[str, int]:
    """MiB that each GPU of some nodes gives away in parts: its whole GiB."""
    gpus = [gpu for topology in topologies for gpu in topology["spec"]["gpus"]]
    return {gpu["uuid"]: (gpu.get("memoryMiB") or 0) // 1024 * 1024 for gpu in gpus}


def healthy(topology: JsonObject) -> set[str]:
    """GPUs that a published topology offers."""
    broken = {gpu["uuid"] for gpu in topology["status"]["gpus"] if not gpu.get("healthy", True)}
    return {gpu["uuid"] for gpu in topology["spec"]["gpus"]} - broken


def free(topologies: Mapping[str, JsonObject], pods: Iterable[JsonObject]) -> dict[str, dict[str, float] | None]:
    """MiB that are left of the GPUs of each node, ALL for an idle GPU; None for one that is closed because a pod there holds a GPU that it does not have."""
    pods = list(pods)
    used = use_of_gpus(pods)
    found: dict[str, dict[str, float] | None] = {}
    for node, topology in topologies.items():
        sizes = offered([topology])
        there = [uuids(pod) for pod in pods if running(pod) and pod["spec"]["nodeName"] == node]
        if any(held - sizes.keys() for held in there):
            found[node] = None
            continue
        left = {uuid: sizes[uuid] - sum(used[uuid].values()) if uuid in used else ALL for uuid in healthy(topology)}
        found[node] = {uuid: mib for uuid, mib in left.items() if mib > 0}
    return found


def asked(pod: JsonObject) -> dict[str, tuple[str, int]]:
    """What each container asks for, of those that ask for GPUs: the resource and how much of it."""
    containers = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    limits = {each["name"]: each["resources"]["limits"] for each in containers if "limits" in each.get("resources", {})}
    return {name: (resource, int(of[resource])) for name, of in limits.items() for resource in (WHOLE_GPU, MEMORY, UNITS) if resource in of}


def gpus_of_a_part(pod: JsonObject) -> int:
    """Over how many GPUs the memory of each container is spread."""
    return int(pod["metadata"]["annotations"].get("linkwise.dev/gpu-count", 1))
