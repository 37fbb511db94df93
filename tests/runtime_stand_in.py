"""A stand-in for containerd or CRI-O: a real gRPC server of CRI v1 on a unix socket, whose answers are encoded here, independently of what the agent declares.

The numbers are those of k8s.io/cri-api/pkg/apis/runtime/v1/api.proto; answers hold fields that have to be skipped, as those of the real ones do.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tests.kubelet_stand_in import _message, _number, _text

JsonObject = dict[str, Any]


@dataclass
class Ran:
    """One container; ``info`` in place of what a runtime tells about it."""

    pod: str  # NAMESPACE/NAME
    environment: dict[str, str]
    name: str = "main"
    program: str | None = None  # empty: containerd's shim with no word about it; None: nothing is told
    running: bool = True
    info: str | None = None

    def told(self) -> str:
        """Return what the runtime tells about it, as JSON."""
        spec = {"ociVersion": "1.2.0", "process": {"args": ["sh"], "env": [f"{name}={value}" for name, value in self.environment.items()]}}
        options = (
            {}
            if self.program is None
            else {"runtimeType": "io.containerd.runc.v2", "runtimeOptions": {"binary_name": self.program} if self.program else None}
        )
        return json.dumps({"pid": 4711, "runtimeSpec": spec, **options}) if self.info is None else self.info


def containerd_config(cdi_dir: Path) -> JsonObject:
    """Return the configuration of a containerd with CDI and the NVIDIA runtime, as it tells it."""
    runtimes = {
        "runc": {"runtimeType": "io.containerd.runc.v2", "options": None},
        "nvidia": {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": "/usr/bin/nvidia-container-runtime"}},
    }
    return {"enableCDI": True, "cdiSpecDirs": ["/etc/cdi", str(cdi_dir)], "containerd": {"defaultRuntimeName": "runc", "runtimes": runtimes}}


@dataclass
class RuntimeStandIn:
    """What it is and which containers it has; ``config`` None: it tells none, as CRI-O."""

    name: str = "containerd"
    version: str = "2.1.4"
    config: JsonObject | None = None
    containers: list[Ran] = field(default_factory=list)
    broken: bool = False
    vanished: set[int] = field(default_factory=set)  # numbers of containers that are gone when they are asked for

    def answer(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer one call."""
        if self.broken:
            context.abort(grpc.StatusCode.UNAVAILABLE, "server is not initialized yet")
        if method == "Version":
            return _text(1, "0.1.0") + _text(2, self.name) + _text(3, self.version) + _text(4, "v1")
        if method == "Status":
            return _message(1, _message(1, _text(1, "RuntimeReady") + _number(2, 1))) + _info("config", json.dumps(self.config or {}))
        if method == "ListContainers":
            return b"".join(_message(1, _listed(number, one)) for number, one in enumerate(self.containers))
        number = int(request[2 : 2 + request[1]])  # ContainerStatusRequest{1: id}
        if number in self.vanished:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such container")
        return _message(1, _text(1, str(number))) + _info("info", self.containers[number].told())


def _listed(number: int, one: Ran) -> bytes:
    namespace, _, pod = one.pod.partition("/")
    labels = {"io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.name": pod, "io.kubernetes.container.name": one.name}
    state = _number(6, 1 if one.running else 2)
    return (
        _text(1, str(number)) + _text(2, "sandbox") + state + b"".join(_message(8, _text(1, key) + _text(2, value)) for key, value in labels.items())
    )


def _info(key: str, value: str) -> bytes:
    return _message(2, _text(1, key) + _text(2, value))


@contextmanager
def runtime_stand_in(socket: Path) -> Iterator[RuntimeStandIn]:
    """Serve on that socket while the block runs."""
    runtime = RuntimeStandIn()

    def handler(method: str) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: runtime.answer(method, request, context), request_deserializer=bytes, response_serializer=bytes
        )

    methods = {method: handler(method) for method in ("Version", "Status", "ListContainers", "ContainerStatus")}
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", methods),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield runtime
    finally:
        server.stop(0).wait()
        socket.unlink(missing_ok=True)
