"""Columns are JSON with blanks in it: the same values as an encoder writes, whatever the names and however many there are."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from extender.node_names import NodeNames
from extender.text_columns import Column, NameText, blank_padded, written

NAMES = st.lists(st.text(max_size=12), max_size=8)


def text_of(names: list[str]) -> NameText:
    return NameText(blank_padded(NodeNames.of(names).cells), np.arange(len(names)))


@given(names=NAMES)
def test_a_column_is_a_list(names: list[str]):
    assert json.loads(written([b"[", Column(text_of(names), end=b","), b"]"])) == names


@given(first=NAMES, second=NAMES, sentences=st.tuples(st.text(max_size=20), st.text(max_size=20)))
def test_columns_side_by_side_are_one_object(first: list[str], second: list[str], sentences: tuple[str, str]):
    columns = [
        Column(text_of(names), end=b":", after=json.dumps(sentence).encode() + b",")
        for names, sentence in zip((first, second), sentences, strict=True)
    ]
    found = json.loads(written([b'{"refused":{', *columns, b'},"n":1}']))
    assert found == {"refused": dict.fromkeys(first, sentences[0]) | dict.fromkeys(second, sentences[1]), "n": 1}


@given(names=NAMES, data=st.data())
def test_rows_may_have_text_of_their_own(names: list[str], data: st.DataObject):
    scores = data.draw(st.lists(st.integers(0, 9), min_size=len(names), max_size=len(names)))
    each = np.array([f'"Score":{score}}}'.ljust(15).encode() + b"," for score in scores], "S16").view(np.uint64).reshape(len(names), 2)
    found = json.loads(written([b"[", Column(text_of(names), end=b",", before=b'{"Host":', each=each), b"]"]))
    assert found == [{"Host": name, "Score": score} for name, score in zip(names, scores, strict=True)]


def test_some_of_the_names_are_written_in_the_order_asked_for():
    names = text_of(["a", "b", "c"])
    assert json.loads(written([b"[", Column(names[np.array([2, 0])], end=b","), b"]"])) == ["c", "a"]
