"""Bad input of every kind: each is answered with a sentence, nothing is a 500, and what was there before is there afterwards."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from tests.builders import pod
from tests.extender.http.conftest import Probe, Serve
from tests.extender.http.served import MACHINES, Served, serve
from tests.strategies import deep, odd_pods

NODE = "bridges"
HELD = MACHINES["bridges"].uuids(NODE)[0]


HOLDER = pod("holder").holding(NODE, HELD)


@pytest.fixture(scope="module")
def served(probe: Probe, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One node with one GPU held; shared, since nothing here may change it."""
    with serve(tmp_path_factory.mktemp("served"), [probe("bridges", NODE)], [HOLDER.build()]) as running:
        yield running


def still_there(served: Served) -> None:
    """What a pod can get has not changed."""
    assert served.free() == {NODE: 7}
    assert served.scheduler.client.get("/healthz").text == "ok"
    assert served.scheduler.filter(pod("probe").gpus(7))["NodeNames"] == [NODE]


BODIES = {
    "nothing": b"",
    "no JSON": b"pod=a&node=b",
    "half a JSON": b'{"Pod": {"metadata": {"name": "a"',
    "no UTF-8": b"\xff\xfe\x00",
    "a number": b"7",
    "a list": b"[]",
    "null": b"null",
    "an object without a pod": b"{}",
    "a pod that is a string": b'{"Pod": "a", "NodeNames": ["bridges"]}',
    "neither names nor nodes": b'{"Pod": {}}',
    "names that are numbers": b'{"Pod": {}, "NodeNames": [1, 2]}',
    "nodes without names": b'{"Pod": {}, "Nodes": {"items": [{}]}}',
    "nodes that are no list": b'{"Pod": {}, "Nodes": {"items": "bridges"}}',
    "a bind of nobody": b'{"PodNamespace": "default", "PodName": "", "PodUID": "u", "Node": "bridges"}',
    "a bind to a number": b'{"PodNamespace": "default", "PodName": "a", "PodUID": "u", "Node": 7}',
    "JSON as deep as a well": b"[" * 5000 + b"]" * 5000,
}


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
def test_a_body_that_is_no_call_is_answered_with_400_and_a_sentence(served: Served, verb: str):
    for what, body in BODIES.items():
        answer = served.scheduler.client.post(f"/{verb}", content=body)
        assert (what, answer.status_code) == (what, 400)
        assert answer.json()["Error"]
    still_there(served)


