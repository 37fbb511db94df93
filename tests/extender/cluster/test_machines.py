"""What is read of a GPUTopology by the kind of its machine is what reading it as a whole tells."""

import json
import re
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.columns import NodeGpus
from extender.cluster.machines import Held, Machines, NodeTopology, microseconds
from extender.sample_machines import SAMPLE_MACHINES, sample
from tests.strategies import json_objects
from topology.api import read_gputopology
from topology.collective import Depth
from topology.errors import TopologyError
from topology.topology_class import topology_class

JsonObject = dict[str, Any]
KINDS = sorted(SAMPLE_MACHINES)


def raw(kind: str, name: str) -> JsonObject:
    return sample(kind, name, observed_at=datetime(2026, 1, 1, tzinfo=UTC)).to_object()


def seen() -> Machines:
    """Return a reader that has seen one node of every kind."""
    machines = Machines()
    for kind in KINDS:
        machines.read(raw(kind, "first"))
    return machines


def facts(topology: NodeTopology) -> dict[str, Any]:
    """Return everything that the state reads of a topology."""
    machine = topology.machine
    return {
        "name": topology.name,
        "gpus": topology.gpus(700),
        "named": list(topology.named_gpus()),
        "bus": topology.bus_ids,
        "class": machine.topology_class(Depth.AT_ONCE).key,
        "sliced": machine.sliced,
        "observed": (topology.observed_at, topology.holders_observed, topology.unhealthy, topology.holders),
        "whole": topology.whole(),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_of_a_known_kind_is_read_as_a_first_one(kind: str):
    """Only UUIDs, health and holders are its own."""
    node = raw(kind, "second")
    node["status"]["gpus"][1] |= {"healthy": False, "holders": [{"namespace": "default", "name": "p"}]}
    found = seen().read(node)
    assert facts(found) == facts(NodeTopology.of(read_gputopology(node)))
    topology = read_gputopology(node)
    assert found.gpus(0) == NodeGpus.of(topology.inventory())
    assert found.machine.topology_class(Depth.AT_ONCE) is topology_class(topology.matrix(), topology.inventory(), Depth.AT_ONCE)
    assert (found.unhealthy, found.holders) == ((found.uuids[1],), {("default", "p", ""): Held(frozenset(found.uuids[1:2]))})


def test_equal_machines_share_all_that_is_equal():
    """Thousands of nodes keep their UUIDs and little more."""
    machines = Machines()
    a, b, other = (machines.read(raw(*told)) for told in (("dgx1v", "a"), ("dgx1v", "b"), ("mesh", "c")))
    assert a.machine is b.machine is not other.machine
    assert a.bus_ids is b.bus_ids
    assert set(a.uuids).isdisjoint(b.uuids)


def test_bus_ids_may_differ_between_equal_machines():
    """A slot more or less makes no other kind."""
    machines, moved = Machines(), raw("dgx1v", "b")
    moved["spec"]["gpus"][0]["busID"] = "00000000:FF:00.0"
    a, b = machines.read(raw("dgx1v", "a")), machines.read(moved)
    assert a.machine is b.machine
    assert [gpu.bus_id for gpu in b.whole().spec.gpus] == ["00000000:FF:00.0", *a.bus_ids[1:]]


def without(of: JsonObject, *path: str | int) -> None:
    at: Any = of
    for part in path[:-1]:
        at = at[part]
    at.pop(path[-1])


DAMAGES = [
    pytest.param(lambda node: node["spec"]["gpus"][0].update(uuid=""), id="an empty UUID"),
    pytest.param(lambda node: node["spec"]["gpus"][0].update(uuid=7), id="a UUID that is a number"),
    pytest.param(lambda node: node["spec"]["gpus"][0].update(uuid=node["spec"]["gpus"][1]["uuid"]), id="a UUID twice"),
    pytest.param(lambda node: node["spec"]["gpus"][0].update(busID=7), id="a bus id that is a number"),
    pytest.param(lambda node: without(node, "spec", "gpus", 0, "uuid"), id="no UUID"),
    pytest.param(lambda node: without(node, "metadata", "name"), id="no name"),
    pytest.param(lambda node: node["metadata"].update(name=""), id="an empty name"),
    pytest.param(lambda node: node.update(kind="Node"), id="another kind"),
    pytest.param(lambda node: node.update(status=None), id="no status in so many words"),
    pytest.param(lambda node: node["status"]["gpus"][0].update(healthy="perhaps"), id="health that is neither"),
    pytest.param(lambda node: node["status"]["gpus"][0].update(holders=[{"name": "p"}]), id="a holder without a namespace"),
    pytest.param(lambda node: node["status"].update(observedAt="yesterday"), id="a time that is none"),
    pytest.param(lambda node: node["spec"]["links"]["gpus"][0].pop(), id="a row too short"),
    pytest.param(lambda node: node["spec"].update(gpus=[]), id="no GPU"),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_cannot_be_read_is_refused_however_well_its_kind_is_known(damage: Any):
    """With the sentence that reading it as a whole has."""
    node = raw("dgx1v", "second")
    damage(node)
    with pytest.raises(TopologyError) as expected:
        read_gputopology(node)
    with pytest.raises(TopologyError) as found:
        seen().read(node)
    assert str(found.value) == str(expected.value)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(KINDS), st.data())
def test_one_odd_value_anywhere_is_judged_as_the_whole_is(kind: str, data: st.DataObject):
    """Whatever takes the place of whichever part."""
    node = deepcopy(raw(kind, "second"))
    paths = [path for path in _paths(node) if path]
    path = data.draw(st.sampled_from(paths))
    at: Any = node
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = data.draw(json_objects | st.none() | st.integers(-2, 9) | st.text(max_size=3) | st.lists(st.integers(0, 2), max_size=2))
    try:
        expected = facts(NodeTopology.of(read_gputopology(json.loads(json.dumps(node)))))
    except TopologyError as error:
        with pytest.raises(TopologyError, match=f"^{re.escape(str(error))}$"):
            seen().read(node)
    else:
        machines = seen()
        assert facts(machines.read(node)) == expected
        assert facts(machines.read(node)) == expected, "and so the next time, when it is known"


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, each in below for found in _paths(each, (*path, key)))]


def test_a_heartbeat_is_the_same_for_placement_and_a_failed_gpu_is_not():
    """Memory in use may change as well."""
    machines = Machines()
    before = machines.read(raw("mesh", "a"))
    beat, failed, grown = raw("mesh", "a"), raw("mesh", "a"), raw("mesh", "a")
    beat["status"] |= {"observedAt": "2026-01-01T00:01:00Z"}
    beat["status"]["gpus"][0]["memoryUsedMiB"] = 9
    failed["status"]["gpus"][0]["healthy"] = False
    grown["spec"]["gpus"][0]["memoryMiB"] = 1 << 17
    assert before.is_same_for_placement(machines.read(beat))
    assert not before.is_same_for_placement(machines.read(failed))
    assert not before.is_same_for_placement(machines.read(grown))
    assert before.is_same_for_placement(Machines().read(raw("mesh", "a"))), "whoever read it"


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)), st.sampled_from([None, UTC]))  # noqa: DTZ001 - with and without a zone
def test_times_are_whole_microseconds(at: datetime, zone: Any):
    """One without a zone is UTC."""
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds(at.replace(tzinfo=zone))) == at.replace(tzinfo=UTC)
