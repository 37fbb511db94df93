"""Names are cut at the commas of a list and looked at only where nobody knows them; what is no list of names is never taken for one."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.node_names import WIDEST, NodeNames

NAMES = st.lists(st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,62}[a-z0-9])?", fullmatch=True), min_size=1, max_size=30)


def listed(names: list[str]) -> memoryview:
    return memoryview(json.dumps(names, separators=(",", ":"))[1:-1].encode())


def texts(names: NodeNames) -> list[str]:
    return names.texts(np.arange(len(names)))


@given(names=NAMES)
def test_names_found_in_bytes_are_those_that_were_written(names: list[str]):
    """Of any length, also so short that several commas stand in eight bytes."""
    found = NodeNames.find(listed(names))
    assert found is not None
    assert texts(found) == names
    assert found.are_names(np.arange(len(found)))
    assert found.cells.tolist() == NodeNames.of(names).cells.tolist()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b'"a,b"', id="a comma inside of a name"),
        pytest.param(b'"a" ,"b"', id="a blank after a name"),
        pytest.param(b'"a", "b"', id="a blank before a name"),
        pytest.param(b'"a","b', id="no quote at the end"),
        pytest.param(b'"a""b"', id="no comma between two"),
        pytest.param(b'"a",,"b"', id="two commas between two"),
        pytest.param(b"1,2", id="numbers"),
        pytest.param(b'"\\u0061"', id="an escape that a decoder resolves"),
        pytest.param(b'"a\x00"', id="a control character, which no JSON has in a string"),
    ],
)
def test_what_a_decoder_has_to_look_at_is_not_taken_for_names(text: bytes):
    found = NodeNames.find(memoryview(text))
    assert found is not None
    assert not found.are_names(np.arange(len(found)))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="nothing"),
        pytest.param('"ä"'.encode(), id="more than ASCII"),
        pytest.param(b'"' + b"x" * WIDEST + b'"', id="a name longer than any"),
    ],
)
def test_what_has_no_cells_is_left_to_a_decoder(text: bytes):
    assert NodeNames.find(memoryview(text)) is None


def test_many_strangers_are_left_to_a_decoder():
    """They are looked at one by one, and decoding the list takes less then."""
    found = NodeNames.find(listed([f"n{number}" for number in range(1000)]))
    assert found is not None
    assert not found.are_names(np.arange(1000))
    assert found.are_names(np.arange(10))


@pytest.mark.parametrize("names", [[], ["ä", 'q"uote', "back\\slash", "A", ""]], ids=["none", "names that no node has"])
def test_names_as_text_are_names_and_stay_as_they_were(names: list[str]):
    made = NodeNames.of(names)
    assert (len(made), texts(made), made.are_names(np.arange(len(names)))) == (len(names), names, True)


def test_a_name_that_fits_into_no_cell_is_refused():
    with pytest.raises(ValueError, match=f"^a name takes 602 bytes as JSON; accepted: less than {WIDEST}$"):
        NodeNames.of(["x" * 600])
