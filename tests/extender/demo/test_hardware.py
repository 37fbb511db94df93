import pytest

from extender.demo.hardware import NodeHardware, Placed, hardware_of
from extender.sample_machines import sample
from topology.errors import InternalError
from topology.links import Distance

DGX1V = NodeHardware.of(sample("dgx1v", "d"))
BRIDGES = NodeHardware.of(sample("bridges", "b"))


@pytest.mark.parametrize(
    ("node", "masks", "gb_per_s", "worst", "on_nvlink"),
    [
        pytest.param(DGX1V, (0b1,), 0.0, None, False, id="one GPU has no link"),
        pytest.param(DGX1V, (0b1001,), 50.0, "NV2", True, id="two NVLinks of a V100 carry 50"),
        pytest.param(DGX1V, (0b11110,), 9.137, "SYS", False, id="GPUs 1-4 of a cube mesh have no ring over NVLink"),
        pytest.param(DGX1V, (0b0011, 0b1100), 50.0, "NV2", True, id="of two containers of equal size the better one is told"),
        pytest.param(DGX1V, (0b1, 0b110), 50.0, "NV2", True, id="of two containers the larger one is told"),
        pytest.param(BRIDGES, (0b101,), 300.0, "NV12", True, id="a bridged pair"),
        pytest.param(BRIDGES, (0b11,), 18.274, "SYS", False, id="the two lowest GPUs share no bridge"),
    ],
)
def test_figures_of(node: NodeHardware, masks: tuple[int, ...], gb_per_s: float, worst: str | None, on_nvlink: bool) -> None:
    figures = node.figures(Placed("x", masks))
    assert figures.gb_per_s == pytest.approx(gb_per_s, abs=1e-3)
    assert (figures.worst, figures.on_nvlink) == (worst, on_nvlink)


@pytest.mark.parametrize(
    ("masks", "floor", "ceiling", "kept"),
    [
        pytest.param((0b1001,), 50.0, Distance.SYS, True, id="a floor just reached"),
        pytest.param((0b1001,), 50.1, Distance.SYS, False, id="a floor just missed"),
        pytest.param((0b0011, 0b1100), 50.0, Distance.SYS, False, id="a floor holds for every container"),
        pytest.param((0b1, 0b1100), 50.0, Distance.SYS, True, id="one GPU is held to no floor"),
        pytest.param((0b1111,), 0.0, Distance.NVLINK, True, id="a quad of NVLinks within NVLINK"),
        pytest.param((0b11110,), 0.0, Distance.NVLINK, False, id="a set across quads beyond NVLINK"),
    ],
)
def test_wishes_kept(masks: tuple[int, ...], floor: float, ceiling: Distance, kept: bool) -> None:
    assert DGX1V.keeps(Placed("d", masks), floor, ceiling) is kept


def test_bits_and_uuids_and_indices_are_one_gpu() -> None:
    node = hardware_of([sample("mesh", "m")])["m"]
    assert node.mask_of([node.uuids[3], node.uuids[1]]) == 0b1010
    assert node.indices(0b1010) == (1, 3)


def test_a_uuid_of_another_node_is_an_error() -> None:
    with pytest.raises(InternalError, match="node d has no GPU GPU-"):
        DGX1V.mask_of(BRIDGES.uuids[:1])
