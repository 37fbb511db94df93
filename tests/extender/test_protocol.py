"""Bodies of kube-scheduler become typed calls whatever the case of their keys; what is no call is refused with a sentence; answers have its form."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.node_names import NodeNames
from extender.node_objects import NodeObjects
from extender.protocol import (
    Binding,
    NodesCall,
    error_answer,
    filter_answer,
    prioritize_answer,
    read_bind_call,
    read_nodes_call,
)
from extender.text_columns import NameText, blank_padded
from tests.strategies import deep, json_values
from topology.errors import CallError

POD = {"metadata": {"name": "a"}}
NODES = {"metadata": {}, "items": [{"metadata": {"name": "n1"}}, {"metadata": {"name": "n2", "labels": {"x": "y"}}}]}
BIND = {"PodName": "a", "PodNamespace": "team", "PodUID": "u-1", "Node": "n1"}


def body(value: object) -> bytes:
    return json.dumps(value).encode()


def in_case(fields: dict[str, Any], case: str) -> dict[str, Any]:
    return {getattr(key, case)(): value for key, value in fields.items()}


def names_of(call: NodesCall) -> list[str]:
    return call.names.texts(np.arange(len(call.names)))


def text_of(names: NodeNames) -> NameText:
    """The names of a call as `NameTable.text_of` gives them."""
    return NameText(blank_padded(names.cells), np.arange(len(names)))


def filtered(call: NodesCall, fitting: list[int], refused: dict[str, list[int]], error: str = "") -> dict[str, Any]:
    by_sentence = [(np.array(at), sentence) for sentence, at in refused.items()]
    answer: dict[str, Any] = json.loads(filter_answer(call, text_of(call.names), np.array(fitting, np.int64), by_sentence, error))
    return answer


cases = pytest.mark.parametrize("case", ["title", "lower", "upper", "swapcase"])

# --- reading --------------------------------------------------------------------------------------------------------


@cases
def test_names_are_read_whatever_the_case_of_the_keys(case: str):
    call = read_nodes_call(body(in_case({"Pod": POD, "NodeNames": ["n1", "n2"], "Nodes": None}, case)), "filter")
    assert (call.pod, names_of(call), call.nodes) == (POD, ["n1", "n2"], None)


@cases
def test_nodes_are_read_whatever_the_case_of_the_keys(case: str):
    call = read_nodes_call(body(in_case({"Pod": POD, "NodeNames": None, "Nodes": in_case(NODES, case)}, case)), "filter")
    assert (names_of(call), call.nodes) == (["n1", "n2"], NODES["items"])


@cases
def test_a_bind_call_is_read_whatever_the_case_of_the_keys(case: str):
    call = read_bind_call(body(in_case(BIND, case)))
    assert (call.namespace, call.name, call.uid, call.node, call.pod) == ("team", "a", "u-1", "n1", "team/a")


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        pytest.param({"NodeNames": []}, [], id="no names at all"),
        pytest.param({"Nodes": {"metadata": {}, "items": None}}, [], id="an empty NodeList as Go prints it"),
        pytest.param({"Nodes": {}}, [], id="a NodeList without items"),
        pytest.param({"NodeNames": ["n1"], "Nodes": NODES}, ["n1"], id="names go before objects"),
    ],
)
def test_lists_of_nodes_that_are_empty_or_twofold(fields: dict[str, Any], names: list[str]):
    assert names_of(read_nodes_call(body({"Pod": POD, **fields}), "filter")) == names


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        pytest.param(b"", "the body of this filter call is not JSON: ", id="nothing"),
        pytest.param(b"{", "the body of this filter call is not JSON: ", id="half an object"),
        pytest.param(b"\xff\xfe", "the body of this filter call is not JSON: ", id="no text"),
        pytest.param(b"[]", "the body of this filter call is a JSON list; accepted: an object", id="a list"),
        pytest.param(b"null", "the body of this filter call is a JSON NoneType; accepted: an object", id="null"),
        pytest.param(body({"NodeNames": []}), "this filter call holds no Pod; accepted: ExtenderArgs with Pod and NodeNames or Nodes", id="no pod"),
        pytest.param(body({"Pod": [], "NodeNames": []}), "this filter call holds no Pod; ", id="the pod is a list"),
        pytest.param(body({"Pod": POD}), "this filter call holds neither NodeNames nor Nodes; accepted: one of them", id="no nodes"),
        pytest.param(body({"Pod": POD, "NodeNames": "n1"}), "NodeNames of this filter call is not a list of strings", id="one name"),
        pytest.param(body({"Pod": POD, "NodeNames": ["n1", 2]}), "NodeNames of this filter call is not a list of strings", id="a number among names"),
        pytest.param(body({"Pod": POD, "Nodes": ["n1"]}), "Nodes of this filter call is not a NodeList with items", id="a list as Nodes"),
        pytest.param(body({"Pod": POD, "Nodes": {"items": "n1"}}), "Nodes of this filter call is not a NodeList with items", id="text as items"),
        pytest.param(
            body({"Pod": POD, "Nodes": {"items": [NODES["items"][0], {"metadata": {}}]}}),
            "Nodes.items[1] of this filter call has no metadata.name",
            id="a node without a name",
        ),
        pytest.param(body({"Pod": POD, "Nodes": {"items": [7]}}), "Nodes.items[0] of this filter call has no metadata.name", id="a number as node"),
    ],
)
def test_a_body_that_is_no_nodes_call_is_refused(raw: bytes, sentence: str):
    with pytest.raises(CallError) as caught:
        read_nodes_call(raw, "filter")
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("key", BIND)
@pytest.mark.parametrize("value", ["", None, 7, ["a"]], ids=repr)
def test_a_bind_call_names_pod_and_node_or_is_refused(key: str, value: object):
    with pytest.raises(CallError, match=f"^{key} of this bind call is .*; accepted: a string that is not empty$"):
        read_bind_call(body({**BIND, key: value}))


def test_a_value_that_nests_deep_is_refused_in_a_short_sentence():
    with pytest.raises(CallError) as caught:
        read_bind_call(b'{"PodNamespace":' + b"[" * 1000 + b"]" * 1000 + b"}")
    assert len(str(caught.value)) < 200


@given(
    st.binary(max_size=60) | json_values.map(body) | st.dictionaries(st.sampled_from(["Pod", "Nodes", "NodeNames", "Node"]), json_values).map(body)
)
def test_any_body_is_a_call_or_a_sentence(raw: bytes):
    for read in (lambda: read_nodes_call(raw, "filter"), lambda: read_bind_call(raw)):
        try:
            read()
        except CallError as error:
            assert "\n" not in str(error)  # noqa: PT017 - either ending is right


NODE_NAMES = st.lists(st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,40}[a-z0-9])?", fullmatch=True), max_size=6)
ODD_NAMES = st.lists(
    st.text(max_size=12) | st.sampled_from(['a","b', "]", "NodeNames", ',"NodeNames":[', "A", " a", "a ", "\\", "ä", ""]), max_size=6
)


@given(names=NODE_NAMES | ODD_NAMES, key=st.sampled_from(["NodeNames", "nodenames"]), pod=json_values, dense=st.booleans())
def test_names_are_those_that_a_decoder_finds_however_they_are_written(names: list[str], key: str, pod: object, *, dense: bool):
    """Whatever stands in the pod, and in any text that JSON allows."""
    raw = json.dumps({"Pod": {"metadata": pod}, "Nodes": None, key: names}, separators=(",", ":") if dense else None, ensure_ascii=dense).encode()
    call = read_nodes_call(raw, "filter")
    if not call.names.are_names(np.arange(len(call.names))):
        call = read_nodes_call(raw, "filter", decode=True)
    assert (names_of(call), call.pod) == (json.loads(raw)[key], {"metadata": pod})


DAMAGES = st.sampled_from([b'"', b",", b"\\", b" ", b"]", b"[", b"\x00", b"\n", b"A", b"\xff", b"x", b"{", b":"])


@given(names=NODE_NAMES, at=st.integers(0, 120), damage=DAMAGES, replaces=st.booleans())
def test_a_damaged_call_is_read_as_a_decoder_reads_it(names: list[str], at: int, damage: bytes, *, replaces: bool):
    """A byte put in or changed anywhere: either the names of a decoder are found, or it has to be decoded, and then it is refused as ever."""
    sound = json.dumps({"Pod": POD, "NodeNames": names, "Nodes": None}, separators=(",", ":")).encode()
    at = min(at, len(sound))
    raw = sound[:at] + damage + sound[at + replaces :]
    try:
        call = read_nodes_call(raw, "filter")
    except CallError:
        with pytest.raises(CallError):
            read_nodes_call(raw, "filter", decode=True)
        return
    if call.names.are_names(np.arange(len(call.names))):
        assert names_of(call) == names_of(read_nodes_call(raw, "filter", decode=True))


def test_a_list_of_names_inside_the_pod_is_not_that_of_the_call():
    pod = POD | {"NodeNames": ["x"]}
    assert names_of(read_nodes_call(json.dumps({"Pod": pod, "NodeNames": ["n1"]}, separators=(",", ":")).encode(), "filter")) == ["n1"]


def test_a_name_longer_than_any_node_can_have_is_refused_with_a_sentence():
    with pytest.raises(CallError, match=r"^this filter call names a node that cannot be: a name takes 602 bytes as JSON; accepted: less than 512$"):
        read_nodes_call(body({"Pod": POD, "NodeNames": ["n1", "x" * 600]}), "filter")


def test_nodes_that_are_known_are_answered_as_they_were_sent():
    """A second call brings them in another order and with one that has changed."""
    known = NodeObjects()
    first, second = ({"metadata": {"name": f"n{number}", "uid": "u" * 90}, "spec": {"x": [number]}} for number in (1, 2))
    for items in ([first, second], [second, first | {"spec": {"x": []}}]):
        raw = json.dumps({"Pod": POD, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}, separators=(",", ":")).encode()
        call = read_nodes_call(raw, "filter", known)
        assert (names_of(call), [isinstance(node, memoryview) for node in call.nodes or ()]) == (
            [item["metadata"]["name"] for item in items],
            [True, True],
        )
        assert filtered(call, [0, 1], {})["Nodes"]["items"] == items


# --- answers --------------------------------------------------------------------------------------------------------


def test_filter_answers_names_to_who_asked_with_names():
    call = read_nodes_call(body({"Pod": POD, "NodeNames": ["n1", "n2", "n3"]}), "filter")
    assert filtered(call, [0, 2], {"linkwise: no": [1]}) == {
        "Nodes": None,
        "NodeNames": ["n1", "n3"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"n2": "linkwise: no"},
        "Error": "",
    }


def test_filter_answers_whole_nodes_to_who_asked_with_nodes():
    call = read_nodes_call(body({"Pod": POD, "Nodes": NODES}), "filter")
    answer = filtered(call, [1], {"linkwise: no": [0]})
    assert (answer["NodeNames"], answer["Nodes"]) == (None, {"metadata": {}, "items": [NODES["items"][1]]})


def test_no_node_is_an_empty_list_and_not_null():
    """kube-scheduler takes null as the answer of an extender that keeps no cache."""
    call = read_nodes_call(body({"Pod": POD, "NodeNames": ["n1"]}), "filter")
    assert filtered(call, [], {})["NodeNames"] == []


def test_nodes_that_nest_deeper_than_can_be_written_are_refused():
    nodes = {"items": [{"metadata": {"name": "n1"}, "status": deep(300)}]}
    call = read_nodes_call(body({"Pod": POD, "Nodes": nodes}), "filter")
    with pytest.raises(CallError, match=r"^Nodes of this filter call cannot be answered in kind: "):
        filtered(call, [0], {})


def test_prioritize_answers_a_bare_list():
    assert json.loads(prioritize_answer(text_of(NodeNames.of(["n1", "n2"])), np.array([10, 0]))) == [
        {"Host": "n1", "Score": 10},
        {"Host": "n2", "Score": 0},
    ]


@pytest.mark.parametrize("error", ["", "pod team/a does not fit"])
def test_an_error_is_its_sentence_and_success_the_empty_one(error: str):
    assert json.loads(error_answer(error)) == {"Error": error}


def test_a_binding_carries_node_uid_and_annotations_in_one_object():
    assert Binding("team", "a", "u-1", "n1", {"linkwise.dev/allocation": "{}"}).to_object() == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "namespace": "team", "uid": "u-1", "annotations": {"linkwise.dev/allocation": "{}"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
