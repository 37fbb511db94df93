"""What a pod wants: its GPU containers and its `linkwise.dev/` annotations, read once and checked.

Called by `verbs` with a raw pod; everything after it works on `Demand`. Containers, init containers and sidecars follow Kubernetes' own rule for
effective requests. Nothing is ignored silently: an annotation that does not parse, is unknown, contradicts the pod or is not built yet raises
DemandError with a sentence that names annotation, value and accepted form. A new annotation: key in `topology.api.annotations`, one parser here in
`_PARSERS`, one field in `Shape`, its use in `placement`.
"""

import difflib
import math
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from typing import Any, Final

from extender.reasons import Asked
from extender.requests import NOTHING, Requests, read_requests
from extender.settings import Policy
from topology.api import annotations as keys
from topology.errors import DemandError
from topology.links import Distance

MOST_GPUS_ASKED: Final = 1024  # far above any node; keeps absurd numbers out of the arithmetic


class ContainerKind(StrEnum):
    """When a container runs: all the pod's life, from its start on, or alone before the others."""

    APP = "app"
    SIDECAR = "sidecar"
    INIT = "init"


@dataclass(frozen=True, slots=True)
class Part:
    """The share of one GPU container: ``gpus`` whole GPUs of its own."""

    kind: ContainerKind
    gpus: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything about a demand that decides where it fits; equal shapes share cached results.

    ``floor`` in GB/s; ``ceiling`` the farthest link allowed within a container's set; ``model`` globs with commas between them, of which any will do, or None for all models; ``one_numa``: each container's GPUs on
    one NUMA node; ``nic_ceiling`` how far the nearest NIC of each GPU may be, None where it does not matter; ``as_allocator``: of the sets that meet all this the
    one that NVIDIA's device plugin would take.
    """

    parts: tuple[Part, ...]
    careful: bool = True  # bandwidth counts: `topology: best`
    floor: float = 0.0
    ceiling: Distance = Distance.SYS
    model: str | None = None
    one_numa: bool = False
    nic_ceiling: Distance | None = None
    as_allocator: bool = False

    @property
    def gpus(self) -> int:
        """Number of distinct GPUs by Kubernetes' rule for effective requests: the larger of what runs together and of each init step."""
        together = sum(part.gpus for part in self.parts if part.kind is not ContainerKind.INIT)
        sidecars, most = 0, 0
        for part in self.parts:
            if part.kind is ContainerKind.SIDECAR:
                sidecars += part.gpus
            elif part.kind is ContainerKind.INIT:
                most = max(most, sidecars + part.gpus)
        return max(together, most)

    @property
    def largest(self) -> int:
        """GPUs of the largest container: its set's bandwidth is the pod's."""
        return max((part.gpus for part in self.parts), default=0)


@dataclass(frozen=True, slots=True)
class Demand:
    """A shape with the names of its containers (parallel to ``shape.parts``), the policy for the choice of node, and what the pod requests beside GPUs.

    ``requests`` decide about scores, never about what fits; they are not read for a pod that is none of our business.
    """

    shape: Shape
    containers: tuple[str, ...] = ()
    policy: Policy = Policy.PACK
    requests: Requests = NOTHING

    @property
    def wants_gpus(self) -> bool:
        """False for a pod that is none of our business."""
        return bool(self.shape.parts)

    @property
    def asked(self) -> Asked:
        """What sentences tell of the demand."""
        shape = self.shape
        return Asked(
            shape.gpus,
            shape.largest,
            len(shape.parts),
            shape.floor,
            shape.ceiling,
            shape.model,
            one_numa=shape.one_numa,
            nic_ceiling=shape.nic_ceiling,
        )


