"""The agent of a real node as its DaemonSet runs it: the shipped manifest with the hand-off turned on as docs/hand-off.md says, by the DaemonSet controller, kubelet and containerd.

`DaemonSetAgent` stands where `tests.e2e.node_agent.NodeAgent` stands otherwise: same machine, same stand-ins. Its account, its capabilities, its seccomp profile, its read-only root and every path of the node that
it has are the manifest's. What a test replaces is what this machine has not: `_for_a_test` names it all.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from extender.sample_machines import SAMPLE_MACHINES
from tests.e2e import cgroups
from tests.e2e.agents import agent_command
from tests.e2e.control_plane import NAMESPACE
from tests.e2e.image import IMAGE
from tests.e2e.node import RealNode
from tests.e2e.node_agent import FAST, NodeGpus
from tests.e2e.program import free_port, wait_until

JsonObject = dict[str, Any]

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
NAME: Final = "linkwise-agent"
# Where this Python and what it runs are, as the image has them in one folder of its own.
_PYTHON: Final = tuple(dict.fromkeys(map(Path, ("/usr", "/lib", "/lib64", sys.base_prefix, sys.prefix, MANIFESTS.parent))))


class DaemonSetAgent(NodeGpus):
    """The DaemonSet on a node; `start` and `stop` create and delete it."""

    def __init__(self, node: RealNode, kind: str = "dgx1v") -> None:
        command = agent_command(node.directory / "agent", kind, node.name)
        nvidia_smi, sysfs = (Path(command[command.index(option) + 1]) for option in ("--nvidia-smi", "--sysfs-root"))
        super().__init__(node, SAMPLE_MACHINES[kind], nvidia_smi)
        self.state = node.enclosure.state
        self._sysfs = sysfs
        self._cgroups = cgroups.show(node.directory.name, node.directory / "cgroups")

    def start(self) -> "DaemonSetAgent":
        """Create what it needs and the DaemonSet; its pod runs when this returns."""
        api = self.node.plane.api()
        authority = self.node.plane.certificate_authority.read_text()
        api.apply({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "runc"})
        # A controller puts it into every namespace, where it runs.
        api.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt", "namespace": NAMESPACE}, "data": {"ca.crt": authority}}
        )
        self.node.plane.start_controller_manager("daemonset-controller")
        api.apply(self._for_a_test(self._rendered()))
        wait_until(lambda: api.get("DaemonSet", NAME, NAMESPACE).get("status", {}).get("numberReady") == 1, 60, self._why)
        return self

    def stop(self) -> None:
        """Delete it and its pods, in this order, so that none comes back."""
        api = self.node.plane.api()
        api.delete("DaemonSet", NAME, NAMESPACE)
        self.delete_pod()
        wait_until(lambda: not self.pods(), 30, "the agent's pod is gone")

    def pods(self) -> list[JsonObject]:
        """Return its pods: one, or two while one takes over."""
        return self.node.plane.api().items("Pod", NAMESPACE, labels=f"app.kubernetes.io/name={NAME}")

    def delete_pod(self) -> None:
        """Delete its pod, as an update of the DaemonSet does; another one takes over."""
        for each in self.pods():
            self.node.plane.api().delete("Pod", each["metadata"]["name"], NAMESPACE)

    def log(self) -> list[str]:
        """Return the lines that the agent wrote."""
        return [line for each in self.pods() for line in self.node.log(each["metadata"]["name"], "agent", namespace=NAMESPACE)]

    def _why(self) -> str:
        return f"the agent's pod is ready: {[each['status'] for each in self.pods()]}\n" + "\n".join(self.log()[-20:])

    def _rendered(self) -> JsonObject:
        """Return the DaemonSet as `kubectl kustomize` makes it once an administrator has turned the hand-off on."""
        folder = self.node.directory / "manifests"
        shutil.copytree(MANIFESTS, folder)
        kustomization = folder / "kustomization.yaml"
        kustomization.write_text(kustomization.read_text().replace("# components:\n#   - hand-off\n", "components:\n  - hand-off\n"))
        items: list[JsonObject] = list(yaml.safe_load_all(self.node.plane.kubectl("kustomize", folder)))
        return next(item for item in items if item["kind"] == "DaemonSet")

    def _for_a_test(self, item: JsonObject) -> JsonObject:
        """Return it with what this machine has in place of an image, of a network for pods, of GPUs, and of a machine that has this node alone."""
        spec = item["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        container |= {"image": IMAGE, "imagePullPolicy": "Never", "command": [sys.executable, "-m", "extender"]}
        spec["hostNetwork"] = True
        port, server = free_port(), self.node.plane.url.rpartition(":")[2]
        container["args"] = [f"--metrics-port={port}" if argument.startswith("--metrics-port") else argument for argument in container["args"]]
        container["ports"][0]["containerPort"] = port
        container["livenessProbe"]["httpGet"]["host"] = "127.0.0.1"
        environment = {
            **FAST,
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": server,
            "LINKWISE_AGENT_NVIDIA_SMI": str(self.nvidia_smi),
            "LINKWISE_AGENT_SYSFS_ROOT": str(self._sysfs),
            "LINKWISE_AGENT_CGROUP_ROOT": str(self._cgroups),  # links into /sys/fs/cgroup, which is the manifest's
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        container["env"] += [{"name": name, "value": value} for name, value in environment.items()]
        (nvidia_cdi,) = (volume for volume in spec["volumes"] if volume["name"] == "nvidia-cdi")
        nvidia_cdi["hostPath"]["path"] = str(self.node.directory / "nvidia-cdi")  # not the machine's own /etc/cdi
        for number, path in enumerate(_read(self.node.directory)):
            spec["volumes"].append({"name": f"machine-{number}", "hostPath": {"path": str(path)}})
            container["volumeMounts"].append({"name": f"machine-{number}", "mountPath": str(path), "readOnly": True})
        return item


def _read(directory: Path) -> Iterator[Path]:
    """Yield the folders that stand for an image: none of them lies in another."""
    folders = sorted({path for path in (*_PYTHON, directory) if path.exists()}, key=lambda path: len(path.parts))
    for number, path in enumerate(folders):
        if not any(path.is_relative_to(other) for other in folders[:number]):
            yield path
