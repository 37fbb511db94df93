"""Every message of the device plugin protocol is, byte for byte, what Kubernetes' own Go types make of it."""

import pytest

from topology.agent.handoff.wire import MESSAGES, METHODS
from topology.agent.messages import serialized

OPTIONS = {"pre_start_required": True, "get_preferred_allocation_available": True}
# Made with k8s.io/kubelet v0.36.3, proto.MarshalOptions{Deterministic: true}.
GOLDEN = [
    (
        "RegisterRequest",
        {"version": "v1beta1", "endpoint": "e.sock", "resource_name": "a/b", "options": OPTIONS},
        "0a07763162657461311206652e736f636b1a03612f62220408011001",
    ),
    ("DevicePluginOptions", OPTIONS, "08011001"),
    (
        "ListAndWatchResponse",
        {"devices": [{"ID": "x", "health": "Healthy", "topology": {"nodes": [{"ID": 1}]}}, {"ID": "y", "health": "Unhealthy"}]},
        "0a120a017812074865616c7468791a040a0208010a0e0a01791209556e6865616c746879",
    ),
    ("PreStartContainerRequest", {"devices_ids": ["x", "y"]}, "0a01780a0179"),
    (
        "PreferredAllocationRequest",
        {"container_requests": [{"available_deviceIDs": ["x", "y"], "must_include_deviceIDs": ["x"], "allocation_size": 2}]},
        "0a0b0a01780a01791201781802",
    ),
    ("PreferredAllocationResponse", {"container_responses": [{"deviceIDs": ["x"]}]}, "0a030a0178"),
    ("AllocateRequest", {"container_requests": [{"devices_ids": ["x"]}]}, "0a030a0178"),
    (
        "AllocateResponse",
        {
            "container_responses": [
                {
                    "envs": {"A": "1"},
                    "mounts": [{"container_path": "/c", "host_path": "/h", "read_only": True}],
                    "devices": [{"container_path": "/c", "host_path": "/h", "permissions": "rw"}],
                    "annotations": {"k": "v"},
                    "cdi_devices": [{"name": "a/b=c"}],
                }
            ]
        },
        "0a330a060a0141120131120a0a022f6312022f6818011a0c0a022f6312022f681a02727722060a016b1201762a070a05612f623d63",
    ),
]


@pytest.mark.parametrize(("name", "fields", "golden"), GOLDEN, ids=[name for name, _, _ in GOLDEN])
def test_a_message_is_kubernetes_own(name: str, fields: dict[str, object], golden: str) -> None:
    """Names and numbers of the fields."""
    assert serialized(MESSAGES[name](**fields)).hex() == golden
    assert MESSAGES[name].FromString(bytes.fromhex(golden)) == MESSAGES[name](**fields)


def test_every_method_has_its_messages() -> None:
    """No method speaks of a message that is not declared."""
    assert all(request in MESSAGES and answer in MESSAGES for request, answer, _ in METHODS.values())
