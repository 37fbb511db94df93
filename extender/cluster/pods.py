"""What of a pod matters to the state: whether it is bound, whether it has ended, and which GPUs it holds.

`state` reads every pod through `read_bound_pod`. This is not `demand`: a bound pod's wishes are history; its allocation, or at least the fact that it
uses GPUs, is what counts, however odd the rest of it looks.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from extender.containers import MOST_CONTAINERS, ContainerKind, container_kinds, gpu_containers
from extender.demand import read_demand
from extender.demand_class import DemandClass, class_of
from extender.handoff import gpushare, native
from extender.requests import NOTHING, Requests, read_requests
from topology.api import Allocation, annotations
from topology.capacity import MIB_PER_GIB, WHOLE
from topology.errors import AllocationError, DemandError


@dataclass(slots=True)  # not frozen: its sixteen fields would take three times as long to set, twice for every pod of a list; nobody changes one
class BoundPod:
    """A pod that sits on a node and uses GPUs: by its allocation, by an allocation that does not decode (``problem``), or by its containers alone.

    ``gpus``: how many it uses at least; ``shared``: one of them in part.
    """

    uid: str
    namespace: str
    name: str
    node: str
    gpus: int
    annotation: str | None
    allocation: Allocation | None
    problem: str = ""
    created: datetime | None = None
    kinds: Mapping[str, ContainerKind] = field(default_factory=dict)  # its containers in the order in which they start
    cpu_milli: int = 0
    model: str | None = None  # the glob that it asks for
    share: gpushare.Share | None = None  # what its annotations of gpushare tell; all that tells, where the original extender placed it
    pending: bool = False
    shared: bool = False
    parted: frozenset[str] = frozenset()  # of a pod without allocation: its containers that ask for parts of GPUs

    @property
    def set_sizes(self) -> tuple[int, ...]:
        """GPUs of each container, by the allocation; one set of all where there is none."""
        return (self.gpus,) if self.allocation is None else tuple(len(gpus) for gpus in self.allocation.containers.values())

    @property
    def demand_class(self) -> DemandClass | None:
        """What the target workload counts the pod as: by its whole GPUs, if it has any, else by its largest share; None where gpushare alone says what it has."""
        if self.allocation is not None:
            return class_of(self.allocation, self.cpu_milli, self.model)
        return None if self.share is not None else DemandClass(self.cpu_milli, self.gpus, model=self.model)


def kept(pod: BoundPod, before: BoundPod | None) -> BoundPod:
    """Return what is kept of a pod: without its allocation, which the annotation tells again in a tenth of the memory; the very object of before where that tells the same, whose texts others keep too."""
    without = replace(pod, allocation=None)
    return before if before is not None and before == without else without


@dataclass(slots=True)  # not frozen, which would take half of the time in which such a pod is read
class PlainPod:
    """A pod that has nothing to do with GPUs: what it requests of its node (empty: of none yet) until its containers have ``ended``."""

    uid: str
    node: str
    requests: Requests = NOTHING
    ended: bool = False


TOPOLOGY_AFFINITY: Final = "TopologyAffinityError"  # kubelet's word (pkg/kubelet/cm/topologymanager, ErrorTopologyAffinity)
_PLAIN: Final = frozenset(("cpu", "memory", "ephemeral-storage"))  # resources that are no GPU under any name


def read_plain_pod(raw: Mapping[str, Any]) -> PlainPod | None:
    """Return what matters of a pod that certainly has nothing to do with GPUs, None for any other, and for what no API server would write.

    Nearly all pods of a cluster are such: no container asks for more than CPU, memory and disk, and there is no allocation. All else is read with care (`read_bound_pod`).
    """
    try:
        metadata, spec = raw["metadata"], raw["spec"]
        uid, node, containers = metadata["uid"], spec.get("nodeName") or "", spec["containers"]
        is_plain = (
            type(uid) is str
            and type(node) is str
            and bool(uid and containers)
            and annotations.ALLOCATION not in (metadata.get("annotations") or ())
            and _ask_nothing_special(containers)
            and _ask_nothing_special(spec.get("initContainers") or ())
        )
        if not is_plain:
            return None
        if not node:
            return PlainPod(uid, node)
        ended = (raw.get("status") or _NO_STATUS).get("phase") in ("Succeeded", "Failed")
    except (KeyError, TypeError, AttributeError):
        return None
    return PlainPod(uid, node, NOTHING if ended else read_requests(raw), ended)


def _ask_nothing_special(containers: Iterable[Mapping[str, Any]]) -> bool:
    for container in containers:
        resources = container.get("resources")
        if resources and not (_PLAIN.issuperset(resources.get("requests") or ()) and _PLAIN.issuperset(resources.get("limits") or ())):
            return False
    return True


_NO_STATUS: Final[Mapping[str, Any]] = {}


def read_bound_pod(raw: Mapping[str, Any], resource: str, requests: Requests | None = None) -> BoundPod | None:
    """Return the pod where it holds GPUs now, None where it is unbound, has ended, or uses none; ``requests`` are its own, where they were read already."""
    metadata, spec, status = _mapping(raw.get("metadata")), _mapping(raw.get("spec")), _mapping(raw.get("status"))
    node = spec.get("nodeName")
    uid = uid_of(metadata)
    # The phase becomes terminal when all containers have ended; a deletion timestamp alone says only that somebody asked.
    if not isinstance(node, str) or not node or status.get("phase") in ("Succeeded", "Failed"):
        return None
    found = _mapping(metadata.get("annotations"))
    raw_annotation = found.get(annotations.ALLOCATION)
    allocation: Allocation | None = None
    problem = ""
    whole, shared = _uses(raw, resource)
    if raw_annotation is not None:
        try:
            allocation = native.decode(raw_annotation)
            problem = _contradiction(allocation, node, whole, shared=shared) or (shared and _short_of_memory(allocation, raw, resource)) or ""
        except AllocationError as error:
            problem = str(error)
    elif not whole and not shared:
        return None
    share, share_problem = _share(raw, found)
    return BoundPod(
        uid=uid,
        namespace=str(metadata.get("namespace") or "default"),
        name=str(metadata.get("name", uid)),
        node=node,
        gpus=whole + shared,
        annotation=raw_annotation if isinstance(raw_annotation, str) else None,
        allocation=None if problem else allocation,
        problem=share_problem if raw_annotation is None else problem,
        created=time_of(metadata.get("creationTimestamp")),
        kinds=_shared_kinds(tuple(container_kinds(raw).items())),
        share=share,
        pending=status.get("phase") in (None, "Pending"),
        shared=shared,
        parted=_parted(raw, resource) if shared and raw_annotation is None else frozenset(),
        cpu_milli=(read_requests(raw) if requests is None else requests).cpu_milli,
        model=model if isinstance(model := found.get(annotations.GPU_MODEL), str) else None,
    )


@lru_cache(4096)
def _shared_kinds(kinds: tuple[tuple[str, ContainerKind], ...]) -> Mapping[str, ContainerKind]:
    """Return one object for the containers of equal pods; they come from few templates."""
    return MappingProxyType(dict(kinds))


def _share(raw: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[gpushare.Share | None, str]:
    """Return what a pod's annotations of gpushare tell, and what is wrong with them; nothing of a pod that asks nothing of its plugin."""
    if not gpushare.carries(found):
        return None, ""
    try:
        containers = [container for container in gpu_containers(raw, annotations.WHOLE_GPU) if container.units]
        share = gpushare.decode(found) if containers else None
    except (AllocationError, DemandError) as error:
        return None, str(error)
    asked = sum(container.units for container in containers if container.kind is ContainerKind.APP)
    if share is not None and share.units != asked:
        return None, f"{annotations.GPUSHARE_POD}={share.units}, but the containers of the pod ask for {asked} {annotations.GPUSHARE_MEMORY}"
    return share, ""


