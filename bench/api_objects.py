"""Objects as an API server lists them, as bytes: Nodes of 6 kB, GPUTopologies, and pods of 3 to 6 kB of which most ask for no GPU. What `watch_stream_server` plays.

Real pods carry what no scheduler reads: managed fields, environment, volumes, conditions. Reading past that is the work of a list, so it is here in full. Every object is made from
a few templates by putting its names in, which is quick enough for 100,000 pods. Half of the GPUs are held by pods with an allocation; the rest is what `events` places pods on.
"""

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson

from extender.sample_machines import SAMPLE_MACHINES, sample
from topology.api import AllocatedGpu, Allocation, annotations

JsonObject = dict[str, Any]

SENT: Final = "bench.linkwise.dev/sent-ns"  # annotation of an event's pod: when it was due and when it was sent, on the clock that all processes of a machine share
NEVER: Final = b"0" * 20 + b"." + b"0" * 20
_TIME: Final = "2026-01-01T00:00:00Z"
_KINDS: Final = sorted(SAMPLE_MACHINES)


@dataclass(slots=True)
class Objects:
    """All objects of one cluster by kind, each as JSON; ``free`` are the GPUs that no pod of the list holds, as (node, uuid, index)."""

    nodes: list[bytes] = field(default_factory=list)
    topologies: list[bytes] = field(default_factory=list)
    pods: list[bytes] = field(default_factory=list)
    free: list[tuple[str, str, int]] = field(default_factory=list)


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"gpu-node-{number:05d}.example.internal"


def make(nodes: int, pods: int, seed: int = 0) -> Objects:
    """Return a cluster of so many nodes and about so many pods: those that hold half of the GPUs, and the others without any."""
    rng = random.Random(seed)
    made = Objects()
    for number in range(nodes):
        name = node_name(number)
        topology = sample(_KINDS[number % len(_KINDS)], name).to_object()
        topology["metadata"] |= {"uid": _uid(f"topology-{number}"), "resourceVersion": "1", "creationTimestamp": _TIME}
        topology["status"] |= {"observedAt": _TIME, "holdersObserved": True}
        made.topologies.append(orjson.dumps(topology))
        made.nodes.append(_named(_NODE, name, number))
        if pods:
            _fill(made, name, topology["spec"]["gpus"], rng)
    templates = [_plain_pod(count) for count in range(4)]
    for number in range(max(0, pods - len(made.pods))):
        made.pods.append(_of_pod(templates[number % 4], f"web-{number:06d}", node_name(rng.randrange(nodes))))
    return made


