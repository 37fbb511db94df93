"""How a soak is judged, and what it does to a topology; the run itself is in tests/e2e."""

from dataclasses import replace

import pytest

from bench.soak import report
from bench.soak.judging import Found, Log, Sample, growth, judge, read_log
from bench.soak.life import degraded
from extender.sample_machines import SAMPLE_MACHINES
from topology.links import LinkCode

MINUTES = 10.0
QUIET = Found(
    minutes=MINUTES,
    samples=tuple(Sample(at, 300.0 + min(at, 100.0), at / 100, 2, int(at)) for at in map(float, range(5, 600, 5))),
    lags=tuple((float(at), 0.05) for at in range(0, 600, 5)),
    waits=tuple((float(at), 0.1) for at in range(0, 600, 3)),
    wrong=(),
    steps=1000,
    troubles=(),
    log=Log({"info": 100, "warning": 2}, {"warning: event dropped": 2}, ()),
)


def slower(values: tuple[tuple[float, float], ...], factor: float) -> tuple[tuple[float, float], ...]:
    return tuple((at, value * (factor if at > 400 else 1.0)) for at, value in values)


def test_a_quiet_soak_meets_everything():
    """Memory that grows while caches fill is not held against it, nor are warnings."""
    assert all(verdict.met for verdict in judge(QUIET))
    assert growth(QUIET.samples, MINUTES) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        pytest.param(
            {"samples": tuple(replace(one, resident_mib=300 + one.at_s / 5) for one in QUIET.samples)},
            "memory flat",
            id="memory that grows on and on",
        ),
        pytest.param({"samples": QUIET.samples[:10]}, "memory flat", id="no samples after warm-up"),
        pytest.param({"lags": slower(QUIET.lags, 5.0)}, "no growing lag", id="lag that grows"),
        pytest.param({"lags": ()}, "no growing lag", id="no lag measured"),
        pytest.param({"waits": slower(QUIET.waits, 5.0)}, "pods wait no longer", id="pods that wait longer and longer"),
        pytest.param({"wrong": ("GPU-1 is the own GPU of a and of b",)}, "no GPU promised twice", id="a GPU given twice"),
        pytest.param({"steps": 0}, "no GPU promised twice", id="nobody looked"),
        pytest.param({"log": replace(QUIET.log, told={"error: call failed, please report": 1})}, "no error in the log", id="an error in the log"),
        pytest.param({"log": replace(QUIET.log, bad=("Traceback (most recent call last):",))}, "no error in the log", id="a traceback"),
        pytest.param({"troubles": ("nobody watches the pods any more",)}, "nothing else", id="somebody has stopped looking"),
    ],
)
def test_what_goes_wrong_misses_its_own_target_alone(changed: dict[str, object], missed: str):
    """One verdict, by the first words of its target."""
    verdicts = judge(replace(QUIET, **changed))  # type: ignore[arg-type]
    (found,) = (verdict for verdict in verdicts if not verdict.met)
    assert found.target.startswith(missed)


def test_lag_that_doubles_within_noise_is_no_growth():
    """From 50 to 100 ms is what a busy machine does by itself."""
    assert all(verdict.met for verdict in judge(replace(QUIET, lags=slower(QUIET.lags, 2.0))))


def test_the_log_is_counted_by_level_and_by_what_it_says():
    """Keys and values are left out: a hundred pods with one trouble are one line."""
    text = (
        "Linkwise serves the cluster on http://127.0.0.1:8888\n"
        '{"event":"pod bound","node":"a","level":"info","time":"2026-01-02T03:04:05Z"}\n'
        '{"event":"event dropped","pod":"default/a","reason":"x","level":"warning"}\n'
        '{"event":"event dropped","pod":"default/b","reason":"x","level":"warning"}\n'
        '{"event":"call failed, please report","verb":"filter","level":"error"}\n'
        "Traceback (most recent call last):\n"
    )
    log = read_log(text)
    assert log.levels == {"info": 1, "warning": 2, "error": 1}
    assert log.told == {"warning: event dropped": 2, "error: call failed, please report": 1}
    assert len(log.bad) == 2


@pytest.mark.parametrize("kind", SAMPLE_MACHINES)
def test_a_lost_link_is_lost_on_both_sides_and_nothing_else_changes(kind: str):
    """Machines behind a switch, and those without NVLinks, are left alone."""
    rows = [row.split() for row in SAMPLE_MACHINES[kind].gpu_rows]
    found = degraded(rows)
    if kind in ("nvswitch", "mesh", "pcie"):
        assert found == []
        return
    changed = [(a, b) for a, row in enumerate(rows) for b, cell in enumerate(row) if found[a][b] != cell]
    (one, other) = changed
    assert one == other[::-1]
    assert rows[one[0]][one[1]].startswith("NV")
    assert all(cell == "X" or LinkCode.parse(cell) for row in found for cell in row)


def test_the_report_shows_targets_figures_and_what_was_wrong():
    """Only where something was."""
    happened = {"pods created": 600}
    assert "What was wrong" not in report.text(QUIET, judge(QUIET), happened)
    bad = replace(QUIET, wrong=("GPU-1 is the own GPU of a and of b",))
    text = report.text(bad, judge(bad), happened)
    assert "| pods created | 600 |" in text
    assert "- GPU-1 is the own GPU of a and of b" in text
    assert "| warning: event dropped | 2 |" in text


def test_percentiles_are_written_in_milliseconds():
    """Nothing measured is said so."""
    assert report.percentiles([0.001 * value for value in range(1, 101)]) == "p50 50, p99 99, most 100"
    assert report.percentiles([]) == "none"
