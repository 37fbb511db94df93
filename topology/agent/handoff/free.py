"""Which GPUs a pod from around the extender gets, where policy lets it have any: free ones, and free means promised to nobody either.

Called by `hand_off` and `steering`. Takes kubelet's own ids where those GPUs are free, so that other tools that read them are right; for shares the GPU that
is shared already and has least left. Pure.
"""

from collections.abc import Iterable

from topology.agent.handoff.holding import Holding, Part, conflict, taken_mib
from topology.agent.handoff.node_gpus import NodeGpus
from topology.capacity import WHOLE


def free_gpus(gpus: NodeGpus, asking: Holding, others: Iterable[Holding]) -> list[str]:
    """Return the healthy GPUs that ``asking`` could have whole, in the order of the node; its own parts do not matter."""
    taken = list(others)
    return [uuid for uuid in gpus.specs if uuid not in gpus.ill and conflict(_with(asking, [Part(uuid)]), taken, gpus.offered_mib) is None]


def free_parts(gpus: NodeGpus, asking: Holding, others: Iterable[Holding], ids: frozenset[str]) -> tuple[Part, ...] | None:
    """Return as many whole GPUs as there are ids, kubelet's own first; None where too few are free."""
    free = free_gpus(gpus, asking, others)
    chosen = sorted(free, key=lambda uuid: uuid not in ids)[: len(ids)]
    return tuple(Part(uuid) for uuid in gpus.in_order(chosen)) if len(chosen) == len(ids) else None


def free_shares(gpus: NodeGpus, asking: Holding, others: Iterable[Holding], share: tuple[int, int]) -> tuple[Part, ...] | None:
    """Return ``share`` (GPUs, MiB on each), on the GPUs that have least left; None where too few have enough."""
    count, mib = share
    taken = list(others)
    left = {uuid: gpus.offered_mib[uuid] - taken_mib(taken, uuid) for uuid in gpus.specs if uuid not in gpus.ill}
    fitting = [uuid for uuid in left if conflict(_with(asking, [Part(uuid, mib)]), taken, gpus.offered_mib) is None]
    chosen = sorted(fitting, key=lambda uuid: left[uuid])[:count]
    return tuple(Part(uuid, mib) for uuid in gpus.in_order(chosen)) if len(chosen) == count and mib != WHOLE else None


def _with(asking: Holding, parts: list[Part]) -> Holding:
    return Holding(asking.pod_uid, asking.namespace, asking.pod, asking.container, tuple(parts), asking.planned)
