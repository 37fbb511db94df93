"""One stream of pods on equal clusters: placed by the extender over HTTP, beside it by plain counting, and by counting with the best set of each node.

Called by `extender.cli`; `report` and `picture` show the `Tour` that comes out. All sides get every step in the same order, before any gets the next
one. A pod that finds no node waits, and is tried again whenever a pod has finished, as kube-scheduler does.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Final, Protocol

import structlog

from extender.demo.hardware import Figures, NodeHardware, Placed, hardware_of
from extender.demo.plain import PlainCounting, best_set_picker
from extender.demo.scene import PICTURED_NODE, Scene, make_scene
from extender.demo.served import OverHttp, calling, serving
from extender.demo.stream import Step, StreamPod, make_stream
from extender.protocol import JsonObject
from topology.api.annotations import MAX_DISTANCE, MIN_BANDWIDTH
from topology.errors import InputError
from topology.links import Distance

FEWEST_PODS: Final = 2  # the pictured one and the impossible one


class Side(Protocol):
    """A way of placing pods."""

    def place(self, pod: StreamPod) -> Placed | None:
        """Give the pod GPUs; None where it finds no node."""
        ...

    def finish(self, pod: StreamPod) -> None:
        """Take back the GPUs of a pod that was placed."""
        ...


@dataclass(slots=True)
class Walk:
    """What one side made of the stream so far: every pod it ever placed, by name, and those that wait, in the order of arrival."""

    placed: dict[str, Placed] = field(default_factory=dict)
    waiting: list[StreamPod] = field(default_factory=list)

    def take(self, step: Step, side: Side) -> None:
        """Go one step."""
        if step.arrives:
            self._try([step.pod], side)
        elif step.pod in self.waiting:
            self.waiting.remove(step.pod)  # its user has given up
        else:
            side.finish(step.pod)
            retried, self.waiting = self.waiting, []
            self._try(retried, side)

    def _try(self, pods: list[StreamPod], side: Side) -> None:
        for pod in pods:
            placed = side.place(pod)
            if placed is None:
                self.waiting.append(pod)
            else:
                self.placed[pod.name] = placed


@dataclass(frozen=True, slots=True)
class Tour:
    """The whole demo as data. ``refusal`` is the extender's own account of the last pod, ``seconds`` the median of its decisions."""

    scene: Scene
    hardware: dict[str, NodeHardware]
    pods: tuple[StreamPod, ...]
    plain: Walk
    best_sets: Walk
    linkwise: Walk
    refusal: JsonObject
    decisions: int
    seconds: float

    def figures(self, walk: Walk, pod: StreamPod) -> Figures | None:
        """Return what the pod got on that side; None where it was never placed."""
        placed = walk.placed.get(pod.name)
        return None if placed is None else self.hardware[placed.node].figures(placed)

    def compared(self) -> list[StreamPod]:
        """Return the pods with links of their own that every side placed."""
        sides = (self.plain, self.best_sets, self.linkwise)
        return [pod for pod in self.pods if pod.largest > 1 and all(pod.name in side.placed for side in sides)]

    def mean_gb_per_s(self, walk: Walk, pods: Sequence[StreamPod]) -> float:
        """Return the mean of what those pods got on one side; each of them (at least one) was placed there."""
        return fmean(figures.gb_per_s for pod in pods if (figures := self.figures(walk, pod)) is not None)

    def kept(self, walk: Walk, pod: StreamPod) -> bool | None:
        """Return whether that side kept the pod's floor and ceiling; None where it asked for neither or was never placed."""
        floor, ceiling, placed = pod.wish(MIN_BANDWIDTH), pod.wish(MAX_DISTANCE), walk.placed.get(pod.name)
        if placed is None or (floor is None and ceiling is None):
            return None
        return self.hardware[placed.node].keeps(placed, float(floor or 0), Distance[ceiling or "SYS"])


def tour(pods: int, seed: int, progress: Callable[[int, int], None] = lambda _done, _all: None) -> Tour:
    """Run the demo; ``progress`` hears after every step how many are done, and of how many. Raises InputError for fewer than 2 pods."""
    if pods < FEWEST_PODS:
        raise InputError(f"--pods {pods}: too few; accepted: {FEWEST_PODS} or more")
    scene = make_scene()
    hardware = hardware_of(scene.topologies)
    steps = make_stream(seed, pods, scene.gpus, PICTURED_NODE)
    arriving = tuple(step.pod for step in steps if step.arrives)
    plain, best_sets, linkwise = Walk(), Walk(), Walk()
    counting, with_best_sets = PlainCounting(scene, seed), PlainCounting(scene, seed, best_set_picker(hardware))
    with _quiet(), serving(scene.snapshot(arriving)) as served, calling(served.url) as client:
        over_http = OverHttp(served, client, hardware, seed)
        for number, step in enumerate(steps):
            plain.take(step, counting)
            best_sets.take(step, with_best_sets)
            linkwise.take(step, over_http)
            progress(number + 1, len(steps))
        refusal = over_http.decision(arriving[-1])
    return Tour(scene, hardware, arriving, plain, best_sets, linkwise, refusal, len(over_http.seconds), median(over_http.seconds))


@contextmanager
def _quiet() -> Iterator[None]:
    """Let only warnings of the extender through, and to stderr: what the demo prints is its own."""
    before, was_configured = structlog.get_config(), structlog.is_configured()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING), logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        yield
    finally:
        if was_configured:
            structlog.configure(**before)
        else:
            structlog.reset_defaults()
