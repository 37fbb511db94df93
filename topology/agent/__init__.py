"""The node agent: looks at one node's GPUs and says what they are, as a GPUTopology.

    linkwise agent --once  ->  once  ->  probe (asks) -> run (nvidia-smi, bounded) and sysfs (the kernel)
                                           -> publication (facts -> GPUTopology) -> as_yaml

`topology.cli` calls `once` and turns the errors into exit statuses by `exit_status`:

    0   the GPUTopology was printed
    2   nvidia-smi or the driver failed, or what they say describes no node: a sentence on stderr, nothing on stdout
    3   the node has no NVIDIA GPU, or no nvidia-smi: a sentence on stderr, nothing on stdout

A GPUTopology without GPUs does not exist, so the latter two print none. What is found carries its source: `spec.source` says whether the links come
from nvidia-smi or from the kernel's PCIe tree, and the conditions `DriverReady`, `LinksKnown` and `GPUsHealthy` say the same to people.

The running agent, `linkwise agent` without --once, is `running.run_agent`; it alone needs the Kubernetes client and gRPC, so it is imported by name:

    running  ->  prober (probe's `look`, again and again)  and  holders -> pod_resources (kubelet: who holds what)
                   -> wanted (recall: what an earlier look knew; publication; a failing driver) -> publish (api_server, changes) with metrics and said

This package alone in `topology` may talk to Kubernetes. The device plugin is `handoff`.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from topology.agent.probe import probe, utc_now
from topology.agent.publication import as_yaml
from topology.agent.settings import SYSFS_ROOT, TIMEOUT_S, AgentSettings, agent_settings
from topology.errors import LinkwiseError, NvidiaSmiError, NvidiaSmiFailure

__all__ = ["FAILED", "NO_GPUS", "SYSFS_ROOT", "TIMEOUT_S", "AgentSettings", "agent_settings", "as_yaml", "exit_status", "once", "probe"]

FAILED: Final = 2
NO_GPUS: Final = 3


def once(
    node_name: str,
    nvidia_smi: str | None = None,
    sysfs_root: Path | None = None,
    timeout_s: float | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> str:
    """Return the GPUTopology that would be published for this node, as YAML.

    ``nvidia_smi`` is its path (default: found on PATH), ``sysfs_root`` where the node's sysfs is (/sys), ``timeout_s`` how many seconds one call of
    nvidia-smi may take (20); None leaves each to the environment (`LINKWISE_AGENT_…`) or its default. Raises NvidiaSmiError, TopologyError or
    InputError with a sentence; `exit_status` says what a command makes of it.
    """
    return as_yaml(probe(agent_settings(node_name, nvidia_smi, sysfs_root, timeout_s), clock))


def exit_status(error: LinkwiseError) -> int:
    """Return the exit status of `linkwise agent` for an error of `once`: 3 for a node without GPUs, else 2."""
    absent = isinstance(error, NvidiaSmiError) and error.kind in (NvidiaSmiFailure.NO_DEVICES, NvidiaSmiFailure.NOT_FOUND)
    return NO_GPUS if absent else FAILED
