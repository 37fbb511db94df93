"""A device plugin as plain as kubelet's API allows, run as a program inside a real node: what tests of the node itself, and comparisons, use.

It offers `--devices` ids of `--resource`, registers, and again whenever kubelet starts anew. Two ways of handing over, by `--pre-start`:
without it, Allocate answers PLAIN_GPUS with the ids, as stock plugins do;
with it, Allocate answers a CDI device with a token never used before, and PreStartContainer looks up in PodResources which container of which pod has
these ids, in kubelet's checkpoint which tokens, and writes the tokens' CDI specs then: PLAIN_GPUS, PLAIN_POD, and a device node for each id that has one in `--device-folder`.

Every call is written to `--record`, a line of JSON each: what was asked and answered, and for PreStartContainer what PodResources and kubelet's
checkpoint said at that moment. `Recording` reads it. Nothing of Linkwise is used here, and the messages are declared from the public API once more: a
mistake in the agent's declarations cannot hide behind the same mistake here. Source: k8s.io/kubelet/pkg/apis, deviceplugin/v1beta1 and podresources/v1.
"""

import argparse
import base64
import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

JsonObject = dict[str, Any]

CDI_KIND = "plain.example/gpu"

_MESSAGES = {
    "v1beta1": """
        DevicePluginOptions: pre_start_required=1 bool, get_preferred_allocation_available=2 bool
        RegisterRequest: version=1 string, endpoint=2 string, resource_name=3 string, options=4 DevicePluginOptions
        Empty:
        ListAndWatchResponse: devices=1 repeated Device
        Device: ID=1 string, health=2 string, topology=3 TopologyInfo
        TopologyInfo: nodes=1 repeated NUMANode
        NUMANode: ID=1 int64
        PreferredAllocationRequest: container_requests=1 repeated ContainerPreferredAllocationRequest
        ContainerPreferredAllocationRequest: available_deviceIDs=1 repeated string, must_include_deviceIDs=2 repeated string, allocation_size=3 int32
        PreferredAllocationResponse: container_responses=1 repeated ContainerPreferredAllocationResponse
        ContainerPreferredAllocationResponse: deviceIDs=1 repeated string
        AllocateRequest: container_requests=1 repeated ContainerAllocateRequest
        ContainerAllocateRequest: devices_ids=1 repeated string
        AllocateResponse: container_responses=1 repeated ContainerAllocateResponse
        ContainerAllocateResponse: envs=1 repeated EnvsEntry, cdi_devices=5 repeated CDIDevice
        EnvsEntry: key=1 string, value=2 string
        CDIDevice: name=1 string
        PreStartContainerRequest: devices_ids=1 repeated string
        PreStartContainerResponse:
    """,
    "v1": """
        ListPodResourcesRequest:
        ListPodResourcesResponse: pod_resources=1 repeated PodResources
        PodResources: name=1 string, namespace=2 string, containers=3 repeated ContainerResources
        ContainerResources: name=1 string, devices=2 repeated ContainerDevices
        ContainerDevices: resource_name=1 string, device_ids=2 repeated string, topology=3 TopologyInfo
        TopologyInfo: nodes=1 repeated NUMANode
        NUMANode: ID=1 int64
    """,
}


def _classes() -> dict[str, Any]:
    """Return the message classes by `package.Name`; a map field is what it is on the wire, repeated entries."""
    pool = descriptor_pool.DescriptorPool()
    scalars = {name: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name.upper()}") for name in ("bool", "string", "int32", "int64")}
    names = []
    for package, text in _MESSAGES.items():
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        for line in filter(None, map(str.strip, text.splitlines())):
            name, _, fields = line.partition(":")
            names.append(f"{package}.{name}")
            message = file.message_type.add(name=name)
            for one in filter(None, map(str.strip, fields.split(","))):
                label, *rest = one.split()
                field_name, _, number = label.partition("=")
                kind = rest[-1]
                repeated = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED if rest[0] == "repeated" else 1
                typed = {"type": scalars[kind]} if kind in scalars else {"type": 11, "type_name": f".{package}.{kind}"}
                message.field.add(name=field_name, number=int(number), label=repeated, **typed)
        pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


_CLASSES = _classes()


