"""The experiments measure what they say: small runs of each, the same seeds the same figures, and the anchors that prove the replay right."""

import csv
import json
import math
import statistics
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.placement_topology import main, write_rows
from bench.reference import CHOICES
from bench.topology_quality import brute_force, every_free_set, fifo, golden, mapa, plots, remainders, summary
from bench.topology_quality.fifo import Job
from bench.topology_quality.linkwise import policy, topology_class_of
from bench.topology_quality.mapa import Run
from bench.topology_quality.remainders import Pod
from tests.machines import BRIDGES_8, DGX1V
from tests.shared_data import DATA, needs_data

# --- the stream of jobs, and the queue --------------------------------------------------------------------------------


@needs_data
def test_seed_0_draws_the_published_stream():
    with (DATA / "mapa" / "jobs_300_seed0.csv").open(newline="") as file:
        recorded = [Job(int(row["gpus"]), int(row["service"]), row["network"], row["bw_sensitive"] == "1") for row in csv.DictReader(file)]
    assert mapa.stream(0) == recorded


def lowest(free: int, k: int, _sensitive: bool) -> int | None:
    gpus = [gpu for gpu in range(8) if free >> gpu & 1]
    return sum(1 << gpu for gpu in gpus[:k]) if len(gpus) >= k else None


def test_the_head_of_the_queue_holds_up_jobs_that_would_fit():
    jobs = [Job(3, 10, "a", True), Job(2, 5, "b", True), Job(1, 1, "c", True)]
    replayed = fifo.replay(4, jobs, lowest)
    assert [mask for _, mask in replayed.placed] == [0b0111, 0b0011, 0b0100]
    assert replayed.makespan == 15  # the pair starts at 10, though GPU 3 was free all the time; the single one beside it


def test_gpus_of_all_jobs_that_end_together_come_back_together():
    jobs = [Job(2, 4, "a", True), Job(2, 4, "b", True), Job(4, 1, "c", True)]
    assert fifo.replay(4, jobs, lowest).makespan == 5


@needs_data
def test_our_preserve_meets_the_published_mean():
    """On the smallest machine here; `python -m bench.placement_topology` shows all five."""
    found = summary.summaries(mapa.runs(DATA, "summit", range(10)))
    assert abs(summary.anchor_distances(found)["summit"]) < 0.1
    assert {one.policy for one in found} == set(mapa.POLICIES)


@needs_data
def test_the_same_seeds_give_the_same_runs():
    assert mapa.runs(DATA, "dgx-p", range(3, 5)) == mapa.runs(DATA, "dgx-p", range(3, 5))


@needs_data
def test_with_the_regression_as_bandwidth_linkwise_meets_its_targets_on_the_cube_mesh():
    found = summary.summaries(mapa.runs(DATA, "dgx-v", range(10)))
    assert [target for target in summary.targets(found, mapa.PLUGGED) if not target.met] == []


def test_a_missed_target_is_told():
    def run(name: str, rate: float) -> Run:
        return Run("m", name, 0, (rate, rate), (rate,), 7)

    found = summary.summaries([run("preserve", 50.0), run("greedy", 40.0), run("Linkwise", 39.0)])
    assert [(target.what.split(",")[0], target.met) for target in summary.targets(found, "Linkwise")] == [
        ("sensitive", False),
        ("sensitive", False),
        ("insensitive", True),
        ("makespan", True),
    ]


def test_the_percentile_is_over_the_jobs_of_all_runs():
    runs = [Run("m", "p", 0, (0.0, 0.0), (0.0,), 1), Run("m", "p", 1, (8.0,) * 6, (0.0,), 1)]
    (found,) = summary.summaries(runs)
    assert (found.sensitive_p25, found.sensitive_p25_mean_of_runs, found.sensitive_mean) == (6.0, 4.0, 4.0)


# --- another model under the same choice --------------------------------------------------------------------------------


def test_a_plugged_bandwidth_decides_the_choice_in_the_place_of_ring_packing():
    rare = 0b10010000
    kind = topology_class_of(DGX1V.codes, DGX1V.model, bandwidth_of=lambda mask: 99.0 if mask == rare else 1.0)
    assert policy(kind)(0xFF, 2, True) == rare
    assert kind.bandwidth[0] == 0.0


def test_jobs_that_are_not_sensitive_leave_the_bridges_alone_when_they_say_so():
    kind = topology_class_of(BRIDGES_8.codes, BRIDGES_8.model)
    half_taken = 0b11111101  # GPU0 has lost its partner
    assert policy(kind, insensitive_as_none=True)(half_taken, 1, False) == 0b1
    pair = policy(kind, insensitive_as_none=True)(0b11110101, 2, False)
    assert pair == 0b0101  # two broken bridges
    assert policy(kind)(0b11110101, 2, False) in {0b00110000, 0b11000000}