def _contradiction(allocation: Allocation, node: str, whole: int, *, shared: bool) -> str:
    """Return what in the allocation cannot be true of this pod; believing it would count GPUs as free that the pod uses."""
    if allocation.node != node:
        return f"linkwise.dev/allocation names node {allocation.node}, but the pod is on {node}"
    given, uses = allocation.uuids(), whole + shared  # a GPU is a container's own or shared, so the part lies on another one
    if len(given) < uses:
        return f"linkwise.dev/allocation names {len(given)} of the {uses} GPUs that the pod uses"
    own = {gpu.uuid for gpus in allocation.containers.values() for gpu in gpus if gpu.share_mib == WHOLE}
    if len(own) < whole:
        return f"linkwise.dev/allocation names {len(own)} of the {whole} whole GPUs that the pod uses"
    return ""


def _short_of_memory(allocation: Allocation, raw: Mapping[str, Any], resource: str) -> str:
    """Return which container's shares are smaller than what it asks for: kubelet gives it what it asks."""
    try:
        asked = [container for container in gpu_containers(raw, resource) if container.gib]
    except DemandError:
        return ""
    for container in asked:
        given = sum(gpu.memory_mib or 0 for gpu in allocation.containers.get(container.name, ()))
        if given < container.gib * MIB_PER_GIB:
            return f"linkwise.dev/allocation gives container {container.name} {given} MiB of the {container.gib} GiB that it uses"
    return ""


