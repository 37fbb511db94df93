"""The agent of a real node: `linkwise agent` as a process inside, with a stand-in nvidia-smi and sysfs, and the hand-off switched on.

It runs as the DaemonSet's pod would: kubelet's sockets, the CDI folder and the processes are those of the node, at their usual paths. What is its own on the
node (`/var/lib/linkwise`) lies in the node's folder, by the same path inside and outside, and outlives a reboot.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families

from extender.sample_machines import SAMPLE_MACHINES, SampleMachine
from tests.e2e import cgroups
from tests.e2e.agents import agent_command
from tests.e2e.calls import HTTP
from tests.e2e.enclosure import InsideProgram
from tests.e2e.node import RealNode
from tests.e2e.objects import GPU
from tests.e2e.program import free_port, wait_until
from tests.stand_in import Answer, losing, write_nvidia_smi

# So that a test takes seconds; the pace of the hand-off itself is the one that is shipped.
FAST = {
    "LINKWISE_AGENT_PROBE_EVERY_S": "0.5",
    "LINKWISE_AGENT_FAILING_EVERY_S": "0.5",
    "LINKWISE_AGENT_HOLDERS_EVERY_S": "0.5",
    "LINKWISE_AGENT_LOOK_UP_EVERY_S": "1",
}


class NodeGpus:
    """The GPUs of a real node, as stand-ins play them, and what its agent makes of them; ``state`` is the agent's own folder.

    However the agent runs: as a process of the node (`NodeAgent`), or in the pod of its DaemonSet (`tests.e2e.daemon_set`).
    """

    state: Path

    def __init__(self, node: RealNode, machine: SampleMachine, nvidia_smi: Path) -> None:
        self.node = node
        self.machine = machine
        self.uuids = machine.uuids(node.name)
        self.nvidia_smi = nvidia_smi

    def wait_allocatable(self, timeout: float = 60) -> Self:
        """Wait until kubelet offers all GPUs."""
        wait_until(lambda: self.node.allocatable(GPU) == self.machine.size, timeout, f"{self.machine.size} GPUs are allocatable")
        return self

    def wait_registered(self) -> None:
        """Wait until the agent has said that kubelet knows it; what kubelet offers is on the Node a moment before."""
        wait_until(lambda: self.condition("HandOffRegistered")["status"] == "True", 20, "the agent tells that it is registered")

    def condition(self, kind: str) -> dict[str, Any]:
        """Return a condition that the agent has published."""
        (found,) = (each for each in self.topology()["status"]["conditions"] if each["type"] == kind)
        return dict(found)

    def lose(self, gpu: int) -> None:
        """Let nvidia-smi report a GPU lost from now on."""
        self._install("lost", losing(self.machine, gpu, self.node.name))

    def repair(self) -> None:
        """Let nvidia-smi report all GPUs again."""
        self._install("whole", {})

    def _install(self, name: str, replaced: Mapping[str, Answer]) -> None:
        """Let another nvidia-smi answer, between two calls and never within one."""
        folder = self.nvidia_smi.parent
        script = write_nvidia_smi(folder / name, self.machine, seed=self.node.name, replaced=replaced)
        new = folder / "new"
        new.symlink_to(script)
        new.replace(self.nvidia_smi)

    def topology(self) -> dict[str, Any]:
        """Return what the agent has published."""
        return self.node.plane.api().get("GPUTopology", self.node.name)


class NodeAgent(NodeGpus):
    """One agent on a machine of a kind (`extender.sample_machines`).

    ``environment`` adds to its settings, ``server`` is another way to the API server (`FaultProxy.url`).
    """

    def __init__(
        self,
        node: RealNode,
        kind: str = "dgx1v",
        environment: Mapping[str, str] | None = None,
        *,
        user: str = "linkwise-agent",
        server: str | None = None,
    ) -> None:
        command = agent_command(node.directory / "agent", kind, node.name)
        super().__init__(node, SAMPLE_MACHINES[kind], Path(command[command.index("--nvidia-smi") + 1]))
        self.state = node.directory / "linkwise"
        self._command = [*command, "--kubeconfig", node.plane.kubeconfig(user, server=server)]
        self._metrics = free_port()
        self._fault = node.directory / "fault"
        self._environment = {
            **FAST,
            "LINKWISE_AGENT_METRICS_PORT": str(self._metrics),
            "LINKWISE_AGENT_HAND_OFF": "cdi",
            "LINKWISE_AGENT_STATE_DIR": str(self.state),
            "LINKWISE_AGENT_FAULT_FILE": str(self._fault),
            "LINKWISE_AGENT_NVIDIA_CDI_DIRS": "[]",  # not the machine's own
            "LINKWISE_AGENT_CGROUP_ROOT": str(cgroups.show(node.directory.name, node.directory / "cgroups")),
            **(environment or {}),
        }
        self.program: InsideProgram = self.start()

    def start(self, environment: Mapping[str, str] | None = None) -> InsideProgram:
        """Start it, also again, and return its process; ``environment`` adds to its settings this once."""
        self.program = self.node.run("agent", self._command, {**self._environment, **(environment or {})})
        return self.program

    def start_before_kubelet(self) -> None:
        """Start it while no kubelet runs; it has looked at the hardware when this returns, and registers as soon as it can.

        A DaemonSet's agent comes after kubelet, which has rejected the pods with devices by then, as it does with every device plugin.
        """
        self.start()
        wait_until(lambda: self.metric("linkwise_agent_probe_seconds_count"), 30, "the agent has looked at the hardware")

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that carry these labels; 0 where there is none, or nobody answers."""
        try:
            text = HTTP.get(f"http://127.0.0.1:{self._metrics}/metrics").text
        except httpx.HTTPError:
            return 0
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return sum(sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items())

    def restart(self, environment: Mapping[str, str] | None = None) -> None:
        """End it, unless it has ended, and start it again; kubelet offers its GPUs when this returns. ``environment`` as in `start`."""
        self.stop()
        self.start(environment)
        self.wait_allocatable()

    def stop(self) -> None:
        """End it, and wait until the Node says that nothing is offered."""
        self.program.stop()
        wait_until(lambda: self.node.allocatable(GPU) == 0, 20, "no GPU is allocatable")

    def die_at(self, point: str) -> None:
        """Let it kill itself when it next passes a point of the hand-off (`topology.agent.handoff.faults`)."""
        self._fault.write_text(point)
