"""A node with the hand-off on it, for tests: a stand-in kubelet, the door of an API server, and agents that come and go over one directory.

`node.bind(pod(...).holding(...))` is what the extender and the API server do; `node.run(uid)` what kubelet does with it. Time is not faked: nothing here waits
unless a test lets somebody be in the way.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from extender.sample_machines import sample
from tests.api_door import ApiDoor, api_door
from tests.builders import PodBuilder
from tests.device_kubelet import DeviceKubelet, served_pod_resources
from tests.kubelet_stand_in import KubeletStandIn
from topology.agent.api_server import ApiServer
from topology.agent.handoff.plugin import DevicePlugin
from topology.agent.metrics import Metrics
from topology.agent.settings import AgentSettings
from topology.api import GPUTopology

NODE = "node-a"
GPU = "nvidia.com/gpu"
MEMORY = "linkwise.dev/gpu-memory"

JsonObject = dict[str, Any]


@dataclass
class HandOffNode:
    """The node; ``plugin`` is the agent of the moment."""

    door: ApiDoor
    kubelet: DeviceKubelet
    settings: AgentSettings
    topology: GPUTopology
    api: ApiServer
    plugin: DevicePlugin | None = None
    metrics: Metrics = field(default_factory=Metrics)
    fault_at: str | None = None  # where the agent fails, once
    watching: bool = False  # whether agents watch pods; else their cache moves when a test says so

    # --- the agent ---

    def start_agent(self) -> DevicePlugin:
        """Start an agent, and wait until kubelet has its devices."""
        self.metrics = Metrics()
        self.plugin = DevicePlugin(self.settings, self.api, self.metrics, self._fault)
        if self.watching:
            self.plugin.start()
        else:
            self.plugin._garbage.sweep(self.plugin._cdi, self.plugin._files)
            self.plugin.hand_off._steering._pause = lambda _: None  # nobody brings news meanwhile
            self.catch_up()
        self.see(self.topology)
        self.wait_for_devices()
        return self.plugin

    def stop_agent(self) -> None:
        """End the agent as a signal does."""
        if self.plugin is None:
            return
        if self.watching:
            self.plugin.stop()
        else:
            self.plugin._stopping.set()
            self.plugin._registration.stop()
        self.plugin = None
        self.kubelet.wait_for(lambda: not self.kubelet._plugins)

    def restart_agent(self) -> None:
        """End the agent and start another."""
        self.stop_agent()
        self.start_agent()

    def see(self, topology: GPUTopology) -> None:
        """Let the agent look at the hardware."""
        assert self.plugin is not None
        self.topology = topology
        self.plugin.node_is(topology, {})

    def catch_up(self) -> None:
        """Let the agent's cache of pods be what the API server has."""
        assert self.plugin is not None
        self.plugin._watch.list()

    def wait_for_devices(self) -> None:
        """Wait until kubelet knows the devices of this agent."""
        assert self.plugin is not None
        wanted = {resource: {one.id: one.healthy for one in devices._devices} for resource, devices in self.plugin._devices.items()}
        self.kubelet.wait_for(lambda: self.kubelet.devices == wanted and set(self.kubelet._plugins) == set(wanted))

    def _fault(self, point: str) -> None:
        if point == self.fault_at:
            self.fault_at = None
            raise FaultError(point)

    # --- pods ---

    def bind(self, pod: PodBuilder, uid: str | None = None) -> JsonObject:
        """Let the API server have the pod, bound to this node; returns it."""
        raw = pod.build()
        if uid is not None:
            raw["metadata"]["uid"] = uid
        self.door.pods[f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"] = raw
        return raw

    def run(self, raw: JsonObject) -> dict[str, frozenset[str]]:
        """Admit a pod and start its containers one after the other; returns the GPUs that each GPU container sees."""
        self.kubelet.admit(raw)
        return self.start(raw)

    def start(self, raw: JsonObject) -> dict[str, frozenset[str]]:
        """Start the containers of an admitted pod."""
        uid = raw["metadata"]["uid"]
        found: dict[str, frozenset[str]] = {}
        for container in [*(raw["spec"].get("initContainers") or []), *raw["spec"]["containers"]]:
            if any((uid, container["name"], resource) in self.kubelet.given for resource in (GPU, MEMORY)):
                found[container["name"]] = self.kubelet.start_container(uid, container["name"])
        return found

    def delete(self, raw: JsonObject) -> None:
        """Let a pod end and be gone."""
        self.kubelet.end(raw["metadata"]["uid"])
        self.door.pods.pop(f"{raw['metadata']['namespace']}/{raw['metadata']['name']}", None)

    # --- what is there ---

    def count(self, series: str, **labels: str) -> float:
        """Return a counter of the agent of the moment."""
        return self.metrics.registry.get_sample_value(f"linkwise_agent_{series}_total", labels) or 0.0

    def specs(self) -> list[str]:
        """Return our CDI specs."""
        return sorted(path.name for path in self.settings.cdi_dir.glob("linkwise.dev-*.json"))

    def events(self) -> list[tuple[str, str]]:
        """Return reason and message of the events on pods, as they were said."""
        assert self.plugin is not None
        return [(reason, message) for _, reason, message in self.plugin._events._said]

    def records(self) -> list[JsonObject]:
        """Return the agent's records on disk."""
        return [json.loads(path.read_text()) for path in sorted((self.settings.state_dir / "tokens").glob("*.json"))]


class FaultError(Exception):
    """The agent fails at a named point."""


@contextmanager
def hand_off_node(directory: Path, machine: str = "mesh", **settings: Any) -> Iterator[HandOffNode]:
    """Have a node while the block runs; no agent is there yet."""
    plugins, cdi = directory / "p", directory / "cdi"
    for path in (plugins, cdi):
        path.mkdir()
    with ExitStack() as stack:
        door = stack.enter_context(api_door())
        kubelet = DeviceKubelet(plugins, KubeletStandIn(), cdi)
        kubelet.start()
        stack.callback(kubelet.stop)
        stack.enter_context(served_pod_resources(kubelet, directory / "r.sock"))
        api = ApiServer.connect(door.kubeconfig(directory))
        stack.callback(api.close)
        chosen = {
            "node_name": NODE,
            "hand_off": "cdi",
            "device_plugin_dir": plugins,
            "pod_resources_socket": directory / "r.sock",
            "cdi_dir": cdi,
            "nvidia_cdi_dirs": (directory / "etc-cdi",),
            "state_dir": directory / "s",
            "cgroup_root": directory / "cgroup",
            "start_patience_s": 0.0,
            **settings,
        }
        node = HandOffNode(door, kubelet, AgentSettings(**chosen), sample(machine, NODE), api)
        stack.callback(node.stop_agent)
        yield node
