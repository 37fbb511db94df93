"""What an administrator may set for the node agent: by environment (`LINKWISE_AGENT_…`) or by the options of `linkwise agent`.

Read once at start-up, frozen afterwards. `probe` and the parts of the running agent get the object; nothing below reads the environment again.
"""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from topology.api.allocation import first_problem
from topology.api.annotations import WHOLE_GPU
from topology.errors import InputError

SYSFS_ROOT: Final = Path("/sys")
POD_RESOURCES_SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")

# A healthy nvidia-smi needs 1 to 5 s on an 8-GPU machine without persistence mode; more than this and the driver is stuck.
TIMEOUT_S: Final = 20.0

_PREFIX: Final = "LINKWISE_AGENT_"
_NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # a DNS-1123 subdomain, as Kubernetes demands it of a Node


class AgentSettings(BaseSettings):
    """Settings of the node agent. ``nvidia_smi`` None means: the one on PATH."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True)

    node_name: Annotated[str, Field(max_length=253, description="the node, and the name of its GPUTopology")]
    nvidia_smi: Annotated[str | None, Field(description="path of nvidia-smi")] = None
    sysfs_root: Annotated[Path, Field(description="where sysfs is mounted; /proc is looked for beside it")] = SYSFS_ROOT
    timeout_s: Annotated[float, Field(gt=0, le=3600, description="how long one call of nvidia-smi may take")] = TIMEOUT_S

    # The running agent. Every pace is in seconds.
    kubeconfig: Annotated[Path | None, Field(description="cluster and account; if not given those of the pod, else ~/.kube/config")] = None
    context: Annotated[str | None, Field(description="context of the kubeconfig")] = None
    metrics_port: Annotated[int, Field(ge=0, le=65535, description="where /metrics and /healthz are served; 0: nowhere")] = 0
    probe_every_s: Annotated[float, Field(gt=0, description="between two looks at the hardware")] = 30.0
    # A lost GPU is out of the pool, and a repaired one in it again, within 15 s: this, a look of a second or so, and up to 10 s in which kubelet writes its Node.
    glance_every_s: Annotated[float, Field(gt=0, description="between two questions, who is there, from look to look")] = 4.0
    # Pods that wait for a repaired GPU are tried again within seconds of the repair, so what is broken is looked at more often.
    failing_every_s: Annotated[float, Field(gt=0, description="the same while the driver fails or a GPU is lost")] = 10.0
    no_gpu_every_s: Annotated[float, Field(gt=0, description="the same on a node without NVIDIA GPUs")] = 120.0
    holders_every_s: Annotated[float, Field(gt=0, description="between two questions to kubelet, who holds which GPU")] = 5.0
    # A re-created Node has its GPUTopology again within 15 s, also where the garbage collector comes between the first look and the second. kubelet
    # reads its own Node every 10 s.
    look_up_every_s: Annotated[float, Field(gt=0, description="between two looks at the Node and the object on the API server")] = 7.0
    heartbeat_s: Annotated[float, Field(gt=0, description="status is written this often although nothing changed")] = 60.0
    gpu_resource: Annotated[str, Field(min_length=1, description="resource whose device ids are GPUs")] = WHOLE_GPU
    pod_resources_socket: Annotated[Path, Field(description="kubelet's PodResources")] = POD_RESOURCES_SOCKET

    # The hand-off (docs/hand-off.md). Off until somebody decides: one device plugin serves a resource, and an update must not take it from another.
    hand_off: Annotated[Literal["off", "cdi", "ids"], Field(description="device plugin: none; by CDI; without CDI, by kubelet's ids")] = "off"
    around: Annotated[Literal["observe", "refuse"], Field(description="pods without an allocation: give them free GPUs, or let them not start")] = (
        "observe"
    )
    offer_gpu_memory: Annotated[bool, Field(description="offer linkwise.dev/gpu-memory; needs CDI")] = True
    gpu_reserve_mib: Annotated[
        int, Field(ge=0, description="MiB of each GPU that are not given away, as the extender's LINKWISE_GPU_RESERVE_MIB")
    ] = 0
    # kubelet waits 30 s for a start. A GPU whose last container has just ended is free within one or two.
    start_patience_s: Annotated[float, Field(ge=0, le=25, description="how long the start of a container waits for a GPU that is held")] = 15.0
    device_plugin_dir: Annotated[Path, Field(description="kubelet's directory of device plugins")] = Path("/var/lib/kubelet/device-plugins")
    cdi_dir: Annotated[Path, Field(description="the container runtime's directory for CDI specs that come and go")] = Path("/var/run/cdi")
    nvidia_cdi_dirs: Annotated[tuple[Path, ...], Field(description="where NVIDIA's CDI spec is looked for, JSON list; the last counts most")] = (
        Path("/etc/cdi"),
        Path("/var/run/cdi"),
    )
    merge_nvidia_cdi: Annotated[bool, Field(description="merge the edits of NVIDIA's CDI spec, where there is one")] = True
    state_dir: Annotated[Path, Field(description="the agent's own directory on the node, by the path that the container runtime sees")] = Path(
        "/var/lib/linkwise"
    )
    cgroup_root: Annotated[Path, Field(description="the node's cgroup filesystem")] = Path("/sys/fs/cgroup")
    fault_file: Annotated[Path | None, Field(description="for tests: names the point of the hand-off at which the agent kills itself")] = None


def agent_settings(
    node_name: str, nvidia_smi: str | None = None, sysfs_root: Path | None = None, timeout_s: float | None = None, **more: object
) -> AgentSettings:
    """Return settings from the options of a command, ``more`` by the names of `AgentSettings`; None leaves a value to the environment, or the default.

    Raises InputError with a sentence for a value that cannot be.
    """
    if not _NODE_NAME.fullmatch(node_name):
        raise InputError(f"node name {node_name!r} is not one of Kubernetes; accepted: lower-case letters, digits, - and .")
    options: dict[str, Any] = {"nvidia_smi": nvidia_smi, "sysfs_root": sysfs_root, "timeout_s": timeout_s, **more}
    given = {"node_name": node_name, **{name: value for name, value in options.items() if value is not None}}
    try:
        return AgentSettings(**given)
    except ValidationError as error:
        raise InputError(_sentence(error, given)) from error
    except SettingsError as error:  # of the settings that are no single value: what stands there is no JSON
        name, value = next((each, os.environ[each]) for each in _LISTS if each in os.environ)
        raise InputError(f'environment variable {name}={value}: no JSON; accepted: a JSON list of paths, for example ["/etc/cdi"]') from error


_LISTS: Final = (f"{_PREFIX}NVIDIA_CDI_DIRS",)  # the variables that hold JSON


def _sentence(error: ValidationError, given: dict[str, Any]) -> str:
    """Name what is wrong as the administrator wrote it: by its variable, or by its name where an option gave it."""
    path, _, problem = first_problem(error).partition(": ")
    name = path.partition(".")[0]
    value = error.errors()[0]["input"]
    return f"agent settings: {path}={value}: {problem}" if name in given else f"environment variable {_PREFIX}{name.upper()}: {value}: {problem}"
