"""Why a node does not take a pod: a code with numbers, and the sentences made of it, once.

`cluster` closes nodes with these codes, `placement` adds its own, `verbs` sends `wire_sentence` to kube-scheduler, `explain` prints `full_sentence`.
kube-scheduler groups equal sentences in one event and counts the nodes, and passes them through a format string: so a wire sentence names no node,
carries only numbers that few nodes differ in, and holds no percent sign. The full sentence has the numbers of its node.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from topology.capacity import MIB_PER_GIB
from topology.links import Distance


class Refusal(IntEnum):
    """Reason codes; FITS is none. The order is the order in which they are looked at: the first that holds is told."""

    FITS = 0
    # closed by state, whatever the pod
    NO_TOPOLOGY = 1
    TOPOLOGY_UNREADABLE = 2
    STALE = 3
    NO_HAND_OFF = 4
    ALLOCATION_UNREADABLE = 5
    GPU_MISSING = 6
    UNKNOWN_HOLDER = 7
    GPUSHARE_UNCLEAR = 8
    # does not fit this pod
    NOT_GPUSHARE = 9
    GPUSHARE_CONTAINERS = 10
    MODEL = 11
    NIC = 12
    TOO_SMALL = 13
    GPU_TOO_SMALL = 14
    NOT_ENOUGH_FREE = 15
    NOT_ENOUGH_MEMORY = 16
    NUMA = 17
    DISTANCE = 18
    BANDWIDTH = 19
    SPLIT = 20
    # fits, and was tried in vain
    KUBELET_REFUSED = 21

    @property
    def is_closure(self) -> bool:
        """True where the node is closed to every new pod."""
        return Refusal.NO_TOPOLOGY <= self <= Refusal.GPUSHARE_UNCLEAR


CLOSURE_SENTENCES: dict[Refusal, str] = {
    Refusal.NO_TOPOLOGY: "no GPUTopology is published for the node",
    Refusal.TOPOLOGY_UNREADABLE: "the GPUTopology of the node cannot be read",
    Refusal.STALE: "closed: the agent of the node has been silent for too long",
    Refusal.NO_HAND_OFF: "closed: kubelet does not get the GPUs of the node from an agent at the moment, and would reject pods",
    Refusal.ALLOCATION_UNREADABLE: "closed: the allocation of a pod on the node cannot be read",
    Refusal.GPU_MISSING: "closed: a pod on the node holds a GPU that the node no longer has",
    Refusal.GPUSHARE_UNCLEAR: "closed: what gpushare's device plugin tells of the node cannot be used",
    Refusal.UNKNOWN_HOLDER: "closed: a pod that Linkwise did not place holds unknown GPUs of the node",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the pod asks, as far as sentences tell it. ``largest`` is the biggest container's set; ``share`` the largest share: MiB of each, and of how many GPUs."""

    gpus: int
    largest: int
    containers: int
    floor: float
    ceiling: Distance
    model: str | None
    one_numa: bool = False
    nic_ceiling: Distance | None = None
    share: tuple[int, int] | None = None

    @property
    def healthy(self) -> int:
        """How many GPUs a node needs at least."""
        return max(self.gpus, self.largest)


@dataclass(frozen=True, slots=True)
class NodeNumbers:
    """The numbers behind one node's refusal; ``best`` is GB/s of the best free set of ``largest`` GPUs, None where there is none."""

    total: int
    eligible: int  # healthy, of the model asked for, and with a NIC near enough
    free: int  # of the eligible ones
    best: float | None = None
    best_link: str | None = None
    kept_apart: bool = False  # some of the free ones are nearer than they may be used: the driver allows no peer access
    together: int = 0  # the most of the free ones that are on one NUMA node
    most_offered_mib: int = 0  # of one of the eligible GPUs
    most_left_mib: int = 0  # of one of them, now
    large_enough: int = 0  # how many of them have the largest share left now
    model: str | None = None  # of the GPU that offers the most
    memory_mib: int | None = None  # its size as the driver tells it
    reserve_mib: int = 0  # of that, not given away in shares
    detail: str = ""  # what closed the node, by name
    refused_by_kubelet: tuple[str, datetime] | None = None  # the pod of this demand that it refused, and until when no other is sent


def wire_sentence(refusal: Refusal, asked: Asked, numbers: NodeNumbers) -> str:
    """Return the sentence for kube-scheduler: few distinct ones over a whole cluster."""
    return for_event(_SENTENCES[refusal](asked, numbers) if refusal in _SENTENCES else CLOSURE_SENTENCES[refusal])


def full_sentence(refusal: Refusal, asked: Asked, numbers: NodeNumbers) -> str:
    """Return the sentence for people looking at this node."""
    if refusal.is_closure:
        return f"{CLOSURE_SENTENCES[refusal]}: {numbers.detail}" if numbers.detail else CLOSURE_SENTENCES[refusal]
    if refusal not in _FULL:
        return _SENTENCES[refusal](asked, numbers)
    free = f"{numbers.free} of {numbers.total} GPUs free"
    if _kind_of_gpu(asked):
        free = f"{numbers.free} of {numbers.eligible} GPUs{_kind_of_gpu(asked)} free"
    return _FULL[refusal](free, asked, numbers)


