"""Whether a cluster is as it must be, told from the API server's objects alone: an oracle that shares no code with the extender.

`check_pods` reads a list of pods and raises one AssertionError with everything that is wrong: a GPU promised twice, an allocation that is missing,
names another node, gives a container another number of GPUs than it asked for, or falls short of the floor that the pod asked for. `free_gpus` counts
what is left, `check_extender` compares that with what an extender believes. Tests call them after, and in the middle of, whatever they do.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tests.e2e.api_server import ApiServer
from tests.e2e.extender import RunningExtender
from tests.e2e.program import wait_until

JsonObject = dict[str, Any]

GPU = "nvidia.com/gpu"
ALLOCATION = "linkwise.dev/allocation"
FLOOR = "linkwise.dev/min-bandwidth"


def check_cluster(api: ApiServer, around: Collection[str] = ()) -> dict[str, set[str]]:
    """Check all pods of the cluster against all topologies, and return the UUIDs that each live bound GPU pod holds, by NAMESPACE/NAME."""
    # Topologies first: what a pod holds was published before the pod was bound.
    topologies = api.items("GPUTopology")
    return check_pods(api.items("Pod"), topologies, around)


def check_pods(pods: Iterable[JsonObject], topologies: Iterable[JsonObject] | None = None, around: Collection[str] = ()) -> dict[str, set[str]]:
    """Return the UUIDs of each live bound GPU pod; raises AssertionError with every sentence about what is wrong.

    ``around`` names pods (NAMESPACE/NAME) that did not come through Linkwise: they carry no allocation and are left out. Without ``topologies`` nobody
    tells whether a UUID is one of the node's.
    """
    known = None if topologies is None else {topology["metadata"]["name"]: _uuids(topology) for topology in topologies}
    held: dict[str, set[str]] = {}
    holder: dict[str, str] = {}
    wrong: list[str] = []
    for pod in pods:
        name = name_of(pod)
        if name in around or not _wanted(pod):
            continue
        text = (pod["metadata"].get("annotations") or {}).get(ALLOCATION)
        if not pod["spec"].get("nodeName"):
            wrong += [f"{name} is not bound and carries an allocation"] if text else []
            continue
        problems, uuids = _read(pod, text, known)
        wrong += [f"{name} on {pod['spec']['nodeName']} {problem}" for problem in problems]
        if ended(pod):
            continue
        held[name] = uuids
        wrong += [f"{uuid} is held by {holder[uuid]} and by {name}" for uuid in sorted(uuids & holder.keys())]
        holder.update(dict.fromkeys(uuids, name))
    assert not wrong, "\n".join(wrong)
    return held


def free_gpus(pods: Iterable[JsonObject], topologies: Iterable[JsonObject]) -> dict[str, set[str]]:
    """Return the UUIDs of the healthy GPUs that no live bound pod holds, by node: the free capacity that a rebuild must find."""
    held = set().union(*check_pods(pods).values())
    return {
        topology["metadata"]["name"]: {
            gpu["uuid"] for gpu in (topology.get("status") or {}).get("gpus", []) if gpu.get("healthy", True) and gpu["uuid"] not in held
        }
        for topology in topologies
    }


def check_extender(extender: RunningExtender, api: ApiServer, timeout: float = 10) -> None:
    """Wait until an extender believes exactly those GPUs free that the pods leave; raises AssertionError with both where it does not come to that."""
    apart: dict[str, str] = {}

    def equal() -> bool:
        expected = free_gpus(api.items("Pod"), api.items("GPUTopology"))
        found = extender.free(*expected)
        apart.clear()
        apart.update({node: f"believed {sorted(found[node])}, left {sorted(expected[node])}" for node in expected if found[node] != expected[node]})
        return not apart

    try:
        wait_until(equal, timeout)
    except AssertionError as error:
        raise AssertionError(f"not within {timeout:g} s does the extender believe free what the pods leave: {apart}") from error


def name_of(pod: JsonObject) -> str:
    """Return NAMESPACE/NAME."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def ended(pod: JsonObject) -> bool:
    """Whether the containers of a pod have ended; one that is being deleted still runs."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def allocation_of(pod: JsonObject) -> JsonObject:
    """Return the allocation that a pod carries; raises KeyError where it has none."""
    found: JsonObject = json.loads(pod["metadata"]["annotations"][ALLOCATION])
    return found


def indices_of(pod: JsonObject) -> list[int]:
    """Return the indices of all GPUs of a pod, as its allocation names them."""
    return sorted({gpu["index"] for gpus in allocation_of(pod)["containers"].values() for gpu in gpus})


def _read(pod: JsonObject, text: str | None, known: Mapping[str, set[str]] | None) -> tuple[list[str], set[str]]:
    """Return what is wrong with a bound pod's allocation, and its UUIDs."""
    if text is None:
        return ["carries no allocation"], set()
    try:
        allocation = json.loads(text)
        lists = {name: [gpu["uuid"] for gpu in gpus] for name, gpus in allocation["containers"].items()}
        node, version = allocation["node"], allocation["v"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"carries {text!r}, which is no allocation ({error!r})"], set()
    here = pod["spec"]["nodeName"]
    problems = [] if version == 1 else [f"has version {version!r} of the allocation"]
    problems += [] if node == here else [f"has an allocation for node {node}"]
    problems += [
        f"gives container {name} {len(lists.get(name, []))} GPUs, {count} asked"
        for name, count in _wanted(pod).items()
        if len(lists.get(name, [])) != count
    ]
    problems += [f"gives container {name} GPUs that it did not ask for" for name in lists.keys() - _wanted(pod).keys()]
    uuids = {uuid for found in lists.values() for uuid in found}
    running = [uuid for name in _together(pod) for uuid in lists.get(name, [])]
    problems += [f"gives {uuid} to two containers" for uuid in sorted({uuid for uuid in running if running.count(uuid) > 1})]
    if known is not None:
        problems += [f"holds {uuid}, which the node does not have" for uuid in sorted(uuids - known.get(here, set()))]
    floor = float((pod["metadata"].get("annotations") or {}).get(FLOOR, 0))
    if floor and max(_wanted(pod).values()) > 1 and allocation.get("bandwidthGBps", 0) < floor:
        problems.append(f"has {allocation.get('bandwidthGBps')} GB/s, {floor:g} asked")
    return problems, uuids


def _wanted(pod: JsonObject) -> dict[str, int]:
    """Return how many GPUs each container asks for, for those that do."""
    spec = pod["spec"]
    asked = {
        container["name"]: int(((container.get("resources") or {}).get("limits") or {}).get(GPU, 0))
        for container in [*spec["containers"], *(spec.get("initContainers") or [])]
    }
    return {name: count for name, count in asked.items() if count}


def _together(pod: JsonObject) -> list[str]:
    """Return the containers that run at the same time: an ordinary init container may use what the others will."""
    sidecars = [container for container in pod["spec"].get("initContainers") or [] if container.get("restartPolicy") == "Always"]
    return [container["name"] for container in [*pod["spec"]["containers"], *sidecars]]


def _uuids(topology: JsonObject) -> set[str]:
    return {gpu["uuid"] for gpu in topology["spec"]["gpus"]}
