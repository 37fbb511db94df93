"""Pods that come and go on one machine: how many of those that need two or four GPUs still get the best that the machine has.

A sequence is a stream of pods of one, two or four GPUs; each stays for some arrivals and leaves; a pod that finds too few free GPUs is turned away. Whether it
does depends on counts alone, so that all policies serve the same pods at the same times and differ only in what they leave free. Linkwise weighs remainders as
shipped, without knowing the stream; no pod says that it is insensitive.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

from bench.reference import LinkTable, Policy, policy
from bench.topology_quality import golden, linkwise
from extender.sample_machines import SAMPLE_MACHINES
from topology.topology_class import TopologyClass

SIZES: Final = (1, 2, 4)
SHARES: Final = (0.4, 0.35, 0.25)  # more small pods than large ones, as clusters have; what matters is that all three mix
STAY: Final = (2, 12)  # arrivals that a pod outlasts: keeps the machine 80 to 90 percent full
ARRIVALS: Final = 40
LINKWISE: Final = "Linkwise"
REFERENCES: Final = ("lowest index", "go-gpuallocator", "greedy")
POLICIES: Final = (*REFERENCES, LINKWISE)
MACHINES: Final = ("DGX-1V", "8 x H100", "bridge pairs", "bridge pairs, crossed")


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod: its GPUs, and the arrival at which it has left."""

    gpus: int
    leaves: int


@dataclass(frozen=True, slots=True)
class Share:
    """Of the pods of one size that one policy served on one machine, how many got the best bandwidth of the empty machine."""

    machine: str
    policy: str
    k: int
    pods: int
    best: int
    mean_gb_per_s: float


def sequence(seed: int) -> list[Pod]:
    """Return the arrivals of a seed."""
    rng = random.Random(seed)
    return [Pod(rng.choices(SIZES, SHARES)[0], now + rng.randint(*STAY)) for now in range(ARRIVALS)]


def serve(size: int, pods: Sequence[Pod], choose: Policy) -> list[int]:
    """Return the sets of the pods that were served, in order of arrival."""
    free = (1 << size) - 1
    running: list[tuple[int, int]] = []  # (the arrival at which it has left, mask)
    served: list[int] = []
    for now, pod in enumerate(pods):
        free |= sum(mask for leaves, mask in running if leaves <= now)
        running = [(leaves, mask) for leaves, mask in running if leaves > now]
        if free.bit_count() >= pod.gpus:
            chosen = choose(free, pod.gpus, True)
            assert chosen is not None
            assert chosen & ~free == 0
            free &= ~chosen
            running.append((pod.leaves, chosen))
            served.append(chosen)
    return served


def shares(data: Path, machine: str, seeds: range) -> list[Share]:
    """Return all figures of one machine of `MACHINES`."""
    table, kind = _machine(data, machine)
    choices = {name: policy(name, table) for name in REFERENCES} | {LINKWISE: linkwise.policy(kind)}
    everything = (1 << table.size) - 1
    found = []
    for name, choose in choices.items():
        known = _remembered(choose)
        served = Counter(mask for seed in seeds for mask in serve(table.size, sequence(seed), known))
        for k in SIZES[1:]:
            got = [(float(kind.bandwidth[mask]), count) for mask, count in served.items() if mask.bit_count() == k]
            pods, top = sum(count for _, count in got), float(kind.best_bandwidths(k)[everything])
            best = sum(count for rate, count in got if rate >= top - 1e-6)
            found.append(Share(machine, name, k, pods, best, sum(rate * count for rate, count in got) / max(1, pods)))
    return found


def _remembered(choose: Policy) -> Policy:
    """Return the same policy with its answers kept: they depend on the free mask and the size alone."""
    answers: dict[tuple[int, int], int | None] = {}

    def remembered(free: int, k: int, sensitive: bool) -> int | None:
        if (free, k) not in answers:
            answers[free, k] = choose(free, k, sensitive)
        return answers[free, k]

    return remembered


def _machine(data: Path, name: str) -> tuple[LinkTable, TopologyClass]:
    """Return a machine for the reference policies and for Linkwise. Where the data folder tells the PCIe levels under NVLinks, the allocator sees them."""
    recorded = {"DGX-1V": "dgx1-v100", "bridge pairs": "a100pcie8-nv4-pairs"}
    if name in recorded:
        machine = next(found for found in golden.machines(data) if found.name == recorded[name])
        codes, pcie, model = machine.codes, machine.pcie, machine.product.model
    else:
        shape = SAMPLE_MACHINES[{"8 x H100": "nvswitch", "bridge pairs, crossed": "bridges"}[name]]
        codes, pcie, model = tuple(tuple(row.split()) for row in shape.gpu_rows), None, shape.model
    kind = linkwise.topology_class_of(codes, model)
    rates = {codes[a][b]: float(kind.bandwidth[1 << a | 1 << b]) for a, b in combinations(range(len(codes)), 2)}
    return LinkTable(codes, rates, socket=len(codes) // 2, pcie=pcie), kind
