"""Nodes as gpushare's users have them, on the real API server: kubelets that admit and start pods, the device plugin under its own account, and a recount.

`Kubelets` plays all nodes at once, each in a thread; `GpushareNode.take_in` is one turn of one of them, for tests that choose the moment. KWOK keeps the nodes
alive and leaves pods of `aliyun.com/gpu-mem` to this file (kwok-stages.yaml). What the plugin answers is in `tests.gpushare_stand_in`. `recount` and
`PodHistory` tell from the API server's pods alone what must be true, and share no code with the extender.
"""

import json
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from tests.e2e.api_server import ApiServer
from tests.e2e.control_plane import ControlPlane
from tests.e2e.live_cluster import LiveCluster
from tests.gpushare_stand_in import NO_GPU, RESOURCE, PluginStandIn

JsonObject = dict[str, Any]

ACCOUNT = "gpushare-device-plugin"
UNITS = 23  # of each GPU of a test node: GiB
KEYS = tuple(f"ALIYUN_COM_GPU_MEM_{name}" for name in ("IDX", "POD", "DEV", "ASSIGNED", "ASSUME_TIME"))
ALLOCATION = "linkwise.dev/allocation"
# What gpushare's own manifest grants to its plugin, as far as pods and nodes go.
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "update", "patch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["update", "patch"]},
]