def _dict(message: Any) -> JsonObject:
    found: JsonObject = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


@dataclass
class Plugin:
    """The plugin, between kubelet's calls."""

    options: argparse.Namespace
    ids: list[str]
    issued: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)

    def say(self, call: str, **facts: Any) -> None:
        """Append a line to the record."""
        with self.lock, self.options.record.open("a", encoding="utf-8") as record:
            record.write(json.dumps({"at": round(time.time(), 4), "call": call, **facts}) + "\n")

    # The calls, by their names in the API

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.say("GetDevicePluginOptions")
        return _CLASSES["v1beta1.DevicePluginOptions"](
            pre_start_required=self.options.pre_start, get_preferred_allocation_available=self.options.preferred
        )

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        self.say("ListAndWatch")
        devices = [
            {"ID": each, "health": "Healthy", "topology": {"nodes": [{"ID": n * self.options.numa_nodes // len(self.ids)}]}}
            for n, each in enumerate(self.ids)
        ]
        yield json_format.ParseDict({"devices": devices}, _CLASSES["v1beta1.ListAndWatchResponse"]())
        self.ended.wait()

    def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Prefer what must be, then the last ids: kubelet's own choice would be the first."""
        answer = _CLASSES["v1beta1.PreferredAllocationResponse"]()
        for each in request.container_requests:
            must = list(each.must_include_deviceIDs)
            rest = sorted(set(each.available_deviceIDs) - set(must), reverse=True)
            answer.container_responses.add(deviceIDs=(must + rest)[: each.allocation_size])
        self.say("GetPreferredAllocation", request=_dict(request), answer=_dict(answer))
        return answer

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = _CLASSES["v1beta1.AllocateResponse"]()
        for each in request.container_requests:
            if self.options.pre_start:
                with self.lock:
                    self.issued += 1
                    token = f"{time.time_ns():x}-{self.issued}"
                answer.container_responses.add(cdi_devices=[{"name": f"{CDI_KIND}={token}"}])
            else:
                answer.container_responses.add(envs=[{"key": "PLAIN_GPUS", "value": ",".join(sorted(each.devices_ids))}])
        self.say("Allocate", request=_dict(request), answer=_dict(answer))
        return answer

    def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.options.refuse and self.options.refuse.exists():
            sentence = self.options.refuse.read_text(encoding="utf-8")
            self.say("PreStartContainer", request=_dict(request), refused=sentence)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, sentence)
        ids = frozenset(request.devices_ids)
        pods = self._pod_resources()
        checkpoint = self._checkpoint()
        holders = [
            f"{pod['namespace']}/{pod['name']}/{container['name']}"
            for pod in pods
            for container in pod.get("containers", ())
            if ids
            == {one for entry in container.get("devices", ()) for one in entry["device_ids"] if entry["resource_name"] == self.options.resource}
        ]
        self.say("PreStartContainer", request=_dict(request), holders=holders, pod_resources=pods, checkpoint=checkpoint)
        # An app container may have the ids of its init container, and a token of its own: which of the two starts is not said.
        for token in self._tokens(checkpoint, ids):
            self._write_spec(token, sorted(ids), ",".join(holders))
        return _CLASSES["v1beta1.PreStartContainerResponse"]()

    def _tokens(self, checkpoint: JsonObject, ids: frozenset[str]) -> Iterator[str]:
        """Yield the tokens of these ids: the checkpoint keeps each container's answer, also of a plugin that has ended since."""
        for entry in checkpoint["Data"]["PodDeviceEntries"] or ():
            if entry["ResourceName"] == self.options.resource and ids == {one for some in entry["DeviceIDs"].values() for one in some}:
                answer = _CLASSES["v1beta1.ContainerAllocateResponse"].FromString(base64.b64decode(entry["AllocResp"]))
                yield from (device.name.partition("=")[2] for device in answer.cdi_devices)

    def _pod_resources(self) -> list[JsonObject]:
        with grpc.insecure_channel(f"unix:{self.options.pod_resources}", options=(("grpc.default_authority", "localhost"),)) as channel:
            call = channel.unary_unary(
                "/v1.PodResourcesLister/List",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=_CLASSES["v1.ListPodResourcesResponse"].FromString,
            )
            answer = _dict(call(_CLASSES["v1.ListPodResourcesRequest"](), timeout=3))
        found: list[JsonObject] = answer.get("pod_resources", [])
        return found

    def _checkpoint(self) -> JsonObject:
        found: JsonObject = json.loads((self.options.directory / "kubelet_internal_checkpoint").read_text(encoding="utf-8"))
        return found

    def _write_spec(self, token: str, ids: list[str], holders: str) -> None:
        nodes = [
            {"path": f"/dev/{each}", "hostPath": str(self.options.device_folder / each)}
            for each in ids
            if self.options.device_folder and (self.options.device_folder / each).exists()
        ]
        edits: JsonObject = {"env": [f"PLAIN_GPUS={','.join(ids)}", f"PLAIN_POD={holders}"], **({"deviceNodes": nodes} if nodes else {})}
        spec = {"cdiVersion": "0.6.0", "kind": CDI_KIND, "devices": [{"name": token, "containerEdits": edits}]}
        part = self.options.cdi / f"plain-{token}.part"
        part.write_text(json.dumps(spec), encoding="utf-8")
        part.rename(part.with_suffix(".json"))


def _serve(plugin: Plugin, socket: Path) -> grpc.Server:
    """Serve the plugin's calls at a socket."""
    asked = {
        "GetDevicePluginOptions": "Empty",
        "GetPreferredAllocation": "PreferredAllocationRequest",
        "Allocate": "AllocateRequest",
        "PreStartContainer": "PreStartContainerRequest",
    }
    serializer = {"response_serializer": lambda message: message.SerializeToString()}
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(getattr(plugin, name), request_deserializer=_CLASSES[f"v1beta1.{message}"].FromString, **serializer)
        for name, message in asked.items()
    }
    handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
        plugin.ListAndWatch, request_deserializer=_CLASSES["v1beta1.Empty"].FromString, **serializer
    )
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
    socket.unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def _register(plugin: Plugin, kubelet: Path, endpoint: str) -> None:
    options = {"pre_start_required": plugin.options.pre_start, "get_preferred_allocation_available": plugin.options.preferred}
    request = _CLASSES["v1beta1.RegisterRequest"](
        version="v1beta1", endpoint=endpoint, resource_name=plugin.options.resource, options=_CLASSES["v1beta1.DevicePluginOptions"](**options)
    )
    with grpc.insecure_channel(f"unix:{kubelet}", options=(("grpc.default_authority", "localhost"),)) as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=_CLASSES["v1beta1.Empty"].FromString,
        )
        call(request, timeout=5)


