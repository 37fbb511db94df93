"""Names are read from whole Nodes as decoding the body would read them, or not at all, whatever stood in the calls before."""

import json
import zlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender import node_objects
from extender.node_objects import NodeObjects, NodesBody

LOOKS_LIKE_NODES = '},{"metadata":{"name":"inside"}},{"metadata":{"name":"b"}}]}'
texts = st.text(max_size=8) | st.sampled_from(["", "node", 'a"b', "a\\", "é", "\u2028", "💡", LOOKS_LIKE_NODES, "]}", "{", '\\"'])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "metadata", "items", "Nodes"]) | texts, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    """A Node whose keys stand in any order, with things inside that look like Nodes."""
    metadata = {
        "name": draw(st.sampled_from("abcd") | texts),
        "labels": {"name": draw(texts)},
        "annotations": {"told": draw(texts)},
        "more": draw(values),
    }
    node = {
        "metadata": _reordered(draw, metadata),
        "spec": {"items": [{"metadata": {"name": "nested"}}, {"metadata": {"name": "nested too"}}]},
        "status": draw(values),
    }
    return _reordered(draw, node) if draw(st.booleans()) else node


def _reordered(draw: st.DrawFn, value: dict[str, Any]) -> dict[str, Any]:
    return {key: value[key] for key in draw(st.permutations(list(value)))}


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A call with Nodes in some layout: blanks or none, text as it is or escaped, keys in any order and any case."""
    items = draw(st.lists(nodes(), max_size=5))
    fields = {
        "Pod": draw(values),
        draw(st.sampled_from(["Nodes", "nodes"])): {"metadata": {}, draw(st.sampled_from(["items", "Items"])): items},
        "NodeNames": None,
    }
    layout = draw(st.sampled_from([{"separators": (",", ":")}, {}, {"indent": 1}]))
    return json.dumps(_reordered(draw, fields), ensure_ascii=draw(st.booleans()), **layout).encode("utf-8", "surrogatepass")


def go_body(items: list[dict[str, Any]], pod: Any = None) -> bytes:
    return orjson.dumps({"Pod": pod or {}, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None})


def node(name: str, **more: Any) -> dict[str, Any]:
    """Return a Node as Go writes it: the name first, and its end where its status ends."""
    return {
        "metadata": {"name": name, "uid": f"11111111-2222-3333-4444-{zlib.crc32(name.encode()):012}", "labels": {"name": "other"}, **more},
        "status": {},
    }


def check(body: bytes, found: NodesBody | None) -> None:
    """Compare what was read with what decoding the whole body gives."""
    if found is None:
        return
    decoded = orjson.loads(body)
    (key,) = (key for key in decoded if key.lower() == "nodes")
    (inner,) = (inner for inner in decoded[key] if inner.lower() == "items")
    items = decoded[key][inner]
    assert found.names == [item["metadata"]["name"] for item in items]
    assert [orjson.loads(body[start:end]) for start, end in found.spans] == items
    decoded[key][inner] = []
    assert found.fields == decoded


@given(st.lists(bodies(), min_size=1, max_size=4))
def test_what_is_read_is_what_decoding_the_body_gives(calls: list[bytes]):
    """Call after call with one memory; a name that is not sure is not told."""
    reader = NodeObjects()
    for body in calls:
        check(body, reader.read(body))


@given(bodies(), bodies(), st.integers(0, 10_000), st.binary(max_size=2))
def test_a_damaged_body_gives_nothing_or_what_decoding_it_gives(first: bytes, second: bytes, place: int, instead: bytes):
    """What is no JSON to orjson gives nothing, even where all its Nodes were seen before."""
    reader = NodeObjects()
    reader.read(first)
    for body in (first, second):
        at = place % len(body)
        damaged = body[:at] + instead + body[at + 1 :]
        check(damaged, reader.read(damaged))


@given(st.lists(st.lists(st.sampled_from("abcdef"), unique=True), min_size=1, max_size=5), st.data())
def test_calls_as_go_writes_them_are_always_read(calls: list[list[str]], data: st.DataObject):
    """Any choice and order of nodes, changed between calls or not."""
    reader = NodeObjects()
    for names in calls:
        body = go_body([node(name, resourceVersion=data.draw(st.sampled_from("123"))) for name in names])
        found = reader.read(body)
        assert found is not None
        assert found.names == names
        check(body, found)


def test_a_node_that_was_seen_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch):
    """Only what surrounds the list is."""
    body, again = go_body([node("a"), node("b")]), go_body([node("b"), node("a")])
    reader = NodeObjects()
    reader.read(body)
    decoded: list[bytes] = []
    loads = orjson.loads
    monkeypatch.setattr(node_objects.orjson, "loads", lambda data: decoded.append(bytes(data)) or loads(data))
    found = reader.read(again)
    assert found is not None
    assert found.names == ["b", "a"]
    assert len(decoded) == 1
    assert b"uid" not in decoded[0]


def test_a_node_that_changed_its_name_is_read_anew():
    """Equal up to the beginning that tells Nodes apart, and longer names than that."""
    reader = NodeObjects()
    for name in ("n" * 200 + "1", "n" * 200 + "2", "n" * 200 + "1"):
        found = reader.read(go_body([node(name)]))
        assert found is not None
        assert found.names == [name]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"Pod":{},"Nodes":null,"NodeNames":["a"]}', id="names instead"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":null}}', id="Go's empty list"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}},]}}', id="a comma too many"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}}', id="cut off behind an item"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}},', id="cut off behind a comma"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":[', id="cut off at once"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":1}}]}}', id="a name that is no string"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":["a"]}}', id="a Node that is a string"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}}]},"Nodes":{"items":[]}}', id="Nodes twice"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}}]},"nodes":{"items":[]}}', id="Nodes in two cases"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}}],"items":[]}}', id="items twice"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}}],"Items":[]}}', id="items in two cases"),
        pytest.param(b'{"Pod":{"Nodes":{"items":[{"metadata":{"name":"a"}}]}},"Nodes":{"items":[]}}', id="a list inside the Pod"),
        pytest.param(b'[{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}}]}}]', id="a list of calls"),
    ],
)
def test_where_it_is_not_sure_it_says_so(body: bytes):
    """The caller decodes the whole body then, and tells every error as it always did."""
    assert NodeObjects().read(body) is None


def test_the_same_key_twice_in_a_node_counts_as_the_last_one():
    """As orjson has it."""
    body = b'{"Nodes":{"items":[{"metadata":{"name":"a"},"metadata":{"name":"b","name":"c"}}]},"Pod":{}}'
    found = NodeObjects().read(body)
    assert found is not None
    assert found.names == ["c"]


def test_memory_is_bounded_and_the_oldest_goes_first():
    """Calls stay right when less is remembered than they hold."""
    size = len(orjson.dumps(node("a")))
    reader = NodeObjects(most_bytes=2 * size)
    for names in ("ab", "cd", "abcd", "dcba"):
        found = reader.read(go_body([node(name) for name in names]))
        assert found is not None
        assert found.names == list(names)
        assert reader.bytes <= 2 * size


def test_nodes_larger_than_the_memory_are_read_all_the_same():
    """Nothing is kept of them."""
    reader = NodeObjects(most_bytes=10)
    found = reader.read(go_body([node("a"), node("b")]))
    assert found is not None
    assert (found.names, reader.bytes) == (["a", "b"], 0)
