"""kubelet's checkpoint is read as kubelet writes it, and what is damaged is not believed."""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.agent.handoff.checkpoint import FILE_NAME, CheckpointError, CheckpointFile, Entry, decoded
from topology.agent.handoff.wire import MESSAGES
from topology.agent.messages import serialized

GPU = "GPU-00000000-0000-0000-0000-00000000000"

# Written by pkg/kubelet/cm/devicemanager/checkpoint of Kubernetes 1.36.3: two NUMA nodes, numbers without one, and an answer of NVIDIA's device plugin.
REAL = (
    '{"Data":{"PodDeviceEntries":[{"PodUID":"11111111-aaaa","ContainerName":"train","ResourceName":"nvidia.com/gpu","DeviceID'
    's":{"0":["GPU-00000000-0000-0000-0000-000000000000"],"1":["GPU-00000000-0000-0000-0000-000000000001"]},"AllocResp":"KioK'
    'KGxpbmt3aXNlLmRldi9hbGxvY2F0aW9uPXQxMjM0NTY3ODlhYmNkZWY="},{"PodUID":"22222222-bbbb","ContainerName":"part","ResourceNam'
    'e":"linkwise.dev/gpu-memory","DeviceIDs":{"-1":["17","4"]},"AllocResp":"KioKKGxpbmt3aXNlLmRldi9hbGxvY2F0aW9uPXRlZGNiYTk4'
    'NzY1NDMyMTA="},{"PodUID":"33333333-cccc","ContainerName":"main","ResourceName":"nvidia.com/gpu","DeviceIDs":{"0":["GPU-0'
    '0000000-0000-0000-0000-000000000003"]},"AllocResp":"CkIKFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSKEdQVS0wMDAwMDAwMC0wMDAwLTAwMDAt'
    'MDAwMC0wMDAwMDAwMDAwMDM="}],"RegisteredDevices":{"nvidia.com/gpu":["GPU-00000000-0000-0000-0000-000000000000"]}},"Checks'
    'um":3922574662}'
)


def test_a_real_checkpoint_tells_pods_containers_ids_and_tokens() -> None:
    """Ids of several NUMA nodes are one set; another plugin's answer has no token."""
    found = decoded(REAL.encode())
    assert found.entries == (
        Entry("11111111-aaaa", "train", "nvidia.com/gpu", frozenset({f"{GPU}0", f"{GPU}1"}), "t123456789abcdef", by_cdi=True),
        Entry("22222222-bbbb", "part", "linkwise.dev/gpu-memory", frozenset({"17", "4"}), "tedcba9876543210", by_cdi=True),
        Entry("33333333-cccc", "main", "nvidia.com/gpu", frozenset({f"{GPU}3"})),
    )
    assert found.tokens == {"t123456789abcdef", "tedcba9876543210"}
    assert [entry.container for entry in found.of("nvidia.com/gpu", frozenset({f"{GPU}1", f"{GPU}0"}))] == ["train"]
    assert found.of("nvidia.com/gpu", frozenset({f"{GPU}0"})) == [], "part of a set is another set"


@pytest.mark.parametrize(
    ("answer", "token", "by_cdi"),
    [
        pytest.param({"annotations": {"linkwise.dev/token": "tabc"}}, "tabc", False, id="without CDI the token is an annotation"),
        pytest.param({"cdi_devices": [{"name": "nvidia.com/gpu=0"}]}, None, False, id="a CDI device of somebody else"),
        pytest.param({"cdi_devices": [{"name": "linkwise.dev/allocation=../x"}]}, None, False, id="a token that is no name of a file"),
        pytest.param({}, None, False, id="an empty answer"),
    ],
)
def test_the_token_of_an_answer(answer: dict[str, object], token: str | None, by_cdi: bool) -> None:
    """Only ours, and only one that can be a file."""
    encoded = base64.b64encode(serialized(MESSAGES["ContainerAllocateResponse"](**answer))).decode()
    raw = {"Data": {"PodDeviceEntries": [{"PodUID": "u", "ContainerName": "c", "ResourceName": "r", "DeviceIDs": None, "AllocResp": encoded}]}}
    assert decoded(json.dumps(raw).encode()).entries == (Entry("u", "c", "r", frozenset(), token, by_cdi),)


def test_a_kubelet_that_has_given_nothing_away_is_read() -> None:
    """Go writes null for an empty list."""
    assert decoded(b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}').entries == ()


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)).map(
        lambda raw: json.dumps(raw).encode()
    )
)
def test_nothing_but_a_checkpoint_is_one(data: bytes) -> None:
    """Whatever the file holds, the answer is a sentence."""
    with pytest.raises(CheckpointError, match="not as kubelet"):
        decoded(data)


def test_a_file_is_read_again_when_it_is_another(tmp_path: Path) -> None:
    """And an absent one tells of nothing."""
    file = CheckpointFile(tmp_path)
    assert (file.read().entries, file.stamp()) == ((), None)
    (tmp_path / FILE_NAME).write_text(REAL)
    first = file.read()
    assert len(first.entries) == 3
    assert file.read() is first, "decoded once"
    other = tmp_path / "new"
    other.write_text('{"Data":{"PodDeviceEntries":[]},"Checksum":1}')
    other.replace(tmp_path / FILE_NAME)
    assert file.read().entries == ()
