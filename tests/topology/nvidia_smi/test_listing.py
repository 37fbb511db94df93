"""`nvidia-smi -L`."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.errors import NvidiaSmiError
from topology.inventory import Gpu, MigInstance
from topology.nvidia_smi import read_list

A = "GPU-1aaaaaaa-1111-2222-3333-444444444444"
B = "GPU-2bbbbbbb-1111-2222-3333-444444444444"
M1 = "MIG-3ccccccc-1111-2222-3333-444444444444"
M2 = "MIG-4ddddddd-1111-2222-3333-444444444444"

uuids = st.uuids(version=4).map(str)


@st.composite
def gpus(draw: st.DrawFn) -> list[Gpu]:
    """Draw GPUs with distinct indices and UUIDs, some of them with MIG devices."""
    indices = draw(st.lists(st.integers(0, 15), min_size=1, max_size=8, unique=True))
    profiles = st.sampled_from(["1g.10gb", "3g.40gb", "1c.3g.71gb", "1g.5gb+me"])
    return [
        Gpu(
            index=index,
            uuid="GPU-" + draw(uuids),
            model=draw(st.sampled_from(["NVIDIA A100-SXM4-80GB", "Tesla T4", "NVIDIA H100 80GB HBM3"])),
            mig_instances=tuple(MigInstance(k, draw(profiles), "MIG-" + draw(uuids)) for k in range(draw(st.integers(0, 3)))),
        )
        for index in indices
    ]


def rendered(listed: list[Gpu]) -> str:
    lines = []
    for gpu in listed:
        lines.append(f"GPU {gpu.index}: {gpu.model} (UUID: {gpu.uuid})")
        lines += [f"  MIG {mig.profile:<12} Device {mig.index:>2}: (UUID: {mig.uuid})" for mig in gpu.mig_instances]
    return "\n".join(lines) + "\n"


@settings(max_examples=50, deadline=None)
@given(listed=gpus())
def test_a_list_reads_back_to_its_gpus(listed: list[Gpu]):
    inventory = read_list(rendered(listed))
    assert inventory.gpus == tuple(listed)
    assert inventory.warnings == ()


@settings(max_examples=50, deadline=None)
@given(listed=gpus())
def test_a_list_twice_in_one_text_is_the_same_list(listed: list[Gpu]):
    assert read_list(rendered(listed) * 2).gpus == tuple(listed)


def test_mig_devices_of_several_containers_belong_to_their_one_gpu():
    inventory = read_list(
        f"GPU 0: NVIDIA A30 (UUID: {A})\n  MIG 1g.6gb Device 0: (UUID: {M1})\nGPU 0: NVIDIA A30 (UUID: {A})\n  MIG 2g.12gb Device 0: (UUID: {M2})\n"
    )
    assert len(inventory.gpus) == 1
    assert [mig.uuid for mig in inventory.gpus[0].mig_instances] == [M1, M2]
    assert inventory.warnings == ()


def test_one_index_for_two_uuids_is_two_gpus_and_a_warning():
    inventory = read_list(f"GPU 0: NVIDIA A30 (UUID: {A})\nGPU 0: NVIDIA A30 (UUID: {B})\n")
    assert [gpu.uuid for gpu in inventory.gpus] == [A, B]
    assert "index 0 stands for 2 GPUs" in inventory.warnings[0]


@pytest.mark.parametrize("mask", ["GPU-...", "GPU-00000000-0000-0000-0000-000000000000", "GPU-1aaaaaaa", "[redacted]"])
def test_masked_gpus_are_never_taken_for_one(mask: str):
    inventory = read_list(f"GPU 0: NVIDIA A30 (UUID: {mask})\nGPU 1: NVIDIA A30 (UUID: {mask})\n")
    assert [(gpu.index, gpu.uuid) for gpu in inventory.gpus] == [(0, None), (1, None)]
    assert inventory.warnings[0] == f"the UUID of GPU 0 is cut, elided or masked ({mask}), so it is not known"


def test_a_cut_list_keeps_the_mig_device_and_says_what_is_missing():
    inventory = read_list(f"GPU 0: NVIDIA A30 (UUID: {A})\n  MIG 1g.6gb     Device  0: (UUID: MIG-3ccc")
    assert inventory.gpus[0].mig_instances == (MigInstance(0, "1g.6gb", None),)
    assert "MIG device 0 of GPU 0" in inventory.warnings[0]


def test_lists_without_uuids_and_with_odd_names_are_read():
    assert [gpu.model for gpu in read_list("GPU 0: NVIDIA A100 (test) 40GB\n# GPU 1: Tesla T4 (UUID: x)\nGPU 2:\n").gpus] == [
        "NVIDIA A100 (test) 40GB",
        "Tesla T4",
        None,
    ]


def test_a_message_in_the_list_is_a_warning():
    inventory = read_list(f"GPU 0: NVIDIA A30 (UUID: {A})\nUnable to determine the device handle for gpu 0000:3B:00.0: GPU is lost.\n")
    assert len(inventory.gpus) == 1
    assert "GPU is lost" in inventory.warnings[0]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("", "empty"), ("No devices were found", "no_devices"), ("\tGPU0\tGPU1", "unknown"), (f"  MIG 1g.6gb Device 0: (UUID: {M1})", "unknown")],
)
def test_a_text_without_a_gpu_is_an_error(text: str, kind: str):
    with pytest.raises(NvidiaSmiError) as caught:
        read_list(text)
    assert caught.value.kind == kind
