"""kubelet's device plugin protocol v1beta1: the messages, and the methods of its two services.

Used by `server` (DevicePlugin, which kubelet calls), `registration` (Registration, which kubelet serves) and `checkpoint` (kubelet keeps our answers in its
records as they went over the wire). Source of names and numbers: k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto and constants.go, Kubernetes 1.36.
"""

from typing import Any, Final

from topology.agent.messages import Fields, message_classes

VERSION: Final = "v1beta1"
KUBELET_SOCKET: Final = "kubelet.sock"  # in the directory of the device plugins' own sockets
SERVICE: Final = "v1beta1.DevicePlugin"
REGISTER: Final = "/v1beta1.Registration/Register"

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"

_MESSAGES: Final[dict[str, Fields]] = {
    "Empty": (),
    "DevicePluginOptions": (("pre_start_required", 1, "bool"), ("get_preferred_allocation_available", 2, "bool")),
    "RegisterRequest": (("version", 1, ""), ("endpoint", 2, ""), ("resource_name", 3, ""), ("options", 4, "one DevicePluginOptions")),
    "NUMANode": (("ID", 1, "int64"),),
    "TopologyInfo": (("nodes", 1, "NUMANode"),),
    "Device": (("ID", 1, ""), ("health", 2, ""), ("topology", 3, "one TopologyInfo")),
    "ListAndWatchResponse": (("devices", 1, "Device"),),
    "PreStartContainerRequest": (("devices_ids", 1, "repeated string"),),
    "PreStartContainerResponse": (),
    "ContainerPreferredAllocationRequest": (
        ("available_deviceIDs", 1, "repeated string"),
        ("must_include_deviceIDs", 2, "repeated string"),
        ("allocation_size", 3, "int32"),
    ),
    "PreferredAllocationRequest": (("container_requests", 1, "ContainerPreferredAllocationRequest"),),
    "ContainerPreferredAllocationResponse": (("deviceIDs", 1, "repeated string"),),
    "PreferredAllocationResponse": (("container_responses", 1, "ContainerPreferredAllocationResponse"),),
    "ContainerAllocateRequest": (("devices_ids", 1, "repeated string"),),
    "AllocateRequest": (("container_requests", 1, "ContainerAllocateRequest"),),
    "Mount": (("container_path", 1, ""), ("host_path", 2, ""), ("read_only", 3, "bool")),
    "DeviceSpec": (("container_path", 1, ""), ("host_path", 2, ""), ("permissions", 3, "")),
    "CDIDevice": (("name", 1, ""),),
    "ContainerAllocateResponse": (
        ("envs", 1, "map of strings"),
        ("mounts", 2, "Mount"),
        ("devices", 3, "DeviceSpec"),
        ("annotations", 4, "map of strings"),
        ("cdi_devices", 5, "CDIDevice"),
    ),
    "AllocateResponse": (("container_responses", 1, "ContainerAllocateResponse"),),
}
MESSAGES: Final[dict[str, Any]] = message_classes(VERSION, _MESSAGES)

# Method of DevicePlugin -> (request, answer, whether the answers are a stream).
METHODS: Final = {
    "GetDevicePluginOptions": ("Empty", "DevicePluginOptions", False),
    "ListAndWatch": ("Empty", "ListAndWatchResponse", True),
    "GetPreferredAllocation": ("PreferredAllocationRequest", "PreferredAllocationResponse", False),
    "Allocate": ("AllocateRequest", "AllocateResponse", False),
    "PreStartContainer": ("PreStartContainerRequest", "PreStartContainerResponse", False),
}
