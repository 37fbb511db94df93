"""Keeps kubelet and our device plugins together: their sockets in kubelet's directory, and the registration on kubelet's own.

A thread, started by `plugin`. A kubelet that starts removes every socket of its directory and makes `kubelet.sock` anew, so a few times a second this looks whether
kubelet's socket is another one, whether ours are still there, and whether kubelet listens to us at all (it drops a plugin whose stream ends). Then our
server is made anew and registered; once kubelet listens and not before, for until then it removes what it finds. While NVIDIA's device plugin serves the same
directory, nothing is registered: two plugins of one resource would take turns, and the other one gives kubelet's ids to containers, whatever was planned.
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import grpc
import structlog

from topology.agent.handoff.hand_off import HandOff
from topology.agent.handoff.series import Series
from topology.agent.handoff.server import Devices, PluginServer
from topology.agent.handoff.wire import KUBELET_SOCKET, MESSAGES, REGISTER, VERSION
from topology.agent.messages import serialized
from topology.agent.said import Said

_log = structlog.get_logger()

_LOOK_EVERY_S: Final = 0.25
_OTHERS_EVERY_S: Final = 2.0
_AGAIN_AFTER_S: Final = (0.5, 5.0)  # first and longest pause after a registration that failed
_STREAM_WITHIN_S: Final = 5.0  # kubelet opens ListAndWatch within milliseconds of a registration
_REGISTER_TIMEOUT_S: Final = 15.0  # kubelet dials back before it answers, for up to 10 s
_OPTIONS: Final = (("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
# The socket of NVIDIA's device plugin for nvidia.com/gpu, by its own naming: nvidia-<last part of the resource>.sock.
OTHER_PLUGINS: Final = ("nvidia-gpu.sock",)


@dataclass(frozen=True, slots=True)
class State:
    """The resources to which kubelet does not listen now, and the socket of another device plugin that is in the way."""

    unheard: frozenset[str]
    other: Path | None = None


class Registration:
    """The sockets of all resources; ``devices`` are what each has to offer. ``changed`` is called, in whatever thread, after ``state`` has changed."""

    def __init__(self, directory: Path, hand_off: HandOff, devices: Mapping[str, Devices], told: Callable[[], None], series: Series) -> None:
        self._directory = directory
        self._hand_off = hand_off
        self._told = told
        self._series = series
        self._said = Said(directory.name)
        self._plugins = [_Plugin(resource, directory, offered) for resource, offered in devices.items()]
        self._other: str | None = None
        self.state = State(frozenset(devices))
        self.changed: Callable[[], None] = lambda: None
        self._ask_others_at = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registration", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End, with the servers."""
        self._stopping.set()
        self._thread.join(_REGISTER_TIMEOUT_S)
        for plugin in self._plugins:
            plugin.stop()

    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.look()
            except Exception:  # noqa: BLE001  # our bug must not leave kubelet without a plugin: the next look may fare better
                _log.exception("a look at kubelet's sockets failed, which is a bug in Linkwise")
            self._stopping.wait(_LOOK_EVERY_S)

    def look(self) -> None:
        """Look once, and register what is not."""
        other = self._other_plugin()
        if other is not None:
            is_first = any(plugin.server is not None for plugin in self._plugins)
            then = (
                "both offer the same, and kubelet takes whoever came last: take one off this node"
                if is_first
                else "nothing is handed over here until it is taken off this node"
            )
            self._said.say("other", f"another device plugin serves {self._directory / other}: {then}")
        else:
            self._said.over("other", "no other device plugin is in the way any more")
        kubelet = _stamp(self._directory / KUBELET_SOCKET)
        for plugin in self._plugins:
            if other is not None and plugin.server is None:
                continue
            if kubelet is not None and not plugin.is_well(kubelet):
                self._register(plugin, kubelet)
            self._series.registered.labels(plugin.resource).set(plugin.is_heard())
        state = State(
            frozenset(plugin.resource for plugin in self._plugins if not plugin.is_heard()), None if other is None else self._directory / other
        )
        if state != self.state:
            self.state = state
            self.changed()

    def _other_plugin(self) -> str | None:
        """Return the socket at which another device plugin answers; asked now and then, since asking is a connection."""
        if time.monotonic() >= self._ask_others_at:
            self._other = next((name for name in OTHER_PLUGINS if _answers(self._directory / name)), None)
            self._ask_others_at = time.monotonic() + _OTHERS_EVERY_S
        return self._other

    def _register(self, plugin: "_Plugin", kubelet: object) -> None:
        if not plugin.may_try(kubelet):
            return
        path = self._directory / KUBELET_SOCKET
        try:
            _check_listens(path)
            plugin.serve(self._hand_off, self._told)
            if _stamp(path) != kubelet:
                return  # yet another kubelet: it may have removed what was just made, and would dial it for ten seconds
            _register_with(path, plugin)
        except (grpc.RpcError, RuntimeError, OSError) as error:
            plugin.failed(kubelet)
            why = f"{error.code().name}, {error.details() or 'no message'}" if isinstance(error, grpc.Call) else str(error)
            self._said.say(plugin.resource, f"kubelet does not take the device plugin for {plugin.resource}, tried again until it does: {why}")
        else:
            plugin.succeeded(kubelet)
            self._series.registrations.labels(plugin.resource).inc()
            self._said.over(plugin.resource, f"kubelet takes the device plugin for {plugin.resource}")
            _log.info("registered with kubelet", resource=plugin.resource)


