"""The comparison with recorded and measured figures: every row is accounted for, and the order that is claimed is checked and not assumed."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench import bandwidth_model, link_figures
from tests.corpus import ROOT as CORPUS
from tests.corpus import corpus_files, needs_corpus
from tests.shared_data import DATA, needs_data


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        pytest.param({"NV18": (450, 450), "NV4": (56, 100), "SYS": (9, 9)}, True, id="codes that do not occur are skipped"),
        pytest.param({"NV4": (13, 100), "PIX": (13, 13)}, False, id="an NVLink as slow as PIX is out of order"),
        pytest.param({"PXB": (12, 12), "PHB": (12, 12)}, True, id="PCIe levels may be equal"),
        pytest.param({"NODE": (9, 11), "SYS": (10, 10)}, False, id="ranges that overlap are out of order"),
        pytest.param({"NV2": (1, 1), "SYS": (9, 9)}, True, id="codes outside the claim do not count"),
    ],
)
def test_order_of_rates(rates: dict[str, tuple[float, float]], expected: bool):
    assert bandwidth_model.in_order(rates) is expected


@needs_corpus
@pytest.mark.corpus
def test_recorded_outputs_are_read_or_refused_with_a_typed_error_and_keep_the_order():
    found = bandwidth_model.codes_of(CORPUS)
    assert found.order_holds
    assert found.out_of_order == ()
    assert "unknown" not in found.errors
    assert found.read + sum(found.errors.values()) == len(corpus_files("topo-m", "topo-m-fail", "topo-m-truncated", "topo-other", "topo-p2p"))


@needs_data
def test_five_gpus_of_a_dgx_1_are_ranked_last_and_the_ranks_follow_what_was_measured():
    found = bandwidth_model.all_reduce(DATA)
    assert found.slowest == 5
    assert found.spearman >= 0.9
    assert found.spearman > found.spearman_regression


@needs_data
def test_every_measured_row_is_modelled_or_named_as_left_out():
    figures = link_figures.read(DATA)
    left_out = [figure for figure in figures if figure.modelled is None]
    assert len(figures) - len(left_out) == 26
    assert all("P2P" in figure.link or " / " in figure.link for figure in left_out)
    assert all(0.3 < figure.ratio < 1.3 for figure in figures if figure.ratio is not None)


@needs_data
def test_both_way_figures_are_halved():
    (figure,) = (found for found in link_figures.read(DATA) if (found.gpu, found.metric) == ("P100 SXM2", "p2p bidi"))
    assert figure.measured == (18.4, 18.4)
    assert figure.modelled == (20.0, 20.0)


@needs_data
def test_the_command_writes_table_figures_and_picture(tmp_path: Path):
    pytest.importorskip("matplotlib")
    app = typer.Typer()
    app.command()(bandwidth_model.main)
    result = CliRunner().invoke(app, ["--data", str(DATA), "--corpus", str(tmp_path / "none"), "--results", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == {"bandwidth_model.md", "bandwidth_model.json", "bandwidth_model.svg"}
    assert json.loads((tmp_path / "bandwidth_model.json").read_text())["all_reduce"]["slowest"] == 5
    assert "No recorded outputs were given" in (tmp_path / "bandwidth_model.md").read_text()
