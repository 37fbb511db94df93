"""What bind does beside for a pod of gpushare's device plugin: a GPU on which the plugin cannot mistake it for another, and the annotations that the plugin reads.

Called by `binding`, on the state of the moment in which it decides: there is no await between a reason to wait and the note that the pod is assumed. Why pods wait for one
another is told in `handoff.gpushare_order`.
"""

from dataclasses import dataclass, field

from extender.cluster import Cluster, Room, View
from extender.demand import Demand
from extender.handoff import gpushare
from extender.handoff.gpushare_order import Assumed
from extender.protocol import BindCall
from topology.api import Allocation


@dataclass(frozen=True, slots=True)
class Assumption:
    """The annotations for the Binding, or why the pod must not be bound now."""

    annotations: dict[str, str] = field(default_factory=dict)
    reason: str = ""


def room_beside_waiting(call: BindCall, demand: Demand, view: View, cluster: Cluster) -> Room | None:
    """Return what the node has to give on the GPUs for which pods with the same total wait, None where none does: there this one can be bound at once."""
    row = view.row_of.get(call.node, -1)
    indices = cluster.assume_order.indices_of(call.node, demand.units)
    if not indices or row < 0:
        return None
    uuid_of = cluster.gpushare.of(call.node).uuid_of
    mask = view.gpus[row].mask_of(uuid_of[index] for index in indices if index in uuid_of)
    room = view.room(row)
    return Room(room.idle & mask, tuple(mib if mask >> bit & 1 else 0 for bit, mib in enumerate(room.left)), room.offered)


def assume(call: BindCall, demand: Demand, allocation: Allocation, cluster: Cluster) -> Assumption:
    """Note the pod as assumed on its GPU, unless it has to wait; undo with ``cluster.assume_order.settle``."""
    if not demand.shape.plugin_gpus:
        return Assumption()
    served = cluster.gpushare.of(call.node)
    if served.gpus.mib_of_unit != demand.mib_of_unit:
        return Assumption(reason=f"node {call.node} has begun to count aliyun.com/gpu-mem in another unit since pod {call.pod} was filtered")
    (uuid,) = allocation.uuids()
    pod = Assumed(call.uid, call.pod, demand.units, served.minor_of(uuid))
    reason = cluster.assume_order.reason_to_wait(call.node, pod)
    if reason:
        return Assumption(reason=reason)
    share = gpushare.Share(pod.index, pod.units, served.gpus.units, cluster.assume_order.assume(call.node, pod))
    return Assumption(gpushare.encode(share))
