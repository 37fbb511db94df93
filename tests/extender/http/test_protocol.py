"""Both forms of a call, any case of its keys, on kept-alive connections: as kube-scheduler and other schedulers send them."""

from typing import Any

import pytest

from tests.builders import pod
from tests.extender.http.conftest import Serve

ASKED = pod("asking").gpus(8)
NODES = [{"metadata": {"name": name, "labels": {"rack": name}}, "spec": {"podCIDR": "10.0.0.0/24"}} for name in ("mesh", "nvswitch", "unknown")]


@pytest.mark.parametrize("case", [str, str.lower], ids=["capitalised keys", "lower-case keys"])
def test_names_are_answered_with_names_and_nodes_with_the_same_nodes(extender: Serve, case: Any):
    client = extender().scheduler.client
    for form in ("Nodes", "NodeNames"):
        asked = {"Pod": ASKED.build(), "Nodes": None, "NodeNames": None}
        asked[form] = {"items": NODES} if form == "Nodes" else [node["metadata"]["name"] for node in NODES]
        body = {case(key): value for key, value in asked.items()}
        answer = client.post("/filter", json=body).json()
        assert list(answer) == ["Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"]
        assert answer["NodeNames"] == (["nvswitch"] if form == "NodeNames" else None)
        assert (answer["Nodes"] or {}).get("items") == ([NODES[1]] if form == "Nodes" else None)
        assert sorted(answer["FailedAndUnresolvableNodes"]) == ["mesh", "unknown"]
        scores = client.post("/prioritize", json=body).json()
        assert scores == [{"Host": "mesh", "Score": 0}, {"Host": "nvswitch", "Score": 10}, {"Host": "unknown", "Score": 0}]


@pytest.mark.parametrize("case", [str, str.lower], ids=["capitalised keys", "lower-case keys"])
def test_bind_is_read_in_any_case_and_posted_as_a_binding(extender: Serve, case: Any):
    served = extender(node="mesh")
    asked = pod("asking", "team").gpus(2)
    served.scheduler.filter(asked)
    call = {"PodNamespace": "team", "PodName": "asking", "PodUID": asked.uid, "Node": "node"}
    assert served.scheduler.client.post("/bind", json={case(key): value for key, value in call.items()}).json() == {"Error": ""}
    (binding,) = served.bindings()
    assert {key: binding[key] for key in ("apiVersion", "kind", "target")} == {
        "apiVersion": "v1",
        "kind": "Binding",
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node"},
    }
    metadata = binding["metadata"]
    assert (metadata["namespace"], metadata["name"], metadata["uid"]) == ("team", "asking", asked.uid)
    assert list(metadata["annotations"]) == ["linkwise.dev/allocation"]


def test_a_connection_is_kept_over_many_calls(extender: Serve):
    served = extender(node="mesh")
    for number in range(20):
        answer = served.scheduler.client.post("/filter", json={"Pod": pod(f"p{number}").gpus(1).build(), "NodeNames": ["node"]})
        assert answer.headers["content-length"] == str(len(answer.content))
        assert "close" not in answer.headers.get("connection", "")
