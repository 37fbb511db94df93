import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.links import (
    GPU_MODELS,
    LOWEST_PCIE,
    NVLINK_GENERATIONS,
    PCIE_LANE_GB_PER_S,
    PCIE_PATH_SHARE,
    Distance,
    LinkCode,
    gpu_model,
    nvlink_capacity,
    nvlink_rate,
    pcie_rate,
    weaker,
)

CODES = st.sampled_from(["NV1", "NV2", "NV12", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"])


def code(text: str) -> LinkCode:
    parsed = LinkCode.parse(text)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("text", "nvlinks", "distance"),
    [
        pytest.param("NV1", 1, Distance.NVLINK, id="one NVLink"),
        pytest.param("NV4", 4, Distance.NVLINK, id="four NVLinks"),
        pytest.param("NV18", 18, Distance.NVLINK, id="all of a Hopper"),
        pytest.param("PIX", 0, Distance.PIX, id="one PCIe bridge"),
        pytest.param("PXB", 0, Distance.PXB, id="several PCIe bridges"),
        pytest.param("PHB", 0, Distance.PHB, id="a host bridge"),
        pytest.param("NODE", 0, Distance.NODE, id="between host bridges of one NUMA node"),
        pytest.param("SYS", 0, Distance.SYS, id="between NUMA nodes"),
        pytest.param("SOC", 0, Distance.SYS, id="what old drivers print for SYS"),
    ],
)
def test_a_code_tells_its_nvlinks_and_distance(text: str, nvlinks: int, distance: Distance):
    assert (code(text).nvlinks, code(text).distance, str(code(text))) == (nvlinks, distance, text)


@pytest.mark.parametrize(
    "text", ["", "X", " X ", "NV", "NV0", "NV01", "NV-1", "NV100", "nv4", "pix", "NV4 ", "NODENODE", "SYSSYS", "0-23", "N/A", "NVL", "NV4\n"]
)
def test_what_is_no_code_is_none(text: str):
    assert LinkCode.parse(text) is None


@given(st.text())
def test_no_text_crashes_the_parser_and_a_code_keeps_its_text(text: str):
    parsed = LinkCode.parse(text)
    assert parsed is None or parsed.text == text


def test_codes_of_equal_text_are_equal():
    assert code("NV4") == code("NV4")
    assert len({code("NV4"), code("NV4"), code("NV5")}) == 2


def test_distances_are_ordered_nearest_first():
    assert [distance.name for distance in sorted(Distance)] == ["NVLINK", "PIX", "PXB", "PHB", "NODE", "SYS"]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param("NV4", "NV2", "NV2", id="fewer links are weaker"),
        pytest.param("NV1", "PIX", "PIX", id="PCIe is weaker than NVLink"),
        pytest.param("NODE", "PHB", "NODE", id="the longer path is weaker"),
        pytest.param("SYS", "SOC", "SYS", id="of equals the first"),
    ],
)
def test_the_weaker_of_two_codes(first: str, second: str, expected: str):
    assert weaker(code(first), code(second)).text == expected


@given(CODES, CODES)
def test_weaker_does_not_depend_on_the_order(a: str, b: str):
    assert weaker(code(a), code(b)).weakness() == weaker(code(b), code(a)).weakness() == max(code(a).weakness(), code(b).weakness())


# --- models