def _fill(made: Objects, node: str, gpus: list[JsonObject], rng: random.Random) -> None:
    rest = rng.sample(gpus, len(gpus))
    while len(rest) > len(gpus) // 2:
        size = min(len(rest) - len(gpus) // 2, rng.choice((1, 1, 2, 4)))
        own, rest = rest[:size], rest[size:]
        made.pods.append(gpu_pod(f"train-{len(made.pods):06d}", node, [(gpu["uuid"], gpu["index"]) for gpu in own]))
    made.free += [(node, gpu["uuid"], gpu["index"]) for gpu in rest]


def gpu_pod(name: str, node: str, gpus: list[tuple[str, int]]) -> bytes:
    """Return a pod that is bound with an allocation of these GPUs."""
    allocation = Allocation(node=node, containers={"main": tuple(AllocatedGpu(uuid=uuid, index=index) for uuid, index in gpus)})
    pod = orjson.loads(_plain_pod(1))
    pod["metadata"]["annotations"][annotations.ALLOCATION] = allocation.encode()
    amounts = {annotations.WHOLE_GPU: str(len(gpus)), "cpu": "8", "memory": "64Gi"}
    pod["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    return _of_pod(orjson.dumps(pod), name, node)


def plain_pod(number: int, node: str) -> bytes:
    """Return a bound pod without GPUs."""
    return _of_pod(_plain_pod(number % 4), f"job-{number:06d}", node)


def events(made: Objects, pods: int, seed: int = 1) -> Iterator[bytes]:
    """Yield the watch events of so many short lives, five each: pending, bound, running, ended, gone. Lives overlap by ten; every tenth pod has a GPU."""
    rng = random.Random(seed)
    nodes = len(made.nodes)
    free = rng.sample(made.free, min(len(made.free), pods // 10 + 1)) if made.free else []
    for first in range(0, pods, 10):
        lives = []
        for number in range(first, min(first + 10, pods)):
            if number % 10 == 0 and free:
                node, uuid, index = free[number // 10 % len(free)]
                lives.append(list(_life(orjson.loads(gpu_pod(f"burst-{number:06d}", node, [(uuid, index)])))))
            else:
                lives.append(list(_life(orjson.loads(plain_pod(number, node_name(rng.randrange(nodes)))))))
        for step in zip(*lives, strict=True):
            yield from step


def _life(pod: JsonObject) -> Iterator[bytes]:
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["annotations"] = {SENT: NEVER.decode(), **metadata["annotations"]}
    bare = {key: value for key, value in metadata["annotations"].items() if key != annotations.ALLOCATION}
    unbound = {**pod, "metadata": {**metadata, "annotations": bare}, "spec": {key: value for key, value in spec.items() if key != "nodeName"}}
    waiting = {"phase": "Pending", "qosClass": "Burstable"}
    yield _event("ADDED", {**unbound, "status": waiting})
    yield _event("MODIFIED", {**pod, "status": waiting})
    yield _event("MODIFIED", pod)
    ended = [{**each, "ready": False, "state": {"terminated": {"exitCode": 0}}} for each in pod["status"]["containerStatuses"]]
    over = {**pod, "status": {**pod["status"], "phase": "Succeeded", "containerStatuses": ended}}
    yield _event("MODIFIED", over)
    yield _event("DELETED", over)


def _event(kind: str, pod: JsonObject) -> bytes:
    return orjson.dumps({"type": kind, "object": {"kind": "Pod", "apiVersion": "v1", **pod}}) + b"\n"


# --- templates ------------------------------------------------------------------------------------------------------


def _uid(text: str) -> str:
    return str(UUID(int=zlib.crc32(text.encode()) << 96 | zlib.crc32(text[::-1].encode()) << 64 | zlib.adler32(text.encode())))


def _of_pod(template: bytes, name: str, node: str) -> bytes:
    return template.replace(b"@UID@", _uid(name).encode()).replace(b"@NAME@", name.encode()).replace(b"@NODE@", node.encode())


def _named(template: bytes, name: str, number: int) -> bytes:
    address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    return template.replace(b"@UID@", _uid(name).encode()).replace(b"@NODE@", name.encode()).replace(b"@IP@", address.encode())


def _managed(manager: str, *paths: str) -> JsonObject:
    fields: JsonObject = {}
    for path in paths:
        at = fields
        for part in path.split("/"):
            at = at.setdefault(part if part.startswith("k:") else f"f:{part}", {})
    return {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": _TIME, "fieldsType": "FieldsV1", "fieldsV1": fields}


def _plain_pod(variables: int) -> bytes:
    """Return a running pod of a Deployment: one container with a sidecar beside it where there are many variables."""
    names = ["main", "proxy"][: 1 + variables // 2]
    return orjson.dumps({"metadata": _metadata(names), "spec": _spec(names, variables), "status": _status(names)})


def _metadata(names: list[str]) -> JsonObject:
    paths = [
        f'spec/containers/k:{{"name":"{name}"}}/{part}' for name in names for part in ("env", "image", "ports", "resources/requests", "volumeMounts")
    ]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7c6d5f9b4d", "uid": "@UID@", "controller": True, "blockOwnerDeletion": True}
    return {
        "name": "@NAME@",
        "generateName": "web-7c6d5f9b4d-",
        "namespace": "production",
        "uid": "@UID@",
        "resourceVersion": "123456789",
        "generation": 1,
        "creationTimestamp": _TIME,
        "labels": {"app": "web", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "7c6d5f9b4d", "team": "front", "tier": "backend"},
        "annotations": {"prometheus.io/port": "9090", "prometheus.io/scrape": "true"},
        "ownerReferences": [owner],
        "managedFields": [
            _managed("kube-controller-manager", "metadata/labels/app", "metadata/ownerReferences", "spec/dnsPolicy", *paths),
            _managed(
                "kubelet", *(f"status/conditions/{part}" for part in ("type", "status", "message", "reason")), "status/podIPs", "status/startTime"
            ),
        ],
    }


def _spec(names: list[str], variables: int) -> JsonObject:
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    return {
        "volumes": [
            {"name": "config", "configMap": {"name": "web", "defaultMode": 420}},
            {"name": "kube-api-access-x7k2p", "projected": {"sources": [token]}},
        ],
        "containers": [_container(name, 4 + 3 * variables) for name in names],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "nodeName": "@NODE@",
        "securityContext": {"fsGroup": 1000, "runAsUser": 1000},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for why in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _status(names: list[str]) -> JsonObject:
    running = {
        "state": {"running": {"startedAt": _TIME}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": "registry.example.internal/shop/web:1.27.3",
        "imageID": "registry.example.internal/shop/web@sha256:" + "0123456789abcdef" * 4,
        "containerID": "containerd://" + "0123456789abcdef" * 4,
        "started": True,
    }
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "observedGeneration": 1, "lastProbeTime": None, "lastTransitionTime": _TIME}
            for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "podIPs": [{"ip": "10.1.0.1"}],
        "startTime": _TIME,
        "containerStatuses": [{"name": name, **running} for name in names],
        "qosClass": "Burstable",
    }


def _container(name: str, variables: int) -> JsonObject:
    return {
        "name": name,
        "image": "registry.example.internal/shop/web:1.27.3",
        "args": ["--listen=:8080", "--config=/etc/web/config.yaml"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": f"SETTING_{number}", "value": f"value of setting {number}"} for number in range(variables)],
        "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "256Mi"}},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/web"},
            {"name": "kube-api-access-x7k2p", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
        ],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10},
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }


_AMOUNTS: Final = {"cpu": "128", "ephemeral-storage": "1Ti", "hugepages-2Mi": "0", "memory": "1056Gi", annotations.WHOLE_GPU: "8", "pods": "110"}
_NODE: Final = orjson.dumps(
    {
        "metadata": {
            "name": "@NODE@",
            "uid": "@UID@",
            "resourceVersion": "123456789",
            "creationTimestamp": _TIME,
            "labels": {
                "kubernetes.io/hostname": "@NODE@",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "gpu.8x",
                "topology.kubernetes.io/zone": "a",
            },
            "managedFields": [_managed("kubelet", *(f"status/{part}" for part in ("allocatable", "capacity", "conditions", "images", "nodeInfo")))],
        },
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": "cloud:///a/@NODE@", "taints": [{"key": annotations.WHOLE_GPU, "effect": "NoSchedule"}]},
        "status": {
            "capacity": _AMOUNTS,
            "allocatable": _AMOUNTS,
            "conditions": [
                {
                    "type": kind,
                    "status": "False",
                    "lastHeartbeatTime": _TIME,
                    "lastTransitionTime": _TIME,
                    "reason": f"KubeletHasNo{kind}",
                    "message": f"kubelet has no {kind}",
                }
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "addresses": [{"type": "InternalIP", "address": "@IP@"}, {"type": "Hostname", "address": "@NODE@"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "kernelVersion": "6.8.0",
                "osImage": "Ubuntu 24.04",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.36.3",
            },
            "images": [
                {
                    "names": [
                        f"registry.example.internal/images/number-{number}@sha256:" + "0123456789abcdef" * 4,
                        f"registry.example.internal/images/number-{number}:1",
                    ],
                    "sizeBytes": 10**8 + number,
                }
                for number in range(20)
            ],
        },
    }
)
