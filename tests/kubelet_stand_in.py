"""A stand-in for kubelet's PodResources: a real gRPC server on a unix socket, whose answers are encoded here, independently of what the agent declares.

The numbers are those of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto; beside what the agent reads, an answer holds what it has to skip (CPUs, memory,
NUMA nodes, claims), as kubelet's does.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

METHOD = "/v1.PodResourcesLister/List"


@dataclass(frozen=True, slots=True)
class Devices:
    """One entry of a container: devices of a resource on one NUMA node."""

    ids: tuple[str, ...]
    resource: str = "nvidia.com/gpu"
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class HeldBy:
    """What one container of a pod holds; ``pod`` is NAMESPACE/NAME."""

    pod: str
    container: str
    devices: tuple[Devices, ...]
    is_pinned: bool = True  # it has CPUs and memory for itself


@dataclass
class KubeletStandIn:
    """What it answers, and how often it refuses first."""

    held: list[HeldBy] = field(default_factory=list)
    refusals: int = 0  # answers of ResourceExhausted that come first
    broken: bool = False
    calls: int = 0

    def hold(self, pod: str, *ids: str, container: str = "main") -> None:
        """Let a container hold devices of the GPU resource, told in one entry."""
        self.held.append(HeldBy(pod, container, (Devices(ids),)))

    def release(self, pod: str) -> None:
        """Let a pod hold nothing any more."""
        self.held = [held for held in self.held if held.pod != pod]

    def answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer one List."""
        self.calls += 1
        assert request == b"", "ListPodResourcesRequest has no fields"
        if self.refusals:
            self.refusals -= 1
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        if self.broken:
            context.abort(grpc.StatusCode.INTERNAL, "the device manager is not ready")
        return b"".join(_message(1, _pod(held)) for held in self.held)


@contextmanager
def kubelet_at(socket: Path) -> Iterator[KubeletStandIn]:
    """Serve on that socket while the block runs; the socket is there when it begins and gone when it ends, as with kubelet."""
    kubelet = KubeletStandIn()
    handler = grpc.unary_unary_rpc_method_handler(kubelet.answer, request_deserializer=bytes, response_serializer=bytes)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield kubelet
    finally:
        server.stop(0).wait()
        socket.unlink(missing_ok=True)


# --- protobuf, as far as it is needed here --------------------------------------------------------------------------


def _pod(held: HeldBy) -> bytes:
    namespace, _, name = held.pod.partition("/")
    return _text(1, name) + _text(2, namespace) + _message(3, _container(held))


def _container(held: HeldBy) -> bytes:
    cpus = _message(3, _varint(2) + _varint(3))  # packed int64
    memory = _message(4, _text(1, "memory") + _number(2, 1 << 30) + _message(3, _numa(0)))
    pinned = cpus + memory if held.is_pinned else b""
    claims = _message(5, _text(2, "claim") + _text(3, "default") + _message(4, _message(1, _text(1, "vendor.com/nic=nic0"))))
    return _text(1, held.container) + b"".join(_message(2, _devices(entry)) for entry in held.devices) + pinned + claims


def _devices(entry: Devices) -> bytes:
    topology = b"" if entry.numa_node is None else _message(3, _numa(entry.numa_node))
    return _text(1, entry.resource) + b"".join(_text(2, one) for one in entry.ids) + topology


def _numa(node: int) -> bytes:
    return _message(1, _number(1, node))


def _text(number: int, value: str) -> bytes:
    return _message(number, value.encode())


def _message(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