class _Plugin:
    """One resource: its server, and which kubelet it was registered with."""

    def __init__(self, resource: str, directory: Path, devices: Devices) -> None:
        self.resource = resource
        self._directory = directory
        self._prefix = f"linkwise-{resource.rpartition('/')[2]}."
        self.server: PluginServer | None = None
        self._devices = devices
        self._socket: object = None
        self._kubelet: object = None
        self._registered_at = 0.0
        self._failed_with: object = None
        self._not_before = 0.0
        self._pause_s = _AGAIN_AFTER_S[0]

    def is_well(self, kubelet: object) -> bool:
        """Tell whether this kubelet knows the plugin, and the plugin's socket is the one that it was told."""
        if self.server is None or self._kubelet != kubelet or _stamp(self.server.socket) != self._socket:
            return False
        return self._devices.watchers > 0 or time.monotonic() - self._registered_at < _STREAM_WITHIN_S

    def is_heard(self) -> bool:
        """Tell whether kubelet listens now."""
        return self.server is not None and self._devices.watchers > 0

    def may_try(self, kubelet: object) -> bool:
        """Tell whether the last failure is long enough ago, or was with another kubelet: one that has just started admits pods within a second."""
        return kubelet != self._failed_with or time.monotonic() >= self._not_before

    def serve(self, hand_off: HandOff, told: Callable[[], None]) -> None:
        """Listen on a new socket, under a new name: gRPC removes the path of a server that ends, and may do so late."""
        self.stop()
        for left in self._directory.glob(f"{self._prefix}*.sock"):
            left.unlink(missing_ok=True)  # of an agent that was killed
        path = self._directory / f"{self._prefix}{uuid4().hex[:8]}.sock"
        self.server = PluginServer(self.resource, path, hand_off, self._devices, told)
        self._socket = _stamp(path)

    def stop(self) -> None:
        """Listen no more."""
        if self.server is not None:
            self.server.stop()
            self.server = None

    def succeeded(self, kubelet: object) -> None:
        """Note that this kubelet knows the plugin."""
        self._kubelet, self._registered_at, self._pause_s = kubelet, time.monotonic(), _AGAIN_AFTER_S[0]

    def failed(self, kubelet: object) -> None:
        """Note that it does not, and wait longer each time."""
        self._kubelet = None
        if kubelet != self._failed_with:
            self._failed_with, self._pause_s = kubelet, _AGAIN_AFTER_S[0]
        self._not_before = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _AGAIN_AFTER_S[1])


def _register_with(kubelet: Path, plugin: _Plugin) -> None:
    assert plugin.server is not None, "it serves before it is registered"
    request = MESSAGES["RegisterRequest"](
        version=VERSION, endpoint=plugin.server.socket.name, resource_name=plugin.resource, options=plugin.server.options()
    )
    with grpc.insecure_channel(f"unix:{kubelet}", options=_OPTIONS) as channel:
        call = channel.unary_unary(REGISTER, request_serializer=serialized, response_deserializer=MESSAGES["Empty"].FromString)
        call(request, timeout=_REGISTER_TIMEOUT_S)


def _stamp(path: Path) -> object:
    """Return what tells one socket from another of the same name; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _check_listens(kubelet: Path) -> None:
    """Raise OSError where nobody does: a kubelet that was killed leaves its socket behind."""
    if not _answers(kubelet):
        raise OSError(f"nobody listens at {kubelet}")


def _answers(path: Path) -> bool:
    """Tell whether somebody listens on a socket: a plugin that was killed leaves its file."""
    if not path.exists():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
