"""The node agent of a test: `linkwise agent` with a stand-in nvidia-smi and sysfs of one of the five sample machines.

`observe` runs it once and returns what it would publish. A test that wants it published by somebody else (`LiveCluster.publish`) takes this one; the UUIDs
are made from the node's name, as those of `extender.sample_machines.sample` are.
"""

import subprocess
import sys
from pathlib import Path

import yaml

from extender.sample_machines import SAMPLE_MACHINES
from tests.stand_in import write_nvidia_smi, write_sysfs
from topology.api import GPUTopology, read_gputopology


def agent_command(directory: Path, kind: str, node: str) -> list[str | Path]:
    """Write the stand-ins of a machine below ``directory`` (its own, empty), and return the agent's command on them."""
    machine = SAMPLE_MACHINES[kind]
    nvidia_smi = write_nvidia_smi(directory / "bin", machine, seed=node)
    sysfs = write_sysfs(directory, machine)
    return [sys.executable, "-m", "extender", "agent", "--node-name", node, "--nvidia-smi", nvidia_smi, "--sysfs-root", sysfs]


def observe(directory: Path, kind: str, node: str) -> GPUTopology:
    """Return the GPUTopology that the agent of a node of that kind finds now."""
    done = subprocess.run([*agent_command(directory, kind, node), "--once", "--dry-run"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return read_gputopology(yaml.safe_load(done.stdout))