def read_demand(pod: Mapping[str, Any], whole_gpu_resource: str = keys.WHOLE_GPU, policy: Policy = Policy.PACK) -> Demand:
    """Read a raw pod, whose policy is ``policy`` where it asks for none; raises DemandError with a sentence for people.

    >>> pod = {"spec": {"containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}
    >>> read_demand(pod).shape.gpus
    2
    """
    wishes = _read_annotations(pod)
    named = list(_gpu_containers(pod, whole_gpu_resource))
    parts = tuple(part for _, part in named)
    if not parts:
        if wishes:
            raise DemandError(f"{_shown(pod, next(iter(wishes)))}, but no container of the pod asks for {whole_gpu_resource}")
        return Demand(Shape(()))
    for key in (keys.MIN_BANDWIDTH, keys.MAX_DISTANCE):
        if key in wishes and max(part.gpus for part in parts) < 2:
            raise DemandError(
                f"{_shown(pod, key)}, but no container of the pod asks for 2 or more {whole_gpu_resource}, so there is no link to hold to it"
            )
    policy = wishes.get(keys.POLICY, policy)
    shape = Shape(
        parts=parts,
        careful=wishes.get(keys.TOPOLOGY, "best") == "best" and max(part.gpus for part in parts) > 1,
        floor=wishes.get(keys.MIN_BANDWIDTH, 0.0),
        ceiling=wishes.get(keys.MAX_DISTANCE, Distance.SYS),
        model=wishes.get(keys.GPU_MODEL),
        one_numa=keys.NUMA in wishes,
        nic_ceiling=wishes.get(keys.NIC_DISTANCE),
        as_allocator=policy is Policy.GPUALLOCATOR,
    )
    return Demand(shape, tuple(name for name, _ in named), policy, read_requests(pod))


# --- annotations ----------------------------------------------------------------------------------------------------


def _parse_topology(text: str) -> str | None:
    return text if text in ("best", "none") else None


def _parse_bandwidth(text: str) -> float | None:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text):
        return None
    value = float(text)
    return value if math.isfinite(value) and value > 0 else None


def _parse_distance(text: str) -> Distance | None:
    return Distance.__members__.get(text)


def _parse_nic_distance(text: str) -> Distance | None:
    found = _parse_distance(text)
    return None if found is Distance.NVLINK else found  # no NIC is reached over NVLinks


def _parse_numa(text: str) -> str | None:
    return text if text == "single" else None


def _parse_globs(text: str) -> str | None:
    globs = [glob.strip() for glob in text.split(",")]
    if not all(globs) or len(text) > 128:
        return None
    for glob in globs:
        re.compile(translate(glob))
    return ",".join(globs)


def _parse_policy(text: str) -> Policy | None:
    return Policy(text) if text in set(Policy) else None


# key -> (parser giving None for what it does not accept, the accepted form for people)
_PARSERS: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    keys.TOPOLOGY: (_parse_topology, "best or none"),
    keys.MIN_BANDWIDTH: (_parse_bandwidth, "GB/s as a positive decimal number, for example 100"),
    keys.MAX_DISTANCE: (_parse_distance, "NVLINK, PIX, PXB, PHB, NODE or SYS"),
    keys.NIC_DISTANCE: (_parse_nic_distance, "PIX, PXB, PHB, NODE or SYS"),
    keys.NUMA: (_parse_numa, "single"),
    keys.GPU_MODEL: (_parse_globs, "globs over the product name with commas between them, for example *H100*"),
    keys.POLICY: (_parse_policy, "pack, spread or gpuallocator"),
}


