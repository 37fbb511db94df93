"""Containers that see GPUs without having asked for any: images with NVIDIA_VISIBLE_DEVICES=all, past every device plugin.

Called by `chain`, last: nothing above is broken by them, and everything is undone by them. The container runtime tells the environment of each container that
runs, and kubelet who was given GPUs. Seen only where the runtime's socket is (as root on the node); a container that the NVIDIA runtime does not start gets
nothing by the variable, where the runtime tells by which program it runs.

Left in peace: containers that take of the driver no more than NVML (NVIDIA_DRIVER_CAPABILITIES=utility, as the agent), and those of the namespaces in which
clusters keep their monitors and plugins.
"""

from collections.abc import Iterator
from typing import Final

from topology.agent.container_runtime import RunningContainer, RuntimeUnknownError, running_containers
from topology.agent.pod_resources import PodResourcesError
from topology.api.annotations import GPU_MEMORY
from topology.doctor.finding import Finding, broken, ok, skipped
from topology.doctor.node import Node

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"
_NONE: Final = frozenset({"", "void", "none"})
NODE_TOOLS: Final = frozenset({"kube-system", "linkwise-system", "gpu-operator", "nvidia-gpu-operator"})
_MOST_NAMED: Final = 3
_CURE: Final = (
    "set accept-nvidia-visible-devices-envvar-when-unprivileged = false in /etc/nvidia-container-runtime/config.toml, or NVIDIA_VISIBLE_DEVICES=void in these pods, "
    "or let them ask for GPUs"
)


def images(node: Node) -> Finding:
    """Check that no running container sees GPUs that it was not given."""
    if node.runtime_socket is None:
        return skipped(
            "the environment of containers is told by the container runtime's socket, which is not to be seen here; run this as root on the node"
        )
    if isinstance(node.claims, PodResourcesError):
        return skipped("kubelet does not tell who was given GPUs")
    try:
        running = running_containers(node.runtime_socket)
    except RuntimeUnknownError as error:
        return skipped(str(error))
    resources = {node.settings.gpu_resource, GPU_MEMORY}
    given: dict[tuple[str, str, str], set[str]] = {}
    for claim in node.claims:
        # DRA and MIG have other resources; whoever holds any device of NVIDIA's has asked.
        if claim.resource in resources or claim.resource.startswith("nvidia.com/"):
            given.setdefault((claim.namespace, claim.pod, claim.container), set()).add(claim.device)
    grabbing = list(_grabbing(node, running, given))
    if not grabbing:
        return ok(f"none of {len(running)} running containers sees GPUs that it did not ask for")
    named = ", ".join(grabbing[:_MOST_NAMED]) + (f" and {len(grabbing) - _MOST_NAMED} more" if len(grabbing) > _MOST_NAMED else "")
    return broken(f"GPUs are seen without having been asked for: {named}", _CURE)


def _grabbing(node: Node, running: list[RunningContainer], given: dict[tuple[str, str, str], set[str]]) -> Iterator[str]:
    """Yield who sees more than it was given; by UUIDs alone nobody does who was given any, since the plan and not kubelet's id says which they are."""
    gpus = None if node.topology_here is None else len(node.topology_here.spec.gpus)
    for one in running:
        asks = one.environment.get(VISIBLE, "").strip()
        holds = given.get((one.namespace, one.pod, one.name), set())
        if asks in _NONE or _is_harmless(one) or (holds and asks != "all") or (gpus is not None and len(holds) >= gpus):
            continue
        yield f"{one.namespace}/{one.pod} {one.name} ({VISIBLE}={asks}, {len(holds)} given)"


def _is_harmless(one: RunningContainer) -> bool:
    if one.program and "nvidia" not in one.program:
        return True
    return one.namespace in NODE_TOOLS or one.environment.get(_CAPABILITIES, "").strip() == "utility"