def for_event(sentence: str) -> str:
    """Return the sentence as it goes into an event: it says who speaks, and has no percent sign for kube-scheduler's format string."""
    return "linkwise: " + sentence.replace("%", " percent")


def gb_per_s(value: float) -> str:
    """Write a bandwidth as people read it: no digits that the model cannot mean.

    >>> gb_per_s(450.0), gb_per_s(23.99), gb_per_s(9.137)
    ('450', '24', '9.1')
    """
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def set_word(gpus: int) -> str:
    """Name a set of that many GPUs."""
    return "pair" if gpus == 2 else f"set of {gpus}"


def link_words(worst: str, *, kept_apart: bool) -> str:
    """Name the worst link of a set; where it is the longest path and the driver keeps some of the free GPUs apart, say so: else people look for their NVLinks.

    >>> link_words("NV4", kept_apart=True), link_words("SYS", kept_apart=True)
    ('NV4', 'SYS (some without peer access)')
    """
    return f"{worst} (some without peer access)" if kept_apart and worst == Distance.SYS.name else worst


def _set_asked(asked: Asked) -> str:
    return set_word(asked.largest) + (" on one NUMA node" if asked.one_numa else "")


def _best(asked: Asked, numbers: NodeNumbers, write: Callable[[float], str] = gb_per_s) -> str:
    if numbers.best is None:
        return f"no {_set_asked(asked)}"
    over = f" over {link_words(numbers.best_link, kept_apart=numbers.kept_apart)}" if numbers.best_link else ""
    return f"best {_set_asked(asked)} {write(numbers.best)} GB/s{over}"


def _digits(asked: Asked, numbers: NodeNumbers) -> Callable[[float], str]:
    """Choose how to write best and floor side by side: with more digits where "best pair 24 GB/s, 24 asked" would tell nothing."""
    reads_alike = numbers.best is not None and gb_per_s(numbers.best) == gb_per_s(asked.floor)
    return "{:.10g}".format if reads_alike else gb_per_s


def _not_gpushare(_: Asked, __: NodeNumbers) -> str:
    return "gpushare's device plugin does not serve the node, and it alone hands out aliyun.com/gpu-mem"


def _gpushare_containers(_: Asked, __: NodeNumbers) -> str:
    return (
        "gpushare's device plugin finds a pod by its total and is asked container by container: "
        "several containers with aliyun.com/gpu-mem, or an init container, need a node with one GPU"
    )


def _model(asked: Asked, _: NodeNumbers) -> str:
    return f"fewer than {asked.healthy} GPUs of the node match gpu-model {asked.model}"


def _nic(asked: Asked, _: NodeNumbers) -> str:
    return f"fewer than {asked.healthy} GPUs of the node{_of_model(asked)} have a NIC within nic-distance {_nic_ceiling(asked)}"


def _too_small(asked: Asked, _: NodeNumbers) -> str:
    return f"the node has fewer than {asked.healthy} healthy GPUs{_kind_of_gpu(asked)}"


def _not_enough_free(asked: Asked, _: NodeNumbers) -> str:
    return f"fewer than {asked.gpus} GPUs{_kind_of_gpu(asked)} are free"


def gib(mib: int) -> str:
    """Write an amount of GPU memory in GiB.

    >>> gib(20480), gib(3414)
    ('20', '3.33')
    """
    return f"{mib / MIB_PER_GIB:.2f}".rstrip("0").rstrip(".")


def _share(asked: Asked) -> tuple[int, int]:
    return asked.share or (0, 0)


def _gpu_too_small(asked: Asked, numbers: NodeNumbers) -> str:
    mib, gpus = _share(asked)
    if numbers.memory_mib is None and not numbers.most_offered_mib:
        return f"the GPUs of the node{_kind_of_gpu(asked)} have no memory to share, or tell nothing of their size"
    wanted = f"{gib(mib)} GiB of one GPU asked" if gpus == 1 else f"{gib(mib)} GiB of each of {gpus} GPUs asked"
    if numbers.most_offered_mib >= mib:
        return f"{wanted}, fewer than {gpus} GPUs of the node{_kind_of_gpu(asked)} are so large"
    size = "" if numbers.memory_mib is None else f" of its {numbers.memory_mib} MiB"
    reserve = f", {numbers.reserve_mib} MiB kept in reserve" if numbers.reserve_mib else ""
    which = f"the largest of the GPUs of the node{_kind_of_gpu(asked)}" if _kind_of_gpu(asked) else "the largest of the node"
    return f"{wanted}, {which} ({numbers.model or 'of unknown model'}) gives {gib(numbers.most_offered_mib)} GiB{size}{reserve}"


def _not_enough_memory(asked: Asked, _: NodeNumbers) -> str:
    mib, gpus = _share(asked)
    which = f"fewer than {gpus} GPUs{_kind_of_gpu(asked)} have" if gpus > 1 else f"none of the GPUs{_kind_of_gpu(asked)} has"
    return f"{which} {gib(mib)} GiB left"


