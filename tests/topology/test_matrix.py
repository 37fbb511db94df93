from dataclasses import replace

import pytest
from hypothesis import given

from tests.machines import DGX1V, Machine, irregular_machines, matrix_of
from topology.errors import InputError, TopologyError
from topology.links import LinkCode
from topology.matrix import Cells, GpuRow, LinkMatrix, NicColumn, from_codes

PIX = LinkCode("PIX")


def test_hand_written_rows_become_a_matrix():
    matrix = from_codes([["X", "NV2"], ["NV2", "X"]], numa=("0", "1"))
    assert matrix.size == 2
    assert [row.label for row in matrix.gpus] == ["GPU0", "GPU1"]
    assert [row.numa for row in matrix.gpus] == ["0", "1"]
    assert matrix.gpu_cells == ((None, LinkCode("NV2")), (LinkCode("NV2"), None))
    assert (matrix.nics, matrix.nic_cells, matrix.warnings) == ((), ((), ()), ())


@pytest.mark.parametrize(
    ("here", "there", "counts"),
    [
        pytest.param("NV2", "NV2", "NV2", id="both directions agree"),
        pytest.param("NV4", "NV2", "NV2", id="fewer links count"),
        pytest.param("NV2", "NV4", "NV2", id="fewer links count, whichever direction"),
        pytest.param("NV1", "SYS", "SYS", id="the farther code counts"),
        pytest.param("PIX", "?", "PIX", id="only one direction was printed"),
        pytest.param("?", "PIX", "PIX", id="only the other direction was printed"),
        pytest.param("?", "?", None, id="nothing was printed"),
    ],
)
def test_the_weaker_direction_of_a_pair_counts(here: str, there: str, counts: str | None):
    matrix = matrix_of(f"X {here}", f"{there} X")
    expected = None if counts is None else LinkCode(counts)
    assert matrix.between(0, 1) == matrix.between(1, 0) == expected


def test_what_was_printed_is_told_apart_from_what_may_be_used():
    printed = matrix_of("X NV4", "NV2 X")
    lowered = replace(matrix_of("X SYS", "SYS X"), wires=printed.gpu_cells)
    assert (str(printed.between(0, 1)), str(printed.wired(0, 1))) == ("NV2", "NV2")
    assert (str(lowered.between(0, 1)), str(lowered.wired(1, 0))) == ("SYS", "NV2")


def test_printed_cells_of_another_shape_are_refused():
    with pytest.raises(TopologyError, match="names 2 GPUs but its rows have"):
        replace(matrix_of("X SYS", "SYS X"), wires=((None,),))


def test_asymmetric_and_missing_pairs_are_listed():
    matrix = matrix_of("X NV2 PIX ?", "NV1 X ? PHB", "PIX ? X SYS", "? PHB SYS X")
    assert matrix.asymmetric() == [(0, 1)]
    assert matrix.missing() == [(0, 3), (1, 2)]


def test_a_code_printed_once_is_neither_asymmetric_nor_missing():
    matrix = matrix_of("X PIX", "? X")
    assert (matrix.asymmetric(), matrix.missing()) == ([], [])


def test_pairs_come_once_and_in_order():
    assert [(i, j) for i, j, _ in matrix_of(*DGX1V.rows).pairs()] == [(i, j) for i in range(8) for j in range(i + 1, 8)]


@given(irregular_machines())
def test_a_symmetric_matrix_is_read_back_as_it_was_written(machine: Machine):
    matrix = machine.matrix
    assert (matrix.asymmetric(), matrix.missing()) == ([], [])
    for i, j, code in matrix.pairs():
        assert code is not None
        assert code.text == machine.codes[i][j] == machine.codes[j][i]


@pytest.mark.parametrize(
    ("gpus", "nics", "gpu_cells", "nic_cells", "sentence"),
    [
        pytest.param(2, 0, ((None, PIX),), ((), ()), r"names 2 GPUs but its rows have \[2\] cells; accepted: 2 rows of 2", id="a row is missing"),
        pytest.param(2, 0, ((None, PIX), (PIX,)), ((), ()), r"names 2 GPUs but its rows have \[2, 1\] cells", id="a cell is missing"),
        pytest.param(
            2, 1, ((None, PIX), (PIX, None)), ((PIX,), ()), r"names 1 NICs but its rows have \[1, 0\] NIC cells", id="a NIC cell is missing"
        ),
        pytest.param(1, 0, ((None,),), (), r"names 0 NICs but its rows have \[\] NIC cells; accepted: 1 rows of 0", id="a NIC row is missing"),
    ],
)
def test_a_matrix_that_contradicts_itself_is_refused(gpus: int, nics: int, gpu_cells: Cells, nic_cells: Cells, sentence: str):
    with pytest.raises(TopologyError, match=sentence) as caught:
        LinkMatrix(tuple(map(GpuRow, range(gpus))), tuple(NicColumn(f"NIC{k}") for k in range(nics)), gpu_cells, nic_cells)
    assert isinstance(caught.value, InputError)


def test_rows_of_different_length_are_refused():
    with pytest.raises(TopologyError, match="accepted: 2 rows of 2"):
        from_codes([["X", "PIX"], ["PIX"]])


def test_a_matrix_may_be_empty():
    matrix = LinkMatrix((), (), (), ())
    assert (matrix.size, list(matrix.pairs()), matrix.missing()) == (0, [], [])


def test_labels_follow_the_printed_index_not_the_position():
    assert GpuRow(5).label == "GPU5"
