"""What Nodes, GPUTopologies and ConfigMaps tell of the nodes that gpushare's plugin serves, in any order."""

from copy import deepcopy
from typing import Any

import pytest

from extender.cluster.charges import Charges
from extender.cluster.gpushare_nodes import PluginNodes, Served
from extender.cluster.machines import NodeTopology
from extender.handoff.gpushare import PluginGpus, Share
from tests.builders import cluster
from topology.api import GPUTopology, read_gputopology

JsonObject = dict[str, Any]
MATRIX = read_gputopology(cluster().bridges("a").topologies[0])


def node(count: int | str = 4, units: int | str = 92, name: str = "a", label: str = "true") -> JsonObject:
    """Return a Node of gpushare's plugin."""
    allocatable = {"aliyun.com/gpu-count": str(count), "aliyun.com/gpu-mem": str(units)}
    return {"kind": "Node", "metadata": {"name": name, "labels": {"gpushare": label}}, "status": {"allocatable": allocatable}}


def config_map(gpus: object, name: str = "a") -> JsonObject:
    """Return a ConfigMap of unhealthy GPUs."""
    return {"kind": "ConfigMap", "metadata": {"namespace": "kube-system", "name": f"unhealthy-gpu-{name}"}, "data": {"gpus": gpus}}


def plugin_nodes(*nodes: JsonObject) -> PluginNodes:
    """Return the nodes as the plugin tells them."""
    found = PluginNodes()
    for raw in nodes:
        found.apply_node(raw["metadata"]["name"], raw)
    return found


def look(nodes: PluginNodes, name: str = "a", topology: GPUTopology | None = None) -> Served:
    """Look at a node as the state does: with its topology, or a stand-in."""
    found = topology or nodes.stand_in(name)
    return nodes.look_at(name, None if found is None else NodeTopology.of(found))


def reversed_minors(topology: GPUTopology) -> GPUTopology:
    """Return the topology of a machine whose minor numbers run against the indices."""
    raw = topology.to_object()
    for gpu in raw["spec"]["gpus"]:
        gpu["minor"] = len(raw["spec"]["gpus"]) - 1 - gpu["index"]
    return read_gputopology(raw)


def test_a_node_without_a_topology_gets_as_many_gpus_as_its_plugin_counts():
    """All of one size, no links known, named as no driver names a GPU."""
    found = plugin_nodes(node()).stand_in("a")
    assert found is not None
    assert [(gpu.uuid, gpu.index, gpu.minor, gpu.memory_mib) for gpu in found.spec.gpus] == [(f"gpushare:a:{n}", n, n, 23 * 1024) for n in range(4)]
    assert {found.matrix().between(i, j) for i in range(4) for j in range(i)} == {MATRIX.matrix().between(0, 7)}
    assert read_gputopology(found.to_object()) == found


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(node(label="false"), id="without the label"),
        pytest.param(node("0", "0"), id="the plugin sees no GPU"),
        pytest.param(node(17, 170), id="more GPUs than can be placed"),
        pytest.param(node("x"), id="unreadable amounts"),
    ],
)
def test_no_stand_in_for_a_node_that_the_plugin_does_not_serve_or_nobody_understands(raw: JsonObject):
    """Such a node has no GPUs that anybody could name."""
    assert plugin_nodes(raw).stand_in("a") is None


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        pytest.param(node("x"), "status.allocatable[aliyun.com/gpu-count] of the Node is x", id="unreadable amounts"),
        pytest.param(node(17, 170), "aliyun.com/gpu-count of the Node is 17; accepted: at most 16", id="too many GPUs"),
        pytest.param(node(label="false"), "", id="not one of the plugin's: nothing is wrong"),
        pytest.param(node(), "", id="a node that is all right"),
    ],
)
def test_what_cannot_be_is_a_sentence(raw: JsonObject, problem: str):
    """It closes the node."""
    assert look(plugin_nodes(raw)).problem.startswith(problem)
    assert bool(look(plugin_nodes(raw)).problem) is bool(problem)


def test_minor_numbers_become_the_uuids_of_the_topology():
    """gpushare-scheduler-extender 220: minor numbers and indices are told apart."""
    topology = reversed_minors(MATRIX)
    served = look(plugin_nodes(node(8, 184)), topology=topology)
    assert served.problem == ""
    assert served.uuid_of == {7 - gpu.index: gpu.uuid for gpu in topology.spec.gpus}
    assert served.minor_of(topology.spec.gpus[0].uuid) == 7


@pytest.mark.parametrize("count", [7, 9])
def test_a_topology_with_other_gpus_than_the_plugin_closes_the_node(count: int):
    """No number can be trusted then."""
    served = look(plugin_nodes(node(count, count * 23)), topology=reversed_minors(MATRIX))
    assert served.problem == f"the GPUTopology has 8 GPUs, but aliyun.com/gpu-count of the Node is {count}"
    assert served.uuid_of == {}


def test_a_topology_whose_lost_gpu_the_plugin_does_not_see_is_all_right():
    """The agent remembers it as unhealthy."""
    raw = reversed_minors(MATRIX).to_object()
    raw["status"]["gpus"][3]["healthy"] = False
    assert look(plugin_nodes(node(7, 161)), topology=read_gputopology(raw)).problem == ""


