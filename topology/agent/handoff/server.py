"""One resource's device plugin on its socket: gRPC in, `hand_off` out. kubelet calls it; it knows no pods and no files.

Made by `registration` whenever kubelet makes its directory anew, so a server lives as long as its socket. ListAndWatch streams the devices: at once, whenever
they change, and once more when `send_again` asks for it, which makes kubelet write its checkpoint. A refusal becomes a gRPC error with its sentence;
kubelet shows it on the pod. Threads, since a start may wait for a GPU to become free, and each watching kubelet keeps one.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
import structlog

from topology.agent.handoff import series
from topology.agent.handoff.devices import Device
from topology.agent.handoff.hand_off import HandOff
from topology.agent.handoff.refusal import RefusedStartError
from topology.agent.handoff.wire import HEALTHY, MESSAGES, METHODS, SERVICE, UNHEALTHY
from topology.agent.messages import serialized

_log = structlog.get_logger()

# Starts that wait at the same time, one a pod: kubelet has 110 to 500 pods, and its own loop waits for Allocate, which must not stand behind them. Made when needed.
_THREADS: Final = 512
_STILL_THERE_S: Final = 1.0  # a stream whose kubelet is gone is noticed within this


class Devices:
    """The devices of one resource, as they are told; every stream waits here for news."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._devices: list[Device] = []
        self._news = 0
        self.watchers = 0

    def tell(self, devices: list[Device]) -> bool:
        """Let kubelet know these devices, and return whether they are others than before."""
        with self._changed:
            if devices == self._devices:
                return False
            self._devices = devices
            self._news += 1
            self._changed.notify_all()
            return True

    def send_again(self) -> None:
        """Send the list once more, unchanged."""
        with self._changed:
            self._news += 1
            self._changed.notify_all()

    def watch(self, goes_on: Callable[[], bool]) -> Iterator[list[Device]]:
        """Yield the devices now and whenever there is news, as long as it ``goes_on``."""
        seen = -1
        with self._changed:
            self.watchers += 1
        try:
            while goes_on():
                with self._changed:
                    if self._news == seen:
                        self._changed.wait(_STILL_THERE_S)
                    if self._news == seen:
                        continue
                    seen, devices = self._news, self._devices
                yield devices
        finally:
            with self._changed:
                self.watchers -= 1

    def wake(self) -> None:
        """Let every stream look whether it goes on."""
        with self._changed:
            self._changed.notify_all()


class PluginServer:
    """A device plugin that listens on ``socket``."""

    def __init__(self, resource: str, socket: Path, hand_off: HandOff, devices: Devices, told: Callable[[], None]) -> None:
        """Serve at once; ``told`` is called when a container was started. Raises RuntimeError where the socket cannot be had."""
        self.resource = resource
        self.socket = socket
        self._hand_off = hand_off
        self._devices = devices
        self._told = told
        self._stopping = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(_THREADS, thread_name_prefix=f"plugin-{socket.stem}"))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, self._handlers()),))
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def stop(self) -> None:
        """Serve no more; what is under way is cancelled, and kubelet tries again."""
        self._stopping.set()
        self._devices.wake()
        self._server.stop(0).wait()

    def options(self) -> Any:
        """Return what kubelet has to know of this plugin."""
        return MESSAGES["DevicePluginOptions"](pre_start_required=True, get_preferred_allocation_available=self._hand_off.steers(self.resource))

    def _handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":  # generic in the stubs alone
        answers: dict[str, Callable[[Any, grpc.ServicerContext], Any]] = {
            "GetDevicePluginOptions": lambda _request, _context: self.options(),
            "ListAndWatch": self._list_and_watch,
            "GetPreferredAllocation": self._guarded(self._prefer),
            "Allocate": self._guarded(self._allocate),
            "PreStartContainer": self._guarded(self._start),
        }
        handlers = {}
        for name, (request, _, streams) in METHODS.items():
            make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
            handlers[name] = make(answers[name], request_deserializer=MESSAGES[request].FromString, response_serializer=serialized)
        return handlers

    def _guarded(self, answer: Callable[[Any], Any]) -> Callable[[Any, grpc.ServicerContext], Any]:
        """Turn what is raised into what kubelet understands."""

        def guarded(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                return answer(request)
            except RefusedStartError as refusal:
                _abort(context, grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
            except Exception as error:  # noqa: BLE001  # our bug must end in a container that does not start, not in a thread that dies
                self._hand_off.count_bug()
                _log.exception("a call of kubelet failed, which is a bug in Linkwise")
                _abort(context, grpc.StatusCode.INTERNAL, f"the hand-off failed, which is a bug in Linkwise ({series.BUG}): {error!r}")

        return guarded

    def _list_and_watch(self, _request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        for devices in self._devices.watch(lambda: context.is_active() and not self._stopping.is_set()):
            yield MESSAGES["ListAndWatchResponse"](devices=[_message(device) for device in devices])

    def _prefer(self, request: Any) -> Any:
        answers = []
        for one in request.container_requests:
            available, included = frozenset(one.available_deviceIDs), frozenset(one.must_include_deviceIDs)
            found = self._hand_off.prefer(self.resource, available, included, one.allocation_size)
            answers.append(MESSAGES["ContainerPreferredAllocationResponse"](deviceIDs=found))
        return MESSAGES["PreferredAllocationResponse"](container_responses=answers)

    def _allocate(self, request: Any) -> Any:
        answers = [self._hand_off.allocate(self.resource, frozenset(one.devices_ids)) for one in request.container_requests]
        return MESSAGES["AllocateResponse"](container_responses=answers)

    def _start(self, request: Any) -> Any:
        self._hand_off.start(self.resource, frozenset(request.devices_ids))
        self._told()
        return MESSAGES["PreStartContainerResponse"]()


def _message(device: Device) -> Any:
    topology = None if device.numa_node is None else MESSAGES["TopologyInfo"](nodes=[MESSAGES["NUMANode"](ID=device.numa_node)])
    return MESSAGES["Device"](ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY, topology=topology)


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, sentence: str) -> NoReturn:
    context.abort(code, sentence)
    raise AssertionError("abort raises")
