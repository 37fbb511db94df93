"""What a pod wants: its GPU containers (`extender.containers`) and its `linkwise.dev/` annotations, read once and checked.

Called by `verbs` with a raw pod; everything after it works on `Demand`. Containers, init containers and sidecars follow Kubernetes' own rule for
effective requests. Nothing is ignored silently: an annotation that does not parse, is unknown or contradicts the pod raises DemandError with a sentence that
names annotation, value and accepted form. A new annotation: key in `topology.api.annotations`, one parser here in `_PARSERS`, one field in `Shape`, its use
in `placement`.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import Any, Final

import orjson
from cachetools import LRUCache

from extender.containers import ContainerKind, GpuContainer, effective, gpu_containers, is_object, short
from extender.reasons import Asked
from extender.requests import NOTHING, Requests, read_requests
from extender.settings import Policy
from topology.api import annotations as keys
from topology.capacity import MIB_PER_GIB, MOST_GPUS, WHOLE, share_mib
from topology.errors import DemandError
from topology.links import Distance


@dataclass(frozen=True, slots=True)
class Part:
    """What one GPU container takes: ``gpus`` distinct GPUs, whole ones of its own or ``mib`` MiB of each."""

    kind: ContainerKind
    gpus: int
    mib: int = WHOLE

    @property
    def is_share(self) -> bool:
        """True where the container takes a part of each GPU."""
        return self.mib != WHOLE


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything about a demand that decides where it fits; equal shapes share cached results.

    ``floor`` in GB/s; ``ceiling`` the farthest link allowed within a container's set; ``model`` globs with commas between them, of which any will do, or None for all models; ``one_numa``: each container's GPUs on
    one NUMA node; ``nic_ceiling`` how far the nearest NIC of each GPU may be, None where it does not matter; ``as_allocator``: of the sets that meet all this the
    one that NVIDIA's device plugin would take; ``plugin_gpus`` how many GPUs a node may have at most where gpushare's device plugin is to hand out the
    pod's (with several containers it guesses right on nodes with one), 0 for pods that are not its business.
    """

    parts: tuple[Part, ...]
    careful: bool = True  # bandwidth counts: `topology: best`
    floor: float = 0.0
    ceiling: Distance = Distance.SYS
    model: str | None = None
    one_numa: bool = False
    nic_ceiling: Distance | None = None
    as_allocator: bool = False
    plugin_gpus: int = 0
    gpus: int = field(init=False, compare=False, repr=False)  # whole ones by Kubernetes' rule: the larger of what runs together and of each init step
    largest: int = field(init=False, compare=False, repr=False)  # GPUs of the largest container: its set's bandwidth is the pod's
    is_shared: bool = field(init=False, compare=False, repr=False)  # some container takes a part of a GPU
    _hash: int = field(init=False, compare=False, repr=False)  # shapes are the keys of everything that is remembered

    def __post_init__(self) -> None:
        """Work out what every decision asks for again and again."""
        told = (self.parts, self.careful, self.floor, self.ceiling, self.model, self.one_numa, self.nic_ceiling, self.as_allocator, self.plugin_gpus)
        for name, value in (
            ("gpus", _effective((part.kind, 0 if part.is_share else part.gpus) for part in self.parts)),
            ("largest", max((part.gpus for part in self.parts), default=0)),
            ("is_shared", any(part.is_share for part in self.parts)),
            ("_hash", hash(told)),
        ):
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return self._hash

    @property
    def memory_mib(self) -> int:
        """MiB in shares by the same rule, of all GPUs together."""
        return _effective((part.kind, part.gpus * part.mib) for part in self.parts)

    @property
    def leading(self) -> Part:
        """The container whose set refusals for links tell of: a largest one, whole GPUs before shares, large shares before small ones."""
        return max(self.parts, key=lambda part: (part.gpus, not part.is_share, part.mib))


def _effective(amounts: Iterable[tuple[ContainerKind, int]]) -> int:
    return effective((kind, [("", amount)]) for kind, amount in amounts).get("", 0)


