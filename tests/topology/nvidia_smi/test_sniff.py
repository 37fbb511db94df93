"""Other outputs are recognised by what only they print."""

import pytest

from tests.topology.nvidia_smi.machines import as_printed, machine
from topology.nvidia_smi.sniff import other_answer, vendor_error


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        pytest.param("====== ROCm System Management Interface ======", "rocm-smi", id="banner"),
        pytest.param("==== Link Type between two GPUs ====\nGPU0 GPU1", "rocm-smi", id="table title alone"),
        pytest.param("GPU[3]\t\t: (Topology) Numa Node: 1", "rocm-smi", id="NUMA list"),
        pytest.param("LINK TYPE TABLE:\n             0000:1c:00.0", "amd-smi", id="amd-smi table"),
        pytest.param("        GPU0    GPU1\nGPU0    X       MX\nGPU1    MX      X", "mx-smi", id="MX links"),
        pytest.param("           NPU0       NPU1\nNPU0       X          HCCS", "npu-smi", id="NPU rows"),
        pytest.param(" PPU0    X       ICN2", "ppu-smi", id="PPU rows"),
    ],
)
def test_a_vendors_tool_is_named(text: str, tool: str):
    error = vendor_error(text)
    assert error is not None
    assert error.kind == "unsupported"
    assert tool in str(error)


def test_our_own_matrix_is_nobody_elses():
    assert vendor_error(as_printed(machine("X NV4 SYS", "NV4 X SYS", "SYS SYS X", nics=["mlx5_0"]))) is None


@pytest.mark.parametrize(
    ("text", "command"),
    [
        pytest.param("|  GPU instance profiles:  |", "`nvidia-smi mig -lgip`", id="MIG profiles"),
        pytest.param("|  GPU instances:  |", "`nvidia-smi mig -lgi` or `-lci`", id="MIG instances"),
        pytest.param("==============NVSMI LOG==============", "`nvidia-smi -q`", id="the text log"),
        pytest.param("Device 0 is connected to device 1 by way of multiple PCIe switches.", "`nvidia-smi topo -p`", id="one pair"),
        pytest.param("Hello", None, id="anything else"),
    ],
)
def test_another_question_is_recognised(text: str, command: str | None):
    assert other_answer(text) == command
