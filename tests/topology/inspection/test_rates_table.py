"""`linkwise links`: every rate that counts, with its source."""

import json

import pytest

from topology.inspection.rates_table import rates_for_people, rates_json
from topology.inspection.text import plain
from topology.links import GPU_MODELS, NVLINK_GENERATIONS, PCIE_LANE_GB_PER_S, PCIE_PATH_SHARE


def test_the_tables_are_complete() -> None:
    tables = json.loads(rates_json())
    assert [row["name"] for row in tables["nvlink"]] == [generation.name for generation in NVLINK_GENERATIONS]
    assert [row["pattern"] for row in tables["models"]] == [model.pattern for model in GPU_MODELS]
    assert [row["generation"] for row in tables["pcieLane"]] == list(PCIE_LANE_GB_PER_S)
    assert [row["code"] for row in tables["pciePath"]] == [distance.name for distance in PCIE_PATH_SHARE]
    assert tables["pciePath"][2]["bandwidth"]["4x16"] == pytest.approx(24.0, abs=0.01)


def test_the_text_names_every_row() -> None:
    text = plain(rates_for_people())
    for name in [*(generation.name for generation in NVLINK_GENERATIONS), *(model.pattern for model in GPU_MODELS)]:
        assert name in text
    assert "one direction" in text
