"""The commands of the latency harness on small clusters: they measure what they say, write what they say, and tell in a sentence what they lack."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench import decision_latency, flame, go_programs, nodes_form, scale
from bench.latency.resident import Resident
from bench.latency.walk import ECHO
from topology.errors import InputError


def run(main: object, *options: str) -> str:
    """Run a command; returns what it printed."""
    app = typer.Typer()
    app.command()(main)  # type: ignore[type-var]
    done = CliRunner().invoke(app, list(options))
    assert done.exit_code == 0, done.output
    return done.output


def test_decision_latency_measures_a_cluster_that_changes(tmp_path: Path):
    """100 nodes: every verb, pods bound and gone, four connections, JSON and picture."""
    options = ("--calls", "12", "--warm-up", "2", "--seconds", "0.2", "--largest", "100", "--stream", "two GPUs", "--results", str(tmp_path))
    run(decision_latency.main, *options)
    (one,) = json.loads((tmp_path / "decision_latency.json").read_text())["measurements"]
    assert set(one["latencies"]) == {"filter", "prioritize", "prioritize, new order", "bind"}
    assert {ECHO, "linkwise"} <= set(one["latencies"]["filter"])
    assert one["latencies"]["filter"]["linkwise"]["calls"] == 12
    assert one["bound"]
    assert one["left"]
    assert one["connections"]["linkwise"]["calls"]
    assert one["connections"]["linkwise"]["changes"]
    assert (tmp_path / "decision_latency.md").read_text().startswith("# Filter, prioritize and bind over HTTP")
    assert (tmp_path / "decision_latency.svg").exists()


def test_nodes_form_and_scale_measure_a_small_cluster():
    """Every server and reader, and what a cluster costs in time and memory."""
    form = nodes_form.measure(20, 5, 0)
    assert {"echo", form.decoder, "linkwise"} <= set(form.servers)
    assert min(form.readers_ms.values()) > 0
    assert "| 20 |" in nodes_form.text([form])
    grown = scale.measure(10, 3, 0)
    assert grown.gpus == 80
    assert grown.memory.peak_mib >= grown.memory.now_mib > grown.floor.rss_mib
    assert grown.start_processor_s > 0
    assert "| 10 | 80 |" in scale.text(grown, [grown])


def test_scale_judges_large_starts_and_how_a_decision_grows():
    """In processor time against the floor's, whatever the clock says; a thousand nodes are no large start."""

    def grown(nodes: int, processor_s: float, warm_ms: float) -> scale.Grown:
        return scale.Grown(nodes, 8 * nodes, 1, 1.0, scale.Floor(99.0, 1.0, 1.0, 1.0, 1), 1.0, processor_s, Resident(1.0, 1.0), 1.0, warm_ms)

    found = list(scale.verdicts([grown(1000, 9.0, 1.0), grown(10_000, 3.0, 3.1), grown(50_000, 3.1, 9.0)]))
    assert [(verdict[0].split(" nodes")[0], verdict[3]) for verdict in found] == [
        ("start at 10000", "met"),
        ("start at 50000", "**missed**"),
        ("warm decision at 10000", "**missed**"),
    ]


@pytest.mark.parametrize("sizes", ["", "0", "10,", "a", "1000000"])
def test_sizes_that_are_none_are_refused(sizes: str):
    """In a sentence that tells what is accepted."""
    with pytest.raises(InputError, match="accepted: numbers of 1 to 100000"):
        scale.read_sizes(sizes)


def test_another_extender_needs_its_names_and_a_pod(tmp_path: Path):
    """Its cluster is its own."""
    with pytest.raises(InputError, match="--url needs --names and --pod"):
        decision_latency.foreign("http://127.0.0.1:1", None, None, "filter", "")
    (tmp_path / "names").write_text("a\n\nb\n")
    (tmp_path / "pod").write_text("{kind: Pod, metadata: {name: x}, spec: {}}")
    found = decision_latency.foreign("http://127.0.0.1:1", tmp_path / "names", tmp_path / "pod", "check", "")
    assert (found.names, found.pod.encoded, found.server.paths) == (["a", "b"], b'{"metadata":{"name":"x"},"spec":{}}', {"filter": "/check"})


def test_without_go_the_null_extender_is_asked_for_in_a_sentence(tmp_path: Path):
    """Nothing is built then."""
    with pytest.raises(InputError, match="no `go` on the PATH: install Go"):
        go_programs.null_extender({"PATH": str(tmp_path), "HOME": str(tmp_path)})


def test_without_py_spy_it_is_asked_for_in_a_sentence(monkeypatch: pytest.MonkeyPatch):
    """With the name of what brings it."""
    monkeypatch.setattr(flame.sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match=r"pip install 'linkwise\[bench\]'"):
        flame.py_spy()


def stand_in(folder: Path, says: str) -> str:
    """Return a program in py-spy's place, which notes what it was asked when the process that it is to look at is there."""
    spy = folder / "py-spy"
    spy.write_text(f'#!/bin/sh\n[ -d /proc/$3 ] && echo "$@" > {folder}/asked\n{says}\n')
    spy.chmod(0o755)
    return str(spy)


def test_the_server_is_looked_at_while_it_answers(tmp_path: Path):
    """py-spy is given the server's process and where the picture goes."""
    drawing = tmp_path / "x.svg"
    flame.draw(stand_in(tmp_path, f'sleep 0.1; echo \'<svg><text id="title" x="1">py-spy record</text></svg>\' >{drawing}'), 20, 1, 0, drawing)
    assert f"--format flamegraph --output {drawing}" in (tmp_path / "asked").read_text()
    assert drawing.read_text() == '<svg><text id="title" x="1">The hot path at 20 nodes: filter, prioritize, bind</text></svg>\n'


def test_a_drawing_without_a_title_is_refused():
    """Another py-spy may draw otherwise."""
    with pytest.raises(InputError, match=r"no title to replace; accepted: that of py-spy 0\.4"):
        flame.titled("<svg/>", "x")


def test_what_py_spy_says_when_it_fails_is_told(tmp_path: Path):
    """It may not be permitted to look."""
    looking = flame.Looking([stand_in(tmp_path, "echo not permitted >&2; exit 1")])
    with pytest.raises(InputError, match="py-spy failed: not permitted"):
        looking.finish()