def _serve_while(plugin: Plugin, kubelet: Path, socket: Path) -> None:
    """Serve and register, and return when kubelet has started anew, which removes all sockets beside its own."""
    birth = kubelet.stat().st_ctime_ns
    server = _serve(plugin, socket)
    try:
        _register(plugin, kubelet, socket.name)
        plugin.say("Register")
        while socket.exists() and kubelet.exists() and kubelet.stat().st_ctime_ns == birth:
            time.sleep(0.1)
        plugin.say("kubelet has started anew")
    finally:
        plugin.ended.set()
        server.stop(0).wait()
        plugin.ended.clear()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--resource", default="plain.example/gpu")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--numa-nodes", type=int, default=2)
    parser.add_argument("--directory", type=Path, default=Path("/var/lib/kubelet/device-plugins"))
    parser.add_argument("--pod-resources", type=Path, default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"))
    parser.add_argument("--cdi", type=Path, default=Path("/var/run/cdi"))
    parser.add_argument("--device-folder", type=Path)
    parser.add_argument("--record", type=Path, default=Path(os.devnull))
    parser.add_argument("--refuse", type=Path, help="while this file exists, PreStartContainer fails with what it says")
    parser.add_argument("--pre-start", action="store_true")
    parser.add_argument("--preferred", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Run until killed."""
    options = _options()
    plugin = Plugin(options, [f"gpu{n}" for n in range(options.devices)])
    while True:
        # kubelet is starting, or has just gone: that is what this waits for.
        with contextlib.suppress(grpc.RpcError, OSError):
            _serve_while(plugin, options.directory / "kubelet.sock", options.directory / "plain.sock")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