# --- every free set -----------------------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize(
    ("name", "beaten"),
    [
        pytest.param("dgx1-v100", (68, 77), id="cube mesh with V100"),
        pytest.param("a100pcie8-nv4-pairs", (16, 16), id="bridge pairs"),
        pytest.param("v100x4-nv2-full", (0, 0), id="four GPUs, all alike"),
    ],
)
def test_no_set_is_below_brute_force_or_below_the_allocator(name: str, beaten: tuple[int, int]):
    machine = next(found for found in golden.machines(DATA) if found.name == name)
    both = every_free_set.compare(machine)
    assert [(found.below_brute_force, found.below_allocator) for found in both] == [(0, 0), (0, 0)]
    assert tuple(len(found.beaten) for found in both) == beaten


def test_brute_force_knows_the_rings_of_a_cube_mesh():
    own = brute_force.bandwidths(DGX1V.codes, 25.0, 3)
    assert [round(brute_force.best(own, 0xFF, k), 6) for k in range(2, 9)] == [50, 50, 100, 50, 100, 100, 150]
    assert own[0b00011111] == pytest.approx(15.75392 * 0.58)  # a quad and a fifth GPU on one link: no ring but over PCIe


# --- what is left -------------------------------------------------------------------------------------------------------


def test_a_pod_that_does_not_fit_is_turned_away_and_its_gpus_are_nobodys():
    pods = [Pod(4, 3), Pod(2, 9), Pod(4, 9), Pod(4, 9)]
    assert remainders.serve(4, pods, lowest) == [
        0b1111,
        0b1111,
    ]  # the pair and the second quad find nothing; the last one comes when the first has left


@needs_data
def test_all_policies_serve_the_same_pods_and_linkwise_leaves_the_best_most_often():
    found = {(share.policy, share.k): share for share in remainders.shares(DATA, "DGX-1V", range(100))}
    for k in (2, 4):
        assert len({found[name, k].pods for name in remainders.POLICIES}) == 1
        assert all(found[remainders.LINKWISE, k].best > found[name, k].best for name in remainders.REFERENCES)


@needs_data
def test_behind_nvswitch_nothing_can_be_spoilt():
    assert all(share.best == share.pods for share in remainders.shares(DATA, "8 x H100", range(5)))


# --- the command --------------------------------------------------------------------------------------------------------


@needs_data
def test_the_command_writes_tables_figures_rows_and_pictures(tmp_path: Path):
    pytest.importorskip("matplotlib")
    data, results = tmp_path / "data", tmp_path / "results"
    (data / "mapa").mkdir(parents=True)
    (data / "gpuallocator").symlink_to(DATA / "gpuallocator")
    described = json.loads((DATA / "mapa" / "topologies.json").read_text())
    (data / "mapa" / "topologies.json").write_text(json.dumps({"summit": described["summit"]}))
    import typer

    app = typer.Typer()
    app.command()(main)
    options = ["--data", str(data), "--runs", "1", "--confirm", "1", "--sequences", "3", "--results", str(results)]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert {path.name for path in results.iterdir()} == {
        "placement_topology.md",
        "placement_topology.json",
        "placement_topology_rows.csv",
        "placement_topology_jobs.svg",
        "placement_topology_remainders.svg",
    }
    figures = json.loads((results / "placement_topology.json").read_text())
    assert set(figures["measured"]) == {"processor", "python", "commit", "date"}
    assert len(figures["jobs"]) == len(mapa.POLICIES)
    first = {path.name: path.read_bytes() for path in results.iterdir()}
    assert CliRunner().invoke(app, options).exit_code == 0
    assert {path.name: path.read_bytes() for path in results.iterdir()} == first


def test_without_matplotlib_pictures_are_left_out_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    plots.best_left([], tmp_path / "nothing.svg")
    assert "matplotlib is not installed" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_rows_name_the_gpus(tmp_path: Path):
    row = every_free_set.Row("0 1 2", 2, "0 2", 50.0, "0 1", 25.0)
    write_rows([every_free_set.Comparison("m", True, 1, 0, 0, (row,))], tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text().splitlines()[1] == "m,True,0 1 2,2,0 2,50.0,0 1,25.0"


def test_every_policy_of_the_references_has_its_row():
    assert mapa.POLICIES[: len(CHOICES)] == tuple(CHOICES)
    assert math.isclose(statistics.fmean(remainders.SHARES) * len(remainders.SHARES), 1.0)
