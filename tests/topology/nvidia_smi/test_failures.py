"""`failure_in`: the tool's own sentences and exit codes become kinds of failure."""

import pytest

from topology.nvidia_smi import failure_in
from topology.nvidia_smi.failures import first_line, shortened


@pytest.mark.parametrize(
    ("text", "kind", "bus_id"),
    [
        pytest.param(
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.54", "driver_mismatch", None, id="mismatch"
        ),
        pytest.param("Failed to initialize NVML: Driver Not Loaded", "no_driver", None, id="driver not loaded"),
        pytest.param("Failed to initialize NVML: Unknown Error", "no_driver", None, id="a container that lost its devices"),
        pytest.param(
            "NVIDIA-SMI has failed because it couldn\u2019t communicate with the NVIDIA driver.", "no_driver", None, id="typographic apostrophe"
        ),
        pytest.param(
            "> NVIDIA-SMI has failed because it couldn't\n> communicate with the NVIDIA\n> driver.", "no_driver", None, id="quoted and wrapped"
        ),
        pytest.param("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "no_driver", None, id="no library"),
        pytest.param("No devices were found", "no_devices", None, id="no devices"),
        pytest.param(
            "Unable to determine the device handle for GPU0: 0000:04:00.0: Unknown Error\nNo devices were found",
            "no_devices",
            "00000000:04:00.0",
            id="the only device is lost",
        ),
        pytest.param(
            "Unable to determine the device handle for GPU 0000:1a:00.0: GPU is lost.  Reboot\n the system to recover this GPU",
            "device_lost",
            "00000000:1A:00.0",
            id="a lost device, wrapped",
        ),
        pytest.param(
            "Unable to determine the device handle for GPU0000:CA:00.0: Unknown Error", "device_lost", "00000000:CA:00.0", id="bus id glued to GPU"
        ),
        pytest.param("12:30:45.1 The GPU has fallen off the bus", "device_lost", None, id="a time is no bus id"),
        pytest.param("bash: nvidia-smi: command not found", "not_found", None, id="bash"),
        pytest.param("sh: 1: nvidia-smi: not found", "not_found", None, id="dash"),
        pytest.param("-bash: /usr/bin/nvidia-smi: No such file or directory", "not_found", None, id="a path"),
        pytest.param("[Errno 2] No such file or directory: 'nvidia-smi'", "not_found", None, id="Python"),
        pytest.param('exec: "nvidia-smi": executable file not found in $PATH: unknown', "not_found", None, id="a container runtime"),
        pytest.param("'nvidia-smi' is not recognized as an internal or external command,", "not_found", None, id="Windows"),
        pytest.param("Command 'nvidia-smi' not found, but can be installed with:", "not_found", None, id="Ubuntu"),
        pytest.param("ERROR: Option -m is missing its value. Please run 'nvidia-smi -h' for help.", "unsupported", None, id="no topo -m on Windows"),
        pytest.param("Failed to run topology matrix", "unsupported", None, id="the matrix cannot be made"),
        pytest.param("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.", "bad_arguments", None, id="an old tool"),
        pytest.param("The -i command line argument must be used in conjunction with -n or -p.", "bad_arguments", None, id="-i with -m"),
        pytest.param("ERROR: Option --foo is not recognized. Please run 'nvidia-smi -h' for help.", "bad_arguments", None, id="unknown option"),
        pytest.param("", "empty", None, id="nothing"),
    ],
)
def test_a_sentence_of_the_tool_has_its_kind(text: str, kind: str, bus_id: str | None):
    error = failure_in(text)
    assert error is not None
    assert (error.kind, error.bus_id) == (kind, bus_id)


@pytest.mark.parametrize(
    ("exit_code", "kind"),
    [
        pytest.param(2, "bad_arguments", id="invalid argument"),
        pytest.param(3, "unsupported", id="not available on the device"),
        pytest.param(6, "no_devices", id="nothing answers the query"),
        pytest.param(9, "no_driver", id="driver not loaded"),
        pytest.param(12, "no_driver", id="no NVML library"),
        pytest.param(15, "device_lost", id="fallen off the bus"),
        pytest.param(127, "not_found", id="the shell finds no command"),
        pytest.param(124, "unknown", id="timeout"),
        pytest.param(255, "unknown", id="other"),
        pytest.param(-9, "unknown", id="killed"),
    ],
)
def test_an_exit_code_tells_where_the_text_does_not(exit_code: int, kind: str):
    error = failure_in("something odd\nmore", exit_code)
    assert error is not None
    assert error.kind == kind
    assert f"exit code {exit_code}" in str(error)
    assert '"something odd"' in str(error)


def test_a_sentence_weighs_more_than_the_exit_code():
    error = failure_in("No devices were found", exit_code=255)
    assert error is not None
    assert error.kind == "no_devices"


@pytest.mark.parametrize("exit_code", [pytest.param(None, id="not known"), pytest.param(0, id="success"), pytest.param(14, id="a corrupted infoROM")])
def test_an_answer_is_no_failure(exit_code: int | None):
    assert failure_in("\tGPU0\nGPU0\t X \n", exit_code) is None


def test_quotes_are_short_printable_and_on_one_line():
    assert first_line("\n\n  a\x1bb\x00c  \nd") == "a b c"
    assert shortened("x" * 300) == "x" * 119 + "…"
