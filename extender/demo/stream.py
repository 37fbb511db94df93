"""Which pods come, in which order, and which of them finish: the same for the same seed, and the same for all sides.

Called by `tour`. The first pod is the one in the picture, the last one asks for more than any hardware of the cluster has, so that its refusal can be
explained. In between sizes and wishes are drawn from one table. Running pods finish as soon as the cluster would be fuller than `MOST_BUSY`, which
depends on the stream alone and never on where pods were placed.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from extender.protocol import JsonObject
from topology.api.annotations import GPU_MODEL, MAX_DISTANCE, MIN_BANDWIDTH, WHOLE_GPU

NAMESPACE: Final = "default"

# A busy cluster, but not so full that nothing is left to choose.
MOST_BUSY: Final = 0.7

# Above the 450 GB/s of an H100, the fastest GPU of the cluster.
IMPOSSIBLE_GB_PER_S: Final = 600


@dataclass(frozen=True, slots=True)
class StreamPod:
    """One pod: whole GPUs by container, its `linkwise.dev/` annotations, and the node that its nodeSelector names (None: any)."""

    name: str
    gpus: tuple[int, ...]
    wishes: tuple[tuple[str, str], ...] = ()
    node: str | None = None

    @property
    def total(self) -> int:
        """GPUs of all containers."""
        return sum(self.gpus)

    @property
    def largest(self) -> int:
        """GPUs of the largest container: its set's bandwidth is the pod's."""
        return max(self.gpus)

    @property
    def uid(self) -> str:
        """UID of the pod, made of its name."""
        return f"uid-{self.name}"

    def wish(self, key: str) -> str | None:
        """Return the value of one annotation."""
        return dict(self.wishes).get(key)

    def to_object(self) -> JsonObject:
        """Return the pod as kube-scheduler sends it."""
        names = ("main",) if len(self.gpus) == 1 else tuple(f"worker-{number}" for number in range(len(self.gpus)))
        containers = [{"name": name, "resources": {"limits": {WHOLE_GPU: str(count)}}} for name, count in zip(names, self.gpus, strict=True)]
        spec: JsonObject = {"containers": containers}
        if self.node is not None:
            spec["nodeSelector"] = {"kubernetes.io/hostname": self.node}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": NAMESPACE, "name": self.name, "uid": self.uid, "annotations": dict(self.wishes)},
            "spec": spec,
            "status": {"phase": "Pending"},
        }


@dataclass(frozen=True, slots=True)
class Step:
    """One event of the stream: the pod arrives, or (``arrives`` False) it has finished."""

    pod: StreamPod
    arrives: bool = True


@dataclass(frozen=True, slots=True)
class _Kind:
    """One row of the mixture; ``share`` counts against the sum of all rows."""

    name: str
    share: int
    gpus: tuple[int, ...]
    wishes: tuple[tuple[str, str], ...] = ()


# Made up, in the spirit of a shared training cluster: many small pods, few large ones, every third with a wish.
_MIXTURE: Final = (
    _Kind("notebook", 6, (1,)),
    _Kind("tune", 5, (2,)),
    _Kind("tune", 2, (2,), ((MIN_BANDWIDTH, "50"),)),
    _Kind("tune", 1, (2,), ((MAX_DISTANCE, "PIX"),)),
    _Kind("infer", 1, (2,), ((GPU_MODEL, "*L40S*"),)),
    _Kind("train", 3, (4,)),
    _Kind("train", 1, (4,), ((MIN_BANDWIDTH, "100"),)),
    _Kind("train", 1, (4,), ((MAX_DISTANCE, "NVLINK"),)),
    _Kind("twins", 2, (2, 2)),
    _Kind("large", 2, (8,)),
)


def make_stream(seed: int, pods: int, gpus: int, pictured_node: str) -> tuple[Step, ...]:
    """Return the steps for ``pods`` pods (at least 2) on a cluster of ``gpus`` GPUs.

    >>> [step.pod.name for step in make_stream(1, 2, 72, "dgx1v-1")]
    ['train-01', 'extreme-02']
    """
    draw = Random(seed)  # noqa: S311 - a stream that anybody can repeat is the point
    first = StreamPod("train-01", (4,), node=pictured_node)
    steps = [Step(first)]
    running = [first]
    for number in range(2, pods):
        kind = draw.choices(_MIXTURE, [one.share for one in _MIXTURE])[0]
        pod = StreamPod(f"{kind.name}-{number:02d}", kind.gpus, kind.wishes)
        while running and sum(one.total for one in running) + pod.total > MOST_BUSY * gpus:
            steps.append(Step(running.pop(draw.randrange(len(running))), arrives=False))
        steps.append(Step(pod))
        running.append(pod)
    steps.append(Step(StreamPod(f"extreme-{pods:02d}", (2,), ((MIN_BANDWIDTH, str(IMPOSSIBLE_GB_PER_S)),))))
    return tuple(steps)
