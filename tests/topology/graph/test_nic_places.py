"""Which NICs get wires, and how their chips are packed."""

from tests.graphs import graph_by_hand
from tests.machines import uniform
from topology.graph.arrangement import NicCluster, arrange, nic_clusters
from topology.graph.nic_places import Shares, grid, levels_without_overlap, share_out

FOUR = uniform(4, "PHB")


def shares(cells: str, numa: tuple[str, ...] = ("0", "0", "1", "1"), rows: tuple[str, ...] = FOUR) -> Shares:
    graph = graph_by_hand(*rows, numa=numa, nics={"nic": cells})
    return share_out(nic_clusters(graph), arrange(graph))


def test_one_gpu_or_two_neighbours_deserve_wires() -> None:
    assert shares("PIX SYS SYS SYS").wired
    assert shares("SYS SYS PXB PXB").wired


def test_a_whole_numa_node_is_told_in_words_inside_its_box() -> None:
    found = shares("PHB PHB PHB SYS", numa=("0", "0", "0", "1"))
    assert [part.gpus for _, part in found.local] == [("GPU0", "GPU1", "GPU2")]
    assert shares("NODE SYS SYS SYS").local


def test_what_no_numa_node_owns_is_told_below_the_machine() -> None:
    assert shares("SYS SYS SYS SYS").far
    assert shares("SYS PIX PIX SYS").far
    assert shares("? ? ? ?").far
    assert shares("PHB PHB PHB SYS SYS SYS", numa=("0",) * 6, rows=uniform(6, "PHB")).far


def test_chips_stay_within_the_room_and_are_all_there() -> None:
    graph = graph_by_hand("X", nics={f"mlx5_{k}": "PIX" for k in range(26)})
    (cluster,) = nic_clusters(graph)
    packed = grid(graph, cluster, room=200)
    assert packed.width <= 200
    assert [nic for nic, _ in packed.chips] == [f"mlx5_{k}" for k in range(26)]
    assert all(chip.x > 0 and chip.right < packed.width and chip.bottom < packed.height for _, chip in packed.chips)
    assert len({(chip.x, chip.y) for _, chip in packed.chips}) == 26


def test_a_chip_wider_than_the_room_still_gets_its_place() -> None:
    graph = graph_by_hand("X", nics={"a-name-that-is-much-too-long": "PIX", "b": "PIX"})
    assert len(grid(graph, nic_clusters(graph)[0], room=20).chips) == 2


def test_grids_that_would_touch_stand_on_another_level() -> None:
    graph = graph_by_hand("X", nics={"a": "PIX"})
    one = grid(graph, NicCluster(("a",), ("GPU0",), "PIX"), room=100)
    levels = levels_without_overlap([(0.0, one), (1.0, one), (500.0, one)])
    assert [[middle for middle, _ in level] for level in levels] == [[0.0, 500.0], [1.0]]
