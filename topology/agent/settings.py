"""What an administrator may set for the node agent: by environment (`LINKWISE_AGENT_…`) or by the options of `linkwise agent`.

Read once at start-up, frozen afterwards. `topology.agent.probe` gets the object; nothing below reads the environment again.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from topology.api.allocation import first_problem
from topology.errors import InputError

SYSFS_ROOT: Final = Path("/sys")

# A healthy nvidia-smi needs 1 to 5 s on an 8-GPU machine without persistence mode; more than this and the driver is stuck.
TIMEOUT_S: Final = 20.0

_NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # a DNS-1123 subdomain, as Kubernetes demands it of a Node


class AgentSettings(BaseSettings):
    """Settings of the node agent. ``nvidia_smi`` None means: the one on PATH."""

    model_config = SettingsConfigDict(env_prefix="LINKWISE_AGENT_", frozen=True)

    node_name: Annotated[str, Field(max_length=253, description="the node, and the name of its GPUTopology")]
    nvidia_smi: Annotated[str | None, Field(description="path of nvidia-smi")] = None
    sysfs_root: Annotated[Path, Field(description="where sysfs is mounted; /proc is looked for beside it")] = SYSFS_ROOT
    timeout_s: Annotated[float, Field(gt=0, le=3600, description="how long one call of nvidia-smi may take")] = TIMEOUT_S


def agent_settings(node_name: str, nvidia_smi: str | None = None, sysfs_root: Path | None = None, timeout_s: float | None = None) -> AgentSettings:
    """Return settings from the options of a command; None leaves a value to the environment, or to the default.

    Raises InputError with a sentence for a value that cannot be.
    """
    if not _NODE_NAME.fullmatch(node_name):
        raise InputError(f"node name {node_name!r} is not one of Kubernetes; accepted: lower-case letters, digits, - and .")
    options: dict[str, Any] = {"nvidia_smi": nvidia_smi, "sysfs_root": sysfs_root, "timeout_s": timeout_s}
    try:
        return AgentSettings(node_name=node_name, **{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        raise InputError(f"agent settings: {first_problem(error)}") from error
