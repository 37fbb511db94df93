r"""Whole Node objects as kube-scheduler sends them to an extender that is not `nodeCacheCapable`: about 7 kB each, in Go's JSON.

Used by `bench.nodes_form`. Labels, annotations (two with JSON inside, so with escaped quotes), managed fields, conditions, addresses and 16 images, as a kubelet on a GPU machine
reports them. `Nodes.changed` gives a node a new resource version and heartbeat: between two calls a few of thousands do that.
"""

import random
from collections.abc import Sequence
from typing import Any, Final

from bench.latency.load import go_json

JsonObject = dict[str, Any]

_CREATED: Final = "2026-01-02T03:04:05Z"
_IMAGES: Final = 16
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


class Nodes:
    """The written Node of each name; ``written`` is in the order of ``names``."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        self._rng = random.Random(f"nodes {seed}")
        self._objects = [_node(name, number, self._rng) for number, name in enumerate(names)]
        self.written = [go_json(item) for item in self._objects]

    def change(self, count: int) -> None:
        """Let so many nodes, drawn at random, have reported since."""
        for at in self._rng.sample(range(len(self.written)), count):
            node = self._objects[at]
            node["metadata"]["resourceVersion"] = str(self._rng.randrange(10**8, 10**9))
            for condition in node["status"]["conditions"]:
                condition["lastHeartbeatTime"] = f"2026-01-03T{self._rng.randrange(24):02d}:{self._rng.randrange(60):02d}:00Z"
            self.written[at] = go_json(node)


def nodes_body(pod: bytes, written: Sequence[bytes]) -> bytes:
    """Return a filter call: ExtenderArgs with Nodes."""
    return b'{"Pod":' + pod + b',"Nodes":{"metadata":{},"items":[' + b",".join(written) + b']},"NodeNames":null}'


def _node(name: str, number: int, rng: random.Random) -> JsonObject:
    zone = f"zone-{number % 3}"
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "gpu.8x",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": zone,
        **{f"feature.node.kubernetes.io/cpu-cpuid.{flag}": "true" for flag in ("ADX", "AESNI", "AVX", "AVX2", "AVX512F", "FMA3", "VNNI")},
        **{
            f"nvidia.com/{key}": value
            for key, value in (("gpu.count", "8"), ("gpu.family", "hopper"), ("gpu.present", "true"), ("mig.capable", "true"))
        },
    }
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    told = {
        "csi.volume.kubernetes.io/nodeid": f'{{"csi.example.com":"{name}","disk.example.com":"i-{rng.getrandbits(64):016x}"}}',
        "example.com/last-applied": f'{{"kind":"Node","metadata":{{"name":"{name}","labels":{{"zone":"{zone}"}}}},"spec":{{"taints":[{{"key":"gpu"}}]}}}}',
        "node.alpha.kubernetes.io/ttl": "15",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }
    metadata = {
        "name": name,
        "uid": f"{rng.getrandbits(32):08x}-1111-4222-8333-{rng.getrandbits(48):012x}",
        "resourceVersion": str(rng.randrange(10**8, 10**9)),
        "creationTimestamp": _CREATED,
        "labels": labels,
        "annotations": told,
        "managedFields": [_managed("kubelet", "Update"), _managed("kube-controller-manager", "Update")],
    }
    spec = {"podCIDR": f"{address}/24", "podCIDRs": [f"{address}/24"], "providerID": f"example:///{zone}/i-{rng.getrandbits(64):016x}"}
    return {"metadata": metadata, "spec": spec, "status": _status(name, address, rng)}


def _managed(manager: str, operation: str) -> JsonObject:
    labels: JsonObject = {
        f"f:{key}": {} for key in ("kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os", "node.kubernetes.io/instance-type")
    }
    conditions: JsonObject = {f'k:{{"type":"{kind}"}}': {"f:lastHeartbeatTime": {}, "f:status": {}} for kind, *_ in _CONDITIONS}
    fields = {"f:metadata": {"f:labels": {".": {}, **labels}}, "f:status": {"f:conditions": conditions}}
    return {"manager": manager, "operation": operation, "apiVersion": "v1", "time": _CREATED, "fieldsType": "FieldsV1", "fieldsV1": fields}


def _status(name: str, address: str, rng: random.Random) -> JsonObject:
    amounts = {"cpu": "96", "ephemeral-storage": "1855275632Ki", "hugepages-1Gi": "0", "memory": "1056270348Ki", "nvidia.com/gpu": "8", "pods": "110"}
    times = {"lastHeartbeatTime": _CREATED, "lastTransitionTime": _CREATED}
    conditions = [{"type": kind, "status": status, **times, "reason": reason, "message": message} for kind, status, reason, message in _CONDITIONS]
    images = [
        {
            "names": [f"registry.example.com/team/image-{at}@sha256:{rng.getrandbits(256):064x}", f"registry.example.com/team/image-{at}:1.{at}"],
            "sizeBytes": rng.randrange(10**6, 10**10),
        }
        for at in range(_IMAGES)
    ]
    info = {
        "machineID": f"{rng.getrandbits(128):032x}",
        "systemUUID": f"{rng.getrandbits(128):032x}",
        "bootID": f"{rng.getrandbits(128):032x}",
        "kernelVersion": "6.8.0-45-generic",
        "osImage": "Ubuntu 24.04.1 LTS",
        "containerRuntimeVersion": "containerd://2.0.1",
        "kubeletVersion": "v1.36.3",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
    return {
        "capacity": amounts,
        "allocatable": {**amounts, "memory": "1056167948Ki"},
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": info,
        "images": images,
    }