ABSURD_PODS: dict[str, dict[str, Any]] = {
    "a floor that is no number": pod("a").gpus(2).annotated(min_bandwidth="fast").build(),
    "a floor below nothing": pod("a").gpus(2).annotated(min_bandwidth="-5").build(),
    "a floor with a unit": pod("a").gpus(2).annotated(min_bandwidth="100GB/s").build(),
    "a link that nobody makes": pod("a").gpus(2).annotated(max_distance="NVLNK").build(),
    "a misspelt key": pod("a").gpus(2).annotated(min_bandwith="100").build(),
    "a key of a later version": pod("a").gpus(2).annotated(gpu_count="2").build(),
    "an empty value": pod("a").gpus(2).annotated(policy="").build(),
    "a floor for a single GPU": pod("a").gpus(1).min_bandwidth(100).build(),
    "a wish without GPUs": pod("a").plain().min_bandwidth(100).build(),
    "half a GPU": pod("a").gpus("500m").build(),
    "fewer than no GPUs": pod("a").gpus("-1").build(),
    "more GPUs than there are": pod("a").gpus(10**9).build(),
    "GPUs that are a list": {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": [1]}}}]}},
    "one limit and another request": {
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": 2}}}]},
    },
    "containers that are a word": {"metadata": {"name": "a"}, "spec": {"containers": "all"}},
    "a container that is null": {"metadata": {"name": "a"}, "spec": {"containers": [None]}},
    "two containers of one name": pod("a").gpus(1).gpus(1).build(),
    "a container without a name": {"metadata": {}, "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}},
    "annotations that are a list": {"metadata": {"annotations": ["linkwise.dev/topology"]}, "spec": pod("a").gpus(1).build()["spec"]},
    "metadata that is a number": {"metadata": 7, "spec": pod("a").gpus(1).build()["spec"]},
    "an annotation as deep as JSON goes": {
        "metadata": {"annotations": {"linkwise.dev/topology": deep(900)}},
        "spec": pod("a").gpus(1).build()["spec"],
    },
}


@pytest.mark.parametrize("absurd", ABSURD_PODS.values(), ids=ABSURD_PODS)
def test_an_absurd_pod_is_refused_on_every_node_with_a_sentence(served: Served, absurd: dict[str, Any]):
    body = {"Pod": absurd, "NodeNames": [NODE, "other"]}
    answer = served.scheduler.client.post("/filter", json=body)
    assert answer.status_code == 200
    assert answer.json()["NodeNames"] == []
    sentences = answer.json()["FailedAndUnresolvableNodes"]
    assert list(sentences) == [NODE, "other"]
    assert all(sentence.startswith("linkwise: ") and len(sentence) > 30 and "bug" not in sentence for sentence in sentences.values())
    scores = served.scheduler.client.post("/prioritize", json=body)
    assert scores.json() == [{"Host": NODE, "Score": 0}, {"Host": "other", "Score": 0}]
    still_there(served)


def test_a_pod_with_a_thousand_containers_is_refused_at_once(served: Served):
    asked = pod("crowd")
    for number in range(1000):
        asked = asked.gpus(1, container=f"c{number}")
    assert served.scheduler.filter(asked)["FailedAndUnresolvableNodes"] == {
        NODE: "linkwise: spec.containers[64] is one more container with GPUs than is accepted: at most 64 of a pod"
    }


@settings(max_examples=40)
@given(odd=odd_pods)
def test_no_pod_crashes_the_server(served: Served, odd: dict[str, Any]):
    client = served.scheduler.client
    filtered = client.post("/filter", json={"Pod": odd, "NodeNames": [NODE]})
    scored = client.post("/prioritize", json={"Pod": odd, "NodeNames": [NODE]})
    bound = client.post("/bind", json={"PodNamespace": "default", "PodName": "pod", "PodUID": "uid-default-pod", "Node": "nowhere"})
    assert (filtered.status_code, scored.status_code, bound.status_code) == (200, 200, 200)
    assert "bug" not in filtered.text + bound.text
    assert len(scored.json()) == 1
    assert served.free() == {NODE: 7}


def test_a_bind_of_a_pod_that_nobody_has_seen_is_refused(served: Served):
    assert "was not filtered by this process and is not stored" in served.scheduler.bind(pod("ghost").gpus(1), NODE)
    assert served.scheduler.filter(pod("real").gpus(1))["NodeNames"] == [NODE]
    assert "no GPUTopology is published" in served.scheduler.bind(pod("real").gpus(1), "nowhere")
    still_there(served)


BROKEN_OBJECTS = {
    "a topology without links": "---\napiVersion: linkwise.dev/v1alpha1\nkind: GPUTopology\nmetadata: {name: broken}\nspec: {gpus: [{index: 0, uuid: GPU-x}]}\n",
    "a topology whose matrix is too small": (
        "---\napiVersion: linkwise.dev/v1alpha1\nkind: GPUTopology\nmetadata: {name: broken}\n"
        "spec: {gpus: [{index: 0, uuid: GPU-x}, {index: 1, uuid: GPU-y}], links: {gpus: [[X]]}}\n"
    ),
    "a topology of another world": "---\napiVersion: linkwise.dev/v9\nkind: GPUTopology\nmetadata: {name: broken}\nspec: {}\n",
    "a number between the objects": "---\n7\n",
    "an object without a kind": "---\nmetadata: {name: broken}\n",
    "a pod without a name": "---\nkind: Pod\nmetadata: {}\n",
    "a pod whose spec is a word": "---\nkind: Pod\nmetadata: {name: broken}\nspec: nothing\n",
}


@pytest.mark.parametrize("more", BROKEN_OBJECTS.values(), ids=BROKEN_OBJECTS)
def test_a_broken_object_in_the_snapshot_is_told_and_costs_only_itself(extender: Serve, more: str):
    served = extender(bridges="bridges", pods=[HOLDER], more=more)
    assert len(served.problems) == 1
    assert served.free()[NODE] == 7
    assert served.scheduler.place(pod("two").gpus(2)) == NODE
    if "broken" in served.free():
        refused = served.scheduler.filter(pod("any").gpus(1), "broken")["FailedAndUnresolvableNodes"]
        assert refused == {"broken": "linkwise: the GPUTopology of the node cannot be read"}
        told = served.scheduler.get("/api/v1/nodes/broken")["closed"]
        assert told["code"] == "TOPOLOGY_UNREADABLE"
        assert "GPUTopology broken" in told["reason"]


@pytest.mark.parametrize("text", ["{", '{"v":2}', '{"v":1,"node":"mesh","containers":{}}', ""], ids=repr)
def test_an_allocation_that_does_not_decode_closes_its_node_by_name_and_no_other(extender: Serve, text: str):
    served = extender(bridges="bridges", mesh="mesh", pods=[pod("odd").gpus(1).bound_to("bridges", text)])
    asked = pod("new").gpus(1)
    answer = served.scheduler.filter(asked)
    assert answer["NodeNames"] == ["mesh"]
    assert answer["FailedAndUnresolvableNodes"] == {"bridges": "linkwise: closed: the allocation of a pod on the node cannot be read"}
    assert "default/odd" in served.scheduler.bind(asked, "bridges")
    reasons = {node["node"]: node.get("reason", "") for node in served.scheduler.get("/api/v1/pods/default/new/decision")["nodes"]}
    assert "default/odd" in reasons["bridges"]
    assert served.scheduler.place(asked) == "mesh"
