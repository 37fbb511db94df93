"""The node as the checks see it: what was asked for, and the answers that several checks need, each fetched once.

Made by `chain`, read by every check. An answer that failed is kept as its error: the check whose business it is names it, the others skip what they cannot
know. Nothing here changes anything on the node or on the API server.
"""

import os
import socket
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import httpx
from prometheus_client.parser import text_string_to_metric_families

from topology.agent.api_server import ApiServer
from topology.agent.container_runtime import ContainerRuntime, RuntimeUnknownError, runtime_at
from topology.agent.pod_resources import Claim, PodResourcesError, list_claims
from topology.agent.probe import look, utc_now
from topology.agent.publication import Facts, publication
from topology.agent.settings import AgentSettings
from topology.api import GPUTopology, read_gputopology
from topology.errors import InputError, LinkwiseError

RUNTIME_SOCKETS: Final = (
    Path("/run/containerd/containerd.sock"),
    Path("/run/crio/crio.sock"),
    Path("/run/k3s/containerd/containerd.sock"),
)
TOPOLOGIES: Final = "/apis/linkwise.dev/v1alpha1/gputopologies"
AGENT_PODS: Final = "app.kubernetes.io/name=linkwise-agent"  # as manifests/daemonset.yaml has it
REGISTERED: Final = "linkwise_agent_registered"
OUR_SOCKETS: Final = "linkwise-*.sock"
# Where the GPU Operator puts the toolkit, beside PATH.
TOOLKIT_DIRS: Final = (Path("/usr/local/nvidia/toolkit"), Path("/usr/bin"), Path("/usr/local/bin"))
_TIMEOUT_S: Final = 5.0

HandOff = Literal["off", "cdi", "ids"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What `linkwise doctor` was asked: the agent's settings, how to reach the others, and where things lie.

    ``hand_off`` None: as the node looks. ``extender``: its URL; None: through the API server, by ``service`` (NAMESPACE/NAME:PORT).
    """

    settings: AgentSettings
    hand_off: HandOff | None = None
    agent_port: int = 8890
    extender: str | None = None
    service: str = "linkwise-system/linkwise-extender:extender"
    runtime_sockets: tuple[Path, ...] = RUNTIME_SOCKETS
    toolkit_dirs: tuple[Path, ...] = TOOLKIT_DIRS


class Node:
    """One node, looked at once."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.settings = asked.settings
        self.name = asked.settings.node_name
        self.in_pod = "KUBERNETES_SERVICE_HOST" in os.environ  # then much of the node is not to be seen

    @cached_property
    def hand_off(self) -> HandOff:
        """Which hand-off is meant: as told, else as the agent's series and its sockets show."""
        if self.asked.hand_off is not None:
            return self.asked.hand_off
        is_on = REGISTERED in (self.metrics or "") or any(self.settings.device_plugin_dir.glob(OUR_SOCKETS))
        return "cdi" if is_on else "off"

    @cached_property
    def facts(self) -> Facts | InputError:
        """What nvidia-smi and the kernel tell."""
        try:
            return look(self.settings)
        except InputError as error:
            return error

    @cached_property
    def topology_here(self) -> GPUTopology | None:
        """What the agent would publish by them, None where they tell too little."""
        if isinstance(self.facts, InputError):
            return None
        try:
            return publication(self.name, self.facts, utc_now())
        except InputError:
            return None

    @cached_property
    def runtime_socket(self) -> Path | None:
        """The container runtime's socket, where it is to be seen."""
        return next((path for path in self.asked.runtime_sockets if path.exists()), None)

    @cached_property
    def runtime(self) -> ContainerRuntime | RuntimeUnknownError | None:
        """The container runtime by its own word, else as kubelet told the API server; None where neither can be asked."""
        if self.runtime_socket is not None:
            try:
                return runtime_at(self.runtime_socket)
            except RuntimeUnknownError as error:
                return error
        info = self.node_object.get("status", {}).get("nodeInfo", {}) if isinstance(self.node_object, dict) else {}
        name, separator, version = str(info.get("containerRuntimeVersion") or "").partition("://")
        return ContainerRuntime(name, version) if separator else None

    @cached_property
    def claims(self) -> frozenset[Claim] | PodResourcesError:
        """What kubelet gave to containers."""
        try:
            return list_claims(self.settings.pod_resources_socket)
        except PodResourcesError as error:
            return error

    @cached_property
    def metrics(self) -> str | None:
        """The agent's series as text, None where nobody tells."""
        answer = self.ask_agent("/metrics")
        return answer.text if isinstance(answer, httpx.Response) and answer.status_code == 200 else None

    def samples(self, name: str) -> dict[str, float]:
        """Return a series of the agent by its label ``resource``."""
        families = text_string_to_metric_families(self.metrics or "")
        return {one.labels.get("resource", ""): one.value for family in families for one in family.samples if one.name == name}

    def ask_agent(self, path: str) -> httpx.Response | str:
        """Return the answer of the agent, of this pod or network or else of its pod on this node, or why there is none here."""
        here = fetched(f"http://127.0.0.1:{self.asked.agent_port}{path}")
        if isinstance(here, httpx.Response):
            return here
        answers = (fetched(f"http://{f'[{ip}]' if ':' in ip else ip}:{self.asked.agent_port}{path}") for ip in self.agent_pods)
        return next((answer for answer in answers if isinstance(answer, httpx.Response)), here)

    @cached_property
    def agent_pods(self) -> tuple[str, ...]:
        """The addresses of the agent's pods on this node: the DaemonSet's are not in the node's own network. Empty where the account may not list pods."""
        if isinstance(self.api, InputError):
            return ()
        query = {"fieldSelector": f"spec.nodeName={self.name}", "labelSelector": AGENT_PODS}
        try:
            items = self.api.request("GET", "/api/v1/pods", query).get("items") or []
        except LinkwiseError:
            return ()
        return tuple(str(ip) for item in items if (ip := (item.get("status") or {}).get("podIP")))

    @cached_property
    def api(self) -> ApiServer | InputError:
        """The API server, by the agent's kubeconfig or account."""
        try:
            return ApiServer.connect(self.settings.kubeconfig, self.settings.context)
        except InputError as error:
            return error

    @cached_property
    def node_object(self) -> dict[str, Any] | LinkwiseError | None:
        """The Node, None where there is none of the name."""
        return self._got(f"/api/v1/nodes/{self.name}")

    @cached_property
    def topology(self) -> GPUTopology | LinkwiseError | None:
        """The published GPUTopology, None where there is none."""
        found = self._got(f"{TOPOLOGIES}/{self.name}")
        if not isinstance(found, dict):
            return found
        try:
            return read_gputopology(found)
        except InputError as error:
            return error

    def _got(self, path: str) -> dict[str, Any] | LinkwiseError | None:
        if isinstance(self.api, InputError):
            return self.api
        try:
            return self.api.get(path)
        except LinkwiseError as error:
            return error


def fetched(url: str) -> httpx.Response | str:
    """Return what a URL answers, or why nothing came; never by way of a proxy, as all of this is near."""
    try:
        return httpx.get(url, timeout=_TIMEOUT_S, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return str(error) or type(error).__name__


def why_no_answer(path: Path) -> str | None:
    """Return why nobody listens at a unix socket, None where somebody does."""
    if not path.exists():
        return "it does not exist"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.settimeout(1.0)
        try:
            one.connect(str(path))
        except OSError as error:
            return error.strerror or str(error)
    return None