def plugin_account(plane: ControlPlane) -> ApiServer:
    """Return the API server as the plugin's service account sees it, with its rights and no others."""
    rbac = "rbac.authorization.k8s.io"
    admin = plane.api()
    admin.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": "kube-system"}})
    admin.apply({"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": ACCOUNT}, "rules": RULES})
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": ACCOUNT}
    admin.apply({"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]})
    return ApiServer(plane.kubeconfig_of_token(ACCOUNT, plane.service_account_token(ACCOUNT, "kube-system")))


class GpushareNode:
    """One node with its kubelet and its plugin.

    Kubelet admits what it sees in any order, and a container starts some time after that: not before all pods are admitted that were bound when its own pod was.
    Kubelet needs milliseconds for the one, and a second for the other.
    """

    def __init__(self, cluster: LiveCluster, account: ApiServer, name: str, gpus: int, chance: random.Random) -> None:
        self.name = name
        self.gpus = gpus
        self._api = cluster.api
        self._account = account
        self._chance = chance
        self._to_start: list[JsonObject] = []
        self.plugin = PluginStandIn(name, gpus, self._pending, self._annotate)
        amounts = {"aliyun.com/gpu-count": str(gpus), "aliyun.com/gpu-mem": str(gpus * UNITS)}
        cluster.make_node(name, 0, {"gpushare": "true"}, amounts)

    def take_in(self) -> None:
        """Admit the pods that are bound by now, then start some of those that were admitted in earlier turns."""
        batch = self.plugin.to_admit()
        self._chance.shuffle(batch)
        for pod in batch:
            self.plugin.admit(pod)
        # Whoever was bound when these were admitted is admitted by now: it was in their turn or in this one.
        for pod in [pod for pod in self._to_start if self._chance.random() < 0.7]:
            start(self._api, pod)
            self._to_start.remove(pod)
        self._to_start += (pod for pod in batch if self.seen(pod) != NO_GPU)

    def seen(self, pod: JsonObject) -> str:
        """Return the index that the pod's container sees."""
        return self.plugin.visible[pod["metadata"]["uid"]]

    def _pending(self) -> list[JsonObject]:
        return self._account.items("Pod", fields=f"spec.nodeName={self.name},status.phase=Pending")

    def _annotate(self, pod: JsonObject, annotations: dict[str, str]) -> None:
        metadata = pod["metadata"]
        self._account.patch("Pod", metadata["name"], {"metadata": {"annotations": annotations}}, metadata["namespace"], how="strategic")


class Kubelets:
    """A context manager: inside of it the kubelets of all nodes take pods in; what went wrong in one of them is raised at the end."""

    def __init__(self, nodes: Iterable[GpushareNode]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(len(self.nodes))
        self._turns: list[Future[None]] = []

    def seen(self) -> dict[str, str]:
        """Return the index that each admitted pod's container sees, by UID."""
        return {uid: index for node in self.nodes.values() for uid, index in dict(node.plugin.visible).items()}

    def __enter__(self) -> Self:
        self._turns = [self._pool.submit(self._play, node) for node in self.nodes.values()]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._pool.shutdown()
        for turn in self._turns:
            turn.result()

    def _play(self, node: GpushareNode) -> None:
        while not self._over.wait(0.05):
            node.take_in()


def start(api: ApiServer, pod: JsonObject) -> None:
    """Write the status that kubelet writes when the containers run."""
    running = [
        {"name": container["name"], "image": "", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}
        for container in pod["spec"]["containers"]
    ]
    metadata = pod["metadata"]
    api.patch("Pod", metadata["name"], {"status": {"phase": "Running", "containerStatuses": running}}, metadata["namespace"], subresource="status")


# --- what must be true, told from the pods alone -------------------------------------------------------------------


def units_of(pod: JsonObject) -> int:
    """Return the units that a pod asks for in total."""
    return sum(int(((container.get("resources") or {}).get("limits") or {}).get(RESOURCE, 0)) for container in pod["spec"]["containers"])


def annotations_of(pod: JsonObject) -> dict[str, str]:
    """Return the annotations of a pod."""
    found: dict[str, str] = pod["metadata"].get("annotations") or {}
    return found


def index_of(pod: JsonObject) -> str:
    """Return the GPU of a bound pod, as its own annotation names it."""
    return annotations_of(pod)[KEYS[0]]


def holders(pods: Iterable[JsonObject]) -> dict[str, dict[str, list[JsonObject]]]:
    """Return the bound pods that have not ended, by node and GPU."""
    found: dict[str, dict[str, list[JsonObject]]] = defaultdict(lambda: defaultdict(list))
    for pod in pods:
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            found[pod["spec"]["nodeName"]][index_of(pod)].append(pod)
    return found


def check_pods(pods: Iterable[JsonObject]) -> None:
    """Check that bound pods carry one decision in both forms, unbound ones none, and no GPU more than it has; raises AssertionError with all that is wrong."""
    pods = list(pods)
    wrong = [f"{pod['metadata']['name']} {problem}" for pod in pods for problem in _problems(pod)]
    for node, gpus in holders(pods).items() if not wrong else ():
        taken = {index: sum(map(units_of, held)) for index, held in gpus.items()}
        wrong += [f"GPU {index} of node {node} has {UNITS} units, {units} are taken" for index, units in taken.items() if units > UNITS]
    assert not wrong, "\n".join(wrong)


def _problems(pod: JsonObject) -> list[str]:
    found, node, units = annotations_of(pod), pod["spec"].get("nodeName"), units_of(pod)
    if not node:
        return [f"is not bound and carries {key}" for key in (*KEYS, ALLOCATION) if key in found]
    missing = [key for key in (*KEYS, ALLOCATION) if key not in found]
    if missing:
        return [f"is bound and lacks {missing}"]
    index = index_of(pod)
    allocation = json.loads(found[ALLOCATION])
    gpu = {"uuid": f"gpushare:{node}:{index}", "index": int(index), "memoryMiB": units * 1024, "shared": True}
    said = {KEYS[1]: str(units), KEYS[2]: str(UNITS)}
    problems = [f"has {key}={found[key]}, not {value}" for key, value in said.items() if found[key] != value]
    if (allocation["node"], allocation["containers"]) != (node, {"main": [gpu]}):
        problems.append(f"is on GPU {index} of node {node} for {units} units, and its allocation is {allocation}")
    return problems


def inspected(pods: Iterable[JsonObject], nodes: Iterable[GpushareNode]) -> JsonObject:
    """Return what `/gpushare-scheduler/inspect` has to answer, by the annotations of the pods."""
    held = holders(pods)
    return {"nodes": [_inspected(node, held[node.name]) for node in sorted(nodes, key=lambda node: node.name)]}


def _inspected(node: GpushareNode, held: dict[str, list[JsonObject]]) -> JsonObject:
    devices = []
    for index in range(node.gpus):
        pods = [
            {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"], "usedGPU": int(annotations_of(pod)[KEYS[1]])}
            for pod in held[str(index)]
        ]
        used = sum(pod["usedGPU"] for pod in pods)
        devices.append({"id": index, "totalGPU": UNITS, "usedGPU": used, "pods": sorted(pods, key=lambda pod: str(pod["name"]))})
    return {"name": node.name, "totalGPU": node.gpus * UNITS, "usedGPU": sum(device["usedGPU"] for device in devices), "devs": devices}


class PodHistory:
    """All pods as the API server had them, one state after the other: `follow` checks each, so that nothing between two looks is missed."""

    def __init__(self, plane: ControlPlane, check: Callable[[Sequence[JsonObject]], None]) -> None:
        self._plane = plane
        self._check = check
        listed = plane.api().request("GET", "/api/v1/pods")
        self.pods: dict[str, JsonObject] = {pod["metadata"]["uid"]: pod for pod in listed["items"]}
        self._version = str(listed["metadata"]["resourceVersion"])
        self.states = 0

    def follow(self) -> list[JsonObject]:
        """Take in what happens within a second, check after every change, and return the pods as they are then."""
        text = self._plane.kubectl("get", "--raw", f"/api/v1/pods?watch=1&resourceVersion={self._version}&timeoutSeconds=1")
        for event in map(json.loads, text.splitlines()):
            pod = event["object"]
            assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
            self._version = pod["metadata"]["resourceVersion"]
            self.pods[pod["metadata"]["uid"]] = pod
            if event["type"] == "DELETED":
                del self.pods[pod["metadata"]["uid"]]
            self.states += 1
            self._check(self.current())
        return self.current()

    def current(self) -> list[JsonObject]:
        """Return the pods as last seen."""
        return list(self.pods.values())
