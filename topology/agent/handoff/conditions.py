"""The conditions that the hand-off adds to the node's GPUTopology: whether kubelet knows the agent, and whether GPUs lie where kubelet aligned the CPUs to.

`plugin` asks for them in every round, `running` publishes them. Both tell the state of now, not what has happened: events and counters do that. The extender goes
by the first one: where it takes the startup taint off a Node, and where it sends pods to, since kubelet rejects for good what comes while nobody hands GPUs over. Pure.
"""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from topology.agent.handoff.node_gpus import NodeGpus
from topology.agent.handoff.records import Record
from topology.agent.pod_resources import PodResourcesError
from topology.api import ANOTHER_PLUGIN, HAND_OFF_REGISTERED, NUMA_ALIGNED, Condition

_MOST_NAMED: Final = 4  # containers in one sentence
_FAR: Final = "kubelet gave CPUs, memory or other devices of their own to containers whose GPUs are on other NUMA nodes than kubelet's ids, to which its topology manager, where it is on, aligned those"
ContainerName = tuple[str, str, str]  # namespace, pod, container
_ALIGNED: Final = "no container has its GPUs on other NUMA nodes than kubelet's ids"


def registration_condition(resources: Collection[str], unheard: Collection[str], other: Path | None) -> Condition:
    """Return whether kubelet takes the device plugin; ``unheard`` are the resources that it does not listen to, ``other`` the socket of a plugin that is in the way."""
    if not unheard:
        return Condition(type=HAND_OFF_REGISTERED, status="True", reason="Registered", message=f"kubelet offers {_listed(resources)} by the agent")
    if other is not None:
        why = f"another device plugin serves {other}: nothing is handed over here until it is taken off this node"
        return Condition(type=HAND_OFF_REGISTERED, status="False", reason=ANOTHER_PLUGIN, message=why)
    why = f"kubelet does not know the agent's device plugin for {_listed(unheard)}"
    return Condition(type=HAND_OFF_REGISTERED, status="False", reason="NotRegistered", message=why)


def parting_condition(resources: Collection[str]) -> Condition:
    """Return what is told just before kubelet loses the device plugin, as the agent ends."""
    why = f"the agent ends, and kubelet will have nobody who offers {_listed(resources)} until the next one has begun"
    return Condition(type=HAND_OFF_REGISTERED, status="False", reason="AgentEnds", message=why)


def numa_condition(records: Iterable[Record], gpus: NodeGpus | None, aligned: Callable[[], Collection[ContainerName]]) -> Condition:
    """Return whether some container has its GPUs on other NUMA nodes than its ids are on, to which kubelet's topology manager aligns whatever else it gives.

    ``aligned`` tells which containers kubelet gave anything else; it is asked where that matters, and raises PodResourcesError. Which policies are on cannot be
    read without rights over all of kubelet, but what they did can: a container without CPUs, memory or devices of its own has nothing that could be far away.
    """
    found = {record.holding.told: (record.holding, told) for record in records if record.holding and (told := _elsewhere(record, gpus))}
    if not found:
        return Condition(type=NUMA_ALIGNED, status="True", reason="Aligned", message=_ALIGNED)
    differ = f"{len(found)} container{'s have' if len(found) > 1 else ' has'} GPUs on other NUMA nodes than kubelet's ids"
    try:
        names = aligned()
    except PodResourcesError as error:
        why = f"{differ}, and it is not known whether kubelet aligned CPUs, memory or other devices to those: {error}"
        return Condition(type=NUMA_ALIGNED, status="Unknown", reason="KubeletSilent", message=why)
    far = sorted(f"{told} ({where})" for told, (one, where) in found.items() if (one.namespace, one.pod, one.container.name) in names)
    if not far:
        why = f"{differ}, and nothing is far away by that: kubelet gave no CPUs, memory or other devices to any of them alone"
        return Condition(type=NUMA_ALIGNED, status="True", reason="NothingAligned", message=why)
    more = f" and {len(far) - _MOST_NAMED} more" if len(far) > _MOST_NAMED else ""
    why = f"{_FAR}: {'; '.join(far[:_MOST_NAMED])}{more}"
    return Condition(type=NUMA_ALIGNED, status="False", reason="GPUsElsewhere", message=why)


def _elsewhere(record: Record, gpus: NodeGpus | None) -> str:
    """Say on which other NUMA nodes a container's GPUs are, empty where they are on none. Ids of memory name no GPU, and tell nothing."""
    return "" if record.holding is None or gpus is None else elsewhere(gpus, record.ids, record.holding.uuids)


def elsewhere(gpus: NodeGpus, ids: frozenset[str], uuids: frozenset[str]) -> str:
    """Say on which NUMA nodes GPUs are and on which kubelet's ids, empty where those are the same or one is not known."""
    theirs, ours = gpus.numa_nodes(ids), gpus.numa_nodes(uuids)
    return f"GPUs on NUMA node {_numbers(ours)}, kubelet's ids on {_numbers(theirs)}" if theirs and ours and theirs != ours else ""


def _numbers(numbers: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _listed(resources: Collection[str]) -> str:
    return " and ".join(sorted(resources))