@dataclass(frozen=True, slots=True)
class Demand:
    """A shape with the names of its containers (parallel to ``shape.parts``), the policy for the choice of node, and what the pod requests beside GPUs.

    ``requests`` decide about scores, never about what fits; they are not read for a pod that is none of our business. ``cores_percent``: of the compute of each GPU
    that is shared; written into the allocation, and neither counted against a limit nor enforced.
    """

    shape: Shape
    containers: tuple[str, ...] = ()
    policy: Policy = Policy.PACK
    requests: Requests = NOTHING
    cores_percent: int | None = None
    mib_of_unit: int = 0  # of `aliyun.com/gpu-mem`, as the cluster counted when this was read; 0 where the pod does not ask for it

    @property
    def wants_gpus(self) -> bool:
        """False for a pod that is none of our business."""
        return bool(self.shape.parts)

    @property
    def kinds(self) -> dict[str, ContainerKind]:
        """When each GPU container runs, by name, in the order in which kubelet starts them."""
        return {name: part.kind for name, part in zip(self.containers, self.shape.parts, strict=True)}

    def shares(self, masks: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return (bit, MiB) of every GPU that the containers would get parts of, with ``masks`` parallel to the parts."""
        taken = effective(
            (part.kind, [(bit, part.mib) for bit in _bits(mask)]) for part, mask in zip(self.shape.parts, masks, strict=True) if part.is_share
        )
        return tuple(sorted(taken.items()))

    @property
    def units(self) -> int:
        """What gpushare's device plugin is to give, in its units; 0 for a pod that asks nothing of it."""
        return self.shape.memory_mib // self.mib_of_unit if self.mib_of_unit else 0

    @property
    def asked(self) -> Asked:
        """What sentences tell of the demand."""
        shape = self.shape
        shares = [(part.mib, part.gpus) for part in shape.parts if part.is_share]
        return Asked(
            shape.gpus,
            shape.largest,
            len(shape.parts),
            shape.floor,
            shape.ceiling,
            shape.model,
            one_numa=shape.one_numa,
            nic_ceiling=shape.nic_ceiling,
            share=max(shares, default=None),
        )


def _bits(mask: int) -> Iterator[int]:
    return (bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def read_demand(
    pod: Mapping[str, Any], whole_gpu_resource: str = keys.WHOLE_GPU, policy: Policy = Policy.PACK, mib_of_unit: int = MIB_PER_GIB
) -> Demand:
    """Read a raw pod, whose policy is ``policy`` where it asks for none; raises DemandError with a sentence for people.

    ``mib_of_unit``: MiB of one `aliyun.com/gpu-mem` in this cluster.

    >>> pod = {"spec": {"containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}
    >>> read_demand(pod).shape.gpus
    2
    """
    written = _what_is_read(pod, whole_gpu_resource, policy, mib_of_unit)
    known = None if written is None else _known.get(written)
    if known is None:
        known = _read(pod, whole_gpu_resource, policy, mib_of_unit)
        if written is not None:
            _known[written] = known
    return known


_known: LRUCache[bytes, Demand] = LRUCache(4096)  # by all that was read: most pods are made from a few templates


def _what_is_read(pod: Mapping[str, Any], *settings: object) -> bytes | None:
    """Return everything in a pod that its demand follows from, as bytes; None for one that is not even shaped like a pod, whose reader says what is wrong."""
    try:
        spec, wishes = pod["spec"], pod["metadata"].get("annotations") or {}
        containers = [
            [each.get(key) for key in ("name", "resources", "restartPolicy")] for each in (*(spec.get("initContainers") or ()), *spec["containers"])
        ]
        own = [[key, value] for key, value in wishes.items() if key.startswith(keys.PREFIX)]
        return orjson.dumps([own, len(spec["containers"]), containers, spec.get("overhead"), "resources" in spec, spec.get("resources"), *settings])
    except (KeyError, TypeError, AttributeError, orjson.JSONEncodeError):
        return None


def _read(pod: Mapping[str, Any], whole_gpu_resource: str, policy: Policy, mib_of_unit: int) -> Demand:
    wishes = _read_annotations(pod)
    containers = list(gpu_containers(pod, whole_gpu_resource))
    if not containers:
        if wishes:
            raise DemandError(f"{_shown(pod, next(iter(wishes)))}, but no container of the pod asks for {whole_gpu_resource} or {keys.GPU_MEMORY}")
        return Demand(Shape(()))
    plugin_gpus = _plugin_gpus(containers, whole_gpu_resource)
    if not any(container.gib for container in containers):
        for key in (keys.GPU_COUNT, keys.GPU_CORES):
            if key in wishes:
                raise DemandError(f"{_shown(pod, key)}, but no container of the pod asks for {keys.GPU_MEMORY}, and it speaks of nothing else")
    if plugin_gpus:
        parts = tuple(Part(container.kind, 1, container.units * mib_of_unit) for container in containers)
    else:
        parts = tuple(_part(pod, container, wishes.get(keys.GPU_COUNT, 1)) for container in containers)
    largest = max([part.gpus for part in parts])
    for key in (keys.MIN_BANDWIDTH, keys.MAX_DISTANCE):
        if key in wishes and largest < 2:
            raise DemandError(f"{_shown(pod, key)}, but no container of the pod gets 2 or more GPUs, so there is no link to hold to it")
    policy = wishes.get(keys.POLICY, policy)
    shape = _shared_shape(
        parts=parts,
        careful=wishes.get(keys.TOPOLOGY, "best") == "best" and largest > 1,
        floor=wishes.get(keys.MIN_BANDWIDTH, 0.0),
        ceiling=wishes.get(keys.MAX_DISTANCE, Distance.SYS),
        model=wishes.get(keys.GPU_MODEL),
        one_numa=keys.NUMA in wishes,
        nic_ceiling=wishes.get(keys.NIC_DISTANCE),
        as_allocator=policy is Policy.GPUALLOCATOR,
        plugin_gpus=plugin_gpus,
    )
    names = tuple(container.name for container in containers)
    return Demand(shape, names, policy, read_requests(pod), wishes.get(keys.GPU_CORES), mib_of_unit if plugin_gpus else 0)


@lru_cache(4096)
def _shared_shape(**told: Any) -> Shape:
    """Return one object for equal shapes: pods come from few templates, and what is remembered of a shape is found at once."""
    return Shape(**told)


def _plugin_gpus(containers: Sequence[GpuContainer], resource: str) -> int:
    """Return `Shape.plugin_gpus`: gpushare's plugin finds a pod by the sum over its app containers, and is asked for each container by itself."""
    own = next((container for container in containers if container.units), None)
    if own is None:
        return 0
    other = next((container for container in containers if not container.units), None)
    if other is not None:
        raise DemandError(
            f"container {own.name} asks for {keys.GPUSHARE_MEMORY}, container {other.name} for {resource if other.whole else keys.GPU_MEMORY}; "
            f"accepted: one of them in a pod, for the device plugins that hand them out do not know of each other"
        )
    return MOST_GPUS if len(containers) == 1 and own.kind is ContainerKind.APP else 1


def _part(pod: Mapping[str, Any], container: GpuContainer, gpus: int) -> Part:
    """Return what a container takes; ``gpus`` is over how many its memory is spread."""
    if not container.gib:
        return Part(container.kind, container.whole)
    if gpus > container.gib:
        raise DemandError(
            f"{_shown(pod, keys.GPU_COUNT)}, but container {container.name} asks for {container.gib} GiB of {keys.GPU_MEMORY}; "
            f"accepted: at most as many GPUs as GiB"
        )
    return Part(container.kind, gpus, share_mib(container.gib, gpus))


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


def _parse_count(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,2}", text) and 1 <= int(text) <= MOST_GPUS else None


def _parse_percent(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,3}", text) and 1 <= int(text) <= 100 else None


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
    keys.GPU_COUNT: (_parse_count, f"a whole number of GPUs from 1 to {MOST_GPUS}"),
    keys.GPU_CORES: (_parse_percent, "percent of each GPU's compute, a whole number from 1 to 100"),
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
        if key not in _PARSERS:
            near = difflib.get_close_matches(key, tuple(_PARSERS), n=1, cutoff=0.0)[0]
            raise DemandError(f"annotation {key}={short(value)} is unknown; did you mean {near}? Accepted: {_list(_PARSERS)}")
        parser, accepted = _PARSERS[key]
        parsed = parser(value.strip()) if isinstance(value, str) else None
        if parsed is None:
            raise DemandError(f"annotation {key}={short(value)} cannot be read; accepted: {accepted}")
        wishes[key] = parsed
    return wishes


def _annotations(pod: Mapping[str, Any]) -> Mapping[Any, Any]:
    metadata = pod.get("metadata") or {}
    if not is_object(metadata):
        raise DemandError(f"metadata of the pod is a {type(metadata).__name__}; accepted: an object")
    found = metadata.get("annotations")
    if found is None:
        return {}
    if not is_object(found):
        raise DemandError(f"metadata.annotations of the pod is a {type(found).__name__}; accepted: an object")
    return found


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(names)


def _shown(pod: Mapping[str, Any], key: str) -> str:
    return f"annotation {key}={short(_annotations(pod).get(key))} is set"
