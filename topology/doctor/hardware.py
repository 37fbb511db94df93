"""The lowest links: nvidia-smi with the driver below it, and NVIDIA's container toolkit, which brings GPUs into containers.

Called by `chain`. What nvidia-smi's sentences mean is `topology.nvidia_smi.failures`' business; here is what to do about each kind.
"""

import shutil
from typing import Final

from topology.agent.container_runtime import ContainerRuntime
from topology.agent.handoff.nvidia_cdi import NvidiaCdiError, nvidia_spec
from topology.agent.prober import is_cut_off
from topology.doctor.finding import Finding, broken, ok, skipped
from topology.doctor.node import Node
from topology.errors import InputError, NvidiaSmiError, NvidiaSmiFailure

_BY_HAND: Final = "run nvidia-smi by hand on the node and read `dmesg | grep -e NVRM -e Xid`"
_CURES: Final = {
    NvidiaSmiFailure.DRIVER_MISMATCH: "end all processes that use GPUs and reload the module (`modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia; "
    "modprobe nvidia`), or reboot the node",
    NvidiaSmiFailure.NO_DRIVER: "install the NVIDIA driver for the kernel that runs, or load it (`modprobe nvidia`) and read dmesg if it does not load",
    NvidiaSmiFailure.NOT_FOUND: "install the NVIDIA driver with its tools; in the agent's pod, use the RuntimeClass nvidia and NVIDIA_DRIVER_CAPABILITIES=utility, "
    "or give --nvidia-smi",
    NvidiaSmiFailure.NO_DEVICES: "look for the GPUs with `lspci -d 10de:` on the node and read dmesg; in a container, set NVIDIA_VISIBLE_DEVICES=all",
    NvidiaSmiFailure.DEVICE_LOST: "drain the node and reset the GPU (`nvidia-smi --gpu-reset`) or reboot; dmesg tells its Xid, and one that comes back means hardware",
}
_NEW_POD: Final = (
    "run nvidia-smi on the node itself: if it works there, delete this pod, which has lost its device files or has the library of an earlier driver"
)
_LOST: Final = _CURES[NvidiaSmiFailure.DEVICE_LOST]
_PROGRAMS: Final = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-toolkit")


def driver(node: Node) -> Finding:
    """Check that nvidia-smi lists the GPUs and that none is lost."""
    facts = node.facts
    if isinstance(facts, NvidiaSmiError):
        cure = _CURES.get(facts.kind, _BY_HAND)
        return broken(str(facts), f"{_NEW_POD}; if it fails there as well, {cure}" if node.in_pod and is_cut_off(facts) else cure)
    if isinstance(facts, InputError):
        return broken(str(facts), _BY_HAND)
    gpus = facts.inventory.gpus
    lost = [gpu.uuid or gpu.bus_id or f"GPU {gpu.index}" for gpu in gpus if gpu.lost]
    if lost:
        return broken(f"{len(lost)} of {len(gpus)} GPUs {'is' if len(lost) == 1 else 'are'} lost: {', '.join(lost)}", _LOST)
    models = ", ".join(sorted({gpu.model for gpu in gpus if gpu.model})) or "of an unknown model"
    note = f"; {facts.failed}, so links are those that the kernel knows" if facts.failed else ""
    return ok(f"{len(gpus)} GPUs ({models}), driver {facts.inventory.driver_version or 'unknown'}{note}")


def toolkit(node: Node) -> Finding:
    """Check that something brings GPUs into containers: a CDI spec of NVIDIA's, or the NVIDIA runtime."""
    try:
        spec = nvidia_spec(node.settings.nvidia_cdi_dirs)
    except NvidiaCdiError as error:
        return ok(f"it has written a CDI spec, which is the matter of a later link ({error})")
    if spec is not None:
        return ok(f"CDI spec {spec.path}")
    runtime = node.runtime
    programs = runtime.programs if isinstance(runtime, ContainerRuntime) else None
    named = sorted(name for name, program in (programs or {}).items() if "nvidia" in program)
    if named:
        return ok(f"the container runtime has the runtime {', '.join(named)}, and there is no CDI spec of NVIDIA's")
    return _without_use(node, is_known=programs is not None)


def _without_use(node: Node, *, is_known: bool) -> Finding:
    """Return what a node is where neither a spec nor a runtime of NVIDIA's is seen; ``is_known``: the container runtime told which it has."""
    installed = _installed(node)
    if installed is not None and is_known:
        return broken(
            f"{installed} is there, but the container runtime has no NVIDIA runtime and there is no CDI spec of NVIDIA's",
            "run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, or `nvidia-ctk runtime configure` and restart the container runtime",
        )
    if installed is not None:
        return ok(f"{installed} is there; whether the container runtime uses it cannot be seen from here")
    if node.in_pod:
        return skipped("neither a CDI spec of NVIDIA's nor the node's programs can be seen in this pod")
    return broken(
        "the NVIDIA Container Toolkit is missing: no CDI spec, no NVIDIA runtime, no nvidia-ctk",
        "install nvidia-container-toolkit and run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
    )


def _installed(node: Node) -> str | None:
    """Return the path of a program of the toolkit, None where there is none."""
    path = ":".join(map(str, node.asked.toolkit_dirs))
    return next((found for program in _PROGRAMS if (found := shutil.which(program, path=path))), None)
