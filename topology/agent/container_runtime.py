"""Asks the container runtime what it is and which containers run: CRI v1, gRPC over its unix socket on the node.

Called by `topology.doctor`; the running agent needs no runtime, and its pod does not see the socket. Two questions: `Status` with everything (containerd tells
its own configuration in it, and so whether it knows CDI and which runtimes it has), and the environment of each running container, by `ContainerStatus` with
everything. What a runtime does not tell is None here, never a guess.

Source of names and numbers: k8s.io/cri-api/pkg/apis/runtime/v1/api.proto, Kubernetes 1.36, the part that is read. Source of the JSON in containerd's
answers: internal/cri/config and internal/cri/server of containerd 2.4; 1.7 has the same keys, and ``enableCDI``, which 2.4 has not. CRI-O tells no
configuration, and the same ``runtimeSpec``.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from topology.agent.messages import Fields, message_classes, serialized
from topology.errors import LinkwiseError

_SERVICE: Final = "/runtime.v1.RuntimeService/"
_RUNNING: Final = 1
_RUNC_SHIM: Final = "io.containerd.runc.v2"
_MESSAGES: Final[dict[str, Fields]] = {
    "VersionRequest": (("version", 1, ""),),
    "VersionResponse": (("version", 1, ""), ("runtime_name", 2, ""), ("runtime_version", 3, ""), ("runtime_api_version", 4, "")),
    "StatusRequest": (("verbose", 1, "bool"),),
    "StatusResponse": (("info", 2, "map of strings"),),
    "ListContainersRequest": (),
    "ListContainersResponse": (("containers", 1, "Container"),),
    "Container": (("id", 1, ""), ("state", 6, "int32"), ("labels", 8, "map of strings")),
    "ContainerStatusRequest": (("container_id", 1, ""), ("verbose", 2, "bool")),
    "ContainerStatusResponse": (("info", 2, "map of strings"),),
}
_CLASSES: Final = message_classes("runtime.v1", _MESSAGES)
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_TIMEOUT_S: Final = 5.0

JsonObject = dict[str, Any]


class RuntimeUnknownError(LinkwiseError):
    """The container runtime did not tell."""


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """A runtime; ``cdi``, ``cdi_dirs`` and ``programs`` (of its OCI runtimes, by name) are None where it tells no configuration."""

    name: str
    version: str
    cdi: bool | None = None
    cdi_dirs: tuple[str, ...] | None = None
    programs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container of a pod; ``program`` is its OCI runtime, empty where that is not told."""

    namespace: str
    pod: str
    name: str
    environment: Mapping[str, str]
    program: str = ""


def runtime_at(socket: Path) -> ContainerRuntime:
    """Return what listens on a socket; raises RuntimeUnknownError with a sentence."""
    with grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        try:
            version = _ask(channel, "Version", version="v1")
            status = _ask(channel, "Status", verbose=True)
        except grpc.RpcError as error:
            raise _failed(socket, error) from error
    return _with_configuration(ContainerRuntime(version.runtime_name, version.runtime_version), _decoded(status.info.get("config", "")))


def running_containers(socket: Path) -> list[RunningContainer]:
    """Return the containers that run, in order of their pods; raises RuntimeUnknownError with a sentence. What ends meanwhile is left out."""
    with grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        try:
            listed = _ask(channel, "ListContainers").containers
            found = [container for one in listed if one.state == _RUNNING for container in _details(channel, one)]
        except grpc.RpcError as error:
            raise _failed(socket, error) from error
    return sorted(found, key=lambda one: (one.namespace, one.pod, one.name))


def _ask(channel: grpc.Channel, method: str, **fields: Any) -> Any:
    call = channel.unary_unary(f"{_SERVICE}{method}", request_serializer=serialized, response_deserializer=_CLASSES[f"{method}Response"].FromString)
    return call(_CLASSES[f"{method}Request"](**fields), timeout=_TIMEOUT_S)


def _failed(socket: Path, error: grpc.RpcError) -> RuntimeUnknownError:
    return RuntimeUnknownError(f"the container runtime does not answer at {socket}: {error.code().name}, {error.details() or 'no message'}")


def _with_configuration(runtime: ContainerRuntime, config: JsonObject) -> ContainerRuntime:
    cdi, directories = config.get("enableCDI"), config.get("cdiSpecDirs")
    runtimes = _object(_object(config.get("containerd")).get("runtimes"))
    programs = {name: str(_object(_object(one).get("options")).get("BinaryName") or name) for name, one in runtimes.items()}
    return ContainerRuntime(
        runtime.name,
        runtime.version,
        cdi if isinstance(cdi, bool) else None,
        tuple(map(str, directories)) if isinstance(directories, list) else None,
        programs or None,
    )


def _details(channel: grpc.Channel, listed: Any) -> Iterator[RunningContainer]:
    try:
        status = _ask(channel, "ContainerStatus", container_id=listed.id, verbose=True)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return
        raise
    info = _decoded(status.info.get("info", ""))
    lines = _object(_object(info.get("runtimeSpec")).get("process")).get("env")
    environment = dict(str(line).partition("=")[::2] for line in lines) if isinstance(lines, list) else {}
    namespace, pod, name = (str(listed.labels.get(f"io.kubernetes.{key}", "?")) for key in ("pod.namespace", "pod.name", "container.name"))
    yield RunningContainer(namespace, pod, name, environment, _program(info))


def _program(info: JsonObject) -> str:
    """Return the OCI runtime of a container; the field had two names over the versions, and its shim takes runc where nothing is said."""
    options = _object(info.get("runtimeOptions"))
    unsaid = "runc" if info.get("runtimeType") == _RUNC_SHIM else ""
    return str(options.get("binary_name") or options.get("BinaryName") or unsaid)


def _decoded(text: str) -> JsonObject:
    try:
        return _object(json.loads(text or "{}"))
    except ValueError:
        return {}


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
