"""The object that should be on the API server now: from a look, what is remembered, and who holds what.

Called by `running` in every round; `publish` then writes what differs. Pure. Decides what a failing driver means: the hardware that was published stays
as it is, for pods hold its GPUs and its topology does not change by that, but every GPU is unhealthy, so that no new pod comes. So it is also where the
node has no GPUs any more: what is taken away from a node is reported, not deleted; deleting the object is the administrator's (or, with the Node, the
garbage collector's). A node that was never described gets no object from a failure.
"""

from datetime import datetime
from typing import Final

from topology.agent.holders import HOLDERS_OBSERVED, Observation
from topology.agent.prober import Look
from topology.agent.publication import DRIVER_READY, GPUS_HEALTHY, publication
from topology.agent.recall import Earlier, recall
from topology.api import HAND_OFF_REGISTERED, NUMA_ALIGNED, Condition, GpuStatus, GPUTopology, GPUTopologyStatus
from topology.errors import InputError, LinkwiseError, NvidiaSmiError, NvidiaSmiFailure

# Reasons of DriverReady by the way in which nvidia-smi failed; part of what people alert on.
_REASONS: Final = {
    NvidiaSmiFailure.DRIVER_MISMATCH: "DriverMismatch",
    NvidiaSmiFailure.NO_DRIVER: "NoDriver",
    NvidiaSmiFailure.NO_DEVICES: "NoDevices",
    NvidiaSmiFailure.NOT_FOUND: "NvidiaSmiNotFound",
    NvidiaSmiFailure.UNSUPPORTED: "Unsupported",
    NvidiaSmiFailure.DEVICE_LOST: "AllGPUsLost",
    NvidiaSmiFailure.BAD_ARGUMENTS: "NvidiaSmiFailed",
    NvidiaSmiFailure.PARTIAL: "NvidiaSmiFailed",
    NvidiaSmiFailure.EMPTY: "NvidiaSmiFailed",
    NvidiaSmiFailure.UNKNOWN: "NvidiaSmiFailed",
}
_NOT_PUBLISHABLE: Final = "NotPublishable"  # nvidia-smi answers, and what it says describes no node
_PROBE_FAILED: Final = "ProbeFailed"  # a bug of ours


def wanted(node_name: str, look: Look, earlier: Earlier | None, now: datetime) -> tuple[GPUTopology | None, LinkwiseError | None]:
    """Return the node as a look shows it, without holders, and the error that is in the way of seeing more.

    None as the topology: there is nothing to publish, since no look ever succeeded.
    """
    error = look.error
    if look.facts is not None:
        try:
            return publication(node_name, recall(look.facts, earlier), now), None
        except InputError as problem:
            error = problem
    if error is None or earlier is None:
        return None, error
    return _unready(earlier.topology, error, now), error


def _unready(topology: GPUTopology, error: LinkwiseError, now: datetime) -> GPUTopology:
    """Return the node as it was, with every GPU unhealthy."""
    reason = _REASONS[error.kind] if isinstance(error, NvidiaSmiError) else _NOT_PUBLISHABLE if isinstance(error, InputError) else _PROBE_FAILED
    why = str(error)
    told = (
        Condition(type=DRIVER_READY, status="False", reason=reason, message=why),
        Condition(type=GPUS_HEALTHY, status="False", reason="DriverNotReady", message=f"no GPU can be used: {why}"),
    )
    kept = [condition for condition in topology.status.conditions if condition.type not in (DRIVER_READY, GPUS_HEALTHY)]
    status = GPUTopologyStatus(
        observed_at=now.replace(microsecond=0),
        gpus=tuple(GpuStatus(uuid=gpu.uuid, healthy=False, reason=why) for gpu in topology.spec.gpus),
        conditions=(*told, *kept),
        health=f"none usable: {reason}",
    )
    return topology.model_copy(update={"status": status})


def with_holders(topology: GPUTopology, observation: Observation) -> GPUTopology:
    """Return the topology with who holds what, as of the time at which it was so; a GPU is free when it is healthy and nobody holds it."""
    status = topology.status
    gpus = tuple(gpu.model_copy(update={"holders": observation.holders.get(gpu.uuid, ())}) for gpu in status.gpus)
    others = [condition for condition in status.conditions if condition.type != HOLDERS_OBSERVED]
    observed = observation.at is not None
    changed = {
        "observed_at": status.observed_at if observation.at is None else observation.at.replace(microsecond=0),
        "gpus": gpus,
        "holders_observed": observed,
        "conditions": (*others, observation.condition),
        "free_gpus": sum(gpu.healthy and not gpu.holders for gpu in gpus) if observed else None,
    }
    return topology.model_copy(update={"status": status.model_copy(update=changed)})


def with_hand_off(topology: GPUTopology, conditions: tuple[Condition, ...]) -> GPUTopology:
    """Return the topology with what the hand-off tells, nothing where it is off."""
    others = tuple(condition for condition in topology.status.conditions if condition.type not in (HAND_OFF_REGISTERED, NUMA_ALIGNED))
    return topology.model_copy(update={"status": topology.status.model_copy(update={"conditions": (*others, *conditions)})})


def with_registration(topology: GPUTopology, condition: Condition) -> GPUTopology:
    """Return the topology with that word of kubelet's registration in place of its own, and all else that it tells."""
    others = tuple(one for one in topology.status.conditions if one.type != HAND_OFF_REGISTERED)
    return topology.model_copy(update={"status": topology.status.model_copy(update={"conditions": (*others, condition)})})


def is_told_registered(topology: GPUTopology) -> bool:
    """Tell whether a topology says that kubelet gets the node's GPUs from an agent."""
    return any(one.type == HAND_OFF_REGISTERED and one.status == "True" for one in topology.status.conditions)


def with_transitions(topology: GPUTopology, earlier: GPUTopology | None, now: datetime) -> GPUTopology:
    """Return the topology with the time of each condition's last change: that of ``earlier`` where the status is the same, else now."""
    before = {condition.type: condition for condition in (earlier.status.conditions if earlier is not None else ())}
    conditions = tuple(
        condition.model_copy(update={"last_transition_time": _since(condition, before.get(condition.type)) or now.replace(microsecond=0)})
        for condition in topology.status.conditions
    )
    return topology.model_copy(update={"status": topology.status.model_copy(update={"conditions": conditions})})


def _since(condition: Condition, before: Condition | None) -> datetime | None:
    return before.last_transition_time if before is not None and before.status == condition.status else None
