"""The oracle: who holds what, counted anew from the pods as they are stored, with nothing but `json`.

It shares no code with the ledger. A pod holds what its allocation says from the write that bound it to the end of its containers.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

JsonObject = dict[str, Any]
KEY = "linkwise.dev/allocation"


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


def uuids(pod: JsonObject) -> set[str]:
    """GPUs written on the pod."""
    return {gpu["uuid"] for gpus in (allocation(pod) or {"containers": {}})["containers"].values() for gpu in gpus if "uuid" in gpu}


def holders(pods: Iterable[JsonObject]) -> dict[str, set[str]]:
    """UUID of each GPU -> UIDs of the pods that hold it."""
    found: dict[str, set[str]] = defaultdict(set)
    for pod in pods:
        if running(pod):
            for uuid in uuids(pod):
                found[uuid].add(pod["metadata"]["uid"])
    return found


def healthy(topology: JsonObject) -> set[str]:
    """GPUs that a published topology offers."""
    broken = {gpu["uuid"] for gpu in topology["status"]["gpus"] if not gpu.get("healthy", True)}
    return {gpu["uuid"] for gpu in topology["spec"]["gpus"]} - broken


def free(topologies: Mapping[str, JsonObject], pods: Iterable[JsonObject]) -> dict[str, set[str] | None]:
    """Free GPUs of each node; None for one that is closed because a pod there holds a GPU that it does not have."""
    pods = list(pods)
    held = holders(pods)
    found: dict[str, set[str] | None] = {}
    for node, topology in topologies.items():
        present = {gpu["uuid"] for gpu in topology["spec"]["gpus"]}
        there = [uuids(pod) for pod in pods if running(pod) and pod["spec"]["nodeName"] == node]
        found[node] = None if any(held_there - present for held_there in there) else healthy(topology) - held.keys()
    return found


def asked(pod: JsonObject) -> dict[str, int]:
    """GPUs of each container that asks for some."""
    containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    return {each["name"]: int(each["resources"]["limits"]["nvidia.com/gpu"]) for each in containers if "resources" in each}
