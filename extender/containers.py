"""The GPU containers of a raw pod, in the order in which kubelet starts them, and what each asks for: whole GPUs, GiB of GPU memory, or gpushare's units of it.

Called by `extender.demand`, which makes shares of it, and by `extender.cluster`, which needs to know when a container runs. Pods are written by users: whatever
is not as Kubernetes defines it raises DemandError with a sentence that names the field, its value and the accepted form.
"""

import re
import reprlib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, TypeGuard, TypeVar

from topology.api import annotations as keys
from topology.capacity import MOST_GIB
from topology.errors import DemandError

_Thing = TypeVar("_Thing", bound=Hashable)

MOST_GPUS_ASKED: Final = 1024  # far above any node; keeps absurd numbers out of the arithmetic
MOST_CONTAINERS: Final = 64  # with GPUs; four times the GPUs of the largest node, and what plans are made of one by one
MOST_UNITS_ASKED: Final = 2**20  # a TiB in MiB; in GiB, still an int32 as MiB


class ContainerKind(StrEnum):
    """When a container runs: all the pod's life, from its start on, or alone before the others."""

    APP = "app"
    SIDECAR = "sidecar"
    INIT = "init"


@dataclass(frozen=True, slots=True)
class GpuContainer:
    """A container that asks for ``whole`` GPUs, for ``gib`` GiB of GPU memory or for ``units`` of gpushare's; the others are 0."""

    name: str
    kind: ContainerKind
    whole: int = 0
    gib: int = 0
    units: int = 0


def gpu_containers(pod: Mapping[str, Any], resource: str) -> Iterator[GpuContainer]:
    """Yield the GPU containers, init containers and sidecars first; ``resource`` is the one that counts whole GPUs."""
    seen: set[str] = set()
    for field, position, container in _containers(pod):
        where = f"spec.{field}[{position}]"
        whole, gib, units = _asked(container, where, resource)
        if not whole and not gib and not units:
            continue
        name = container.get("name")
        if not isinstance(name, str) or not name or name in seen:
            raise DemandError(f"{where}.name of the pod is {short(name)}; accepted: a name that no other container has")
        seen.add(name)
        if len(seen) > MOST_CONTAINERS:
            raise DemandError(f"{where} is one more container with GPUs than is accepted: at most {MOST_CONTAINERS} of a pod")
        yield GpuContainer(name, _kind(field, container), whole, gib, units)


def effective(parts: Iterable[tuple[ContainerKind, Iterable[tuple[_Thing, int]]]]) -> dict[_Thing, int]:
    """Return the effective amount of each thing that containers use, by Kubernetes' rule; ``parts`` in the order in which they start, with what each uses.

    What runs together adds up; an init container runs beside the sidecars started before it, and counts as far as that is more.

    >>> effective([(ContainerKind.SIDECAR, [("GPU", 2)]), (ContainerKind.INIT, [("GPU", 9)]), (ContainerKind.APP, [("GPU", 5)])])
    {'GPU': 11}
    """
    together: dict[_Thing, int] = {}
    sidecars: dict[_Thing, int] = {}
    most: dict[_Thing, int] = {}
    for kind, amounts in parts:
        own: dict[_Thing, int] = {}
        for thing, amount in amounts:  # one container may name a thing twice: then it uses both
            own[thing] = own.get(thing, 0) + amount
        for thing, amount in own.items():
            if kind is ContainerKind.INIT:
                most[thing] = max(most.get(thing, 0), sidecars.get(thing, 0) + amount)
                continue
            together[thing] = together.get(thing, 0) + amount
            if kind is ContainerKind.SIDECAR:
                sidecars[thing] = sidecars.get(thing, 0) + amount
    return {thing: max(together.get(thing, 0), most.get(thing, 0)) for thing in {**together, **most}}


def container_kinds(pod: Mapping[str, Any]) -> dict[str, ContainerKind]:
    """Return when each container runs, by name, in the order in which kubelet starts them; what cannot be read is left out."""
    try:
        found = list(_containers(pod))
    except DemandError:
        return {}
    return {container["name"]: _kind(field, container) for field, _, container in found if isinstance(container.get("name"), str)}