def _not_enough_memory_of_node(free: str, asked: Asked, numbers: NodeNumbers) -> str:
    mib, gpus = _share(asked)
    if gpus == 1:
        return f"{free}, at most {gib(numbers.most_left_mib)} GiB left on one GPU, {gib(mib)} asked"
    return f"{free}, {numbers.large_enough} GPUs with {gib(mib)} GiB left, {gpus} asked"


def _of_model(asked: Asked) -> str:
    return "" if asked.model is None else f" that match {asked.model}"


def _kind_of_gpu(asked: Asked) -> str:
    """Say which GPUs of a node the pod would take, empty where any."""
    near = "" if asked.nic_ceiling is None else f"{' and' if asked.model is not None else ' that'} have a NIC within {_nic_ceiling(asked)}"
    return _of_model(asked) + near


def _nic_ceiling(asked: Asked) -> str:
    return "" if asked.nic_ceiling is None else asked.nic_ceiling.name


def _numa(asked: Asked, _: NodeNumbers) -> str:
    return f"no free {set_word(asked.largest)} is on one NUMA node"


def _numa_of_node(free: str, asked: Asked, numbers: NodeNumbers) -> str:
    return f"{free}, at most {numbers.together} on one NUMA node, {asked.largest} asked on one"


def _distance(asked: Asked, _: NodeNumbers) -> str:
    return f"no free {_set_asked(asked)} within max-distance {asked.ceiling.name}"


def _bandwidth(asked: Asked, numbers: NodeNumbers) -> str:
    write = _digits(asked, numbers)
    return f"{_best(asked, numbers, write)}, min-bandwidth {write(asked.floor)} asked"


def _bandwidth_of_node(free: str, asked: Asked, numbers: NodeNumbers) -> str:
    write = _digits(asked, numbers)
    return f"{free}, {_best(asked, numbers, write)}, {write(asked.floor)} asked"


def _split(asked: Asked, _: NodeNumbers) -> str:
    return f"the free GPUs cannot be split over the {asked.containers} GPU containers of the pod as it asks"


def minute_after(until: datetime) -> datetime:
    """Return the first full minute that is not before a time: sentences for kube-scheduler go by minutes, so that few differ.

    >>> minute_after(datetime(2026, 1, 1, 12, 0, 30)).isoformat(), minute_after(datetime(2026, 1, 1, 12)).isoformat()
    ('2026-01-01T12:01:00', '2026-01-01T12:00:00')
    """
    whole = until.replace(second=0, microsecond=0)
    return whole if whole == until else whole + timedelta(minutes=1)


def _kubelet_refused(_: Asked, numbers: NodeNumbers) -> str:
    until = "" if numbers.refused_by_kubelet is None else f"; not tried there again before {minute_after(numbers.refused_by_kubelet[1]):%H:%M} UTC"
    return f"kubelet's topology manager refused such a pod on the node{until}"


def _kubelet_refused_on_node(free: str, asked: Asked, numbers: NodeNumbers) -> str:
    if numbers.refused_by_kubelet is None:
        return _kubelet_refused(asked, numbers)
    pod, until = numbers.refused_by_kubelet
    hint = "" if asked.one_numa or asked.largest < 2 else "; annotation linkwise.dev/numa=single keeps the GPUs of a container on one NUMA node"
    return (
        f"{free}, but kubelet's topology manager refused pod {pod}, which asks for the same (TopologyAffinityError); "
        f"not tried there again before {until:%H:%M:%S} UTC{hint}"
    )


_SENTENCES: dict[Refusal, Callable[[Asked, NodeNumbers], str]] = {
    Refusal.NOT_GPUSHARE: _not_gpushare,
    Refusal.GPUSHARE_CONTAINERS: _gpushare_containers,
    Refusal.MODEL: _model,
    Refusal.NIC: _nic,
    Refusal.TOO_SMALL: _too_small,
    Refusal.GPU_TOO_SMALL: _gpu_too_small,
    Refusal.NOT_ENOUGH_FREE: _not_enough_free,
    Refusal.NOT_ENOUGH_MEMORY: _not_enough_memory,
    Refusal.NUMA: _numa,
    Refusal.DISTANCE: _distance,
    Refusal.BANDWIDTH: _bandwidth,
    Refusal.SPLIT: _split,
    Refusal.KUBELET_REFUSED: _kubelet_refused,
}
_FULL: dict[Refusal, Callable[[str, Asked, NodeNumbers], str]] = {
    Refusal.NOT_ENOUGH_FREE: lambda free, asked, _: f"{free}, {asked.gpus} asked",
    Refusal.NOT_ENOUGH_MEMORY: _not_enough_memory_of_node,
    Refusal.NUMA: _numa_of_node,
    Refusal.DISTANCE: lambda free, asked, n: f"{free}, {_best(asked, n)}, but none within max-distance {asked.ceiling.name}",
    Refusal.BANDWIDTH: _bandwidth_of_node,
    Refusal.SPLIT: lambda free, asked, n: f"{free}, {_split(asked, n)}",
    Refusal.KUBELET_REFUSED: _kubelet_refused_on_node,
}
