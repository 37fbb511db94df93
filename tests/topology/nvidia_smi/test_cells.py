"""One row at a time: which cells are certain, under each layout that the other rows prove."""

import pytest

from topology.nvidia_smi.cells import Layout, RowCells, layout_of, read_row
from topology.nvidia_smi.matrix_text import matrix_blocks

TABS = ("\tGPU0\tGPU1\tGPU2\tGPU3", "GPU0\t X \tNV1\tNV2\tSYS", "GPU3\tSYS\tNV2\tNV1\t X ")
ALIGNED = ("        GPU0    GPU1    GPU2    GPU3", "GPU0     X      NV1     NV2     SYS", "GPU3    SYS     NV2     NV1      X ")
LOOSE = ("GPU0 GPU1 GPU2 GPU3", "GPU0 X NV1 NV2 SYS", "GPU3 SYS NV2 NV1 X")


def row_of(lines: tuple[str, ...], label: str) -> RowCells:
    (block,) = matrix_blocks([*lines, ""])
    return read_row(block.rows[label], block.header, layout_of(list(block.rows.values()), block.header))


def codes(cells: RowCells) -> list[str | None]:
    return [code.text if code else None for code in cells.codes]


@pytest.mark.parametrize(
    ("lines", "layout"),
    [
        pytest.param(TABS, Layout(tab_cells=True), id="tabs"),
        pytest.param(ALIGNED, Layout(aligned=True), id="every code under its name"),
        pytest.param(LOOSE, Layout(), id="single blanks"),
        pytest.param((TABS[0], TABS[1].replace("\t", "\t\t"), TABS[2]), Layout(), id="one row has other tabs"),
        pytest.param((TABS[0], "GPU0\t X \tNV1NV2\tSYS", TABS[2]), Layout(tab_cells=True), id="a glued row proves nothing"),
    ],
)
def test_the_layout_is_what_all_complete_rows_prove(lines: tuple[str, ...], layout: Layout):
    (block,) = matrix_blocks(lines)
    assert layout_of(list(block.rows.values()), block.header) == layout


@pytest.mark.parametrize(
    ("others", "row", "expected"),
    [
        pytest.param(TABS, "GPU1\tNV1\t X \t\tNV2", ["NV1", None, None, "NV2"], id="a blank cell between tabs"),
        pytest.param(TABS, "GPU1\tNV1\t X \tNV2", ["NV1", None, None, None], id="a cell is gone behind the X"),
        pytest.param(TABS, "GPU2\tNV2\t X \tNV1", [None, None, None, "NV1"], id="a cell is gone before the X"),
        pytest.param(TABS, "GPU1\tNV1\tSYS\tSYS\tNV2", [None, None, None, None], id="the X is gone, something else in its place"),
        pytest.param(TABS, "GPU1\tNV1\t X \tSYS\tNV2\tSYS", ["NV1", None, None, None], id="a cell too many"),
        pytest.param(ALIGNED, "GPU1    NV1      X              NV2", ["NV1", None, None, "NV2"], id="a blank cell under its name"),
        pytest.param(ALIGNED, "GPU1    NV1      X      NV2", ["NV1", None, None, None], id="aligned, a cell is gone behind the X"),
        pytest.param(LOOSE, "GPU2 NV2 X NV1", [None, None, None, "NV1"], id="the distance from the X is certain on one side"),
        pytest.param(LOOSE, "GPU1 NV1 X NV2", ["NV1", None, None, None], id="nothing tells which cell is gone"),
        pytest.param(LOOSE, "GPU1 NV1 X C2C NV2", ["NV1", None, None, "NV2"], id="an unknown code keeps its place"),
    ],
)
def test_a_damaged_row_gives_its_certain_cells(others: tuple[str, ...], row: str, expected: list[str | None]):
    # The row stands in the middle: at the end of a text it could as well be cut.
    cells = row_of((*others[:-1], row, others[-1]), row.split(maxsplit=1)[0])
    assert codes(cells) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param("GPU2\tNV2\tSYS", ["NV2", "SYS", None, None], id="before the X"),
        pytest.param("GPU2\tNV2\tSYS\t X \tNV", ["NV2", "SYS", None, None], id="inside a code"),
        pytest.param("GPU2\tNV2\tSYS\t X \t", ["NV2", "SYS", None, None], id="behind the X"),
    ],
)
def test_the_last_row_of_a_text_may_be_cut(row: str, expected: list[str | None]):
    (block,) = matrix_blocks([*TABS[:2], row], open_end=True)
    assert codes(read_row(block.rows["GPU2"], block.header, Layout(tab_cells=True))) == expected


def test_words_behind_the_last_column_are_noted():
    assert row_of((*TABS[:-1], TABS[-1] + "\t0-23"), "GPU3").notes == ("'0-23' stands behind the last column",)
