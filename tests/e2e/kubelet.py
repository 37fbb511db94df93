"""kubelet of one node of a test: its configuration and its command.

Flags and fields are a real node's but where that would slow tests down, want more of the machine than it has to give, or guard against what no test does
(disk pressure, image collection). Its paths are the defaults: it lives in an enclosure. `tests.e2e.node` starts it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from tests.e2e.calls import HTTP, answers_ok
from tests.e2e.containerd import SOCKET
from tests.e2e.enclosure import KUBELET, Enclosure, InsideProgram
from tests.e2e.program import free_port

JsonObject = dict[str, Any]


class Kubelet:
    """One kubelet; ``fields`` add to, or replace, those of its configuration."""

    def __init__(self, enclosure: Enclosure, program: Path, identity: Mapping[str, str | Path], logs: Path, fields: Mapping[str, Any]) -> None:
        self._enclosure = enclosure
        self._ports = free_port(), free_port()
        self._fields = fields
        self.started_at = datetime.now(UTC)
        self._configuration = enclosure.directory / "kubelet.json"
        command = (program, "--config", self._configuration, *(f"--{name}={value}" for name, value in identity.items()), "-v=2")
        self.program: InsideProgram = enclosure.program("kubelet", command, logs / "kubelet.log")

    def write(self, cgroup: str) -> None:
        """Write its configuration, with the folder of its cgroups; once a node."""
        self._configuration.write_bytes(orjson.dumps({**self._defaults(cgroup), **self._fields}, option=orjson.OPT_INDENT_2))

    def start(self) -> None:
        """Start it, also again; it is healthy when this returns."""
        self.started_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)  # the API's times are whole seconds
        self.program.start().wait_ready(self.healthy)

    def healthy(self) -> bool:
        """Whether it says so."""
        return answers_ok(f"http://127.0.0.1:{self._ports[1]}/healthz")

    def pods(self) -> list[str]:
        """Return the names of the pods that it knows, but for static ones."""
        answer = HTTP.get(f"https://127.0.0.1:{self._ports[0]}/pods")
        metadata = [each["metadata"] for each in answer.json()["items"] or ()]
        return sorted(each["name"] for each in metadata if each["annotations"]["kubernetes.io/config.source"] == "api")

    @property
    def pod_resources(self) -> Path:
        """The socket of PodResources."""
        return self._enclosure.kubelet / "pod-resources" / "kubelet.sock"

    @property
    def device_plugins(self) -> Path:
        """Where device plugins put their sockets."""
        return self._enclosure.kubelet / "device-plugins"

    @property
    def checkpoint(self) -> Path:
        """What it remembers of the devices that it gave to containers."""
        return self.device_plugins / "kubelet_internal_checkpoint"

    def ids_of(self, pod_uid: str) -> dict[str, set[str]]:
        """Return the device ids that it gave to the containers of a pod, by its checkpoint."""
        entries = orjson.loads(self.checkpoint.read_bytes())["Data"]["PodDeviceEntries"] or ()
        found: dict[str, set[str]] = {}
        for entry in entries:
            if entry["PodUID"] == pod_uid:
                found.setdefault(entry["ContainerName"], set()).update(one for ids in entry["DeviceIDs"].values() for one in ids)
        return found

    @property
    def static_pods(self) -> Path:
        """Where manifests of static pods lie."""
        return self._enclosure.kubelet / "manifests"

    def _defaults(self, cgroup: str) -> JsonObject:
        port, health = self._ports
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": port,
            "healthzPort": health,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroup}",
            "failCgroupV1": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
            "resolvConf": "",
            "makeIPTablesUtilChains": False,
            "staticPodPath": f"{KUBELET}/manifests",
            "volumePluginDir": f"{KUBELET}/volume-plugins",
            # Not what a test waits for: a device shows in the Node's status, and a static pod starts, within a second.
            "nodeStatusUpdateFrequency": "1s",
            "fileCheckFrequency": "1s",
            # A container that crashes starts again at once, and then after this long instead of 10, 20, 40 s; kubelet is restarted within it.
            "crashLoopBackOff": {"maxContainerRestartPeriod": "3s"},
            "kubeAPIQPS": 500,
            "kubeAPIBurst": 1000,
            "eventRecordQPS": 0,
            "serializeImagePulls": False,
            "maxPods": 250,
        }
