"""Which line is a header, which a row, which a legend; and what a header names."""

import pytest

from topology.nvidia_smi.matrix_text import gpu_index, header_of, matrix_blocks, rows_without_header
from topology.nvidia_smi.plain_text import plain_lines


@pytest.mark.parametrize(
    ("line", "devices", "affinities"),
    [
        pytest.param("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID", ("GPU0", "GPU1"), ("cpus", "numa", "gpu_numa"), id="three affinities"),
        pytest.param("GPU0\tGPU1\tmlx5_bond_0\tCPU Affinity", ("GPU0", "GPU1", "mlx5_bond_0"), ("cpus",), id="without its tab"),
        pytest.param("# GPU0 rocep4s0f1 hfi1_0", ("GPU0", "rocep4s0f1", "hfi1_0"), (), id="commented, NICs by device name"),
        pytest.param("\tGPU0\tNIC1NIC2CPU AffinityNUMA Affinity", ("GPU0", "NIC1", "NIC2"), ("cpus", "numa"), id="glued"),
        pytest.param("\tGPU0\tmlx5_0mlx5_11", ("GPU0", "mlx5_0", "mlx5_11"), (), id="glued device names"),
        pytest.param("\tGPU0\tCPU Affinity\tNUMA Aff", ("GPU0",), ("cpus", "numa"), id="cut in the last name"),
    ],
)
def test_a_header_names_devices_and_affinities(line: str, devices: tuple[str, ...], affinities: tuple[str, ...]):
    header = header_of(line)
    assert header is not None
    assert (header.devices, header.affinities) == (devices, affinities)


@pytest.mark.parametrize(
    "line",
    ["GPU0 and GPU1 are linked", "NIC0\tGPU0", "GPU 0: NVIDIA A30", "CPU Affinity", "GPU0  0-23  0", "GPU0: lost", ""],
)
def test_prose_and_lists_are_no_header(line: str):
    assert header_of(line) is None


def test_a_header_and_a_row_may_begin_alike():
    (block,) = matrix_blocks(["GPU0\tGPU1", "GPU0\t X \tSYS", "GPU1\tSYS\t X "])
    assert [row.label for row in block.gpu_rows()] == ["GPU0", "GPU1"]


def test_a_row_cut_behind_its_label_begins_no_new_matrix():
    (block,) = matrix_blocks(["\tGPU0\tGPU1", "GPU0\t X \tSYS", "GPU1"])
    assert list(block.rows) == ["GPU0"]


def test_the_legend_of_nics_is_read_and_the_other_passed_over():
    lines = plain_lines("\tGPU0\tNIC0\nGPU0\t X \tSYS\n\nLegend:\n  SYS  = Connection\nNIC Legend:\n\n  NIC0: mlx5_bond_3\n")
    (block,) = matrix_blocks(lines)
    assert block.nic_names == {"NIC0": "mlx5_bond_3"}
    assert block.loose_lines == []


def test_a_second_header_begins_a_second_matrix():
    assert [len(block.gpu_rows()) for block in matrix_blocks(["\tGPU0", "GPU0\tX", "\tGPU4\tGPU5", "GPU4\tX\tSYS", "GPU5\tSYS\tX"])] == [1, 2]


def test_rows_are_recognised_without_a_header():
    assert rows_without_header(["GPU0\t X \tNV4"])
    assert not rows_without_header(["GPU0\tGPU1", "NIC0 X"])


def test_only_a_label_of_a_gpu_has_an_index():
    assert gpu_index("GPU17") == 17
    with pytest.raises(ValueError, match="NIC0"):
        gpu_index("NIC0")
