"""A snapshot is whatever kubectl prints; a broken object is told and costs only itself; a Binding lands on its pod as the API server would put it there."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from extender.cluster import Cluster
from extender.protocol import Binding, BindVerdict
from extender.snapshot_file import Snapshot, SnapshotCluster, parse_snapshot, read_snapshot
from tests.builders import Clock, allocation_of, cluster, extender_on, gpushare_node, pod, unhealthy_gpus
from tests.strategies import deep, json_objects, json_values, odd_pods
from topology.errors import SnapshotError

BUILT = cluster().dgx1v("a").mesh("b").with_pods(pod("one").gpus(2), pod("two").plain())
TOPOLOGIES, PODS = list(BUILT.topologies), list(BUILT.pods)
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-system", "name": "coredns"}, "data": {}}
OBJECTS = [NODE, *TOPOLOGIES, *PODS]
EXPECTED = Snapshot((NODE,), tuple(TOPOLOGIES), tuple(PODS))


def listed(kind: str, items: list[Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": ""}, "items": items}


def without_kind(items: list[Any]) -> list[Any]:
    """Items of a PodList as the API server sends them."""
    return [{key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in items]


def as_yaml(*documents: object) -> bytes:
    return yaml.safe_dump_all(documents, sort_keys=False).encode()


def as_json(document: object) -> bytes:
    return json.dumps(document, indent=4).encode()


UNHEALTHY = unhealthy_gpus("a", "0,2")
TYPED = [listed("NodeList", without_kind([NODE])), listed("GPUTopologyList", TOPOLOGIES), listed("PodList", PODS)]

# --- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(as_yaml(listed("List", OBJECTS)), id="YAML, one List"),
        pytest.param(as_yaml(*OBJECTS), id="YAML, a document an object"),
        pytest.param(as_yaml(*TYPED), id="YAML, a typed list a kind"),
        pytest.param(as_yaml(listed("List", TYPED)), id="YAML, typed lists in a List"),
        pytest.param(b"---\n# comment\n---\n" + as_yaml(*OBJECTS) + b"---\n", id="YAML, empty documents between"),
        pytest.param(b"\xef\xbb\xbf" + as_yaml(*OBJECTS), id="YAML with a byte order mark"),
        pytest.param(as_yaml(*OBJECTS).decode().encode("utf-16"), id="YAML as Windows saves it"),
        pytest.param(as_json(listed("List", OBJECTS)), id="JSON, one List"),
        pytest.param(as_json(OBJECTS), id="JSON, an array"),
        pytest.param(b"\n  " + as_json(listed("List", OBJECTS)), id="JSON behind blanks"),
        pytest.param(b"\n".join(as_json(each) for each in OBJECTS), id="JSON, one object behind the other"),
        pytest.param(b"".join(json.dumps(each).encode() for each in TYPED), id="JSON lists without a blank between"),
        pytest.param(b"---\n".join(as_json(each) + b"\n" for each in OBJECTS), id="JSON documents in a YAML stream"),
    ],
)
def test_every_form_that_kubectl_prints_reads_the_same(data: bytes):
    found = parse_snapshot(data, "file")
    assert (found.problems, found.topologies, found.pods) == ((), EXPECTED.topologies, EXPECTED.pods)
    assert [node["metadata"]["name"] for node in found.nodes] == ["a"]


def test_items_of_a_typed_list_get_the_kind_that_the_api_server_leaves_out():
    found = parse_snapshot(as_yaml(listed("PodList", without_kind(PODS))), "file")
    assert [item["kind"] for item in found.pods] == ["Pod", "Pod"]


def test_a_snapshot_written_as_a_list_reads_back():
    assert parse_snapshot(as_json(EXPECTED.to_list()), "file") == EXPECTED


def test_kinds_that_are_not_read_are_no_problem():
    service = {"kind": "Service", "metadata": {"name": "s"}}
    assert parse_snapshot(as_yaml(listed("List", [service, *OBJECTS])), "file") == EXPECTED


@pytest.mark.parametrize("items", [[], None], ids=["an empty array", "null, as Go prints it"])
def test_a_cluster_without_anything_is_an_empty_snapshot(items: object):
    assert parse_snapshot(as_yaml({"kind": "PodList", "items": items}), "file") == Snapshot()


def test_times_and_signs_stay_what_kubectl_wrote():
    text = b"kind: Pod\nmetadata: {name: a, creationTimestamp: 2026-01-01T00:00:00Z, labels: {sign: =}}\n"
    (read,) = parse_snapshot(text, "file").pods
    assert read["metadata"] == {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"sign": "="}}


BROKEN = [
    pytest.param(None, "a NoneType stands where an object is expected", id="null"),
    pytest.param("pod", "a str stands where an object is expected", id="text"),
    pytest.param([[7]], "a int stands where an object is expected", id="a number in lists"),
    pytest.param({"metadata": {"name": "x"}}, "an object without a kind", id="no kind"),
    pytest.param({"kind": 7, "metadata": {"name": "x"}}, "an object without a kind", id="a number as kind"),
    pytest.param({"kind": "Pod"}, "a Pod without metadata.name", id="no metadata"),
    pytest.param({"kind": "Pod", "metadata": {"name": ""}}, "a Pod without metadata.name", id="an empty name"),
    pytest.param({"kind": "Pod", "metadata": {"name": "x"}, "spec": []}, "Pod x: spec must be an object", id="spec is a list"),
]


@pytest.mark.parametrize(("item", "problem"), BROKEN)
def test_a_broken_object_is_told_by_its_place_and_costs_only_itself(item: object, problem: str):
    found = parse_snapshot(as_json(listed("List", [OBJECTS[0], item, *OBJECTS[1:]])), "snap.json")
    assert (found.nodes, found.topologies, found.pods) == (EXPECTED.nodes, EXPECTED.topologies, EXPECTED.pods)
    (told,) = found.problems
    assert told.startswith("snap.json items[1]")
    assert told.endswith(f": {problem}")


def test_a_broken_document_of_several_is_told_by_its_number():
    (told,) = parse_snapshot(as_yaml(*OBJECTS, {"kind": "Pod"}), "snap.yaml").problems
    assert told == f"snap.yaml document {len(OBJECTS) + 1}: a Pod without metadata.name"


ACCEPTED = "accepted: the output of kubectl get nodes,gputopologies,pods -A -o yaml (or json)"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        pytest.param(b"", f"snapshot f is empty; {ACCEPTED}", id="empty"),
        pytest.param(b" \n\n", f"snapshot f is empty; {ACCEPTED}", id="blank"),
        pytest.param(b"# nothing\n---\n", f"snapshot f is empty; {ACCEPTED}", id="comments alone"),
        pytest.param(b"No resources found\n", f"snapshot f holds a str instead of objects; {ACCEPTED}", id="a message of kubectl"),
        pytest.param(b"a: b: c", "snapshot f is neither YAML nor JSON: mapping values are not allowed in this context", id="no YAML"),
        pytest.param(b'{"kind": "Pod"', "snapshot f is neither YAML nor JSON: ", id="half a JSON object"),
        pytest.param(b"\x00\x01\x02", "snapshot f is neither YAML nor JSON: ", id="bytes"),
        pytest.param(b"a: !!python/object:os.system x", "snapshot f is neither YAML nor JSON: could not determine a constructor", id="code"),
        pytest.param(b"a: !!int ''", "snapshot f is no YAML that kubectl prints: a tag stands on a value", id="a tag on nothing"),
        pytest.param(b"a: !!bool x", "snapshot f is no YAML that kubectl prints: a tag stands on a value", id="a tag on another value"),
    ],
)
def test_a_file_that_is_no_snapshot_is_refused_with_a_sentence(data: bytes, sentence: str):
    with pytest.raises(SnapshotError) as caught:
        parse_snapshot(data, "f")
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("data", [b"&a [*a]", b"&a {items: [*a]}", json.dumps(deep(900)).encode(), b"[" * 3000 + b"]" * 3000, b"[" * 3000])
def test_lists_without_end_are_told_and_not_followed(data: bytes):
    try:
        found = parse_snapshot(data, "f")
    except SnapshotError:
        return
    assert len(found.problems) == 1


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=80) | st.text(alphabet="{}[]:-&*!|>'\"#%@`, \nakindPod0123", max_size=60).map(str.encode) | json_values.map(as_json))
@example(b"? !!set {a}\n: 1")
@example(b"!!timestamp '9999-12-31T23:59:59-23:59'")
@example(b"<<: [a]")
def test_any_bytes_are_a_snapshot_or_a_sentence(data: bytes):
    try:
        parse_snapshot(data, "f")
    except SnapshotError as error:
        assert str(error).startswith("snapshot f ")  # noqa: PT017 - either ending is right


def test_a_file_that_cannot_be_opened_is_one_sentence(tmp_path: Path):
    for path, why in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(SnapshotError) as caught:
            read_snapshot(path)
        assert str(caught.value) == f"snapshot {path} cannot be read: {why}"


def test_a_file_is_read_by_its_path(tmp_path: Path):
    path = tmp_path / "snap.yaml"
    path.write_bytes(as_yaml(*OBJECTS))
    assert read_snapshot(path) == EXPECTED


# --- source and binder ----------------------------------------------------------------------------------------------


def fed(snapshot: Snapshot, bindings_file: Path | None = None) -> tuple[SnapshotCluster, list[str]]:
    source = SnapshotCluster(snapshot, Cluster("nvidia.com/gpu", Clock()), bindings_file)
    return source, source.feed()


def a_binding(name: str = "one", node: str = "a", uid: str = "uid-default-one") -> Binding:
    uuids = BUILT.uuids(node)[:2]
    return Binding("default", name, uid, node, {"linkwise.dev/allocation": allocation_of(node, {"main": uuids})})


@settings(deadline=None, max_examples=150)
@given(st.lists(odd_pods | json_objects, max_size=3), st.lists(json_objects.map(lambda spec: {**TOPOLOGIES[1], "spec": spec}), max_size=2))
def test_odd_objects_never_stop_the_others(pods: list[dict[str, Any]], topologies: list[dict[str, Any]]):
    objects = [*({"kind": "Pod", **raw} for raw in pods), *topologies, *TOPOLOGIES[:1]]
    source, problems = fed(parse_snapshot(as_json(objects), "f"))
    view = source.cluster.view()
    assert "a" in view.names
    assert len(problems) >= len(topologies), "no topology with such a spec describes a node"


def test_an_unreadable_topology_is_told_and_closes_its_node():
    bad = {**TOPOLOGIES[0], "spec": {**TOPOLOGIES[0]["spec"], "gpus": []}}
    source, problems = fed(Snapshot(topologies=(bad, TOPOLOGIES[1])))
    assert len(problems) == 1
    assert problems[0].startswith("GPUTopology a: spec.gpus")
    view = source.cluster.view()
    assert {name: bool(view.closed[row]) for name, row in view.row_of.items()} == {"a": True, "b": False}


async def test_a_binding_puts_node_and_annotations_on_the_pod_in_one_step():
    source, _ = fed(EXPECTED)
    binding = a_binding()
    assert (await source.bind(binding, 3.0)).verdict is BindVerdict.BOUND
    stored = await source.read_pod("default", "one")
    assert stored is not None
    assert stored["spec"]["nodeName"] == "a"
    assert stored["metadata"]["annotations"] == binding.annotations
    assert stored["spec"]["containers"] == PODS[0]["spec"]["containers"]


@pytest.mark.parametrize(
    ("stored", "binding", "why"),
    [
        pytest.param(pod("one").gpus(2).bound_to("b"), a_binding(), "the pod is bound to node b already", id="already bound"),
        pytest.param(pod("one").gpus(2).terminating(), a_binding(), "the pod is being deleted", id="being deleted"),
        pytest.param(pod("one").gpus(2), a_binding(uid="u-2"), "the pod has uid uid-default-one, not u-2", id="a namesake"),
    ],
)
async def test_what_an_api_server_refuses_is_refused_and_leaves_no_trace(stored: Any, binding: Binding, why: str, tmp_path: Path):
    source, _ = fed(Snapshot(topologies=tuple(TOPOLOGIES), pods=(stored.build(),)), tmp_path / "bindings")
    result = await source.bind(binding, 3.0)
    assert (result.verdict, result.message) == (BindVerdict.REFUSED, why)
    assert await source.read_pod("default", "one") == stored.build()
    assert not (tmp_path / "bindings").exists()


async def test_every_binding_is_one_json_line_exactly_as_it_would_be_posted(tmp_path: Path):
    path = tmp_path / "bindings"
    path.write_bytes(b"")
    source, _ = fed(EXPECTED, path)
    bindings = [a_binding(), a_binding("two", "b", "uid-default-two")]
    for binding in bindings:
        await source.bind(binding, 3.0)
    await source.bind(bindings[0], 3.0)  # refused, so not written
    assert path.read_bytes().endswith(b"\n")
    assert [json.loads(line) for line in path.read_text().splitlines()] == [binding.to_object() for binding in bindings]


async def test_a_binding_that_cannot_be_written_down_does_not_take_effect(tmp_path: Path):
    source, _ = fed(EXPECTED, tmp_path / "no" / "such" / "folder")
    result = await source.bind(a_binding(), 3.0)
    assert result.verdict is BindVerdict.REFUSED
    assert "cannot be written: No such file or directory" in result.message
    assert await source.read_pod("default", "one") == PODS[0]


async def test_a_pod_that_the_snapshot_does_not_have_can_be_bound_all_the_same():
    """Whoever replays a cluster on a laptop sends pods that no snapshot knows."""
    source, _ = fed(Snapshot(topologies=tuple(TOPOLOGIES)))
    assert (await source.bind(a_binding(), 3.0)).verdict is BindVerdict.BOUND
    assert [stored["metadata"]["name"] for stored in source.pods()] == ["one"]


async def test_odd_annotations_on_a_pod_do_not_hinder_its_binding():
    raw = {**PODS[0], "metadata": {**PODS[0]["metadata"], "annotations": ["odd"]}}
    source, _ = fed(Snapshot(topologies=tuple(TOPOLOGIES), pods=(raw,)))
    assert (await source.bind(a_binding(), 3.0)).verdict is BindVerdict.BOUND


async def test_pods_read_back_give_the_same_state_again():
    source, _ = fed(EXPECTED)
    await source.bind(a_binding(), 3.0)
    again, problems = fed(parse_snapshot(as_json(Snapshot((NODE,), tuple(TOPOLOGIES), tuple(source.pods())).to_list()), "f"))
    assert problems == []
    assert again.cluster.view().free.tolist() == source.cluster.view().free.tolist() != fed(EXPECTED)[0].cluster.view().free.tolist()


async def test_what_is_left_beside_the_gpus_is_told_by_nodes_and_pods_and_by_what_is_bound():
    """Pods of the snapshot, and pods that are filtered and bound on the laptop and that no snapshot knows."""
    built = cluster().mesh("a").node("a", cpu="64", memory="64Gi").with_pods(pod("web").plain(cpu="4", memory="1Gi").bound_to("a"))
    extender = extender_on(built)
    assert int(extender.cluster.view().cpu_left[0]) == 60_000
    asked = pod("new").gpus(1).plain(cpu="8", memory="3Gi")
    extender.filter(asked, "a")
    assert await extender.bind(asked, "a") == ""
    view = extender.cluster.view()
    assert (int(view.cpu_left[0]), int(view.memory_left[0])) == (52_000, 60 * 1024)


async def test_a_deleted_pod_is_gone_and_its_gpus_are_free():
    source, _ = fed(EXPECTED)
    before = source.cluster.view().free.tolist()
    await source.bind(a_binding(), 3.0)
    source.delete_pod("default", "one")
    source.delete_pod("default", "one")
    assert await source.read_pod("default", "one") is None
    assert source.cluster.view().free.tolist() == before


def test_a_bound_pod_with_an_unreadable_status_still_holds_its_gpus():
    built = cluster().pcie("a")
    held = pod("odd").gpus(1).holding("a", built.uuids("a")[0]).build() | {"status": "gone?"}
    listed = {"kind": "List", "items": [*built.topologies, held]}
    snapshot = parse_snapshot(json.dumps(listed).encode(), "test")
    assert snapshot.problems == ("test items[1]: status of Pod odd is no object; the pod counts as running",)
    state = Cluster("nvidia.com/gpu", Clock())
    SnapshotCluster(snapshot, state).feed()
    assert int(state.view().free[0]).bit_count() == 7


# --- gpushare -------------------------------------------------------------------------------------------------------


def test_config_maps_of_unhealthy_gpus_are_read_and_all_others_left_out():
    """Whoever adds ConfigMaps to what kubectl prints has them counted."""
    found = parse_snapshot(as_yaml(listed("ConfigMapList", without_kind([OTHER, UNHEALTHY]))), "file")
    assert [raw["metadata"]["name"] for raw in found.config_maps] == ["unhealthy-gpu-a"]
    assert parse_snapshot(as_json(found.to_list()), "file") == found


def test_a_snapshot_of_nodes_of_gpushares_plugin_alone_takes_its_pods():
    """No GPUTopology is needed for them."""
    source, problems = fed(Snapshot(nodes=(gpushare_node("a", 4),), config_maps=(UNHEALTHY,)))
    assert problems == []
    view = source.cluster.view()
    assert int(view.free[view.row_of["a"]]) == 0b1010
