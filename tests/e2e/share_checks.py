"""Whether parts of GPUs are given as they must be, told from the API server's objects alone: an oracle that shares no code with the extender.

`wrong_on` reads the pods of one node and returns a sentence for everything that is wrong: more given of a GPU than it offers, a GPU that is somebody's own and shared, a
container that got another amount than it asked for. `left` counts what is left of every GPU, `would_fit` tells of a waiting pod whether it surely has a place.
`StepByStep` watches the pods of a cluster and looks at a node again after every single event about it, so that no state in between goes unseen.
"""

import json
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from tests.e2e.control_plane import ControlPlane

JsonObject = dict[str, Any]
Amounts = dict[str, int]  # MiB by the UUID of a GPU

MEMORY, WHOLE, COUNT = "linkwise.dev/gpu-memory", "nvidia.com/gpu", "linkwise.dev/gpu-count"
ALLOCATION = "linkwise.dev/allocation"
SEGMENT_S = 1  # of a watch: after so long it is asked whether to go on


def offered(topology: JsonObject) -> Amounts:
    """What each GPU of a node gives away: whole GiB."""
    return {gpu["uuid"]: gpu["memoryMiB"] // 1024 * 1024 for gpu in topology["spec"]["gpus"]}


def advertised_gib(topology: JsonObject) -> int:
    """What the Node of that topology counts of `linkwise.dev/gpu-memory`."""
    return sum(gpu["memoryMiB"] // 1024 for gpu in topology["spec"]["gpus"])


def asked_of(pod: JsonObject) -> dict[str, tuple[int, int]]:
    """What each GPU container asks for: of how many GPUs, and how many MiB of each, 0 for all of it."""
    spread = int((pod["metadata"].get("annotations") or {}).get(COUNT, 1))
    found = {}
    for container in [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]:
        limits = (container.get("resources") or {}).get("limits") or {}
        if MEMORY in limits:
            found[container["name"]] = (spread, (int(limits[MEMORY]) * 1024 + spread - 1) // spread)
        elif WHOLE in limits:
            found[container["name"]] = (int(limits[WHOLE]), 0)
    return found


def given_to(pod: JsonObject) -> dict[str, Amounts]:
    """What the allocation of a bound pod gives each container: MiB by UUID, 0 for all of a GPU."""
    allocation = json.loads(pod["metadata"]["annotations"][ALLOCATION])
    return {name: {gpu["uuid"]: gpu["memoryMiB"] if gpu.get("shared") else 0 for gpu in gpus} for name, gpus in allocation["containers"].items()}


def held_by(pod: JsonObject) -> tuple[Amounts, set[str]]:
    """What a bound pod takes by Kubernetes' rule for effective requests: MiB of the GPUs that it shares, and the GPUs that are its own."""
    given = given_to(pod)
    own = {uuid for amounts in given.values() for uuid, mib in amounts.items() if not mib}
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in pod["spec"].get("initContainers") or []:
        is_sidecar = container.get("restartPolicy") == "Always"
        for uuid, mib in given.get(container["name"], {}).items():
            most[uuid] = max(most.get(uuid, 0), sidecars.get(uuid, 0) + mib)
            if is_sidecar:
                sidecars[uuid] = sidecars.get(uuid, 0) + mib
    running = dict(sidecars)
    for container in pod["spec"]["containers"]:
        for uuid, mib in given.get(container["name"], {}).items():
            running[uuid] = running.get(uuid, 0) + mib
    return {uuid: max(running.get(uuid, 0), most.get(uuid, 0)) for uuid in running.keys() | most.keys() if uuid not in own}, own


def wrong_on(pods: Iterable[JsonObject], topology: JsonObject) -> list[str]:
    """Return what is wrong on a node with these pods, all that are bound to it and have not ended."""
    wrong: list[str] = []
    there = offered(topology)
    taken: Amounts = {}
    owner: dict[str, str] = {}
    for pod in pods:
        name, asked = pod["metadata"]["name"], asked_of(pod)
        if not asked:
            continue
        try:
            given, (shares, own) = given_to(pod), held_by(pod)
        except (KeyError, ValueError, TypeError) as error:
            wrong.append(f"{name} is bound without an allocation that can be read: {error!r}")
            continue
        for container, (gpus, mib) in asked.items():
            amounts = given.get(container, {})
            if len(amounts) != gpus or set(amounts.values()) != {mib}:
                wrong.append(f"{name} asks for {mib} MiB of {gpus} GPUs in {container} and got {amounts}")
        wrong += [f"{name} holds {uuid}, which the node does not have" for uuid in (shares.keys() | own) - there.keys()]
        wrong += [f"{uuid} is the own GPU of {owner[uuid]} and of {name}" for uuid in own & owner.keys()]
        owner |= dict.fromkeys(own, name)
        for uuid, mib in shares.items():
            taken[uuid] = taken.get(uuid, 0) + mib
    wrong += [f"{uuid} is the own GPU of {owner[uuid]} and shared" for uuid in owner.keys() & taken.keys()]
    wrong += [f"{mib} MiB of {uuid} are given, {there.get(uuid, 0)} offered" for uuid, mib in taken.items() if mib > there.get(uuid, 0)]
    return wrong


def is_running(pod: JsonObject) -> bool:
    """Whether a pod holds what it was given: bound, and its containers have not ended."""
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ("Succeeded", "Failed")


def left(pods: Iterable[JsonObject], topologies: Iterable[JsonObject]) -> tuple[dict[str, Amounts], dict[str, set[str]]]:
    """Return by node what shares may still take of each GPU, and the GPUs of which nobody holds anything."""
    amounts = {topology["metadata"]["name"]: offered(topology) for topology in topologies}
    idle = {node: set(gpus) for node, gpus in amounts.items()}
    for pod in pods:
        if is_running(pod) and asked_of(pod):
            here = amounts[pod["spec"]["nodeName"]]
            shares, own = held_by(pod)
            here |= {uuid: here[uuid] - mib for uuid, mib in shares.items()} | dict.fromkeys(own, 0)
            idle[pod["spec"]["nodeName"]] -= shares.keys() | own
    return amounts, idle


def would_fit(pod: JsonObject, amounts: Amounts, idle: set[str]) -> bool:
    """Tell whether a pod surely has a place on a node: its containers one after the other, each on the emptiest GPUs; init containers as if they ran with the others."""
    amounts, idle = dict(amounts), set(idle)
    for gpus, mib in sorted(asked_of(pod).values(), key=lambda asked: (asked[1] > 0, -asked[1])):
        can = sorted((uuid for uuid, room in amounts.items() if (room >= mib if mib else uuid in idle)), key=lambda uuid: -amounts[uuid])[:gpus]
        if len(can) < gpus:
            return False
        for uuid in can:
            amounts[uuid] = amounts[uuid] - mib if mib else 0
        idle -= set(can)
    return True


class StepByStep:
    """Looks at the node of a pod after every event about that pod; `wrong` collects what it found, `bound_at` when each binding was seen."""

    def __init__(self, plane: ControlPlane, topologies: Iterable[JsonObject]) -> None:
        self._plane = plane
        self._topologies = {topology["metadata"]["name"]: topology for topology in topologies}
        self._pods: dict[str, dict[str, JsonObject]] = {}  # node -> UID -> pod
        self.steps = 0
        self.bound_at: list[float] = []  # monotonic seconds
        self.wrong: list[str] = []

    @contextmanager
    def watching(self) -> Iterator["StepByStep"]:
        """Watch until the end of the block, and then what has happened in it to the last event; raises AssertionError with what was wrong in between."""
        start = str(self._plane.api().request("GET", "/api/v1/pods")["metadata"]["resourceVersion"])
        ended, failed = threading.Event(), list[BaseException]()

        def run() -> None:
            try:
                self._run(start, ended)
            except BaseException as error:  # noqa: BLE001 - told by the thread that waits for this one
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()
        if failed:
            raise failed[0]
        assert not self.wrong, f"after {self.steps} steps, {len(self.wrong)} times something was wrong:\n" + "\n".join(self.wrong[:10])

    def rate(self) -> float:
        """Return the bindings a second, from the first to the last."""
        return (len(self.bound_at) - 1) / (self.bound_at[-1] - self.bound_at[0])

    def _run(self, version: str, ended: threading.Event) -> None:
        config = json.loads(self._plane.kubeconfig("admin").read_text(encoding="utf-8"))
        trusted = ssl.create_default_context(cafile=str(self._plane.certificate_authority))
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        last = False
        with httpx.Client(base_url=self._plane.url, headers=headers, verify=trusted, timeout=30) as client:
            while not last:
                last = ended.is_set()  # one more segment after the end: it has everything from before
                query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(SEGMENT_S)}
                with client.stream("GET", "/api/v1/pods", params=query) as stream:
                    for line in stream.iter_lines():
                        version = self.step(json.loads(line))

    def step(self, event: Mapping[str, Any]) -> str:
        """Take in one event of the watch, look at the node it is about, and return the resourceVersion."""
        kind, pod = event["type"], event["object"]
        assert kind in ("ADDED", "MODIFIED", "DELETED"), event
        node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
        if node in self._topologies:
            here = self._pods.setdefault(node, {})
            if uid not in here and kind != "DELETED":
                self.bound_at.append(time.monotonic())
            if kind == "DELETED" or not is_running(pod):
                here.pop(uid, None)
            else:
                here[uid] = pod
            self.steps += 1
            self.wrong += [
                f"step {self.steps}, {kind} of {pod['metadata']['name']}: {problem}" for problem in wrong_on(here.values(), self._topologies[node])
            ]
        return str(pod["metadata"]["resourceVersion"])
