"""The node agent of a test: `linkwise agent` with a stand-in nvidia-smi and sysfs of a sample machine.

`start_agent` runs one under its own account for tests of what becomes of a topology; what the agent itself does is the business of `test_agent`. UUIDs
are made from the node's name, as those of `extender.sample_machines.sample` are. There is no kubelet, so nobody observes who holds which GPU.
"""

import sys
from pathlib import Path

from extender.sample_machines import SAMPLE_MACHINES, SampleMachine
from tests.e2e.control_plane import ControlPlane
from tests.e2e.program import Program
from tests.stand_in import write_nvidia_smi, write_sysfs


def agent_command(directory: Path, kind: str | SampleMachine, node: str) -> list[str | Path]:
    """Write the stand-ins of a machine below ``directory`` (its own, empty), and return the agent's command on them."""
    machine = SAMPLE_MACHINES[kind] if isinstance(kind, str) else kind
    nvidia_smi = write_nvidia_smi(directory / "bin", machine, seed=node)
    sysfs = write_sysfs(directory, machine)
    return [sys.executable, "-m", "extender", "agent", "--node-name", node, "--nvidia-smi", nvidia_smi, "--sysfs-root", sysfs]


def start_agent(plane: ControlPlane, directory: Path, kind: str | SampleMachine, node: str) -> Program:
    """Start the agent of a node with such a machine; what it publishes is there a moment later."""
    command = [*agent_command(directory, kind, node), "--kubeconfig", plane.kubeconfig("linkwise-agent")]
    return plane.run(f"agent-{node}", command, {"LINKWISE_AGENT_POD_RESOURCES_SOCKET": str(directory / "no-kubelet.sock")})