def _parted(raw: Mapping[str, Any], resource: str) -> frozenset[str]:
    """Return the containers that ask for parts of GPUs; one without a name, which nobody ever observes, where that cannot be told."""
    try:
        return frozenset(container.name for container in gpu_containers(raw, resource) if container.gib)
    except DemandError:
        return frozenset({""})


@dataclass(frozen=True, slots=True)
class RefusedPod:
    """A pod that kubelet did not admit on the node to which it was bound; ``told`` as people name it, ``at`` when, None where kubelet does not say."""

    uid: str
    told: str
    node: str
    at: datetime | None


def refused_by_topology_manager(raw: Mapping[str, Any]) -> RefusedPod | None:
    """Return a pod that kubelet's topology manager refused, None for any other: its node could not align what the pod asks for."""
    status = raw.get("status")
    if not isinstance(status, dict) or status.get("reason") != TOPOLOGY_AFFINITY or status.get("phase") != "Failed":
        return None
    node, metadata = node_of(raw), _mapping(raw.get("metadata"))
    told = f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"
    return RefusedPod(uid_of(metadata), told, node, time_of(status.get("startTime"))) if node else None


def name_of(raw: Mapping[str, Any]) -> str:
    """Return the name of any raw object, empty where it has none."""
    metadata = raw.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""


def node_of(raw: Mapping[str, Any]) -> str:
    """Return the node on which a raw pod is bound, empty where it is not."""
    return str(_mapping(raw.get("spec")).get("nodeName") or "")


def has_ended(raw: Mapping[str, Any]) -> bool:
    """Tell whether all containers of a raw pod have ended: a deletion timestamp alone says only that somebody asked."""
    return _mapping(raw.get("status")).get("phase") in ("Succeeded", "Failed")


def uid_of(metadata: Mapping[str, Any]) -> str:
    """Return the pod's UID; NAMESPACE/NAME for a pod written by hand, which has none."""
    uid = metadata.get("uid")
    return uid if isinstance(uid, str) and uid else f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"


def _uses(raw: Mapping[str, Any], resource: str) -> tuple[int, bool]:
    """Count whole GPUs by the rule for effective requests, and tell whether the pod uses a GPU in part as well; a pod too odd for the rule uses some of one at least."""
    whole = _whole_alone(raw, resource)
    if whole is not None:
        return whole, False
    stripped = {**raw, "metadata": {}}  # wishes do not matter any more
    named = {name for amounts in _amounts(raw) for name, amount in amounts.items() if _is_gpu(name, resource) and amount not in (0, "0")}
    try:
        shape = read_demand(stripped, resource).shape
    except DemandError:
        return 0, bool(named)
    return shape.gpus, shape.is_shared or bool(named - {resource})


def _whole_alone(raw: Mapping[str, Any], resource: str) -> int | None:
    """Return the whole GPUs of a pod as most are: its containers run together and ask for nothing special besides. None for any other."""
    spec = raw["spec"]
    containers = spec.get("containers")
    if spec.get("initContainers") or type(containers) is not list or len(containers) > MOST_CONTAINERS:
        return None
    plain, names, together = _PLAIN | {resource}, set[str](), 0
    for container in containers:
        if type(container) is not dict or type(resources := container.get("resources") or {}) is not dict:
            return None
        name, told = container.get("name"), [resources.get(kind) or {} for kind in ("requests", "limits")]
        if type(name) is not str or name in names or not all(type(amounts) is dict and plain.issuperset(amounts) for amounts in told):
            return None
        asked = [amounts.get(resource, "0") for amounts in told if amounts] or ["0"]
        count = _FEW.get(asked[0]) if type(asked[0]) is str and all(amount == asked[0] for amount in asked) else None
        if count is None:
            return None
        names.add(name)
        together += count
    return None if "" in names else together


_FEW: Final = {str(count): count for count in range(17)}  # GPUs of one container, as everybody writes them


def _is_gpu(name: object, resource: str) -> bool:
    """Tell whether a resource is GPUs or parts of them, ours or somebody else's; MIG slices lie on GPUs that are not placed anyway."""
    parts = (resource, annotations.GPU_MEMORY, annotations.GPUSHARE_MEMORY)
    return name in parts or (isinstance(name, str) and name.startswith("nvidia.com/gpu"))


def _amounts(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    spec = _mapping(raw.get("spec"))
    for key in ("initContainers", "containers"):
        containers = spec.get(key)
        for container in containers if isinstance(containers, list) else ():
            resources = _mapping(_mapping(container).get("resources"))
            yield from (_mapping(resources.get(kind)) for kind in ("requests", "limits"))


def time_of(value: object) -> datetime | None:
    """Return a time as objects of the API carry it, UTC where it says no zone; None for anything else."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if type(value) is dict or isinstance(value, Mapping) else {}
