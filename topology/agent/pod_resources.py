"""Asks kubelet which container holds which device: PodResources v1, gRPC over a unix socket on the node.

Called by `holders`, every few seconds, and by `handoff.kubelet`. One question, `List`; what the device ids mean is `holders`' business. kubelet answers 100 calls a second with
bursts of ten, all its clients together, and refuses more with ResourceExhausted: such a call is repeated.

The messages are declared here and built when the module is loaded (`messages`). Source of names and numbers:
k8s.io/kubelet/pkg/apis/podresources/v1/api.proto, Kubernetes 1.36, the part that is read; unknown fields are skipped, as protobuf does.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from topology.agent.messages import Fields, message_classes, serialized
from topology.errors import InternalError, LinkwiseError

_METHOD: Final = "/v1.PodResourcesLister/List"
_MESSAGES: Final[dict[str, Fields]] = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", 1, "PodResources"),),
    "PodResources": (("name", 1, ""), ("namespace", 2, ""), ("containers", 3, "ContainerResources")),
    "ContainerResources": (("name", 1, ""), ("devices", 2, "ContainerDevices"), ("cpu_ids", 3, "repeated int64"), ("memory", 4, "ContainerMemory")),
    "ContainerMemory": (("memory_type", 1, ""),),
    "ContainerDevices": (("resource_name", 1, ""), ("device_ids", 2, "repeated string")),
}

_MOST_BYTES: Final = 16 * 1024 * 1024  # kubelet's own limit for its clients
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.default_authority", "localhost"),  # else the path of the socket, percent-encoded, which servers may refuse
    ("grpc.enable_http_proxy", 0),
    # A channel a call, and nothing of the last one: kubelet makes a new socket whenever it starts, and a shared connection would sit out its back-off.
    ("grpc.use_local_subchannel_pool", 1),
)
_TIMEOUT_S: Final = 3.0  # kubelet answers from memory
_PAUSES_S: Final = (0.05, 0.2, 0.5)  # between the tries of a refused call; kubelet grants a call every 10 ms


class PodResourcesError(LinkwiseError):
    """kubelet did not tell; ``absent``: there is no socket to ask at."""

    def __init__(self, message: str, *, absent: bool = False) -> None:
        super().__init__(message)
        self.absent = absent


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """One device of one container, as kubelet names them; pods are named without their UID."""

    namespace: str
    pod: str
    container: str
    resource: str
    device: str


def list_claims(socket: Path, sleep: Callable[[float], None] = time.sleep) -> frozenset[Claim]:
    """Return every device that kubelet has given to a container; raises PodResourcesError with a sentence.

    kubelet lists a resource of a container once per NUMA node; here they are joined.
    """
    return frozenset(_claims(_answer(socket, sleep)))


def list_aligned(socket: Path, own: Collection[str], sleep: Callable[[float], None] = time.sleep) -> frozenset[tuple[str, str, str]]:
    """Return the containers (namespace, pod, container) that kubelet gave anything but devices of ``own`` resources for themselves.

    CPUs and memory are told of the static policies alone, of others' devices always: what is told is what a topology manager may have aligned. Raises PodResourcesError.
    """
    return frozenset(
        (pod.namespace, pod.name, container.name)
        for pod in _answer(socket, sleep).pod_resources
        for container in pod.containers
        if container.cpu_ids or container.memory or any(entry.resource_name not in own for entry in container.devices)
    )


def _answer(socket: Path, sleep: Callable[[float], None]) -> Any:
    if not socket.exists():
        raise PodResourcesError(f"kubelet's socket {socket} does not exist; is its directory mounted here?", absent=True)
    for pause in (*_PAUSES_S, None):
        try:
            return _ask(socket)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or pause is None:
                raise _failed(socket, error) from error
        sleep(pause)
    raise InternalError("the last try neither returned nor raised")


def _failed(socket: Path, error: grpc.RpcError) -> PodResourcesError:
    return PodResourcesError(f"kubelet does not answer PodResources List at {socket}: {error.code().name}, {error.details() or 'no message'}")


def _ask(socket: Path) -> Any:
    with grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        call = channel.unary_unary(_METHOD, request_serializer=serialized, response_deserializer=_RESPONSE.FromString)
        return call(_REQUEST(), timeout=_TIMEOUT_S)


def _claims(response: Any) -> Iterator[Claim]:
    for pod in response.pod_resources:
        for container in pod.containers:
            for entry in container.devices:
                for device in entry.device_ids:
                    yield Claim(pod.namespace, pod.name, container.name, entry.resource_name, device)


_CLASSES: Final = message_classes("v1", _MESSAGES)
_REQUEST: Final = _CLASSES["ListPodResourcesRequest"]
_RESPONSE: Final = _CLASSES["ListPodResourcesResponse"]
