"""A whole node for `linkwise doctor`, healthy until a test breaks something.

Stand-ins for nvidia-smi, sysfs, container runtime, kubelet, API server and extender, each a real process, file or socket, and the agent's real device plugin
and /healthz.
"""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import yaml

from extender.sample_machines import SAMPLE_MACHINES
from tests.api_door import NODES, ApiDoor, Call, Raw, refused
from tests.hand_off_node import NODE, HandOffNode, hand_off_node
from tests.kubelet_stand_in import KubeletStandIn, kubelet_at
from tests.runtime_stand_in import RuntimeStandIn, containerd_config, runtime_stand_in
from tests.stand_in import Answer, write_nvidia_smi, write_sysfs
from topology.agent.handoff.registration import Registration
from topology.agent.metrics import MetricsServer
from topology.doctor import CHAIN, Asked, examine
from topology.doctor.finding import Finding

MACHINE = SAMPLE_MACHINES["mesh"]
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PROXY = re.compile(r"/api/v1/namespaces/linkwise-system/services/linkwise-extender:extender/proxy(/.*)")


@dataclass
class Extender:
    """What the HTTP face of an extender, or of an agent, answers, by path: status and text."""

    answers: dict[str, tuple[int, str]] = field(default_factory=dict)
    port: int = 0

    def answer(self, path: str) -> tuple[int, str]:
        """Answer one GET."""
        return self.answers.get(path, (404, json.dumps({"Error": f"no node {path.rpartition('/')[2]} with a GPUTopology is known"})))


@dataclass
class DoctorNode:
    """The node; ``denied`` rights are `verb resource`."""

    directory: Path
    hand_off: HandOffNode
    pod_resources: KubeletStandIn
    runtime: RuntimeStandIn
    extender: Extender
    asked: Asked
    denied: set[str] = field(default_factory=set)
    others: list[socket.socket] = field(default_factory=list)  # who else listens, for as long as the node is
    ill: str = ""
    proxy: str = "open"  # or the reason of the API server's refusal
    node_info: str = ""  # containerRuntimeVersion, as kubelet told the API server

    @property
    def registration(self) -> Registration:
        """The agent's registration, whose thread rests."""
        assert self.hand_off.plugin is not None
        return self.hand_off.plugin._registration

    @property
    def door(self) -> ApiDoor:
        """The API server."""
        return self.hand_off.door

    def close_others(self) -> None:
        """Let nobody else listen any more."""
        for other in self.others:
            other.close()

    def look(self, link: str) -> Finding:
        """Return what one link is."""
        [found] = examine(self.asked, tuple(one for one in CHAIN if one.name == link))
        return found.finding

    def set(self, **settings: Any) -> None:
        """Change settings of the agent that doctor reads."""
        self.asked = replace(self.asked, settings=self.asked.settings.model_copy(update=settings))

    def nvidia_smi(self, **how: Any) -> None:
        """Let nvidia-smi answer otherwise, as `tests.stand_in.write_nvidia_smi` has it."""
        write_nvidia_smi(self.directory / "smi", MACHINE, seed=NODE, **how)

    def publish(self, **status: Any) -> None:
        """Let the API server have the node's GPUTopology, seen now."""
        told = {"observedAt": datetime.now(UTC).isoformat(), "holdersObserved": True, **status}
        self.door.topologies[NODE] = {**self.hand_off.topology.to_object(), "status": told}

    def write_nvidia_spec(self, names: str = "uuid", **changes: Any) -> Path:
        """Write NVIDIA's CDI spec, devices named by `uuid` or `index`."""
        devices = []
        for index, uuid in enumerate(MACHINE.uuids(NODE)):
            nodes = [{"path": f"/dev/nvidia{MACHINE.minors[index]}"}]
            devices.append({"name": uuid if names == "uuid" else str(index), "containerEdits": {"deviceNodes": nodes}})
        spec = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices, **changes}
        path = self.directory / "etc-cdi" / "nvidia.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(spec))
        return path

    def plain(self, text: str) -> str:
        """Return a text without what differs from run to run."""
        text = text.replace(str(self.directory), "/node").replace(str(self.asked.agent_port), "8890").replace(str(self.extender.port), "8888")
        return re.sub(r"\.[0-9a-f]{8}\.sock", ".0123abcd.sock", text)

    def _api(self, call: Call) -> Raw | None:
        """Answer for the API server what `ApiDoor` does not know."""
        if call.path == REVIEWS:
            what = call.body["spec"]["resourceAttributes"]
            name = f"{what['verb']} {what['resource']}" + (f"/{what['subresource']}" if what["subresource"] else "")
            return Raw(201, {**call.body, "status": {"allowed": name not in self.denied}})
        if self.node_info and call.path == f"{NODES}{NODE}":
            return Raw(200, {"metadata": {"name": NODE}, "status": {"nodeInfo": {"containerRuntimeVersion": self.node_info}}})
        proxied = _PROXY.fullmatch(call.path)
        if proxied is None:
            return None
        if self.proxy != "open":
            return refused({"Forbidden": 403, "ServiceUnavailable": 503}[self.proxy], self.proxy, "no")
        status, text = self.extender.answer(proxied[1])
        return Raw(status, json.loads(text) if text.startswith("{") else text)


@contextmanager
def doctor_node(directory: Path) -> Iterator[DoctorNode]:
    """Have a healthy node while the block runs."""
    with ExitStack() as stack:
        hand_off = stack.enter_context(hand_off_node(directory))
        registration = hand_off.start_agent()._registration
        # What it does from here on, a test asks for: `node.registration.look()`.
        registration._stopping.set()
        registration._thread.join()
        registration.look()
        runtime = stack.enter_context(runtime_stand_in(directory / "c.sock"))
        runtime.config = containerd_config(hand_off.settings.cdi_dir)
        kubelet = stack.enter_context(kubelet_at(directory / "k.sock"))
        extender = stack.enter_context(serving(Extender()))
        extender.answers["/readyz"] = (200, "ok")
        extender.answers[f"/api/v1/nodes/{NODE}"] = (200, json.dumps({"name": NODE, "free": 3, "total": 4, "closed": None}))
        settings = hand_off.settings.model_copy(
            update={
                "nvidia_smi": str(write_nvidia_smi(directory / "smi", MACHINE, seed=NODE)),
                "sysfs_root": write_sysfs(directory / "kernel", MACHINE),
                "kubeconfig": hand_off.door.kubeconfig(directory),
                "pod_resources_socket": directory / "k.sock",
            }
        )
        asked = Asked(settings, "cdi", runtime_sockets=(directory / "c.sock",), toolkit_dirs=(directory / "bin",))
        node = DoctorNode(directory, hand_off, kubelet, runtime, extender, asked)
        stack.callback(node.close_others)
        server = MetricsServer(0, hand_off.metrics, lambda: node.ill)
        server.start()
        stack.callback(server.stop)
        node.asked = replace(asked, agent_port=server.port)
        hand_off.door.nodes[NODE] = "uid-of-the-node"
        hand_off.door.fault = node._api
        node.publish()
        yield node


@contextmanager
def serving(extender: Extender, host: str = "127.0.0.1") -> Iterator[Extender]:
    """Answer on a free port while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = extender.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    extender.port = server.server_address[1]
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield extender
    finally:
        server.shutdown()
        server.server_close()


__all__ = ["MACHINE", "NODE", "Answer", "DoctorNode", "doctor_node"]
