"""A file of unknown kind, or of several kinds."""

import pytest

from topology.errors import NvidiaSmiError
from topology.inventory import Gpu
from topology.nvidia_smi import read_inventory

A = "GPU-1aaaaaaa-1111-2222-3333-444444444444"
LIST = f"GPU 0: NVIDIA A30 (UUID: {A})\n"
LINKS = "\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n"
CSV = f"index, uuid, memory.total [MiB]\n0, {A}, 24576 MiB\n"
XML = f'<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="00000000:3B:00.0"><uuid>{A}</uuid></gpu></nvidia_smi_log>\n'


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        pytest.param(LIST, Gpu(index=0, uuid=A, model="NVIDIA A30"), id="-L"),
        pytest.param(LIST + LINKS, Gpu(index=0, uuid=A, model="NVIDIA A30", nvlinks=2, nvlink_gb_per_s=25.0), id="nvlink -s"),
        pytest.param(CSV, Gpu(index=0, uuid=A, memory_mib=24576), id="CSV"),
        pytest.param(XML, Gpu(index=0, uuid=A, bus_id="00000000:3B:00.0"), id="XML"),
        pytest.param(LIST + CSV, Gpu(index=0, uuid=A, model="NVIDIA A30", memory_mib=24576), id="-L and CSV"),
        pytest.param(
            f"$ nvidia-smi -q -x\n{XML}$ nvidia-smi nvlink -s\n{LIST}{LINKS}$ nvidia-smi --query-gpu=index,uuid,memory.total --format=csv\n{CSV}",
            Gpu(index=0, uuid=A, model="NVIDIA A30", bus_id="00000000:3B:00.0", memory_mib=24576, nvlinks=2, nvlink_gb_per_s=25.0),
            id="all of them",
        ),
    ],
)
def test_what_the_file_tells_is_found_whatever_it_is(text: str, gpu: Gpu):
    assert read_inventory(text).gpus == (gpu,)


def test_prose_beside_a_list_is_no_table():
    assert read_inventory("The GPUs of node a, as listed today:\n" + LIST).gpus == (Gpu(index=0, uuid=A, model="NVIDIA A30"),)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("", "empty"), ("lorem, ipsum", "unknown"), ("No devices were found", "no_devices"), ("GPU[0]\t: (Topology) Numa Node: 0", "unsupported")],
)
def test_an_unrecognised_file_is_an_error_that_names_the_accepted_forms(text: str, kind: str):
    with pytest.raises(NvidiaSmiError) as caught:
        read_inventory(text)
    assert caught.value.kind == kind
    assert kind in ("no_devices", "unsupported") or "`-q -x` or `nvlink -s`" in str(caught.value)
