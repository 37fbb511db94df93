"""A stand-in for kubelet's device manager and the container runtime behind it: real gRPC over real sockets, and kubelet's own checkpoint file.

Follows pkg/kubelet/cm/devicemanager of Kubernetes 1.36 where it matters to a device plugin: it dials back at Register and follows ListAndWatch; admits one
pod after the other, init containers first, whose ids the later containers of the pod take over; asks for a preference and then takes what it likes; calls
Allocate once a container and PreStartContainer before each start; frees the ids of pods that are no longer active only when somebody asks; writes its checkpoint
at admission and at every news of the plugin; forgets a pod that is deleted by force at once; keeps nothing but the checkpoint across a restart.
"""

import base64
import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tests.kubelet_stand_in import Devices, HeldBy, KubeletStandIn
from topology.agent.handoff.wire import KUBELET_SOCKET, MESSAGES, METHODS, SERVICE
from topology.agent.messages import serialized

JsonObject = dict[str, Any]

CHECKPOINT = "kubelet_internal_checkpoint"
RESOURCES = ("nvidia.com/gpu", "linkwise.dev/gpu-memory")


class AdmissionError(Exception):
    """The pod is rejected (UnexpectedAdmissionError): it turns Failed."""


class StartError(Exception):
    """The container does not start now."""


@dataclass
class Given:
    """What one container was given of one resource."""

    ids: frozenset[str]
    answer: Any  # ContainerAllocateResponse


@dataclass
class _Plugin:
    """One registered plugin, as kubelet sees it."""

    channel: grpc.Channel
    options: Any
    stream: Any = None

    def call(self, method: str, **fields: Any) -> Any:
        request, answer, _ = METHODS[method]
        made = self.channel.unary_unary(f"/{SERVICE}/{method}", request_serializer=serialized, response_deserializer=MESSAGES[answer].FromString)
        return made(MESSAGES[request](**fields), timeout=30)


