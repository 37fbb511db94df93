"""What a pod's allocation gives one container: its plan, that it has none, or that it cannot be kept.

Used by `hand_off` and `steering`. Pure. A pod without a usable allocation came around the extender, and policy decides; a pod whose allocation is for this node
and this container gets exactly that or does not start: no other GPU ever stands in for a planned one.
"""

import re
from dataclasses import dataclass
from typing import Final

from topology.agent.handoff.holding import Part
from topology.agent.handoff.pod import Pod
from topology.api import Allocation
from topology.api.annotations import GPU_MEMORY
from topology.capacity import MIB_PER_GIB, WHOLE, share_mib
from topology.errors import AllocationError

_COUNT: Final = re.compile(r"[1-9][0-9]?")


@dataclass(frozen=True, slots=True)
class Planned:
    """The GPUs of one container, in the order of the allocation."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Around:
    """The pod came around the extender; ``why`` says what is missing of an allocation."""

    why: str


@dataclass(frozen=True, slots=True)
class Unkept:
    """There is a plan, and it does not fit what the container asks for."""

    why: str


def allocation_of(pod: Pod, node_name: str) -> Allocation | Around:
    """Return the pod's allocation on this node."""
    if pod.allocation is None:
        return Around(f"{pod.told} has no linkwise.dev/allocation")
    try:
        allocation = Allocation.decode(pod.allocation)
    except AllocationError as error:
        return Around(f"{pod.told}: {error}")
    if allocation.node != node_name:
        return Around(f"linkwise.dev/allocation of {pod.told} is for node {allocation.node}, and this is {node_name}")
    return allocation


def plan_of(pod: Pod, container: str, node_name: str) -> Planned | Around:
    """Return what one container was promised, no GPU where the allocation does not name it."""
    allocation = allocation_of(pod, node_name)
    if isinstance(allocation, Around):
        return allocation
    return Planned(tuple(Part(gpu.uuid, gpu.share_mib) for gpu in allocation.containers.get(container, ())))


def checked(plan: Planned, pod: Pod, container: str, resource: str, asked: int) -> Planned | Unkept:
    """Return the plan if it is what the container asks for: ``asked`` ids of a resource, whole GPUs or GiB."""
    who = f"linkwise.dev/allocation of {pod.told} gives container {container}"
    parts = plan.parts
    if not parts:
        return Unkept(f"{who} no GPU, and it asks for {asked} {resource}")
    if len({part.uuid for part in parts}) < len(parts):
        return Unkept(f"{who} one GPU twice")
    if resource == GPU_MEMORY:
        share = share_mib(asked, len(parts))
        fits = all(part.mib == share for part in parts)
        told = f"{', '.join(f'{part.mib} MiB' if part.mib else 'a whole GPU' for part in parts)}, and {asked} GiB are {share} MiB on each of {len(parts)}"
        return plan if fits else Unkept(f"{who} {told}")
    if any(part.mib != WHOLE for part in parts) or len(parts) != asked:
        shared = " that are shared" if any(part.mib != WHOLE for part in parts) else ""
        return Unkept(f"{who} {len(parts)} GPUs{shared}, and it asks for {asked} {resource}")
    return plan


def memory_share_mib(pod: Pod, gib: int) -> tuple[int, int]:
    """Return over how many GPUs a container of a pod from around the extender is spread, and MiB on each; a count that cannot be is 1."""
    text = pod.gpu_count
    count = min(int(text), gib) if isinstance(text, str) and _COUNT.fullmatch(text) else 1
    return count, share_mib(gib, count)


def gib_of(mib: int) -> int:
    """Return whole GiB that hold so many MiB."""
    return -(-mib // MIB_PER_GIB)
