from extender.app import embedded
from extender.demo.scene import NODES_OF_A_KIND, PICTURED_NODE, make_scene
from extender.sample_machines import SAMPLE_MACHINES
from extender.settings import Settings
from topology.api import Allocation
from topology.api.annotations import ALLOCATION, WHOLE_GPU


def test_scene_has_as_many_nodes_of_every_kind() -> None:
    names = [node["metadata"]["name"] for node in make_scene().nodes]
    assert sorted(names) == sorted(f"{kind}-{number}" for kind in SAMPLE_MACHINES for number in range(1, NODES_OF_A_KIND + 1))


def test_every_node_advertises_the_gpus_of_its_topology() -> None:
    scene = make_scene()
    sizes = {topology.name: len(topology.spec.gpus) for topology in scene.topologies}
    assert {node["metadata"]["name"]: int(node["status"]["allocatable"][WHOLE_GPU]) for node in scene.nodes} == sizes
    assert scene.gpus == sum(sizes.values()) == 72


def test_gpu_0_of_the_pictured_node_is_held_before_the_first_pod() -> None:
    scene = make_scene()
    pictured = next(topology for topology in scene.topologies if topology.name == PICTURED_NODE)
    (running,) = scene.running
    allocation = Allocation.decode(running["metadata"]["annotations"][ALLOCATION])
    assert allocation.node == PICTURED_NODE
    assert allocation.uuids() == {pictured.spec.gpus[0].uuid}


def test_extender_reads_the_scene_without_a_complaint() -> None:
    _, source, problems = embedded(make_scene().snapshot(), Settings())
    view = source.cluster.view()
    free = {name: int(view.free[row]).bit_count() for name, row in view.row_of.items()}
    assert problems == []
    assert not view.closed.any()
    assert sum(free.values()) == 71
    assert free[PICTURED_NODE] == 7
