"""Linkwise itself: every pod goes through the code that serves filter, prioritize and bind, by the door of `linkwise simulate`.

Nothing is decided here. Nodes and pods of the trace become objects (`bench.openb.objects`), Linkwise answers with a node and GPUs, and the replay carries that out on its own cluster,
which checks it: the two states cannot drift apart unseen.
"""

from collections.abc import Iterable, Sequence

from bench.openb.cluster import Placement
from bench.openb.objects import Machine, job_of, snapshot_of, uniform
from bench.openb.replay import Surroundings
from bench.openb.trace import WHOLE, Pod
from bench.openb.workload import PodClass
from extender.protocol import JsonObject
from extender.settings import Policy, Settings
from extender.simulate.jobs import Job
from extender.simulate.sides import Linkwise
from extender.workload import read_workload
from topology.capacity import MIB_PER_GIB
from topology.errors import InternalError
from topology.topology_class import members


class LinkwisePolicy:
    """Production code, with the target workload M given to it as an administrator would give it."""

    def __init__(self, surroundings: Surroundings, machine: Machine = uniform, *, careful: bool = False) -> None:
        """``machine`` gives the links of a node; ``careful``: pods of several GPUs care for them."""
        self._careful = careful
        self._jobs: dict[str, Job] = {}
        self.side = Linkwise(snapshot_of(surroundings.cluster.nodes, machine), Settings.model_construct(), Policy.PACK)
        if self.side.problems:
            raise InternalError(f"the trace's nodes cannot be read: {self.side.problems[0]}")
        self._look_ahead(surroundings.target)

    def _look_ahead(self, target: Sequence[PodClass]) -> None:
        told = read_workload(workload_of(target))
        assert told.classes is not None
        self.side.fix_workload(told.weights or None, told.classes)  # pods without GPUs alone say nothing of sets

    def prepare(self, pods: Iterable[Pod]) -> None:
        """Write the pods down as Linkwise gets them, before anything is timed: in a cluster it is not Linkwise that does it."""
        self._jobs = {pod.name: job_of(pod, careful=self._careful) for pod in pods}

    def place(self, pod: Pod) -> Placement | None:
        """Return where Linkwise puts the pod."""
        placed = self.side.place(self._jobs.pop(pod.name, None) or job_of(pod, careful=self._careful))
        return None if placed is None else Placement(placed.row, tuple(members(placed.mask)))

    def leave(self, pod: Pod) -> None:
        """Let the pod go."""
        self.side.finish(job_of(pod))


class OnlinePolicy(LinkwisePolicy):
    """Production code that knows nothing of the pods to come but those that it has placed; one comes every second."""

    def _look_ahead(self, target: Sequence[PodClass]) -> None:
        """Count for itself."""

    def place(self, pod: Pod) -> Placement | None:
        """Return where Linkwise puts the pod."""
        self.side.now_s += 1.0
        return super().place(pod)


def workload_of(target: Sequence[PodClass]) -> JsonObject:
    """Return the target workload M as `PUT /api/v1/workload` takes it: sizes of sets with their shares, and classes of pods."""
    weights: dict[int, float] = {}
    for one in target:
        if one.gpus:
            weights[one.gpus] = weights.get(one.gpus, 0.0) + one.popularity
    classes = [
        {
            "gpus": one.gpus,
            "cpuMilli": one.cpu_milli,
            "memoryMiB": 0 if one.gpu_milli == WHOLE or not one.gpus else one.gpu_milli * MIB_PER_GIB,
            "model": ",".join(one.models) or None,
            "popularity": one.popularity,
        }
        for one in target
    ]
    return {"weights": {str(size): share for size, share in sorted(weights.items())}, "classes": classes}