@dataclass
class DeviceKubelet:
    """One kubelet; everything it keeps in memory is lost when it restarts. ``stubborn``: it takes other ids than the plugin prefers."""

    directory: Path
    pod_resources: KubeletStandIn
    cdi: Path
    stubborn: bool = False
    seed: int = 0
    pods: dict[str, JsonObject] = field(default_factory=dict)  # active, by UID
    given: dict[tuple[str, str, str], Given] = field(default_factory=dict)  # (UID, container, resource)
    devices: dict[str, dict[str, bool]] = field(default_factory=dict)  # resource -> id -> healthy
    numa: dict[str, dict[str, int]] = field(default_factory=dict)
    running: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)  # (UID, container) -> the GPUs it sees
    registered: list[str] = field(default_factory=list)
    writes: bool = True  # whether the checkpoint is written

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._lock = threading.RLock()
        self._plugins: dict[str, _Plugin] = {}
        self._server: grpc.Server | None = None
        self.news = threading.Condition(self._lock)

    # --- life ---

    def start(self) -> None:
        """Clean the directory of sockets, read the checkpoint, serve Registration."""
        for path in self.directory.iterdir():
            if path.is_socket():
                path.unlink()
        self._read_checkpoint()
        handler = grpc.unary_unary_rpc_method_handler(
            self._register, request_deserializer=MESSAGES["RegisterRequest"].FromString, response_serializer=serialized
        )
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler}),))
        self._server.add_insecure_port(f"unix:{self.directory / KUBELET_SOCKET}")
        self._server.start()

    def stop(self) -> None:
        """End; containers run on, and nothing but the checkpoint is left."""
        for resource in list(self._plugins):
            self._drop(resource)
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None
        with self._lock:
            self.given.clear()
            self.devices.clear()
            self.registered.clear()

    def wait_for(self, condition: Any, seconds: float = 10.0) -> None:
        """Wait until something that the plugin tells has made a condition true."""
        with self.news:
            assert self.news.wait_for(condition, seconds), "kubelet did not hear of it"

    # --- the plugin's side ---

    def _register(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.version != "v1beta1" or "/" not in request.resource_name:
            context.abort(grpc.StatusCode.UNKNOWN, "bad registration")
        options = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
        plugin = _Plugin(grpc.insecure_channel(f"unix:{self.directory / request.endpoint}", options=options), request.options)
        plugin.options = plugin.call("GetDevicePluginOptions")
        with self.news:
            if request.resource_name in self._plugins:
                self._drop(request.resource_name)
            self._plugins[request.resource_name] = plugin
            self.registered.append(request.resource_name)
            self.news.notify_all()
        threading.Thread(target=self._follow, args=(request.resource_name, plugin), daemon=True).start()
        return MESSAGES["Empty"]()

    def _follow(self, resource: str, plugin: _Plugin) -> None:
        watch = plugin.channel.unary_stream(
            f"/{SERVICE}/ListAndWatch", request_serializer=serialized, response_deserializer=MESSAGES["ListAndWatchResponse"].FromString
        )
        plugin.stream = watch(MESSAGES["Empty"]())
        with suppress(grpc.RpcError, ValueError):  # the latter: the channel was closed
            for answer in plugin.stream:
                with self.news:
                    if self._plugins.get(resource) is not plugin:
                        return
                    self.devices[resource] = {device.ID: device.health == "Healthy" for device in answer.devices}
                    self.numa[resource] = {device.ID: device.topology.nodes[0].ID for device in answer.devices if device.topology.nodes}
                    self._write_checkpoint()
                    self.news.notify_all()
        with self.news:
            if self._plugins.get(resource) is plugin:
                self.devices[resource] = dict.fromkeys(self.devices.get(resource, {}), False)
                self._plugins.pop(resource).channel.close()
                self.news.notify_all()

    def _drop(self, resource: str) -> None:
        with self._lock:
            plugin = self._plugins.pop(resource, None)
        if plugin is not None:
            if plugin.stream is not None:
                plugin.stream.cancel()
            plugin.channel.close()

    # --- pods ---

    def admit(self, pod: JsonObject) -> None:
        """Admit a bound pod: give its containers ids; raises AdmissionError, and then it has none."""
        uid = pod["metadata"]["uid"]
        self.pods[uid] = pod
        reusable: dict[str, frozenset[str]] = {}
        try:
            for container, kind in _containers(pod):
                for resource, count in _asked(container):
                    self._allocate(uid, container["name"], (resource, count), reusable.get(resource, frozenset()))
                    ids = self.given[uid, container["name"], resource].ids
                    before = reusable.get(resource, frozenset())
                    reusable[resource] = before | ids if kind == "init" else before - ids
        except (AdmissionError, grpc.RpcError) as error:
            self.pods.pop(uid)
            raise AdmissionError(str(error)) from error

    def _allocate(self, uid: str, container: str, asked: tuple[str, int], reusable: frozenset[str]) -> None:
        resource, count = asked
        self._free()
        known = self.given.get((uid, container, resource))
        if known is not None:
            healthy = {one for one, well in self.devices.get(resource, {}).items() if well}
            if not known.ids <= healthy:
                raise AdmissionError("previously allocated devices are no longer healthy")
            return
        plugin = self._plugins.get(resource)
        if plugin is None:
            raise AdmissionError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        included = frozenset(sorted(reusable)[:count])
        chosen = included
        if len(included) < count:
            used = {one for (_, _, of), given in self.given.items() if of == resource for one in given.ids}
            available = frozenset(one for one, well in self.devices[resource].items() if well) - used
            if len(available) < count - len(included):
                raise AdmissionError(f"requested number of devices unavailable for {resource}")
            chosen = included | self._chosen(plugin, available, (included, count))
        answer = plugin.call("Allocate", container_requests=[{"devices_ids": sorted(chosen)}]).container_responses[0]
        with self._lock:
            self.given[uid, container, resource] = Given(chosen, answer)
            self._write_checkpoint()

    def _chosen(self, plugin: _Plugin, available: frozenset[str], wanted: tuple[frozenset[str], int]) -> frozenset[str]:
        included, count = wanted
        rest = sorted(available)
        self._random.shuffle(rest)
        if plugin.options.get_preferred_allocation_available:
            request = {"available_deviceIDs": sorted(available | included), "must_include_deviceIDs": sorted(included), "allocation_size": count}
            preferred = set(plugin.call("GetPreferredAllocation", container_requests=[request]).container_responses[0].deviceIDs)
            rest.sort(key=lambda one: (one in preferred) if self.stubborn else (one not in preferred))
        return frozenset(rest[: count - len(included)])

    def start_container(self, uid: str, container: str) -> frozenset[str]:
        """Start a container: PreStart, then the runtime; returns the GPUs it sees. Raises StartError."""
        mine = {resource: given for (pod, name, resource), given in self.given.items() if (pod, name) == (uid, container)}
        for resource, given in mine.items():
            plugin = self._plugins.get(resource)
            if plugin is None:
                raise StartError("endpoint stopped")
            ids = list(given.ids)
            self._random.shuffle(ids)
            try:
                plugin.call("PreStartContainer", devices_ids=ids)
            except grpc.RpcError as error:
                raise StartError(error.details()) from error
        gpus = frozenset(gpu for given in mine.values() for gpu in self._seen(given.answer))
        self.running[uid, container] = gpus
        return gpus

    def environment(self, uid: str, container: str, resource: str = RESOURCES[0]) -> dict[str, str]:
        """Return the variables that the runtime would set."""
        answer = self.given[uid, container, resource].answer
        edits = self._edits(answer)
        return {**dict(answer.envs), **dict(line.split("=", 1) for line in edits.get("env", []))}

    def _seen(self, answer: Any) -> list[str]:
        env = {**dict(answer.envs), **dict(line.split("=", 1) for line in self._edits(answer).get("env", []))}
        return env["NVIDIA_VISIBLE_DEVICES"].split(",")

    def _edits(self, answer: Any) -> JsonObject:
        """Resolve CDI devices as the runtime's library does; one that no spec has is an error."""
        edits: JsonObject = {}
        for device in answer.cdi_devices:
            found = self.spec_of(device.name)
            if found is None:
                raise StartError(f"unresolvable CDI devices {device.name}")
            edits = found
        return edits

    def spec_of(self, name: str) -> JsonObject | None:
        """Return the edits of a CDI device, None where no spec has it; two specs with one device are a conflict, so none."""
        found = []
        for path in sorted(self.cdi.iterdir()):
            if path.suffix in (".json", ".yaml"):
                spec = json.loads(path.read_text())
                found += [device["containerEdits"] for device in spec["devices"] if f"{spec['kind']}={device['name']}" == name]
        return found[0] if len(found) == 1 else None

    def end(self, uid: str) -> None:
        """Let all containers of a pod end; its ids are free when somebody asks next."""
        self.pods.pop(uid, None)
        self.running = {key: gpus for key, gpus in self.running.items() if key[0] != uid}

    def force_delete(self, uid: str) -> None:
        """Let kubelet forget a pod whose containers still run."""
        self.pods.pop(uid)

    def _free(self) -> None:
        with self._lock:
            self.given = {key: given for key, given in self.given.items() if key[0] in self.pods}

    # --- what others read ---

    def list_pods(self) -> None:
        """Let PodResources show what is so now, as a List does: pods that have ended are dropped first."""
        self._free()
        held = []
        for uid, pod in self.pods.items():
            for container, kind in _containers(pod):
                entries = tuple(
                    Devices(tuple(sorted(given.ids)), resource)
                    for (of, name, resource), given in self.given.items()
                    if (of, name) == (uid, container["name"])
                )
                if entries and kind != "init":
                    held.append(HeldBy(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", container["name"], entries))
        self.pod_resources.held = held

    def _write_checkpoint(self) -> None:
        if not self.writes:
            return
        entries = [
            {
                "PodUID": uid,
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": self._by_numa(resource, given.ids),
                "AllocResp": base64.b64encode(serialized(given.answer)).decode(),
            }
            for (uid, container, resource), given in self.given.items()
        ]
        registered = {resource: [one for one, well in devices.items() if well] for resource, devices in self.devices.items()}
        data = {"Data": {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}, "Checksum": 1897004663}
        temporary = self.directory / f".{self._random.random()}"
        temporary.write_text(json.dumps(data, separators=(",", ":")))
        temporary.replace(self.directory / CHECKPOINT)

    def _by_numa(self, resource: str, ids: frozenset[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for one in ids:
            found.setdefault(str(self.numa.get(resource, {}).get(one, -1)), []).append(one)
        return found

    def _read_checkpoint(self) -> None:
        path = self.directory / CHECKPOINT
        if not path.exists():
            return
        for entry in json.loads(path.read_text())["Data"]["PodDeviceEntries"] or []:
            ids = frozenset(one for ids in entry["DeviceIDs"].values() for one in ids)
            answer = MESSAGES["ContainerAllocateResponse"].FromString(base64.b64decode(entry["AllocResp"]))
            self.given[entry["PodUID"], entry["ContainerName"], entry["ResourceName"]] = Given(ids, answer)


def _containers(pod: JsonObject) -> Iterator[tuple[JsonObject, str]]:
    for container in pod["spec"].get("initContainers") or []:
        yield container, "sidecar" if container.get("restartPolicy") == "Always" else "init"
    for container in pod["spec"]["containers"]:
        yield container, "app"


def _asked(container: JsonObject) -> list[tuple[str, int]]:
    limits = (container.get("resources") or {}).get("limits") or {}
    return [(resource, int(limits[resource])) for resource in RESOURCES if int(limits.get(resource, 0))]


@contextmanager
def served_pod_resources(kubelet: DeviceKubelet, socket: Path) -> Iterator[None]:
    """Serve kubelet's PodResources while the block runs, always as it is now."""

    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        kubelet.list_pods()
        return kubelet.pod_resources.answer(request, context)

    handler = grpc.unary_unary_rpc_method_handler(answer, request_deserializer=bytes, response_serializer=bytes)
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait()
