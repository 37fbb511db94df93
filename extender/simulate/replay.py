"""Pods arrive, wait in a queue where nothing has room for them, run, and leave: one workload on one side.

Called by `command` once a policy; `figures` makes numbers of the `Run` that comes out. The queue is first in, first out, and its head keeps the others waiting, unless the
rules say otherwise. A pod that would fit nowhere even on the cluster as the snapshot has it is refused when it comes, so that it keeps nobody waiting.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from extender.placement import overall
from extender.simulate.jobs import Job
from extender.simulate.sides import Placed, Side

DROPPED: Final = "no room when it came"
_SAMPLES: Final = 200  # of fragmentation, over the whole run: it costs as much as a decision


@dataclass(frozen=True, slots=True)
class Rules:
    """``drop``: what finds no room is dropped instead of waiting; ``backfill``: others may pass the head of the queue; ``stay``: nobody ever leaves."""

    drop: bool = False
    backfill: bool = False
    stay: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """When a pod began to run, where, and when it left (None: it stayed)."""

    job: Job
    at_s: float
    placed: Placed
    until_s: float | None


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster after something happened: GPUs in use by the workload, pods waiting, and fragmentation where it was measured."""

    at_s: float
    arrived: int
    gpus: float
    waiting: int
    fragmentation: float | None


@dataclass(slots=True)
class Run:
    """What became of every pod; ``refused`` are sentences by UID, ``waiting`` those that were never placed."""

    policy: str
    capacity: int  # GPUs that are open to pods at the start, free or not
    jobs: Sequence[Job]
    starts: list[Start] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    waiting: list[Job] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)

    @property
    def timed(self) -> bool:
        """Whether time plays a part: some pods leave, so that waiting may help."""
        return any(start.until_s is not None for start in self.starts)


def replay(policy: str, jobs: Sequence[Job], side: Side, rules: Rules, hear: Callable[[int], None] = lambda _: None) -> Run:
    """Return what a side makes of the jobs, which stand in the order of arrival; ``hear`` is told how many have arrived."""
    run = Run(policy, side.gpus, jobs)
    world = _World(side, rules, run)
    for number, job in enumerate(jobs, start=1):
        world.leave_until(job.arrives_s)
        world.arrive(job)
        world.note(job.arrives_s, number)
        hear(number)
    world.leave_until(None)
    return run


class _World:
    """One replay at work."""

    def __init__(self, side: Side, rules: Rules, run: Run) -> None:
        self._side = side
        self._rules = rules
        self._run = run
        self._gpus = 0.0
        self._arrived = 0
        self._leaving: list[tuple[float, int, Start]] = []
        self._every = max(1, len(run.jobs) // _SAMPLES)

    def arrive(self, job: Job) -> None:
        """Place a pod, or let it wait."""
        why = self._side.never(job)
        if why:
            self._run.refused[job.uid] = why
            return
        self._run.waiting.append(job)
        self._admit(job.arrives_s)
        if self._rules.drop and self._run.waiting:
            self._run.refused[self._run.waiting.pop().uid] = DROPPED

    def leave_until(self, at_s: float | None) -> None:
        """Let go everybody whose time is over by then, and let in who waits for their GPUs; None: until nobody leaves any more."""
        while self._leaving and (at_s is None or self._leaving[0][0] <= at_s):
            now = self._leaving[0][0]
            while self._leaving and self._leaving[0][0] == now:
                start = heappop(self._leaving)[2]
                self._side.finish(start.job)
                self._gpus -= start.placed.gpus
            self._admit(now)
            self.note(now, self._arrived)

    def note(self, at_s: float, arrived: int) -> None:
        """Record the moment."""
        measured = overall(self._side.cluster.view(), self._side.placement) if arrived % self._every == 0 and arrived != self._arrived else None
        self._arrived = arrived
        self._run.moments.append(Moment(at_s, arrived, self._gpus, len(self._run.waiting), measured))

    def _admit(self, now_s: float) -> None:
        """Place who waits, the first first; whoever finds no room stops those behind it, unless others may pass."""
        self._side.now_s = now_s
        still: list[Job] = []
        for position, job in enumerate(self._run.waiting):
            placed = self._side.place(job)
            if placed is not None:
                self._start(job, placed, now_s)
            elif self._rules.backfill:
                still.append(job)
            else:
                still = self._run.waiting[position:]
                break
        self._run.waiting = still

    def _start(self, job: Job, placed: Placed, now_s: float) -> None:
        until = None if job.runs_s is None or self._rules.stay else now_s + job.runs_s
        start = Start(job, now_s, placed, until)
        self._run.starts.append(start)
        self._gpus += placed.gpus
        if until is not None:
            heappush(self._leaving, (until, len(self._run.starts), start))