def test_unhealthy_gpus_of_the_config_map_are_named_by_uuid():
    """Whatever came first, the Node or the ConfigMap."""
    nodes = PluginNodes()
    assert nodes.apply_config_map(config_map("0,2")) == {"a"}
    assert nodes.apply_node("a", node()) == {"a"}
    assert look(nodes).unhealthy == {"gpushare:a:0", "gpushare:a:2"}
    assert nodes.config_maps() == {"unhealthy-gpu-a"}
    assert nodes.remove_config_map("unhealthy-gpu-a") == {"a"}
    assert look(nodes).unhealthy == set()
    assert nodes.remove_config_map("unhealthy-gpu-a") == set()


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        pytest.param("0;2", "ConfigMap kube-system/unhealthy-gpu-a has gpus=0;2; accepted", id="unreadable"),
        pytest.param(
            "4,5", "ConfigMap kube-system/unhealthy-gpu-a names GPU 4; accepted: minor numbers of the node's GPUs, 0, 1, 2, 3", id="not a GPU of it"
        ),
    ],
)
def test_a_config_map_that_names_no_gpu_of_the_node_closes_it(gpus: str, said: str):
    """Somebody wanted a GPU to be left alone, and which one is not known."""
    nodes = plugin_nodes(node())
    nodes.apply_config_map(config_map(gpus))
    assert look(nodes).problem.startswith(said)
    nodes.apply_config_map(config_map("1"))
    assert look(nodes).problem == ""


def test_what_changes_nothing_asks_for_no_second_look():
    """Nodes are written every few seconds by kubelet; every look costs the cached answers of a row."""
    nodes = plugin_nodes(node())
    heartbeat = deepcopy(node())
    heartbeat["status"]["conditions"] = [{"type": "Ready"}]
    assert nodes.apply_node("a", heartbeat) == set()
    assert nodes.apply_node("b", {"metadata": {"name": "b"}}) == set()
    assert nodes.remove_node("b") == set()
    nodes.apply_config_map(config_map("0"))
    assert nodes.apply_config_map(config_map(" 0 ")) == set()
    assert nodes.apply_config_map({"metadata": {"namespace": "kube-system", "name": "coredns"}}) == set()
    assert nodes.remove_config_map("coredns") == set()
    assert nodes.remove_node("a") == {"a"}
    assert look(nodes) == Served()


def test_a_pods_number_means_one_unit_in_the_whole_cluster_that_of_most_nodes():
    """Where nodes differ, the fewer are closed by name, and opened again when they become the most."""
    nodes = plugin_nodes(node(name="a"), node(4, 92112, name="b"))
    assert nodes.mib_of_unit == 1024, "GiB among equals: the plugin's own default"
    assert look(nodes, "a").problem == ""
    assert look(nodes, "b").problem == "the node counts aliyun.com/gpu-mem in MiB, most others in GiB, and a pod's number cannot mean both"
    assert nodes.apply_node("c", node(4, 92112, name="c")) == {"a", "b", "c"}
    assert nodes.mib_of_unit == 1
    assert [look(nodes, name).problem != "" for name in "abc"] == [True, False, False]
    assert nodes.remove_node("c") == {"a", "b", "c"}
    assert nodes.mib_of_unit == 1024


def test_a_node_whose_plugin_is_away_is_not_asked_for_its_unit():
    """Kubelet sets the amount to 0 until the plugin registers again."""
    nodes = plugin_nodes(node(4, 92112, name="a"), node(4, 0, name="b"))
    assert nodes.mib_of_unit == 1
    assert look(nodes, "b").problem == ""


SHARE = Share(index=2, units=10, gpu_units=23, assume_time=1)


def test_a_pod_of_the_original_extender_is_counted_by_its_annotations():
    """In the unit of its own annotation, on the GPU of its minor number."""
    nodes = plugin_nodes(node(8, 184))
    topology = reversed_minors(MATRIX)
    look(nodes, topology=topology)
    uuid = topology.spec.gpus[5].uuid
    assert nodes.charges_of("a", SHARE) == Charges(frozenset({uuid}), {uuid: 10 * 1024})
    assert nodes.charges_of("elsewhere", SHARE).shares == {"gpushare:elsewhere:2": 10 * 1024}


@pytest.mark.parametrize(
    ("written", "now", "share"),
    [
        pytest.param("gpushare:a:2", "real", None, id="an agent has come since: the GPU of that minor number"),
        pytest.param("real", "real", SHARE, id="a UUID that the node has is never touched"),
        pytest.param("real", "gpushare:a:2", SHARE, id="the agent has gone since: the pod's own annotation tells the number"),
        pytest.param("real", None, None, id="the agent has gone and nothing tells the number: it is missing"),
        pytest.param("gpushare:b:2", None, SHARE, id="a stand-in of another node is missing"),
        pytest.param("GPU-gone", "topology", SHARE, id="a UUID that another one replaced is missing, whatever its number"),
    ],
)
def test_what_pods_hold_is_told_in_the_names_of_now(written: str, now: str | None, share: Share | None):
    """A GPUTopology may come or go while pods run."""
    nodes = plugin_nodes(node(8, 184))
    topology = reversed_minors(MATRIX)
    real = topology.spec.gpus[5].uuid
    look(nodes, topology=topology if now in ("real", "topology") else None)
    uuid = real if written == "real" else written
    expected = {"real": real, None: uuid, "topology": uuid}.get(now, now)
    renamed = nodes.renamed("a", Charges(frozenset({uuid}), {uuid: 7}), share)
    assert renamed == Charges(frozenset({expected}), {expected: 7})


def test_the_nodes_of_the_plugin_are_told_by_name():
    """For inspection."""
    assert plugin_nodes(node(name="b"), node(name="a"), node(name="c", label="no")).nodes() == ["a", "b"]
    assert PluginGpus(4, 23) == plugin_nodes(node()).look_at("a", None).gpus
