"""From matrix and rates to a graph."""

from tests.graphs import graph_by_hand
from topology.graph import LinkRates, machine_graph
from topology.inventory import Gpu, Inventory
from topology.links import Distance, LinkCode, Rate
from topology.matrix import GpuRow, LinkMatrix, NicColumn

NV2, NV1, PIX = (LinkCode(text) for text in ("NV2", "NV1", "PIX"))
MATRIX = LinkMatrix(
    (GpuRow(0, "0-7", "0"), GpuRow(5, "8-15", "1")), (NicColumn("NIC0", "mlx5_3"),), ((None, NV2), (NV1, None)), ((PIX,), (None,)), ("a warning",)
)


def test_every_device_is_a_vertex_with_its_attributes() -> None:
    inventory = Inventory((Gpu(index=5, model="NVIDIA A100", memory_mib=40960),))
    graph = machine_graph(MATRIX, inventory, LinkRates(nvswitch=frozenset({1})))
    assert list(graph) == ["GPU0", "GPU5", "NIC0"]
    assert graph.nodes["GPU5"] == {
        "kind": "gpu",
        "label": "GPU5",
        "position": 1,
        "index": 5,
        "numa": "1",
        "cpus": "8-15",
        "model": "NVIDIA A100",
        "memory_mib": 40960,
        "nvswitch": True,
    }
    assert graph.nodes["GPU0"]["model"] is None
    assert graph.nodes["NIC0"] == {"kind": "nic", "label": "NIC0", "position": 0, "name": "mlx5_3"}


def test_the_weaker_direction_of_a_pair_is_its_edge() -> None:
    rate = Rate(25.0, assumed=True, source="somewhere")
    graph = machine_graph(MATRIX, None, LinkRates({(0, 1): rate}))
    assert graph.edges["GPU0", "GPU5"] == {
        "code": "NV1",
        "nvlinks": 1,
        "distance": Distance.NVLINK,
        "gb_per_s": 25.0,
        "assumed": True,
        "source": "somewhere",
    }


def test_a_pair_that_was_not_printed_has_no_edge() -> None:
    graph = machine_graph(MATRIX, None, LinkRates())
    assert graph.has_edge("GPU0", "NIC0")
    assert not graph.has_edge("GPU5", "NIC0")
    assert graph.edges["GPU0", "NIC0"]["gb_per_s"] is None


def test_links_to_nics_carry_a_rate_too() -> None:
    graph = graph_by_hand("X PHB", "PHB X", nics={"mlx5_0": "PIX SYS"})
    assert graph.edges["GPU0", "mlx5_0"]["gb_per_s"] > graph.edges["GPU1", "mlx5_0"]["gb_per_s"] > 0
