"""The conditions that the hand-off adds to the node's GPUTopology: whether kubelet knows the agent, and whether GPUs lie where kubelet aligned the CPUs to.

`plugin` asks for them in every round, `running` publishes them. Both tell the state of now, not what has happened: events and counters do that. The extender goes
by the first one where it takes the startup taint off a Node. Pure.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from topology.agent.handoff.node_gpus import NodeGpus
from topology.agent.handoff.records import Record
from topology.api import HAND_OFF_REGISTERED, NUMA_ALIGNED, Condition

_MOST_NAMED: Final = 4  # containers in one sentence
_ALIGNED: Final = "no container has its GPUs on other NUMA nodes than kubelet's ids"


def registration_condition(resources: Collection[str], unheard: Collection[str], other: Path | None) -> Condition:
    """Return whether kubelet takes the device plugin; ``unheard`` are the resources that it does not listen to, ``other`` the socket of a plugin that is in the way."""
    if not unheard:
        return Condition(type=HAND_OFF_REGISTERED, status="True", reason="Registered", message=f"kubelet offers {_listed(resources)} by the agent")
    if other is not None:
        why = f"another device plugin serves {other}: nothing is handed over here until it is taken off this node"
        return Condition(type=HAND_OFF_REGISTERED, status="False", reason="AnotherPlugin", message=why)
    why = f"kubelet does not know the agent's device plugin for {_listed(unheard)}"
    return Condition(type=HAND_OFF_REGISTERED, status="False", reason="NotRegistered", message=why)


def numa_condition(records: Iterable[Record], gpus: NodeGpus | None) -> Condition:
    """Return whether some container has its GPUs on other NUMA nodes than its ids are on: kubelet's topology manager aligns CPUs and memory to the ids."""
    found = sorted(filter(None, (_elsewhere(record, gpus) for record in records))) if gpus is not None else []
    if not found:
        return Condition(type=NUMA_ALIGNED, status="True", reason="Aligned", message=_ALIGNED)
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    why = f"GPUs on other NUMA nodes than kubelet's ids, to which its topology manager aligns CPUs where it does: {'; '.join(found[:_MOST_NAMED])}{more}"
    return Condition(type=NUMA_ALIGNED, status="False", reason="GPUsElsewhere", message=why)


def _elsewhere(record: Record, gpus: NodeGpus) -> str:
    """Return a container whose GPUs are elsewhere, and where; empty for any other. Ids of memory name no GPU, and tell nothing."""
    if record.holding is None:
        return ""
    told = elsewhere(gpus, record.ids, record.holding.uuids)
    return f"{record.holding.told} ({told})" if told else ""


def elsewhere(gpus: NodeGpus, ids: frozenset[str], uuids: frozenset[str]) -> str:
    """Say on which NUMA nodes GPUs are and on which kubelet's ids, empty where those are the same or one is not known."""
    theirs, ours = gpus.numa_nodes(ids), gpus.numa_nodes(uuids)
    return f"GPUs on NUMA node {_numbers(ours)}, kubelet's ids on {_numbers(theirs)}" if theirs and ours and theirs != ours else ""


def _numbers(numbers: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _listed(resources: Collection[str]) -> str:
    return " and ".join(sorted(resources))