def _read_annotations(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parsed value of every annotation of ours that the pod carries."""
    wishes: dict[str, Any] = {}
    for key, value in _annotations(pod).items():
        if (
            not isinstance(key, str) or not key.startswith(keys.PREFIX) or key == keys.ALLOCATION
        ):  # a pod may carry one from a template; `verbs` tells its owner
            continue
        if key in keys.PLANNED:
            raise DemandError(f"annotation {key}={_short(value)} is not yet supported by this version; accepted: {_list(_PARSERS)}")
        if key not in _PARSERS:
            near = difflib.get_close_matches(key, (*_PARSERS, *keys.PLANNED), n=1, cutoff=0.0)[0]
            raise DemandError(f"annotation {key}={_short(value)} is unknown; did you mean {near}? Accepted: {_list(_PARSERS)}")
        parser, accepted = _PARSERS[key]
        parsed = parser(value.strip()) if isinstance(value, str) else None
        if parsed is None:
            raise DemandError(f"annotation {key}={_short(value)} cannot be read; accepted: {accepted}")
        wishes[key] = parsed
    return wishes


def _annotations(pod: Mapping[str, Any]) -> Mapping[Any, Any]:
    metadata = pod.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise DemandError(f"metadata of the pod is a {type(metadata).__name__}; accepted: an object")
    found = metadata.get("annotations")
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise DemandError(f"metadata.annotations of the pod is a {type(found).__name__}; accepted: an object")
    return found


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(names)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else reprlib.repr(value)  # repr runs out of stack where a body nests deep
    return text if len(text) <= 60 else text[:60] + "…"


def _shown(pod: Mapping[str, Any], key: str) -> str:
    return f"annotation {key}={_short(_annotations(pod).get(key))} is set"


# --- containers -----------------------------------------------------------------------------------------------------


def _gpu_containers(pod: Mapping[str, Any], resource: str) -> Iterator[tuple[str, Part]]:
    """Yield the GPU containers in the order in which kubelet starts them: init containers and sidecars first."""
    spec = pod.get("spec") or {}
    if not isinstance(spec, Mapping):
        raise DemandError(f"spec of the pod is a {type(spec).__name__}; accepted: an object")
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        containers = spec.get(field) or []
        if not isinstance(containers, list):
            raise DemandError(f"spec.{field} of the pod is a {type(containers).__name__}; accepted: a list")
        for position, container in enumerate(containers):
            if not isinstance(container, Mapping):
                raise DemandError(f"spec.{field}[{position}] of the pod is a {type(container).__name__}; accepted: an object")
            gpus = _gpus_of(container, f"spec.{field}[{position}]", resource)
            if not gpus:
                continue
            name = container.get("name")
            if not isinstance(name, str) or not name or name in seen:
                raise DemandError(f"spec.{field}[{position}].name of the pod is {_short(name)}; accepted: a name that no other container has")
            seen.add(name)
            yield name, Part(_kind(field, container), gpus)


def _kind(field: str, container: Mapping[str, Any]) -> ContainerKind:
    if field == "containers":
        return ContainerKind.APP
    return ContainerKind.SIDECAR if container.get("restartPolicy") == "Always" else ContainerKind.INIT


def _gpus_of(container: Mapping[str, Any], where: str, resource: str) -> int:
    resources = container.get("resources") or {}
    if not isinstance(resources, Mapping):
        raise DemandError(f"{where}.resources is a {type(resources).__name__}; accepted: an object")
    asked: dict[str, int] = {}
    for field in ("requests", "limits"):
        amounts = resources.get(field) or {}
        if not isinstance(amounts, Mapping):
            raise DemandError(f"{where}.resources.{field} is a {type(amounts).__name__}; accepted: an object")
        for planned in (keys.GPU_MEMORY, keys.GPUSHARE_MEMORY):
            if planned in amounts:
                raise DemandError(
                    f"{where} asks for {planned}={_short(amounts[planned])}, which is not yet supported by this version; accepted: {resource}"
                )
        if resource in amounts:
            asked[field] = _count(amounts[resource], f"{where}.resources.{field}[{resource}]")
    if len(set(asked.values())) > 1:
        raise DemandError(f"{where} requests {asked['requests']} {resource} but limits it to {asked['limits']}; accepted: the same number in both")
    return next(iter(asked.values()), 0)


# Kubernetes quantities that can be whole numbers of GPUs. Source: k8s.io/apimachinery resource.Quantity.
_QUANTITY: Final = re.compile(r"\+?([0-9]{1,12})(?:\.0*)?(k|M|Ki|Mi|m|[eE]\+?[0-9])?")
_MULTIPLES: Final = {"k": 1000, "M": 10**6, "Ki": 1024, "Mi": 1024**2}


def _count(value: object, where: str) -> int:
    accepted = f"a whole number from 0 to {MOST_GPUS_ASKED}"
    match = _QUANTITY.fullmatch(str(value).strip()) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if match is None:
        raise DemandError(f"{where} is {_short(value)}; accepted: {accepted}")
    number, suffix = int(match.group(1)), match.group(2) or ""
    if suffix == "m":
        number, rest = divmod(number, 1000)
        number = MOST_GPUS_ASKED + 1 if rest else number
    elif suffix:
        number *= _MULTIPLES.get(suffix) or 10 ** int(suffix.lstrip("eE+"))
    if number > MOST_GPUS_ASKED:
        raise DemandError(f"{where} is {_short(value)}; accepted: {accepted}")
    return number