@pytest.mark.parametrize(
    ("name", "gb_per_s", "links", "pcie_generation"),
    [
        pytest.param("Tesla P100-SXM2-16GB", 20.0, 4, 3, id="P100 SXM2"),
        pytest.param("Tesla P100-PCIE-16GB", None, 0, 3, id="P100 PCIe has no NVLink"),
        pytest.param("Tesla V100-SXM2-32GB", 25.0, 6, 3, id="V100 SXM2"),
        pytest.param("Tesla V100-PCIE-16GB", None, 0, 3, id="V100 PCIe has no NVLink"),
        pytest.param("NVIDIA A100-SXM4-80GB", 25.0, 12, 4, id="A100 SXM4"),
        pytest.param("NVIDIA A100 80GB PCIe", 25.0, 12, 4, id="A100 PCIe has three bridges"),
        pytest.param("NVIDIA A800-SXM4-80GB", 25.0, 8, 4, id="A800 is cut to 8 links"),
        pytest.param("NVIDIA A30", 25.0, 4, 4, id="A30"),
        pytest.param("NVIDIA H100 80GB HBM3", 25.0, 18, 5, id="H100 SXM5"),
        pytest.param("NVIDIA H100 PCIe", 25.0, 12, 5, id="H100 PCIe"),
        pytest.param("NVIDIA H100 NVL", 25.0, 12, 5, id="H100 NVL"),
        pytest.param("NVIDIA H800", 25.0, 8, 5, id="H800 is cut to 8 links"),
        pytest.param("NVIDIA H200", 25.0, 18, 5, id="H200 is no H20"),
        pytest.param("NVIDIA H20", 25.0, 18, 5, id="H20"),
        pytest.param("NVIDIA GH200 480GB", 25.0, 18, 5, id="GH200 is no H200, with the same links"),
        pytest.param("NVIDIA B200", 50.0, 18, 5, id="B200"),
        pytest.param("NVIDIA GB200", 50.0, 18, 5, id="GB200"),
        pytest.param("NVIDIA GB10", None, 0, 5, id="GB10 is no GB100"),
        pytest.param("NVIDIA RTX A6000", 14.0625, 4, 4, id="RTX A6000"),
        pytest.param("NVIDIA GeForce RTX 3090", 14.0625, 4, 4, id="RTX 3090"),
        pytest.param("NVIDIA A40", 14.0625, 4, 4, id="A40"),
        pytest.param("NVIDIA A10G", None, 0, 4, id="A10G"),
        pytest.param("NVIDIA A10", None, 0, 4, id="A10 is no A100"),
        pytest.param("Quadro RTX 6000", 25.0, 2, 3, id="Quadro RTX 6000"),
        pytest.param("NVIDIA RTX 6000 Ada Generation", None, 0, 4, id="RTX 6000 Ada has no NVLink"),
        pytest.param("NVIDIA GeForce RTX 2080 SUPER", 25.0, 1, 3, id="RTX 2080 SUPER"),
        pytest.param("NVIDIA L40S", None, 0, 4, id="L40S"),
        pytest.param("NVIDIA L4", None, 0, 4, id="L4 is no L40"),
        pytest.param("Tesla T4", None, 0, 3, id="T4"),
        pytest.param(" nvidia a100-sxm4-80gb ", 25.0, 12, 4, id="case and blanks do not matter"),
    ],
)
def test_a_product_name_tells_its_links_and_slot(name: str, gb_per_s: float | None, links: int, pcie_generation: int):
    model = gpu_model(name)
    assert model is not None
    assert (model.nvlink.gb_per_s if model.nvlink else None, model.nvlinks, model.pcie_generation) == (gb_per_s, links, pcie_generation)


@pytest.mark.parametrize("name", [None, "", "Tesla K80", "AMD Instinct MI300X", "GPU"])
def test_an_unknown_name_tells_nothing_and_may_have_eighteen_links(name: str | None):
    assert gpu_model(name) is None
    assert nvlink_capacity(name) == 18


def test_capacity_of_a_model_is_its_links_and_eighteen_where_it_should_have_none():
    assert nvlink_capacity("NVIDIA A100-SXM4-40GB") == 12
    assert nvlink_capacity("Tesla V100-PCIE-16GB") == 18, "if links are printed all the same, the table is wrong about this one"


def test_every_row_of_the_table_of_models_can_be_reached_and_fits_its_generation():
    for model in GPU_MODELS:
        name = model.pattern.replace("[0-9]", "9").strip("*")
        assert gpu_model(name) is model, f"{model.pattern} is hidden by a row above it"
        assert (model.nvlink is None) == (model.nvlinks == 0)
        assert model.nvlink is None or model.nvlinks <= model.nvlink.links_per_gpu
        assert model.pcie_generation in PCIE_LANE_GB_PER_S


# --- NVLink rates


