"""Words and glued words of a row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.nvidia_smi.pieces import pieces

codes = st.one_of(st.sampled_from(["X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"]), st.integers(1, 18).map(lambda n: f"NV{n}"))


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        pytest.param("NODENODE", ["NODE", "NODE"], id="two codes"),
        pytest.param("PXBNODE", ["PXB", "NODE"], id="two different codes"),
        pytest.param("SYS0-23,48-71", ["SYS", "0-23,48-71"], id="code and affinity"),
        pytest.param("SYSN/A", ["SYS", "N/A"], id="code and N/A"),
        pytest.param("NV1NV12", ["NV1", "NV12"], id="NVLinks"),
        pytest.param("NV10-23", ["NV1", "0-23"], id="only one affinity is possible"),
        pytest.param("NV120-23", ["NV120-23"], id="NV1 or NV12: not guessed"),
        pytest.param("PH0-115", ["PH", "0-115"], id="an overwritten code before an affinity"),
        pytest.param("0-23", ["0-23"], id="an affinity"),
        pytest.param("SYSfoo", ["SYSfoo"], id="damage"),
        pytest.param("SYS" * 200, ["SYS" * 200], id="too long to be cells"),
    ],
)
def test_a_word_is_parted_where_there_is_one_way(word: str, parts: list[str]):
    assert [piece.text for piece in pieces(word)] == parts


@given(row=st.lists(codes, max_size=30))
def test_codes_that_lost_their_blanks_are_found_again(row: list[str]):
    assert [piece.text for piece in pieces("".join(row))] == row


@given(row=st.lists(st.tuples(codes, st.sampled_from(["", " ", "\t", "   "])), max_size=20), offset=st.integers(0, 40))
def test_offsets_point_at_the_pieces(row: list[tuple[str, str]], offset: int):
    text = "".join(code + blank for code, blank in row)
    for piece in pieces(text, offset):
        assert text[piece.at - offset : piece.end - offset] == piece.text
