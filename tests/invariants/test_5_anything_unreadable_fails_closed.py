"""Anything unreadable fails closed: an allocation that does not decode closes that node for new pods, by name, in explain."""

import json
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from extender import explain
from tests.builders import cluster, extender_on, pod
from tests.invariants import recount
from tests.invariants.machine import AGENTS, NODES, ClusterMachine, run

UNREADABLE = {
    "cut off": '{"v":1,"node":"cube","conta',
    "not an object": "[]",
    "empty": "",
    "of a version to come": '{"v":2,"node":"cube","containers":{}}',
    "without its containers": '{"v":1,"node":"cube"}',
    "of another node": '{"v":1,"node":"elsewhere","containers":{"main":[{"uuid":"GPU-1"}]}}',
    "without a uuid": '{"v":1,"node":"cube","containers":{"main":[{"index":3}]}}',
    "a part of no size": '{"v":1,"node":"cube","containers":{"main":[{"uuid":"GPU-1","shared":true}]}}',
    "a part of nothing": '{"v":1,"node":"cube","containers":{"main":[{"uuid":"GPU-1","memoryMiB":0,"shared":true}]}}',
    "a part where a whole GPU is used": '{"v":1,"node":"cube","containers":{"main":[{"uuid":"GPU-1","memoryMiB":9,"shared":true}]}}',
    "not a string": 7,
}


class AnythingUnreadableFailsClosed(ClusterMachine):
    def __init__(self) -> None:
        self.damaged: dict[str, str] = {}  # node -> what is wrong with its GPUTopology
        super().__init__()

    @rule(node=st.sampled_from(NODES), text=st.sampled_from(list(UNREADABLE.values())))
    def a_pod_with_an_unreadable_allocation_is_found(self, node: str, text: str) -> None:
        self._found(node, {recount.KEY: text})

    @rule(node=st.sampled_from(NODES))
    def a_pod_that_came_around_the_extender_is_found(self, node: str) -> None:
        self._found(node, {})

    def _found(self, node: str, annotations: dict[str, Any]) -> None:
        found = pod(f"odd-{len(self.made)}").gpus(1).bound_to(node).build()
        found["metadata"] |= {"uid": f"uid-{len(self.made)}", "annotations": annotations}
        self.made[found["metadata"]["uid"]] = found
        self.api.create(found)

    @rule(node=st.sampled_from(AGENTS), part=st.sampled_from(["gpus", "links"]))
    def a_topology_cannot_be_read(self, node: str, part: str) -> None:
        whole = self.nodes[node].topology()
        broken = {**whole, "spec": {**whole["spec"], part: "#"}}
        assert node in str(self.extender.cluster.apply_topology(broken))
        self.published.pop(node, None)

    @rule()
    def odd_pods_end(self) -> None:
        for found in [each for each in self.api.pods.values() if each["metadata"]["name"].startswith("odd")]:
            self.api.delete(found["metadata"]["name"])

    def _closed_by(self) -> dict[str, set[str]]:
        """Nodes that must take nobody, with the pods that must be named."""
        closed: dict[str, set[str]] = {node: set() for node in NODES if node not in self.published}
        for node, free in recount.free(self.published, self.api.pods.values()).items():
            if free is None:
                closed[node] = set()
        for found in self.api.pods.values():
            if recount.running(found) and found["metadata"]["name"].startswith("odd"):
                closed.setdefault(found["spec"]["nodeName"], set()).add(f"default/{found['metadata']['name']}")
        return closed

    def bound(self, *calls: tuple[str, str]) -> list[str]:
        closed = {} if self.events else self._closed_by()
        before = len(self.api.posts)
        errors = super().bound(*calls)
        assert not {post.node for post in self.api.posts[before:]} & closed.keys()
        return errors

    @invariant()
    def exactly_the_closed_nodes_take_nobody_and_say_who_closed_them(self) -> None:
        if self.events:
            return
        closed, verbs = self._closed_by(), self.extender.verbs
        decision = explain.to_object(verbs.evaluate(pod("probe").gpus(1).build()), verbs.placement)
        reasons = {node["node"]: node.get("reason", "") for node in decision["nodes"]}
        for node, culprits in closed.items():
            assert node not in reasons or reasons[node]
            assert not culprits or all(name in reasons[node] for name in culprits)
        held = self.extender.free()
        assert all(not reasons[node] for node in NODES if node not in closed and recount.ALL in (held[node] or {}).values())


TestAnythingUnreadableFailsClosed = run(AnythingUnreadableFailsClosed, share=0.9)


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_node_with_an_unreadable_allocation_is_closed_by_name_and_opens_when_its_pod_is_gone(text: str):
    extender = extender_on(cluster().dgx1v("cube", "other").with_pods(pod("odd").gpus(1).bound_to("cube", text)))
    asking = pod("new").gpus(1)
    assert extender.filter(asking)["NodeNames"] == ["other"]
    assert "default/odd" in await extender.bind(asking, "cube")
    extender.binder.delete_pod("default", "odd")
    assert extender.filter(asking)["NodeNames"] == ["cube", "other"]


def test_an_allocation_that_was_edited_on_a_bound_pod_changes_nothing_and_is_counted():
    built = cluster().dgx1v("cube")
    uuids = built.uuids("cube")
    holder = pod("holder").holding("cube", uuids[0], uuids[3])
    extender = extender_on(built.with_pods(holder))
    edited = holder.build()
    for text in (json.dumps({"v": 1, "node": "cube", "containers": {"main": [{"uuid": uuids[5]}]}}), "{", None):
        edited["metadata"]["annotations"] = {} if text is None else {recount.KEY: text}
        extender.cluster.apply_pod(edited)
        assert extender.free("cube") == [1, 2, 4, 5, 6, 7]
    assert extender.cluster.allocation_edits == 3