@pytest.mark.parametrize(
    ("model", "cell", "total", "measured", "gb_per_s", "assumed"),
    [
        pytest.param("NVIDIA A100-SXM4-80GB", 4, 12, None, 25.0, False, id="the model tells"),
        pytest.param("NVIDIA RTX A6000", 4, 4, 25.0, 14.0625, False, id="the model tells before the measurement"),
        pytest.param(None, 4, 4, 14.062, 14.0625, False, id="nvidia-smi nvlink -s prints 14.062"),
        pytest.param(None, 18, 18, 26.562, 25.0, False, id="nvidia-smi nvlink -s prints 26.562 on Hopper"),
        pytest.param(None, 4, 4, 19.531, 20.0, False, id="nvidia-smi nvlink -s prints 19.531 on Pascal"),
        pytest.param(None, 18, 18, 53.125, 50.0, False, id="nvidia-smi nvlink -s prints 53.125 on Blackwell"),
        pytest.param(None, 4, 4, 0.0, 14.0625, True, id="a measurement of nothing is none"),
        pytest.param(None, 2, 2, None, 14.0625, True, id="two links may be a bridge"),
        pytest.param(None, 4, 4, None, 14.0625, True, id="four links may be a bridge"),
        pytest.param(None, 2, 6, None, 25.0, True, id="six links a GPU: Volta at least"),
        pytest.param(None, 4, 12, None, 25.0, True, id="twelve links a GPU"),
        pytest.param(None, 18, 18, None, 25.0, True, id="eighteen links: Hopper or Blackwell"),
        pytest.param(None, 6, 40, None, 25.0, True, id="more than any GPU has in sum: the cell tells"),
        pytest.param(None, 36, 36, None, 25.0, True, id="more than any GPU has"),
        pytest.param("Tesla V100-PCIE-16GB", 2, 2, None, 14.0625, True, id="a model without NVLink that shows some"),
    ],
)
def test_rate_of_one_nvlink(model: str | None, cell: int, total: int, measured: float | None, gb_per_s: float, assumed: bool):
    rate = nvlink_rate(model, cell, total, measured)
    assert (rate.gb_per_s, rate.assumed) == (gb_per_s, assumed)
    assert rate.source.startswith("assumed: ") is assumed


@given(st.none() | st.text(), st.integers(0, 99), st.integers(0, 999), st.none() | st.floats(allow_nan=False))
def test_every_nvlink_has_a_rate_with_a_source(model: str | None, cell: int, total: int, measured: float | None):
    rate = nvlink_rate(model, cell, total, measured)
    assert rate.gb_per_s in {generation.gb_per_s for generation in NVLINK_GENERATIONS}
    assert rate.source


# --- PCIe rates


def test_a_longer_pcie_path_is_never_faster():
    for generation in PCIE_LANE_GB_PER_S:
        rates = [pcie_rate(distance, generation, 16).gb_per_s for distance in Distance if distance is not Distance.NVLINK]
        assert rates == sorted(rates, reverse=True)
        assert len(rates) == 5


def test_more_lanes_and_newer_generations_are_faster():
    lanes = [pcie_rate(Distance.PIX, 4, width).gb_per_s for width in (1, 2, 4, 8, 16)]
    generations = [pcie_rate(Distance.PIX, generation, 16).gb_per_s for generation in sorted(PCIE_LANE_GB_PER_S)]
    assert lanes == sorted(lanes)
    assert generations == sorted(generations)


@pytest.mark.parametrize(
    ("generation", "gb_per_s"),
    [pytest.param(3, 12.0, id="generation 3"), pytest.param(4, 24.0, id="generation 4"), pytest.param(5, 48.0, id="generation 5")],
)
def test_the_path_over_a_host_bridge_is_what_nccl_counts(generation: int, gb_per_s: float):
    assert pcie_rate(Distance.PHB, generation, 16).gb_per_s == pytest.approx(gb_per_s, rel=1e-3)


@pytest.mark.parametrize(
    ("generation", "width"),
    [
        pytest.param(None, None, id="nothing"),
        pytest.param(None, 16, id="the width only"),
        pytest.param(3, None, id="the generation only"),
        pytest.param(9, 16, id="a generation that is not in the table"),
    ],
)
def test_a_slot_that_was_not_told_is_the_lowest_and_said_to_be_assumed(generation: int | None, width: int | None):
    rate = pcie_rate(Distance.PIX, generation, width)
    assert rate.gb_per_s == pcie_rate(Distance.PIX, *LOWEST_PCIE).gb_per_s
    assert rate.assumed
    assert rate.source.startswith("assumed: ")


def test_a_told_slot_is_not_assumed():
    assert not pcie_rate(Distance.SYS, 3, 16).assumed


def test_an_nvlink_has_no_pcie_rate():
    with pytest.raises(ValueError, match="no PCIe path rate"):
        pcie_rate(Distance.NVLINK, 4, 16)


def test_every_number_has_a_source():
    assert all(generation.source for generation in NVLINK_GENERATIONS)
    assert all(share.source for share in PCIE_PATH_SHARE.values())
