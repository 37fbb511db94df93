"""Why a pod went where it went, or nowhere: the last decision of each of the last pods, told when somebody asks.

`verbs` records what it worked with (references to one immutable view and arrays, no text); the sentences are made here on demand, so an explanation costs
the hot path nothing. `app` serves `Decision.to_object()`, `linkwise explain` prints `text()` of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from extender.cluster import Room, View
from extender.demand import Demand
from extender.node_names import NodeNames
from extender.placement import Outlook, Placement, Plan
from extender.protocol import JsonObject
from extender.reasons import Refusal, full_sentence, gb_per_s, gib, link_words, set_word
from extender.scoring import Scores
from extender.settings import Policy
from topology.topology_class import ISLAND

_NODES_IN_TEXT: Final = 20
_BYTES_PER_MIB: Final = 1024 * 1024
_BYTES_A_ROW: Final = 100  # of the arrays of a view that pods change
_BYTES_A_NAME: Final = 14  # row, refusal, score and loss
_AS_PLUGIN: Final = "The set on each node is the one that NVIDIA's device plugin would take of those that meet the demand (policy gpuallocator)."
_PLUGIN_KNOWS_NO_PARTS: Final = (
    "NVIDIA's device plugin knows no parts of GPUs: with them, policy gpuallocator packs, and the set on each node is Linkwise's own choice."
)


@dataclass(frozen=True, slots=True)
class Bound:
    """How the bind call of the pod ended."""

    node: str
    error: str
    gpus: Sequence[int] = ()
    bandwidth: float | None = None
    worst: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AskedNodes:
    """The nodes of a call: row and Refusal of each, shape (n,), and the names of those that have no row, by position."""

    rows: NDArray[np.int32]
    codes: NDArray[np.int8]
    strangers: Mapping[int, str] = field(default_factory=dict)

    @staticmethod
    def of(names: NodeNames, rows: NDArray[np.int64], codes: NDArray[np.int8]) -> "AskedNodes":
        """Keep what is not to be found out later: 5 bytes a node."""
        unknown = np.flatnonzero(rows < 0)
        return AskedNodes(rows.astype(np.int32), codes, dict(zip(unknown.tolist(), names.texts(unknown), strict=True)) if len(unknown) else {})

    def refused(self) -> "AskedNodes":
        """Return those of them that cannot take the pod."""
        at = np.flatnonzero(self.codes)
        strangers = {int(np.searchsorted(at, position)): name for position, name in self.strangers.items()}
        return AskedNodes(self.rows[at], self.codes[at], strangers)

    def each(self, view: View) -> Iterator[tuple[str, int, Refusal]]:
        """Yield name, row and refusal of each, in their order."""
        for position, (row, code) in enumerate(zip(self.rows.tolist(), self.codes.tolist(), strict=True)):
            yield view.names[row] if row >= 0 else self.strangers[position], row, Refusal(code)


NO_NODES: Final = AskedNodes(np.zeros(0, np.int32), np.zeros(0, np.int8))


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One pod's last decision; the scores are parallel to the feasible nodes among those that were ``asked`` about."""

    pod: str
    uid: str
    at: datetime
    demand: Demand | None  # None where the pod could not be understood
    error: str
    policy: Policy | None = None
    view: View | None = None
    weights: Mapping[int, float] | None = None  # as remainders were weighed then
    outlook: Outlook | None = None  # as the pods to come were judged then
    asked: AskedNodes = NO_NODES
    refused_before: AskedNodes = NO_NODES  # by filter, where this is what prioritize saw: it is not asked about those
    scores: Scores | None = None
    bound: Bound | None = None

    @property
    def bytes(self) -> int:
        """About how much memory it holds on to: the view is its own on a cluster that changes from call to call."""
        return (_BYTES_A_ROW * self.view.rows if self.view else 0) + _BYTES_A_NAME * (len(self.asked.rows) + len(self.refused_before.rows))

    def nodes(self) -> list[tuple[str, int, Refusal]]:
        """Return name, row and refusal of every node, those of this call first."""
        if self.view is None:
            return []
        own = list(self.asked.each(self.view))
        known = {name for name, _, _ in own}
        return own + [each for each in self.refused_before.each(self.view) if each[0] not in known]


