"""Which Nodes carry the startup taint, what each waits for, and the one patch that takes it off and nothing else."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster import Cluster
from extender.cluster.startup_taint import Awaited, TaintedNode, read_tainted
from extender.sample_machines import sample
from tests.builders import Clock, changed
from tests.local_api_server import json_patched
from topology.api import HAND_OFF_REGISTERED

JsonObject = dict[str, Any]

NODE = "node-a"
CREATED = datetime(2026, 1, 1, 12, tzinfo=UTC)
STALE_S = 180.0
OURS = {"key": "linkwise.dev/agent-not-ready", "effect": "NoSchedule"}
OTHER = {"key": "team/other", "value": "x", "effect": "NoExecute", "timeAdded": "2026-01-01T12:00:00Z"}


def node(*taints: JsonObject, uid: str = "uid-1", created: datetime | None = CREATED) -> JsonObject:
    metadata: JsonObject = {"name": NODE, "uid": uid}
    if created is not None:
        metadata["creationTimestamp"] = created.isoformat()
    return {"metadata": metadata, "spec": {"taints": list(taints)} if taints else {}}


def topology(*, seen: timedelta | None = timedelta(minutes=1), owner: str | None = "uid-1", registered: str | None = None) -> JsonObject:
    """Return the GPUTopology of the node, whose agent looked so long after its creation."""
    found = sample("dgx1v", NODE, observed_at=None if seen is None else CREATED + seen).to_object()
    if owner is not None:
        found["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": owner}]
    if registered is not None:
        found["status"]["conditions"] = [{"type": HAND_OFF_REGISTERED, "status": registered, "reason": "Told"}]
    return found


def state(*items: JsonObject) -> Cluster:
    """Return the state after these objects have come in their order; GPUTopologies have a kind."""
    made = Cluster("nvidia.com/gpu", Clock())
    for item in items:
        (made.apply_topology if "kind" in item else made.apply_node)(item)
    return made


def told(made: Cluster, at: timedelta = timedelta(minutes=2)) -> list[Awaited]:
    return [awaited for _, awaited in made.tainted(CREATED + at, STALE_S)]


# --- what a node waits for ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "awaited"),
    [
        pytest.param(None, Awaited.TOPOLOGY, id="nobody has published anything"),
        pytest.param(topology(owner="uid-0"), Awaited.TOPOLOGY, id="what is published is of the Node of that name before"),
        pytest.param(topology(seen=None), Awaited.AGENT, id="what there is, but not in what state"),
        pytest.param(topology(seen=timedelta(minutes=-1)), Awaited.AGENT, id="looked at before the Node was there"),
        pytest.param(topology(seen=timedelta(0)), Awaited.NOTHING, id="looked at in the second of its creation"),
        pytest.param(topology(), Awaited.NOTHING, id="published and looked at"),
        pytest.param(topology(owner=None), Awaited.NOTHING, id="published without an owner"),
        pytest.param(topology(registered="False"), Awaited.HAND_OFF, id="kubelet does not know the device plugin"),
        pytest.param(topology(registered="Unknown"), Awaited.HAND_OFF, id="nobody knows whether it does"),
        pytest.param(topology(registered="True"), Awaited.NOTHING, id="kubelet knows it"),
        pytest.param({**topology(), "spec": {}}, Awaited.TOPOLOGY, id="a topology that cannot be read"),
    ],
)
@pytest.mark.parametrize("order", [1, -1], ids=["node first", "topology first"])
def test_a_node_waits_for_its_topology_its_agent_and_kubelet_in_this_order(published: JsonObject | None, awaited: Awaited, order: int) -> None:
    items = [item for item in (node(OTHER, OURS), published) if item is not None]
    assert told(state(*items[::order])) == [awaited]


def test_an_agent_that_is_silent_is_not_there() -> None:
    made = state(node(OURS), topology())
    assert told(made, timedelta(minutes=4)) == [Awaited.NOTHING]
    assert told(made, timedelta(minutes=4, seconds=1)) == [Awaited.AGENT]
    made.apply_topology(topology(seen=timedelta(minutes=4)))
    assert told(made, timedelta(minutes=5)) == [Awaited.NOTHING]


def test_a_heartbeat_that_tells_of_the_registration_alone_counts() -> None:
    made = state(node(OURS), topology(registered="False"))
    made.apply_topology(topology(registered="True"))
    assert told(made) == [Awaited.NOTHING]


def test_the_hand_off_that_was_turned_off_is_not_waited_for() -> None:
    made = state(node(OURS), topology(registered="False"))
    made.apply_topology(topology())
    assert told(made) == [Awaited.NOTHING]


def test_gpus_that_are_ill_or_held_do_not_keep_the_taint() -> None:
    """A node that is closed for a reason of its own is refused by filter; the taint is about the start alone."""
    ill = changed(topology(), unhealthy=range(8), holders={0: "default/stranger"})
    assert told(state(node(OURS), ill)) == [Awaited.NOTHING]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(node(), id="no taint"),
        pytest.param(node(OTHER), id="another taint"),
        pytest.param({"metadata": {"name": NODE}}, id="no spec"),
        pytest.param({"metadata": {"name": NODE}, "spec": {"taints": "agent-not-ready"}}, id="taints that are none"),
        pytest.param({"metadata": {"name": NODE}, "spec": {"taints": [None, 7, "x", {}]}}, id="a list of anything"),
        pytest.param({"metadata": {"name": NODE}, "spec": {"taints": {OURS["key"]: OURS}}}, id="a mapping of taints"),
    ],
)
def test_a_node_without_the_taint_is_not_told(raw: JsonObject) -> None:
    assert told(state(raw)) == []
    assert told(state(node(OURS), raw)) == []


def test_a_node_that_is_gone_is_not_told_any_more() -> None:
    made = state(node(OURS))
    made.remove_node(NODE)
    assert told(made) == []


def test_a_time_without_a_zone_is_utc() -> None:
    raw = node(OURS)
    raw["metadata"]["creationTimestamp"] = "2026-01-01T12:00:30"
    assert told(state(raw, topology(seen=timedelta(seconds=20)))) == [Awaited.AGENT]
    raw["metadata"]["creationTimestamp"] = "yesterday"
    assert told(state(raw, topology(seen=timedelta(seconds=20)))) == [Awaited.NOTHING]


# --- the patch ------------------------------------------------------------------------------------------------------


def removal(raw: JsonObject) -> list[JsonObject]:
    found = read_tainted(NODE, raw)
    assert isinstance(found, TaintedNode)
    return found.removal()


def test_the_patch_tests_the_node_and_the_very_taint_before_it_removes_it() -> None:
    assert removal(node(OTHER, OURS)) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
        {"op": "test", "path": "/spec/taints/1", "value": OURS},
        {"op": "remove", "path": "/spec/taints/1"},
    ]


taints = st.lists(
    st.sampled_from(
        [OURS, {**OURS, "effect": "NoExecute"}, {**OURS, "value": "v"}, OTHER, {**OTHER, "key": "another"}, {"key": "third", "effect": "x"}]
    ),
    max_size=5,
)


@given(taints, taints)
def test_whatever_the_taints_have_become_meanwhile_no_other_is_lost_and_none_comes_back(seen: list[JsonObject], now: list[JsonObject]) -> None:
    """Either nothing is written, or what stands there now without taints of ours; always the latter where nothing has changed, or one was added at the end."""
    found = read_tainted(NODE, node(*seen))
    assert (found is not None) == any(taint["key"] == OURS["key"] for taint in seen)
    if found is None:
        return
    patched = json_patched(node(*now), found.removal())
    if patched is not None:
        left = patched["spec"].get("taints", [])
        assert [taint for taint in left if taint["key"] != OURS["key"]] == [taint for taint in now if taint["key"] != OURS["key"]]
        assert len(left) < len(now)
    for unchanged in (seen, [*seen, OTHER]):
        patched = json_patched(node(*unchanged), found.removal())
        assert patched is not None
        assert patched["spec"]["taints"] == [taint for taint in unchanged if taint["key"] != OURS["key"]]


def test_the_node_that_has_taken_the_name_since_keeps_its_taint() -> None:
    fresh = node(OURS, uid="uid-2")
    before = deepcopy(fresh)
    assert json_patched(fresh, removal(node(OURS))) is None
    assert fresh == before
