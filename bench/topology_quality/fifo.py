"""One machine, one queue: jobs start in order, and the first one that finds no place holds up all behind it.

MAPA's replay. Service times are given, so a policy changes who gets which GPUs and never how long a job runs; time moves from one end of a job to the next.
"""

from dataclasses import dataclass

from bench.reference import Policy


@dataclass(frozen=True, slots=True)
class Job:
    """One job: how many GPUs, for how many cycles, what it trains, and whether bandwidth matters to it."""

    gpus: int
    service: int
    network: str
    sensitive: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """Where every job went, in order, and the cycle in which the last one ended."""

    placed: tuple[tuple[Job, int], ...]
    makespan: int


def replay(size: int, jobs: list[Job], choose: Policy) -> Replay:
    """Return how a queue of jobs, all waiting at cycle 0, is placed on a machine of ``size`` GPUs."""
    free, now = (1 << size) - 1, 0
    running: list[tuple[int, int]] = []  # (cycle of its end, mask)
    placed: list[tuple[Job, int]] = []
    makespan = 0
    for job in jobs:
        chosen = choose(free, job.gpus, job.sensitive)
        while chosen is None:
            now = min(end for end, _ in running)
            free |= sum(mask for end, mask in running if end <= now)
            running = [(end, mask) for end, mask in running if end > now]
            chosen = choose(free, job.gpus, job.sensitive)
        assert chosen.bit_count() == job.gpus, f"{job} was given {chosen:#b}"
        assert chosen & ~free == 0, f"{job} was given {chosen:#b} of {free:#b}"
        free &= ~chosen
        running.append((now + job.service, chosen))
        placed.append((job, chosen))
        makespan = max(makespan, now + job.service)
    return Replay(tuple(placed), makespan)
