"""The agent of a real node in the pod of its DaemonSet (`tests.e2e.shipped`), in the place of `tests.e2e.node_agent.NodeAgent`: same machine, same stand-ins.

Replaced beside what `Shipped.fit` replaces: nvidia-smi and sysfs, and the top of the cgroup filesystem, since this machine has more than this node.
"""

from pathlib import Path

from extender.sample_machines import SAMPLE_MACHINES
from tests.e2e import cgroups
from tests.e2e.agents import agent_command
from tests.e2e.node import RealNode
from tests.e2e.node_agent import FAST, NodeGpus
from tests.e2e.shipped import Shipped


class DaemonSetAgent(NodeGpus):
    """The DaemonSet on a node with a machine of a kind (`extender.sample_machines`)."""

    def __init__(self, node: RealNode, kind: str = "dgx1v") -> None:
        command = agent_command(node.directory / "agent", kind, node.name)
        nvidia_smi, sysfs = (Path(command[command.index(option) + 1]) for option in ("--nvidia-smi", "--sysfs-root"))
        super().__init__(node, SAMPLE_MACHINES[kind], nvidia_smi)
        self.state = node.enclosure.state
        settings = {
            **FAST,
            "LINKWISE_AGENT_NVIDIA_SMI": str(nvidia_smi),
            "LINKWISE_AGENT_SYSFS_ROOT": str(sysfs),
            # Links into /sys/fs/cgroup, which the manifest mounts.
            "LINKWISE_AGENT_CGROUP_ROOT": str(cgroups.show(node.directory.name, node.directory / "cgroups")),
        }
        self.shipped = Shipped(node, "DaemonSet", "linkwise-agent")
        self.shipped.fit(settings, node.directory)
        (nvidia_cdi,) = (volume for volume in self.shipped.pod_spec["volumes"] if volume["name"] == "nvidia-cdi")
        nvidia_cdi["hostPath"]["path"] = str(node.directory / "nvidia-cdi")  # not the machine's own /etc/cdi
        self.shipped.run()
