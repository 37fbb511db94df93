"""What people and tools read from a running extender: nodes, one node, the decision about a pod.

Called by `app` for everything under /api/v1. Reads views and never changes anything; nothing here is on the hot path.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from extender import explain
from extender.cluster import UNKNOWN, Cluster, Entry, NodeGpus, View
from extender.demand_class import as_objects
from extender.protocol import Binder, JsonObject
from extender.reasons import CLOSURE_SENTENCES, Refusal
from extender.verbs import Verbs
from topology.errors import ApiServerError
from topology.topology_class import TopologyClass


def nodes(cluster: Cluster) -> Iterator[JsonObject]:
    """Yield one short object for every node that has, or should have, GPUs: all of one moment, however long it takes to ask for them."""
    view = cluster.view()
    for row in range(view.rows):
        yield _node(view, row, view.offered_on(row).tolist())


def node(cluster: Cluster, name: str) -> JsonObject | None:
    """Return everything about one node, None where it is not known."""
    view = cluster.view()
    row = view.row_of.get(name, -1)
    if not 0 <= row < view.rows:
        return None
    offered = view.offered_on(row).tolist()
    answer = _node(view, row, offered)
    topology = cluster.topology_of(name)
    if topology is None:
        return answer
    kind = view.classes[view.class_index[row]]
    entries = cluster.ledger.on_node(name)
    answer["gpus"] = [
        {
            "index": gpu.index,
            "uuid": gpu.uuid,
            "model": gpu.model,
            "memoryMiB": gpu.memory_mib,
            "offeredMiB": offered[bit],
            "leftMiB": int(view.left[row, bit]),
            "healthy": bool(int(view.usable[row]) >> bit & 1),
            "heldBy": _held_by(entries, gpu.uuid),
        }
        for bit, gpu in enumerate(topology.spec.gpus)
    ]
    answer["links"] = [list(codes) for codes in topology.spec.links.gpus]
    answer["assumed"] = [*topology.matrix().warnings, *kind.links.assumptions]
    answer["bestSets"] = _best_sets(kind, int(view.free[row]), view.gpus[row].indices)
    return answer


def _held_by(entries: tuple[Entry, ...], uuid: str) -> str | list[JsonObject] | None:
    """Return the pod that holds a GPU whole, by name; of one that is shared all holders and how much each has; None for an idle one."""
    holders = sorted((entry for entry in entries if uuid in entry.uuids), key=lambda entry: entry.pod)  # a restart finds them in another order
    if any(uuid in entry.shares for entry in holders):
        return [{"pod": entry.pod, "memoryMiB": entry.shares.get(uuid)} for entry in holders]  # null beside shares: it takes the GPU for its own
    return holders[-1].pod if holders else None


async def decision(verbs: Verbs, binder: Binder, namespace: str, name: str) -> JsonObject | None:
    """Return the last decision about a pod; where none is kept, what would be decided now; None for a pod that nobody knows.

    What was decided about an earlier pod of that name is not told of one that is there now.
    """
    kept = verbs.decisions.get(f"{namespace}/{name}")
    try:
        pod = await binder.read_pod(namespace, name)
    except ApiServerError:
        if kept is None:
            raise
        pod = None
    if kept is not None and (pod is None or pod["metadata"].get("uid") == kept.uid):
        return explain.to_object(kept, verbs.placement) | {"evaluatedNow": False}
    if pod is None:
        return None
    answer = explain.to_object(verbs.evaluate(pod), verbs.placement) | {"evaluatedNow": True}
    bound_to = (pod.get("spec") or {}).get("nodeName")
    return answer | {"boundBefore": bound_to} if bound_to else answer


def workload(verbs: Verbs) -> JsonObject:
    """Return what the cluster is asked for, as it weighs what stays free."""
    state = verbs.workload.state()
    return {
        "weights": {str(size): share for size, share in state.weights.items()},
        "fixed": state.fixed,
        "seen": {str(size): round(count, 3) for size, count in state.seen.items()},
        "version": state.version,
        "classes": as_objects(state.target),
        "classesFixed": state.target_fixed,
        "pricesKnown": verbs.placement.knows_prices(
            verbs.cluster.view()
        ),  # else parts of some kinds of GPUs go by a first guess, for a second or two
    }


# --- as gpushare's extender answers it: kubectl-inspect-gpushare and dashboards read this ---------------------------


def gpushare_nodes(cluster: Cluster) -> JsonObject:
    """Return what gpushare's device plugin serves and who holds it, in its units, node by node."""
    view = cluster.view()
    return {"nodes": [_gpushare_node(cluster, view, name) for name in cluster.gpushare.nodes()]}