class Decisions:
    """The last decision of the last pods, by NAMESPACE/NAME: so many of them, and fewer where the cluster is so large that they would take more memory than ``most_mib``."""

    def __init__(self, kept: int, most_mib: int) -> None:
        most = most_mib * _BYTES_PER_MIB
        self._kept: LRUCache[str, Decision] = LRUCache(most, getsizeof=lambda decision: min(most, max(decision.bytes, most // kept)))

    def put(self, decision: Decision) -> None:
        """Keep a decision in place of the pod's earlier one."""
        self._kept[decision.pod] = decision

    def get(self, pod: str) -> Decision | None:
        """Return the last decision of NAMESPACE/NAME."""
        return self._kept.get(pod)

    def score(self, pod: str, uid: str, scores: Scores) -> None:
        """Add the scores to the decision that filter began."""
        known = self._kept.get(pod)
        if known is not None and known.uid == uid:
            self._kept[pod] = replace(known, scores=scores)

    def bind(self, pod: str, uid: str, bound: Bound) -> None:
        """Add the end of the story; a repeated call that found the pod bound already adds nothing."""
        known = self._kept.get(pod)
        repeated = known is not None and known.bound is not None and not known.bound.error and not bound.gpus
        if known is not None and known.uid == uid and not repeated:
            self._kept[pod] = replace(known, bound=bound)


def to_object(decision: Decision, placement: Placement) -> JsonObject:
    """Return the decision as the API tells it: every node with its reason or its score, the set chosen, the runner-up."""
    if decision.weights != placement.weights or decision.outlook not in (None, placement.outlook):
        placement = Placement(
            decision.weights, decision.outlook
        )  # demands are weighed otherwise by now, and other sets would be told than were chosen
    nodes = _nodes(decision, placement)
    feasible = [node for node in nodes if node["fits"]]
    answer: JsonObject = {
        "pod": decision.pod,
        "uid": decision.uid,
        "time": decision.at.isoformat(),
        "error": decision.error or None,
        "demand": None if decision.demand is None else _demand_object(decision),
        "generation": None if decision.view is None else decision.view.generation,
        "nodes": nodes,
        "chosen": None,
        "runnerUp": None,
        "bound": None if decision.bound is None else _bound_object(decision.bound),
    }
    scores = decision.scores
    if scores is not None and scores.top is not None:
        answer["chosen"] = feasible[scores.top]
        answer["runnerUp"] = None if scores.runner_up is None else feasible[scores.runner_up]
    elif len(feasible) == 1:
        answer["chosen"] = feasible[0]
    return answer


def _demand_object(decision: Decision) -> JsonObject:
    demand = decision.demand
    assert demand is not None
    shape = demand.shape
    return {
        "gpus": shape.gpus,
        "containers": {name: part.gpus for name, part in zip(demand.containers, shape.parts, strict=True)},
        "shares": {name: part.mib for name, part in zip(demand.containers, shape.parts, strict=True) if part.is_share},
        "topology": None if shape.largest < 2 else "best" if shape.careful else "none",
        "minBandwidthGBps": shape.floor or None,
        "maxDistance": shape.ceiling.name,
        "nicDistance": None if shape.nic_ceiling is None else shape.nic_ceiling.name,
        "numa": "single" if shape.one_numa else None,
        "gpuModel": shape.model,
        "policy": None if decision.policy is None else str(decision.policy),
    }


def _bound_object(bound: Bound) -> JsonObject:
    return {
        "node": bound.node,
        "error": bound.error or None,
        "gpus": list(bound.gpus),
        "bandwidthGBps": bound.bandwidth,
        "worstLink": bound.worst,
    }


def _nodes(decision: Decision, placement: Placement) -> list[JsonObject]:
    """Return one object a node, in the order of the call."""
    view, demand = decision.view, decision.demand
    if view is None or demand is None:
        return []
    nodes: list[JsonObject] = []
    candidate = 0
    for name, row, refusal in decision.nodes():
        if refusal is Refusal.FITS:
            nodes.append(_feasible(name, row, decision, candidate, placement))
            candidate += 1
        else:
            sentence = full_sentence(refusal, demand.asked, placement.numbers(demand.shape, view, row))
            nodes.append({"node": name, "fits": False, "code": refusal.name, "reason": sentence})
    return nodes


def _feasible(name: str, row: int, decision: Decision, candidate: int, placement: Placement) -> JsonObject:
    view, demand, scores = decision.view, decision.demand, decision.scores
    assert view is not None
    assert demand is not None
    kind = placement.weighed(view.classes[view.class_index[row]])
    room = view.room(row)
    free = room.idle
    found = placement.plan(demand.shape, kind, room if scores is None else scores.room(view, row))
    node: JsonObject = {"node": name, "fits": True, "score": None, "free": free.bit_count(), "total": kind.size}
    if scores is not None:
        node["score"] = int(scores.score[candidate])
        node["loss"] = round(float(scores.loss[candidate]), 4)
    if found is None:
        node["note"] = "its free GPUs are about to be taken by pods that were scored just before"
        return node
    if kind.lacks_peer_access(free):
        node["keptApart"] = True
    rest = free & ~found.union
    if demand.shape.is_shared:
        node["memory"] = _memory(demand, found, view, row, room)
    islands, cores = divmod(int(kind.islands_broken(free, found.union & free)), ISLAND)
    return node | {
        "gpus": _indices(view, row, found.union),
        "bandwidthGBps": round(found.bandwidth, 3) if demand.shape.largest > 1 else None,
        "worstLink": found.worst,
        "leaves": _indices(view, row, rest),
        "whole": _indices(view, row, kind.whole_set(rest)),
        "islandsBroken": islands,
        "coresBroken": cores,
        "worthLost": round(float(kind.worth[free]) - float(kind.worth[rest]), 3),
    }


def _memory(demand: Demand, found: Plan, view: View, row: int, room: Room) -> list[JsonObject]:
    """Return of every GPU that is shared what it offers, what was left of it, and what the pod's containers take, MiB."""
    indices = view.gpus[row].indices
    return [
        {"index": indices[bit], "offeredMiB": room.offered[bit], "leftMiB": room.left[bit], "takenMiB": mib}
        for bit, mib in sorted(demand.shares(found.masks))
    ]


def _indices(view: View, row: int, mask: int) -> list[int]:
    indices = view.gpus[row].indices
    return [indices[bit] for bit in range(len(indices)) if mask >> bit & 1]


def bound_of(node: str, error: str, plan: Plan | None, view: View) -> Bound:
    """Return the end of the story for a bind call."""
    row = view.row_of.get(node, -1)
    if plan is None or row < 0:
        return Bound(node, error)
    several = any(mask.bit_count() > 1 for mask in plan.masks)
    return Bound(node, error, _indices(view, row, plan.union), round(plan.bandwidth, 3) if several else None, plan.worst)


def bound_text(bound: Bound) -> str:
    """Say where a pod is bound, on which GPUs, and what they carry."""
    return _bound_text(_bound_object(bound))


def _bound_text(bound: dict[str, Any]) -> str:
    gpus = f", {gpus_word(bound['gpus'])}" if bound["gpus"] else ""
    speed = f", {gb_per_s(bound['bandwidthGBps'])} GB/s over {bound['worstLink']}" if bound["bandwidthGBps"] is not None else ""
    return f"bound to {bound['node']}{gpus}{speed}"


def text(decision: dict[str, Any], most: int = _NODES_IN_TEXT) -> str:
    """Return a decision, as the API tells it, in lines for people: the end first, then the nodes, feasible ones first."""
    lines = [_headline(decision)]
    if decision.get("evaluatedNow"):
        lines.append("No decision is kept for this pod; this is what would be decided now.")
    if decision.get("boundBefore"):
        lines.append(f"It is bound to {decision['boundBefore']} already; what it holds there counts as taken.")
    demand = decision["demand"] or {}
    if demand.get("policy") == Policy.GPUALLOCATOR:
        lines.append(_PLUGIN_KNOWS_NO_PARTS if demand.get("shares") else _AS_PLUGIN)
    feasible = sorted((node for node in decision["nodes"] if node["fits"]), key=lambda node: (-(node["score"] or 0), node["node"]))
    refused = sorted((node for node in decision["nodes"] if not node["fits"]), key=lambda node: str(node["node"]))
    lines.extend(f"  {node['node']}: {_feasible_text(decision, node)}" for node in feasible[:most])
    if len(feasible) > most:
        lines.append(f"  … and {len(feasible) - most} more that fit")
    lines.extend(f"  {node['node']}: {node['reason']}" for node in refused[:most])
    if len(refused) > most:
        lines.append(f"  … and {len(refused) - most} more that do not")
    return "\n".join(lines)


def _headline(decision: dict[str, Any]) -> str:
    pod, bound, chosen = decision["pod"], decision["bound"], decision["chosen"]
    if decision["error"]:
        return f"{pod}: {decision['error']}"
    if bound is not None and not bound["error"]:
        return f"{pod}: {_bound_text(bound)}"
    if bound is not None:
        return f"{pod}: not bound to {bound['node']}: {bound['error']}"
    if chosen is not None:
        return f"{pod}: best on {chosen['node']}, not bound yet"
    if any(node["fits"] for node in decision["nodes"]):
        return f"{pod}: fits on {sum(node['fits'] for node in decision['nodes'])} nodes, not scored yet"
    return f"{pod}: fits on none of {len(decision['nodes'])} nodes"


def _feasible_text(decision: dict[str, Any], node: dict[str, Any]) -> str:
    score = "fits" if node["score"] is None else f"score {node['score']}"
    if "gpus" not in node:
        return f"{score}, {node.get('note', '')}"
    speed = ""
    if node["bandwidthGBps"] is not None:
        largest = max(decision["demand"]["containers"].values())
        link = link_words(node["worstLink"], kept_apart=node.get("keptApart", False))
        speed = f", {set_word(largest)} of {gb_per_s(node['bandwidthGBps'])} GB/s over {link}"
    broken = max(node.get("islandsBroken", 0), node.get("coresBroken", 0))
    islands = f", breaks {'an NVLink island' if broken == 1 else f'{broken} NVLink islands'}" if broken and node["bandwidthGBps"] is None else ""
    taken = gpus_word(node["gpus"]) + (f" of {node['free']} free" if "memory" not in node else _memory_text(node["memory"]))
    return f"{score}, {taken}{speed}{islands}, {_leaves(node['leaves'], node.get('whole', ()))}"


def _memory_text(memory: Sequence[JsonObject]) -> str:
    """Say how much of which GPU the pod takes, and of how much."""
    return " (" + ", ".join(f"{gib(gpu['takenMiB'])} of {gib(gpu['leftMiB'])} GiB left of {gpu['index']}" for gpu in memory) + ")"


def _leaves(rest: Sequence[int], whole: Sequence[int]) -> str:
    """Say what stays free, and which of it is still as good as on an empty machine."""
    if not rest:
        return "leaves none free"
    if not whole:
        return f"leaves {gpus_word(rest)}"
    return f"leaves {gpus_word(rest)} whole" if list(whole) == list(rest) else f"leaves {gpus_word(rest)}, of them {index_list(whole)} whole"


def gpus_word(indices: Sequence[int]) -> str:
    """Name GPUs by their indices: `GPU 3`, `GPUs 0-2,5`."""
    return f"GPU{'' if len(indices) == 1 else 's'} {index_list(indices)}"


def index_list(indices: Sequence[int]) -> str:
    """Write indices with ranges.

    >>> index_list([0, 1, 2, 5])
    '0-2,5'
    """
    parts: list[str] = []
    at = 0
    while at < len(indices):
        end = at
        while end + 1 < len(indices) and indices[end + 1] == indices[end] + 1:
            end += 1
        parts.append(str(indices[at]) if end == at else f"{indices[at]}-{indices[end]}")
        at = end + 1
    return ",".join(parts)
