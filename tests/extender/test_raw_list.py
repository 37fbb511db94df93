"""A list read in slices holds what reading it as a whole would: whatever its objects look like, and however it was printed."""

import json
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender import raw_list as module
from extender.raw_list import ListReader, read_list

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(['},{"a":', "]", '"items":[', "\\", "ä"]),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "items", '"']), inside, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from(["a", "b", "metadata", "items"]), values, max_size=4)
PRINTERS = {
    "compact": orjson.dumps,
    "kubectl": lambda value: orjson.dumps(value, option=orjson.OPT_INDENT_2),
    "four blanks": lambda value: json.dumps(value, indent=4).encode(),
    "Python": lambda value: json.dumps(value).encode(),
}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 8)


def whole(data: bytes) -> tuple[dict[str, Any], list[Any]] | None:
    """Return head and items as a plain reader finds them."""
    found = orjson.loads(data)
    if not isinstance(found, dict) or "items" not in found or not isinstance(found["items"], list | None):
        return None
    return {key: value for key, value in found.items() if key != "items"}, found["items"] or []


flat = st.text("ab]}{[,", max_size=5)
behind = st.dictionaries(
    st.sampled_from(["kind", "metadata"]), flat | st.dictionaries(st.sampled_from(["continue", "x"]), flat, max_size=2), max_size=2
)


@pytest.mark.parametrize("printer", PRINTERS)
@given(st.lists(objects | values, max_size=8), objects, behind)
def test_slices_hold_what_the_whole_holds(printer: str, items: list[Any], head: dict[str, Any], tail: dict[str, Any]):
    """Anything may stand before the items, and behind them what API servers and kubectl put there."""
    before = {key: value for key, value in head.items() if key not in ("items", *tail)}
    data = PRINTERS[printer]({**before, "items": items, **tail})
    found = read_list(data)
    assert found is not None
    assert (found.head, [item for some in found.slices() for item in some]) == whole(data)


@given(st.binary(max_size=40) | values.map(orjson.dumps))
def test_anything_else_is_told_apart(data: bytes):
    try:
        expected = whole(data)
    except ValueError:
        with pytest.raises(ValueError):
            read_list(data)
        return
    found = read_list(data)
    assert (None if found is None else (found.head, [item for some in found.slices() for item in some])) == expected


def test_a_page_comes_a_few_objects_at_a_time():
    """As the API server writes it: compact, its items last."""
    items = [{"metadata": {"name": f"pod-{number}"}} for number in range(9)]
    found = read_list(orjson.dumps({"kind": "PodList", "metadata": {"continue": "x"}, "items": items}))
    assert found is not None
    assert found.is_sliced
    assert found.head == {"kind": "PodList", "metadata": {"continue": "x"}}
    assert [len(some) for some in found.slices()] == [1] * 9


def test_an_object_that_looks_like_two_is_one():
    """Two owners stand in a pod as two pods would in a list."""
    owners = [{"apiVersion": "v1", "name": name} for name in "ab"]
    items = [{"apiVersion": "v1", "owners": owners}, {"apiVersion": "v1", "owners": []}]
    found = read_list(orjson.dumps({"items": items}))
    assert found is not None
    assert [item for some in found.slices() for item in some] == items


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"items":[{"a":1},{"a":2]}', id="an object that does not end"),
        pytest.param(b'{"items":[{"a":1},{"a":2},]}', id="a comma too many"),
        pytest.param(b'{"items":[{"a":1} {"a":2}]}', id="a comma too few"),
    ],
)
def test_a_damaged_list_is_an_error(data: bytes):
    """Be it at the first object or behind some that could be read."""
    with pytest.raises(ValueError, match=r"JSON|unexpected|trailing|expected"):
        for _ in (read_list(data) or pytest.fail("it is a list")).slices():
            pass


def test_of_two_fields_called_items_the_last_counts():
    """As every reader of JSON has it."""
    found = read_list(b'{"items":[{"a":1}],"items":[{"a":2}]}')
    assert found is not None
    assert list(found.slices()) == [[{"a": 2}]]


@given(st.lists(objects, max_size=5), objects)
def test_an_array_behind_the_items_is_read_or_refused_and_never_mistaken_for_them(items: list[Any], tail: dict[str, Any]):
    """No API server puts one there."""
    data = orjson.dumps({"items": items, **{key: value for key, value in tail.items() if key != "items"}})
    found = read_list(data)
    assert found is not None
    try:
        read = [item for some in found.slices() for item in some]
    except ValueError:
        assert any(isinstance(value, list | dict) for value in tail.values())
    else:
        assert read == items


# --- a list that comes in pieces ------------------------------------------------------------------------------------


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut the bytes at these places, as far as they have them."""
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in pairwise(places)]


def read(parts: list[bytes]) -> tuple[dict[str, Any], list[Any]]:
    reader = ListReader()
    found = [item for part in parts for some in reader.take(part) for item in some]
    head, rest = reader.end()
    return head, found + rest


cuts = st.lists(st.integers(0, 400), max_size=12)


@pytest.mark.parametrize("printer", PRINTERS)
@given(st.lists(objects, max_size=8), objects, behind, cuts)
def test_a_list_holds_the_same_in_whatever_pieces_it_comes(
    printer: str, items: list[Any], head: dict[str, Any], tail: dict[str, Any], cuts: list[int]
):
    before = {key: value for key, value in head.items() if key not in ("items", *tail)}
    data = PRINTERS[printer]({**before, "items": items, **tail})
    assert read(pieces(data, cuts)) == whole(data)


@given(st.integers(0, 500), cuts)
def test_a_list_that_breaks_off_anywhere_is_an_error(end: int, cuts: list[int]):
    """Also between two objects: nobody may take the half that came for the whole, and forget the rest."""
    data = orjson.dumps({"kind": "PodList", "metadata": {}, "items": [{"metadata": {"name": f"pod-{number}"}} for number in range(9)]})
    with pytest.raises(ValueError):
        read(pieces(data[: min(end, len(data) - 1)], cuts))


@pytest.mark.parametrize("data", [b"[]", b"", b"{}x", b'{"items": 3}', b"<html>"])
def test_what_is_no_list_is_an_error(data: bytes):
    with pytest.raises(ValueError):
        read([data])


def test_what_has_been_read_is_not_kept():
    """A list of any size takes the memory of a few objects."""
    item = orjson.dumps({"metadata": {"name": "pod"}})
    reader, most = ListReader(), 0
    for piece in (b'{"metadata":{},"items":[' + item, *[b"," + item] * 999, b"]}"):
        assert all(some for some in reader.take(piece))
        most = max(most, len(reader._text))
    assert most < 5 * len(item)
    assert reader.end() == ({"metadata": {}}, [{"metadata": {"name": "pod"}}] * len(reader.end()[1]))