def gpushare_node(cluster: Cluster, name: str) -> JsonObject:
    """Return the same of one node; no node and a sentence where the plugin does not serve it."""
    if name not in cluster.gpushare.nodes():
        return {"nodes": [], "error": f"node {name} is not served by gpushare's device plugin"}
    return {"nodes": [_gpushare_node(cluster, cluster.view(), name)]}


def _gpushare_node(cluster: Cluster, view: View, name: str) -> JsonObject:
    served = cluster.gpushare.of(name)
    row = view.row_of.get(name, -1)
    devices = [_gpushare_device(cluster, name, minor, view.gpus[row]) for minor in sorted(served.uuid_of)]
    used = sum(device["usedGPU"] for device in devices)
    total = sum(device["totalGPU"] for device in devices) if devices else served.gpus.count * served.gpus.units
    return {"name": name, "totalGPU": total, "usedGPU": used, "devs": devices}


def _gpushare_device(cluster: Cluster, node: str, minor: int, gpus: NodeGpus) -> JsonObject:
    served = cluster.gpushare.of(node)
    uuid, unit = served.uuid_of[minor], served.gpus.mib_of_unit
    offered = gpus.offered_mib[gpus.bit_of[uuid]]
    pods = [
        {"name": entry.name, "namespace": entry.namespace, "usedGPU": -(-entry.shares.get(uuid, offered) // unit)}
        for entry in cluster.ledger.on_node(node)
        if uuid in entry.uuids
    ]
    return {"id": minor, "totalGPU": offered // unit, "usedGPU": sum(pod["usedGPU"] for pod in pods), "pods": pods}


# --- nodes ----------------------------------------------------------------------------------------------------------


def _node(view: View, row: int, offered: list[int]) -> JsonObject:
    """Return what is told of every node; ``offered`` is MiB of each of its healthy GPUs."""
    closed = Refusal(int(view.closed[row]))
    number = int(view.class_index[row])
    kind = view.classes[number] if number >= 0 else None
    return {
        "name": view.names[row],
        "class": None if kind is None else kind.key,
        "models": [] if kind is None else sorted({model for model in kind.models if model is not None}),
        "total": 0 if kind is None else kind.size,
        "healthy": int(view.usable[row]).bit_count(),
        "free": int(view.free[row]).bit_count(),
        "cpuLeftMilli": _known(view.cpu_left[row]),
        "hostMemoryLeftMiB": _known(view.memory_left[row]),
        "memoryOfferedMiB": sum(offered),
        "memoryLeftMiB": int(view.left[row].sum()),
        "exact": kind is not None and kind.next_depth is None and bool(kind.exact.all()),  # else some bandwidths are lower bounds
        "closed": None if closed is Refusal.FITS else {"code": closed.name, "reason": _closed(closed, view.closed_by[row])},
    }


def _known(left: np.int64) -> int | None:
    """Return what is left, which may be less than 0; None where no Node tells."""
    return None if left == UNKNOWN else int(left)


def _closed(refusal: Refusal, detail: str) -> str:
    return f"{CLOSURE_SENTENCES[refusal]}: {detail}" if detail else CLOSURE_SENTENCES[refusal]


def _best_sets(kind: TopologyClass, free: int, indices: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return the best set of every size from the GPUs that are free now."""
    sets: list[dict[str, Any]] = []
    for size in range(2, free.bit_count() + 1):
        found = kind.best_set(free, size)
        if found is not None:
            gpus = [indices[bit] for bit in range(len(indices)) if found.mask >> bit & 1]
            sets.append({"size": size, "gpus": gpus, "bandwidthGBps": round(found.bandwidth, 3), "worstLink": found.worst})
    return sets
