"""`nvidia-smi topo -p2p`."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.errors import NvidiaSmiError
from topology.nvidia_smi import P2pCapability, P2pMatrix, P2pStatus, read_p2p

LEGEND = "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n"


@st.composite
def p2p_matrices(draw: st.DrawFn) -> P2pMatrix:
    indices = tuple(draw(st.lists(st.integers(0, 15), min_size=2, max_size=8, unique=True)))
    statuses = tuple(tuple(None if i == j else draw(st.sampled_from(P2pStatus)) for j in indices) for i in indices)
    return P2pMatrix(P2pCapability.UNKNOWN, indices, statuses)


def rendered(matrix: P2pMatrix, blank: str) -> str:
    lines = [blank.join([" ", *(f"GPU{i}" for i in matrix.gpus), ""])]
    lines += [blank.join([f" GPU{i}", *(status or "X" for status in row), ""]) for i, row in zip(matrix.gpus, matrix.statuses, strict=True)]
    return "\n".join(lines) + "\n" + LEGEND


@settings(max_examples=50, deadline=None)
@given(matrix=p2p_matrices(), blank=st.sampled_from(["\t", "      ", " "]))
def test_a_matrix_reads_back(matrix: P2pMatrix, blank: str):
    assert read_p2p(rendered(matrix, blank)) == matrix


@settings(max_examples=50, deadline=None)
@given(matrix=p2p_matrices(), data=st.data())
def test_a_cut_matrix_gives_true_cells_only(matrix: P2pMatrix, data: st.DataObject):
    text = rendered(matrix, "\t").removesuffix(LEGEND)
    cut = text[: data.draw(st.integers(text.index("\n"), len(text)))]
    try:
        read = read_p2p(cut)
    except NvidiaSmiError:
        return
    halves = {P2pStatus.NS: ()}  # no status is the beginning of another one
    for row, true in zip(read.statuses, matrix.statuses, strict=True):
        for cell, whole in zip(row, true, strict=True):
            assert cell in (None, whole, *halves.get(whole, ())) if whole else cell is None
    assert read == matrix or read.warnings


def test_the_capability_is_what_the_caller_says_or_the_copied_command():
    text = " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n"
    assert read_p2p(text).capability is P2pCapability.UNKNOWN
    assert read_p2p(text, P2pCapability.WRITE).capability is P2pCapability.WRITE
    assert read_p2p("$ nvidia-smi topo -p2p rw\n" + text).capability is P2pCapability.READ_WRITE


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        pytest.param(" GPU1\tOK\tX\t??\n GPU2\tOK\tOK\tX\n", ["OK", None, None], id="an unknown status"),
        pytest.param(" GPU1\tOK\tX\n GPU2\tOK\tOK\tX\n", ["OK", None, None], id="a cell is gone"),
        pytest.param(" GPU1\tX\tOK\n GPU2\tOK\tOK\tX\n", [None, None, None], id="a cell is gone before the X"),
        pytest.param(" GPU2\tOK\tOK\tX\n", [None, None, None], id="no row"),
    ],
)
def test_a_damaged_row_gives_its_certain_cells_and_a_warning(row: str, cells: list[str | None]):
    matrix = read_p2p(" \tGPU0\tGPU1\tGPU2\n GPU0\tX\tGNS\tOK\n" + row)
    assert list(matrix.statuses[1]) == cells
    assert "GPU1" in matrix.warnings[0]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        ("No devices were found", "no_devices"),
        ("\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n", "unknown"),
        ("\tGPU0\tGPU0\nGPU0\tX\tOK\n", "unknown"),
        ("GPU 0: NVIDIA A30", "bad_arguments"),
    ],
)
def test_a_text_without_such_a_matrix_is_an_error(text: str, kind: str):
    with pytest.raises(NvidiaSmiError) as caught:
        read_p2p(text)
    assert caught.value.kind == kind