def _containers(pod: Mapping[str, Any]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    spec = pod.get("spec") or {}
    if not is_object(spec):
        raise DemandError(f"spec of the pod is a {type(spec).__name__}; accepted: an object")
    for field in ("initContainers", "containers"):
        containers = spec.get(field) or []
        if not isinstance(containers, list):
            raise DemandError(f"spec.{field} of the pod is a {type(containers).__name__}; accepted: a list")
        for position, container in enumerate(containers):
            if not is_object(container):
                raise DemandError(f"spec.{field}[{position}] of the pod is a {type(container).__name__}; accepted: an object")
            yield field, position, container


def _kind(field: str, container: Mapping[str, Any]) -> ContainerKind:
    if field == "containers":
        return ContainerKind.APP
    return ContainerKind.SIDECAR if container.get("restartPolicy") == "Always" else ContainerKind.INIT


def _asked(container: Mapping[str, Any], where: str, resource: str) -> tuple[int, int, int]:
    """Return whole GPUs, GiB of GPU memory and gpushare's units that a container asks for."""
    resources = container.get("resources") or {}
    if not is_object(resources):
        raise DemandError(f"{where}.resources is a {type(resources).__name__}; accepted: an object")
    amounts: dict[str, Mapping[str, Any]] = {}
    for field in ("requests", "limits"):
        amounts[field] = resources.get(field) or {}
        if not is_object(amounts[field]):
            raise DemandError(f"{where}.resources.{field} is a {type(amounts[field]).__name__}; accepted: an object")
    spoken_of = amounts["requests"].keys() | amounts["limits"].keys()
    asked = {name: _amount(amounts, where, name, most) if name in spoken_of else None for name, most in _most_asked(resource).items()}
    for name in (keys.GPU_MEMORY, keys.GPUSHARE_MEMORY):
        if asked[name] == 0:
            raise DemandError(f"{where} asks for {name}=0; accepted: {_accepted(_most_asked(resource)[name])}, or nothing at all")
    several = [f"{name}={amount}" for name, amount in asked.items() if amount]
    if len(several) > 1:
        raise DemandError(f"{where} asks for {' and '.join(several)}; accepted: one of them, as a GPU is a container's own or shared")
    whole, gib, units = (asked[name] or 0 for name in _most_asked(resource))
    return whole, gib, units


@lru_cache(16)
def _most_asked(resource: str) -> Mapping[str, int]:
    return {resource: MOST_GPUS_ASKED, keys.GPU_MEMORY: MOST_GIB, keys.GPUSHARE_MEMORY: MOST_UNITS_ASKED}


def _accepted(most: int) -> str:
    return {
        MOST_GPUS_ASKED: f"a whole number from 0 to {most}",
        MOST_GIB: f"a whole number of GiB from 1 to {most}",
        MOST_UNITS_ASKED: f"a whole number of the node's units from 1 to {most}",
    }[most]


def _amount(amounts: Mapping[str, Mapping[str, Any]], where: str, resource: str, most: int) -> int | None:
    """Return what requests and limits say of a resource, None where they do not speak of it."""
    asked = {field: _count(found[resource], f"{where}.resources.{field}[{resource}]", most) for field, found in amounts.items() if resource in found}
    if len(set(asked.values())) > 1:
        raise DemandError(f"{where} requests {asked['requests']} {resource} but limits it to {asked['limits']}; accepted: the same number in both")
    return next(iter(asked.values()), None)


# Kubernetes quantities that can be whole numbers. Source: k8s.io/apimachinery resource.Quantity.
_QUANTITY: Final = re.compile(r"\+?([0-9]{1,12})(?:\.0*)?(k|M|Ki|Mi|m|[eE]\+?[0-9])?")
_MULTIPLES: Final = {"k": 1000, "M": 10**6, "Ki": 1024, "Mi": 1024**2}


def _count(value: object, where: str, most: int) -> int:
    match = _QUANTITY.fullmatch(str(value).strip()) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if match is None:
        raise DemandError(f"{where} is {short(value)}; accepted: {_accepted(most)}")
    number, suffix = int(match.group(1)), match.group(2) or ""
    if suffix == "m":
        number, rest = divmod(number, 1000)
        number = most + 1 if rest else number
    elif suffix:
        number *= _MULTIPLES.get(suffix) or 10 ** int(suffix.lstrip("eE+"))
    if number > most:
        raise DemandError(f"{where} is {short(value)}; accepted: {_accepted(most)}")
    return number


def is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Tell whether a value is a JSON object: a dict nearly always, for which asking about `Mapping` takes three times as long."""
    return type(value) is dict or isinstance(value, Mapping)


def short(value: object) -> str:
    """Return a value of a pod as sentences show it: cut where it is long."""
    text = value if isinstance(value, str) else reprlib.repr(value)  # repr runs out of stack where a body nests deep
    return text if len(text) <= 60 else text[:60] + "…"
