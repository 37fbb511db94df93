"""The benches beside a real kube-scheduler run: small clusters, control planes of their own. What they find on a busy machine is nobody's business here, but that all is found, and right."""

import json
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from bench.end_to_end.__main__ import main as end_to_end
from bench.end_to_end.variants import VARIANTS
from bench.soak.__main__ import main as soak_main


def run(command: object, *options: str) -> Result:
    app = Typer()
    app.command()(command)  # type: ignore[type-var]
    return CliRunner().invoke(app, options)


def test_every_part_of_the_end_to_end_bench_finds_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All variants, every pod of Linkwise with a correct allocation, no node written to."""
    monkeypatch.setenv("LINKWISE_BENCH_QUIET_S", "0")  # 12 s before each of eight rounds, for the sake of figures that nobody reads here
    done = run(end_to_end, "--nodes", "40", "--pods", "40", "--rounds", "1", "--results", str(tmp_path))
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "end_to_end.json").read_text())
    (size,) = found["sizes"]
    assert {one["variant"] for one in size["half"]} == {variant.name for variant in VARIANTS}
    assert all(one["checked"] >= one["pods"] for one in size["half"] if one["variant"] == "linkwise")
    assert {one["who"] for one in size["binds"]} == {"none", "null", "linkwise"}
    assert [one["nodes_changed"] for one in size["starts"]] == [0]
    assert {one["pods"] for one in found["shares"]} == {40}
    verdicts = {one["target"]: one["met"] for one in found["verdicts"]}
    assert verdicts["40 nodes: every pod carries a correct allocation"]
    assert verdicts["40 nodes: no write to any node until then"]
    assert verdicts["no GPU gives more memory than it has after any step"]
    assert (tmp_path / "end_to_end.svg").read_text().startswith("<?xml")


def test_a_short_soak_finds_nothing_wrong(tmp_path: Path) -> None:
    """Too short to tell whether anything grows, and beside other tests, so no target is judged."""
    done = run(soak_main, "--nodes", "60", "--minutes", "0.7", "--results", str(tmp_path))
    assert done.exit_code in (0, 1), done.output
    found = json.loads((tmp_path / "soak.json").read_text())
    assert (found["wrong"], found["troubles"], found["log"]["bad"]) == ([], [], [])
    assert found["happened"]["pods bound"] > 5
    assert found["lags"]
    assert found["steps"] > found["happened"]["pods that fill"]
    assert (tmp_path / "soak.svg").exists()
