"""The bench that lets the openb trace arrive at a real kube-scheduler runs: a small cluster, a control plane of its own."""

import json
from pathlib import Path

from typer import Typer
from typer.testing import CliRunner

from bench.placement_real import main
from tests.shared_data import DATA, needs_data


@needs_data
def test_the_trace_arrives_at_a_real_kube_scheduler_and_is_counted_from_the_stored_pods(tmp_path: Path):
    """Until the cluster is half full nothing is dropped; the same code without Kubernetes ends near by."""
    app = Typer()
    app.command()(main)
    done = CliRunner().invoke(app, ["--data", str(DATA), "--seed", "1000", "--nodes", "10", "--results", str(tmp_path)])
    assert done.exit_code == 0, done.output
    (run,) = json.loads((tmp_path / "placement_real.json").read_text())["runs"]
    assert "pods bound a second" in (tmp_path / "placement_real.md").read_text()
    half = [percent for percent in run["real"] if int(percent) <= 50]
    assert [run["real"][percent] for percent in half] == [run["direct"][percent] for percent in half] != []
    last = max(run["real"], key=int)
    assert abs(run["real"][last] - run["direct"][last]) < 10  # percent of some 50 GPUs: a few pods
