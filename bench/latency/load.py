r"""The bytes of kube-scheduler's calls: pods as an API server hands them out, names in a new order at every call, JSON as Go writes it.

Used by `walk`, `crowd` and the commands. Go's encoding/json writes no blanks, the keys of ExtenderArgs capitalised and in the order of its fields, and `<`, `>`, `&` as
`\u003c`, `\u003e`, `\u0026`. A pod is one of a Job, as training jobs are written: environment, volumes,
tolerations, about 2 kB; without managed fields, which kube-scheduler drops. Two streams of pods:
all of 2 GPUs, and a mixed one of 1 to 8 GPUs, parts of GPUs, and floors on links and bandwidth.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson

from topology.api import annotations

JsonObject = dict[str, Any]

NAMESPACE: Final = "bench"
_CREATED: Final = "2026-01-02T03:04:05Z"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a kind of pod asks for; ``share`` of the pods of a stream are of it. ``gib``: of memory instead of whole GPUs, 0 for whole ones."""

    share: float
    gpus: int
    gib: int = 0
    annotations: tuple[tuple[str, str], ...] = ()

    @property
    def weight(self) -> float:
        """GPUs that it takes up, a part as the part it is of an 80 GB one."""
        return self.gib / 80 if self.gib else self.gpus


TWO_GPUS: Final = (Ask(1.0, 2),)
# Sizes as clusters for training and inference report them: most pods want one GPU, few want a whole machine.
MIXED: Final = (
    Ask(0.25, 1),
    Ask(0.20, 2),
    Ask(0.10, 2, annotations=((annotations.MIN_BANDWIDTH, "100"),)),
    Ask(0.15, 4),
    Ask(0.05, 4, annotations=((annotations.MAX_DISTANCE, "NVLINK"),)),
    Ask(0.05, 8),
    Ask(0.15, 1, gib=20),
    Ask(0.05, 1, gib=10),
)
STREAMS: Final = {"two GPUs": TWO_GPUS, "mixed": MIXED}


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as it is stored, and the same as Go writes it into a call."""

    ask: Ask
    object: JsonObject
    encoded: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.object["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Its UID."""
        return str(self.object["metadata"]["uid"])


def pods(asks: Sequence[Ask], count: int, seed: int) -> list[Pod]:
    """Return that many pods of a stream."""
    rng = random.Random(f"pods {seed}")
    return [_pod(ask, rng) for ask in rng.choices(asks, [ask.share for ask in asks], k=count)]


def _pod(ask: Ask, rng: random.Random) -> Pod:
    found = _object(ask, rng)
    return Pod(ask, found, go_json(found))


def go_json(value: Any) -> bytes:
    r"""Return JSON as Go's encoding/json writes it.

    >>> go_json({"a": "b < c && d"})
    b'{"a":"b \\u003c c \\u0026\\u0026 d"}'
    """
    # Outside of strings JSON has none of these.
    text = orjson.dumps(value).replace(b"<", rb"\u003c").replace(b">", rb"\u003e").replace(b"&", rb"\u0026")
    return text.replace("\u2028".encode(), rb"\u2028").replace("\u2029".encode(), rb"\u2029")


def call_body(pod: bytes, names: bytes) -> bytes:
    """Return a filter or prioritize call: ExtenderArgs with NodeNames."""
    return b'{"Pod":' + pod + b',"Nodes":null,"NodeNames":[' + names + b"]}"


def bind_body(pod: Pod, node: str) -> bytes:
    """Return a bind call: ExtenderBindingArgs."""
    return go_json({"PodName": pod.name, "PodNamespace": NAMESPACE, "PodUID": pod.uid, "Node": node})


class Names:
    """Node names in a new order each time, the same ones for the same seed."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        self.all = list(names)
        self._rng = np.random.default_rng(seed)

    def shuffled(self, most: int | None = None) -> list[str]:
        """Return names in a new order: all, or so many drawn from them."""
        return [self.all[at] for at in self._rng.permutation(len(self.all))[:most].tolist()]

    def reordered(self, names: Sequence[str]) -> list[str]:
        """Return these names in a new order."""
        return [names[at] for at in self._rng.permutation(len(names)).tolist()]


def written(names: Sequence[str]) -> bytes:
    """Return names as they stand in a call, without brackets."""
    return go_json(list(names))[1:-1]


def _object(ask: Ask, rng: random.Random) -> JsonObject:
    job = f"train-{rng.getrandbits(32):08x}"
    uid = str(_uuid(rng))
    labels = {"batch.kubernetes.io/controller-uid": str(_uuid(rng)), "batch.kubernetes.io/job-name": job, "team": f"team-{rng.randrange(40)}"}
    metadata: JsonObject = {
        "name": f"{job}-{rng.getrandbits(20):05x}",
        "generateName": f"{job}-",
        "namespace": NAMESPACE,
        "uid": uid,
        "resourceVersion": str(rng.randrange(10**7, 10**8)),
        "generation": 1,
        "creationTimestamp": _CREATED,
        "labels": labels,
        "annotations": {"example.com/cost-centre": f"R&D <{rng.randrange(10_000)}>", **dict(ask.annotations)},
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": str(_uuid(rng)), "controller": True, "blockOwnerDeletion": True}
        ],
    }
    return {"metadata": metadata, "spec": _spec(ask, job), "status": {"phase": "Pending", "qosClass": "Burstable"}}


def _uuid(rng: random.Random) -> str:
    text = f"{rng.getrandbits(128):032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _spec(ask: Ask, job: str) -> JsonObject:
    resource = {annotations.GPU_MEMORY: str(ask.gib)} if ask.gib else {annotations.WHOLE_GPU: str(ask.gpus)}
    requests = {"cpu": str(8 * ask.gpus), "memory": f"{64 * ask.gpus}Gi", **resource}
    env: list[JsonObject] = [
        {"name": f"RUN_{name}", "value": value} for name, value in (("ID", job), ("ARGS", "--lr=3e-4 --loss<0.1 && --amp"), ("NODES", "1"))
    ]
    env += [{"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}]
    token = {"name": "kube-api-access-x7k2p", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    container = {
        "name": "main",
        "image": "registry.example.com/research/trainer:2026.1.2",
        "command": ["python", "-m", "trainer"],
        "env": env,
        "resources": {"limits": resource, "requests": requests},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "scratch", "mountPath": "/scratch"}, token],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    projected = {"sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}], "defaultMode": 420}
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": f"{job}-data"}},
        {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
        {"name": token["name"], "projected": projected},
    ]
    tolerations = [
        {"key": annotations.WHOLE_GPU, "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    ]
    return {
        "volumes": volumes,
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "schedulerName": "linkwise",
        "tolerations": tolerations,
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
