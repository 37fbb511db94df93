"""Workloads of the manifests as users run them: rendered by kustomize, made into pods by their controllers, run by a real node's kubelet and containerd.

`Shipped` is one of them, the Deployment of the extender or the DaemonSet of the agent with the hand-off turned on. Its account, user, capabilities, seccomp profile, read-only root and paths of the node are the
manifest's. What this machine has not is replaced: the image by this Python and this checkout, the pods' network by the machine's (`fit`). `tests.e2e.daemon_set` replaces more.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.control_plane import NAMESPACE
from tests.e2e.image import IMAGE
from tests.e2e.node import RealNode
from tests.e2e.program import free_port, wait_until

JsonObject = dict[str, Any]

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
_CONTROLLERS: Final = {"DaemonSet": "daemonset-controller", "Deployment": "deployment-controller,replicaset-controller"}
# Where this Python and what it runs are, as the image has them in one folder of its own.
_PYTHON: Final = tuple(map(Path, ("/usr", "/lib", "/lib64", sys.base_prefix, sys.prefix, MANIFESTS.parent)))


class Shipped:
    """One workload on one node; ``item`` is its object, which may be changed until `run`."""

    def __init__(self, node: RealNode, kind: str, name: str) -> None:
        self.node = node
        self._api = node.plane.api()
        self._kind, self._name = kind, name
        self.item = next(item for item in _rendered(node) if (item["kind"], item["metadata"]["name"]) == (kind, name))

    @property
    def pod_spec(self) -> JsonObject:
        """The spec of its pods."""
        found: JsonObject = self.item["spec"]["template"]["spec"]
        return found

    @property
    def container(self) -> JsonObject:
        """The one container of its pods."""
        (found,) = self.pod_spec["containers"]
        return found

    def fit(self, environment: Mapping[str, str], *folders: Path) -> dict[str, int]:
        """Let it run on this machine, with those settings and those folders of the machine; returns the ports that it listens on, by name."""
        self.pod_spec["hostNetwork"] = True
        container = self.container
        container |= {"image": IMAGE, "imagePullPolicy": "Never", "command": [sys.executable, "-m", "extender"]}
        ports = {port["name"]: (port["containerPort"], free_port()) for port in container["ports"]}
        for port in container["ports"]:
            before, port["containerPort"] = ports[port["name"]]
            here = {f"port={before}": f"port={port['containerPort']}", "host=0.0.0.0": "host=127.0.0.1"}
            for shipped, fitted in here.items():
                container["args"] = [argument.replace(shipped, fitted) for argument in container["args"]]
        for probe in container.keys() & {"startupProbe", "livenessProbe", "readinessProbe"}:
            container[probe]["httpGet"]["host"] = "127.0.0.1"
        server = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": self.node.plane.url.rpartition(":")[2]}
        settings = {**server, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        container["env"] += [{"name": name, "value": value} for name, value in settings.items()]
        for number, path in enumerate(_outermost(*_PYTHON, *folders)):
            self.pod_spec.setdefault("volumes", []).append({"name": f"machine-{number}", "hostPath": {"path": str(path)}})
            container.setdefault("volumeMounts", []).append({"name": f"machine-{number}", "mountPath": str(path), "readOnly": True})
        return {name: port for name, (_, port) in ports.items()}

    def run(self) -> "Shipped":
        """Create it and what it takes for granted; a pod of it is ready when this returns."""
        authority = {"ca.crt": self.node.plane.certificate_authority.read_text()}  # a controller puts it into every namespace, where it runs
        self._api.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt", "namespace": NAMESPACE}, "data": authority}
        )
        self._api.apply({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "runc"})
        self.node.plane.start_controller_manager(_CONTROLLERS[self._kind])
        self._api.apply(self.item)
        try:
            wait_until(self._is_ready, 60)
        except AssertionError:
            raise AssertionError(f"no pod is ready: {[each['status'] for each in self.pods()]}\n" + "\n".join(self.log()[-20:])) from None
        return self

    def stop(self) -> None:
        """Delete it and then its pods, also one that its controller makes before it hears of that."""
        for kind in (self._kind, "ReplicaSet"):
            for each in self._api.items(kind, NAMESPACE, labels=self._label):
                self._api.delete(kind, each["metadata"]["name"], NAMESPACE)

        def gone() -> bool:
            self.delete_pods()
            return not self.pods()

        # A process that has just begun as the first one of its container ignores the signal: 30 s, until kubelet kills it.
        wait_until(gone, 60, f"the pods of {self._name} are gone")

    def pods(self) -> list[JsonObject]:
        """Return its pods."""
        return self._api.items("Pod", NAMESPACE, labels=self._label)

    def delete_pods(self) -> None:
        """Delete its pods, as an update does; others take over."""
        for each in (each for each in self.pods() if "deletionTimestamp" not in each["metadata"]):
            self._api.delete("Pod", each["metadata"]["name"], NAMESPACE)

    def log(self) -> list[str]:
        """Return the lines that its pods wrote."""
        name = self.container["name"]
        return [line for each in self.pods() for line in self.node.log(each["metadata"]["name"], name, namespace=NAMESPACE)]

    def complaints(self) -> list[str]:
        """Return those of them that are warnings and errors; where it serves it says on standard output, in words."""
        return [line for line in self.log() if '"level":"info"' not in line and not line.startswith("Linkwise serves ")]

    @property
    def _label(self) -> str:
        return f"app.kubernetes.io/name={self._name}"

    def _is_ready(self) -> bool:
        status = self._api.get(self._kind, self._name, NAMESPACE).get("status", {})
        return bool(status.get("numberReady") or status.get("readyReplicas"))


def _rendered(node: RealNode) -> list[JsonObject]:
    """Return what `kubectl kustomize` makes of the manifests once an administrator has turned the hand-off on."""
    folder = node.directory / "manifests"
    if not folder.exists():
        shutil.copytree(MANIFESTS, folder)
        kustomization = folder / "kustomization.yaml"
        kustomization.write_text(kustomization.read_text().replace("# components:\n#   - hand-off\n", "components:\n  - hand-off\n"))
    return list(yaml.safe_load_all(node.plane.kubectl("kustomize", folder)))


def _outermost(*paths: Path) -> Iterator[Path]:
    """Yield those of the folders that exist and lie in none of the others."""
    folders = sorted({path for path in paths if path.exists()}, key=lambda path: len(path.parts))
    for number, path in enumerate(folders):
        if not any(path.is_relative_to(other) for other in folders[:number]):
            yield path
