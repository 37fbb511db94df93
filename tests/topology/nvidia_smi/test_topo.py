"""`read_topology`: every format gives the same matrix, every trap is survived, every failure has its kind. Machines are written down by us."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.topology.nvidia_smi.machines import BLANKED, EXACT, Machine, as_printed, joined, machine, machines, tab_lines, tail_lines
from topology.errors import NvidiaSmiError, NvidiaSmiFailure
from topology.matrix import LinkMatrix
from topology.nvidia_smi import read_topology

some = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))

QUAD = machine(
    "X NV2 NV1 SYS PIX SYS",
    "NV2 X SYS NV1 PIX SYS",
    "NV1 SYS X NV2 SYS PXB",
    "SYS NV1 NV2 X SYS PXB",
    "PIX PIX SYS SYS X SYS",
    "SYS SYS PXB PXB SYS X",
    cpus=["0-15,32-47", "0-15,32-47", "16-31,48-63", "16-31,48-63"],
    numa=["0", "0", "1", "1"],
    nics=["NIC0", "NIC1"],
    nic_names=["mlx5_2", "bnxt_re0"],
)


@pytest.mark.parametrize("rendering", EXACT)
@some
@given(drawn=machines())
def test_every_rendering_reads_back_to_the_machine(rendering: str, drawn: Machine):
    assert read_topology(EXACT[rendering](drawn)) == drawn.expected()


@pytest.mark.parametrize("rendering", BLANKED)
@some
@given(drawn=machines(blanks=False))
def test_blanks_for_tabs_change_nothing_where_no_cell_is_blank(rendering: str, drawn: Machine):
    assert read_topology(BLANKED[rendering](drawn)) == drawn.expected()


@pytest.mark.parametrize("rendering", BLANKED)
@some
@given(drawn=machines())
def test_a_blank_cell_among_blanks_is_found_or_the_affinities_are_unknown_with_a_warning(rendering: str, drawn: Machine):
    read, whole = read_topology(BLANKED[rendering](drawn)), drawn.expected()
    assert (read.gpu_cells, read.nic_cells) == (whole.gpu_cells, whole.nic_cells)
    for gpu, true in zip(read.gpus, whole.gpus, strict=True):
        assert gpu.cpus in (None, true.cpus)
        assert gpu.numa in (None, true.numa)
        assert gpu.gpu_numa in (None, true.gpu_numa)
    assert read.gpus == whole.gpus or read.warnings


@some
@given(drawn=machines(), order=st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(drawn: Machine, order: random.Random):
    header, *rows = tab_lines(drawn)
    order.shuffle(rows)
    assert read_topology(joined([header, *rows, *tail_lines(drawn)])) == drawn.expected()


def read_pairs(matrix: LinkMatrix) -> dict[str, str | None]:
    return {f"{matrix.gpus[i].label}-{matrix.gpus[j].label}": code.text if code else None for i, j, code in matrix.pairs()}


# --- formats and traps, one machine each -------------------------------------------------------------------------------


def test_a_whole_matrix_has_gpus_nics_affinities_and_no_warning():
    matrix = read_topology(as_printed(QUAD))
    assert matrix == QUAD.expected()
    assert read_pairs(matrix) == {
        "GPU0-GPU1": "NV2",
        "GPU0-GPU2": "NV1",
        "GPU0-GPU3": "SYS",
        "GPU1-GPU2": "SYS",
        "GPU1-GPU3": "NV1",
        "GPU2-GPU3": "NV2",
    }
    assert [nic.name for nic in matrix.nics] == ["mlx5_2", "bnxt_re0"]


def test_indices_come_from_the_labels_not_from_the_order():
    matrix = read_topology("\tGPU3\tGPU1\nGPU3\t X \tNV4\nGPU1\tNV4\t X \n")
    assert [gpu.index for gpu in matrix.gpus] == [3, 1]


def test_old_codes_and_device_names_are_kept():
    matrix = read_topology("\tGPU0\tGPU1\tmlx4_0\tCPU Affinity\nGPU0\t X \tSOC\tPHB\t0-7\nGPU1\tSOC\t X \tSOC\t8-15\nmlx4_0\tPHB\tSOC\t X \n")
    assert str(matrix.between(0, 1)) == "SOC"
    assert (matrix.nics[0].label, matrix.nics[0].name) == ("mlx4_0", "mlx4_0")


def test_a_nic_without_its_legend_has_a_label_but_no_name():
    assert read_topology("\tGPU0\tNIC0\nGPU0\t X \tPIX\nNIC0\tPIX\t X \n").nics[0].name is None


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        pytest.param("GPU0\t X \t0-17\t1\t\tN/A", ("0-17", "1", "N/A"), id="as printed"),
        pytest.param("GPU0\t X \t\t1\t\tN/A", (None, "1", "N/A"), id="no CPU of its socket in the cgroup"),
        pytest.param("GPU0\t X \t\t\t\tN/A", (None, None, "N/A"), id="both blank, as on Windows"),
        pytest.param("GPU0\t X \t0-17\t\t\tN/A", ("0-17", None, "N/A"), id="NUMA blank"),
        pytest.param("GPU0\t X \t0-7\t\tN/A\t\tN/A", ("0-7", "N/A", "N/A"), id="two tabs before NUMA as well"),
        pytest.param("GPU0\t X \t\t\tN/A\t\tN/A", (None, "N/A", "N/A"), id="two tabs before NUMA, CPU blank"),
        pytest.param("GPU0\t X \t0-17\t1\tN/A", ("0-17", "1", "N/A"), id="one tab everywhere"),
        pytest.param("GPU0     X      0-17    1               N/A", ("0-17", "1", "N/A"), id="blanks, one tab stop left of the header"),
        pytest.param("GPU0     X              1               N/A", (None, "1", "N/A"), id="blanks on tab stops, CPU blank"),
        pytest.param("GPU0     X                              N/A", (None, None, "N/A"), id="blanks on tab stops, both blank"),
        pytest.param("GPU0 X 1 N/A", (None, None, None), id="single blanks: which one is missing cannot be told"),
        pytest.param("GPU0\t X \t0-17, 36-53\t0-3\t\tN/A", ("0-17,36-53", "0-3", "N/A"), id="a list parted by a blank, NUMA is a range"),
    ],
)
def test_affinity_cells_go_to_their_columns_or_are_unknown(row: str, cells: tuple[str | None, ...]):
    header = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID" if "\t" in row else "        GPU0    CPU Affinity    NUMA Affinity   GPU NUMA ID"
    matrix = read_topology(f"{header}\n{row}\n")
    gpu = matrix.gpus[0]
    assert (gpu.cpus, gpu.numa, gpu.gpu_numa) == cells
    assert bool(matrix.warnings) == (cells == (None, None, None))


@pytest.mark.parametrize(
    "row",
    [
        pytest.param("GPU0\t X \tNODENODE\tSYS\t0-7", id="two codes"),
        pytest.param("GPU0\t X NODE\tNODE\tSYS\t0-7", id="X and a code by a blank"),
        pytest.param("GPU0\t X \tNODE\tNODE\tSYS0-7", id="code and affinity"),
        pytest.param("GPU0XNODENODESYS0-7", id="all of it"),
    ],
)
def test_glued_cells_are_parted(row: str):
    text = f"\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\n{row}\nGPU1\tNODE\t X \tSYS\tPIX\t0-7\n"
    matrix = read_topology(text)
    assert [str(code) for code in (matrix.gpu_cells[0][1], *matrix.nic_cells[0])] == ["NODE", "NODE", "SYS"]
    assert matrix.gpus[0].cpus == "0-7"
    assert matrix.warnings == ()


def test_a_glued_header_is_parted():
    matrix = read_topology("\tGPU0\tNIC8NIC9CPU Affinity\nGPU0\t X \tPIX\tSYS\t0-7\n")
    assert [nic.label for nic in matrix.nics] == ["NIC8", "NIC9"]


def test_a_glue_with_two_meanings_is_not_guessed():
    matrix = read_topology("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV120-23\nGPU1\tNV12\t X \t0-23\n")
    assert matrix.gpu_cells[0][1] is None
    assert matrix.gpus[0].cpus is None
    assert str(matrix.between(0, 1)) == "NV12"
    assert "the cell under GPU1 reads 'NV120-23'" in matrix.warnings[0]


def test_an_overwritten_cell_is_unknown_and_the_affinity_behind_it_is_found():
    matrix = read_topology("\tGPU0\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\tPH0-95\t0-1\n")
    assert [code and code.text for code in matrix.nic_cells[0]] == ["PHB", None]
    assert (matrix.gpus[0].cpus, matrix.gpus[0].numa) == ("0-95", "0-1")
    assert matrix.warnings == ("the row of GPU0 is cut or damaged: the cell under NIC1 reads 'PH'",)


def test_a_row_that_lost_a_cell_loses_its_tail_instead_of_shifting_it():
    matrix = read_topology(
        "\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\t X \tNV1\tNV2\tSYS\nGPU1\tNV1\t X \tSYS\nGPU2\tNV2\tSYS\t X \tNV1\nGPU3\tSYS\tNV2\tNV1\t X \n"
    )
    assert [code and code.text for code in matrix.gpu_cells[1]] == ["NV1", None, None, None]
    assert read_pairs(matrix)["GPU1-GPU3"] == "NV2"
    assert matrix.warnings == ("the row of GPU1 is cut or damaged: 1 of its 3 links are certain",)


def test_missing_rows_leave_all_gpus_and_use_the_other_direction():
    matrix = read_topology("\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tNV4\tSYS\t0-7\n")
    assert matrix.size == 3
    assert read_pairs(matrix) == {"GPU0-GPU1": "NV4", "GPU0-GPU2": "SYS", "GPU1-GPU2": None}
    assert matrix.warnings == (
        "the header names 3 GPUs, but the rows of GPU1, GPU2 are missing; their links are known from the other rows only",
        "no link is known between GPU1 and GPU2: no direction can be read",
    )


def test_a_text_cut_inside_a_row_keeps_the_whole_cells_before_the_cut():
    matrix = read_topology("\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV12\tNV12\nGPU1\tNV12\t X \tNV12\nGPU2\tNV12\tNV1")
    assert [code and code.text for code in matrix.gpu_cells[2]] == ["NV12", None, None], "NV1 may be the beginning of NV12"
    assert read_pairs(matrix) == {"GPU0-GPU1": "NV12", "GPU0-GPU2": "NV12", "GPU1-GPU2": "NV12"}
    assert matrix.warnings


def test_an_affinity_cut_by_the_end_of_the_text_is_unknown_where_another_row_shows_it_whole():
    matrix = read_topology("\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tNV4\tSYS\t0-23,48-71\nGPU1\tNV4\t X \tSYS\t0-23,4")
    assert [gpu.cpus for gpu in matrix.gpus] == ["0-23,48-71", None, None]
    assert "its last cell '0-23,4' is cut off" in matrix.warnings[0]


def test_the_weaker_direction_counts_and_a_warning_names_both():
    matrix = read_topology("\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV4\tPIX\nGPU1\tNV2\t X \tSYS\nNIC0\tPXB\tSYS\t X \n")
    assert str(matrix.between(0, 1)) == "NV2"
    assert str(matrix.nic_cells[0][0]) == "PXB"
    assert matrix.warnings == (
        "GPU0 and NIC0 are linked by PIX in the row of GPU0 but by PXB in the row of NIC0; PXB, the weaker, counts",
        "GPU0 and GPU1 are linked by NV4 in the row of GPU0 but by NV2 in the row of GPU1; NV2, the weaker, counts",
    )


def test_a_nic_cell_missing_in_the_row_of_the_gpu_comes_from_the_row_of_the_nic():
    matrix = read_topology("\tGPU0\tGPU1\tNIC0\nGPU0\t X \tSYS\tPIX\nNIC0\tPIX\tPHB\t X \n")
    assert str(matrix.nic_cells[1][0]) == "PHB"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        pytest.param(as_printed(QUAD) + as_printed(QUAD), "the text holds 2 link matrices; the first one was read", id="two machines in one file"),
        pytest.param("\tGPU0\nGPU0\t X \nGPU0\t X \n", "the row of GPU0 is there again; the first one was read", id="a row twice"),
        pytest.param(
            "\tGPU0\nGPU0\t X \nGPU7\t X \n", "the row of GPU7 is without a column in the header, and not read", id="a row without a column"
        ),
        pytest.param(
            "\tGPU0\tNIC0\nGPU0\t X \tPIX\n\n  NIC5: mlx5_0\n",
            "the NIC legend names NIC5, without a column in the matrix",
            id="a legend of another machine",
        ),
        pytest.param(
            "\tGPU0\tCPU Affinity\tGPU Speed\nGPU0\t X \t0-7\n",
            "the header names a column that is not known, 'GPU Speed'; it was not read",
            id="an unknown column",
        ),
        pytest.param(
            "\tGPU0\tGPU1\nGPU0\t X \tC2C\nGPU1\tC2C\t X \n",
            "the row of GPU0 is cut or damaged: the cell under GPU1 reads 'C2C'",
            id="an unknown code",
        ),
        pytest.param(
            "\tGPU0\nGPU0\t X \nSYS\tPIX\n", 'lines of link codes without a label were not read: 1, the first "SYS PIX"', id="a row without a label"
        ),
        pytest.param(
            "\tGPU0\tNIC0\tNIC1\nGPU0\t X \tPIX\tPIX\nNIC0\tPIX\t X \tPIX\n",
            "the header names 2 NICs, but the row of NIC1 is missing",
            id="a NIC row missing",
        ),
        pytest.param(
            "$ nvidia-smi topo -mp\n\tGPU0\nGPU0\t X \n",
            "the text was made by `nvidia-smi topo -mp`, which hides NVLinks; `nvidia-smi topo -m` shows them",
            id="topo -mp",
        ),
    ],
)
def test_nothing_is_lost_without_a_warning(text: str, warning: str):
    assert warning in read_topology(text).warnings


def test_a_failure_beside_a_matrix_is_a_warning():
    matrix = read_topology("Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.\n\tGPU0\nGPU0\t X \n")
    assert "GPU is lost" in matrix.warnings[0]


def test_a_matrix_before_a_p2p_matrix_in_one_report_is_read():
    p2p = " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n"
    matrix = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n"
    assert read_topology(p2p + matrix) == read_topology(matrix + p2p) == read_topology(matrix)


# --- texts without a matrix --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        pytest.param("", "empty", "the text is empty", id="nothing"),
        pytest.param(" \n\t\n", "empty", "the text is empty", id="blanks"),
        pytest.param("Hello\nworld", "unknown", 'begins with "Hello"', id="any text"),
        pytest.param("y" * 500, "unknown", "y" * 100 + "y" * 19 + "…", id="a long line is quoted shortened"),
        pytest.param("No devices were found", "no_devices", "no GPU is visible", id="no devices"),
        pytest.param(
            "\tGPU0\tGPU1\tCPU Affinity\nFailed to run topology matrix\n", "unsupported", "Failed to run", id="the tool gives up behind its header"
        ),
        pytest.param("\tGPU0\tGPU1\tCPU Affinity\n", "partial", "(GPUs: 2)", id="a header alone"),
        pytest.param("\tGPU0\tGPU1\tCPU Aff", "partial", "(GPUs: 2)", id="a header cut in a column's name"),
        pytest.param("\tGPU0\tGPU1\tGP", "partial", "(GPUs: 2)", id="a header cut in a label"),
        pytest.param("GPU0\t X \tNV4\nGPU1\tNV4\t X \n", "partial", "not the header line", id="rows without a header"),
        pytest.param(" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n", "bad_arguments", "topo -p2p", id="topo -p2p"),
        pytest.param(
            "The GPUs that have an affinity with CPU 7 are:\n2, 3\n",
            "bad_arguments",
            "`nvidia-smi topo -c 7` (the GPUs near CPU 7: 2, 3)",
            id="topo -c",
        ),
        pytest.param("GPU 0: NVIDIA A30 (UUID: GPU-...)", "bad_arguments", "`nvidia-smi -L`", id="-L"),
        pytest.param("index, name\n0, NVIDIA A30", "bad_arguments", "`nvidia-smi --query-gpu`", id="a CSV query"),
        pytest.param("<nvidia_smi_log></nvidia_smi_log>", "bad_arguments", "`nvidia-smi -q -x`", id="an XML log"),
        pytest.param("GPU 0: A\n\t Link 0: 25 GB/s", "bad_arguments", "`nvidia-smi nvlink -s`", id="nvlink -s"),
        pytest.param(
            "|   0  NVIDIA A30 |\n| NVIDIA-SMI 550.54    Driver Version: 550.54 |", "bad_arguments", "without arguments", id="the plain table"
        ),
        pytest.param("\tGPU0\tGPU1\tGPU0\nGPU0\t X \tSYS\t X \n", "unknown", "names GPU0 2 times", id="a label twice"),
        pytest.param("\t" + "\t".join(f"GPU{i}" for i in range(65)) + "\nGPU0\t X \n", "unknown", "65 GPUs", id="65 GPUs"),
        pytest.param("GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n==== Link Type between two GPUs ====", "unsupported", "rocm-smi", id="another vendor"),
    ],
)
def test_a_text_without_a_matrix_is_an_error_of_its_kind(text: str, kind: str, words: str):
    with pytest.raises(NvidiaSmiError) as caught:
        read_topology(text)
    assert caught.value.kind == NvidiaSmiFailure(kind)
    assert words in str(caught.value)


def test_sixty_four_gpus_are_read():
    n = 64
    big = machine(*(" ".join("X" if i == j else "NV18" for j in range(n)) for i in range(n)))
    assert read_topology(as_printed(big)) == big.expected()
