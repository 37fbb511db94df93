"""Looks come at the pace that the node needs, and none outlives the agent."""

import threading
from pathlib import Path
from queue import Queue

import pytest

from extender.sample_machines import MESH
from tests.stand_in import LIST, OLD_QUERY, QUERY, QUERY_HEADER, Answer, losing, query_rows, write_nvidia_smi, write_sysfs
from topology.agent import prober
from topology.agent.prober import Look, Prober
from topology.agent.settings import AgentSettings
from topology.errors import InternalError, NvidiaSmiError, NvidiaSmiFailure

PATIENCE_S = 20.0
NO_DEVICES = dict.fromkeys((QUERY, OLD_QUERY, LIST), Answer("No devices were found\n", 6))


def settings(path: Path, **more: float) -> AgentSettings:
    return AgentSettings(node_name="node-a", nvidia_smi=str(path), sysfs_root=path.parent / "sys", timeout_s=PATIENCE_S, **more)


def test_looks_come_one_after_the_other_until_it_is_stopped(tmp_path: Path) -> None:
    looks: Queue[Look] = Queue()
    write_sysfs(tmp_path, MESH)
    prober = Prober(settings(write_nvidia_smi(tmp_path, MESH), probe_every_s=0.01), looks.put)
    prober.start()
    for _ in range(3):
        look = looks.get(timeout=PATIENCE_S)
        assert look.facts is not None
        assert look.all_well
        assert look.seconds > 0
    assert prober.alive()
    prober.stop()
    assert not prober.alive()


def test_a_gpu_that_is_lost_or_back_between_two_looks_is_looked_at_at_once(tmp_path: Path) -> None:
    looks: Queue[Look] = Queue()
    write_sysfs(tmp_path, MESH)
    script = write_nvidia_smi(tmp_path, MESH)
    prober = Prober(settings(script, probe_every_s=3600, failing_every_s=3600, glance_every_s=0.01), looks.put)
    prober.start()
    assert looks.get(timeout=PATIENCE_S).all_well
    for number, replaced in enumerate((losing(MESH, 2), {}, NO_DEVICES)):
        other = write_nvidia_smi(tmp_path / str(number), MESH, replaced=replaced)
        (tmp_path / "new").symlink_to(other)
        (tmp_path / "new").replace(script)
        look = looks.get(timeout=PATIENCE_S)
        assert (look.all_well, look.no_gpus) == (not replaced, replaced is NO_DEVICES)
    prober.stop()


def test_nobody_is_told_of_a_glance_that_finds_the_same(tmp_path: Path) -> None:
    looks: Queue[Look] = Queue()
    write_sysfs(tmp_path, MESH)
    script, calls = tmp_path / "counted", tmp_path / "calls"
    script.write_text(f'#!/bin/sh\necho $1 >> {calls}\nexec {write_nvidia_smi(tmp_path, MESH)} "$@"\n')
    script.chmod(0o755)
    prober = Prober(settings(script, probe_every_s=3600, glance_every_s=0.01), looks.put)
    prober.start()
    looks.get(timeout=PATIENCE_S)
    waited = threading.Event()
    while calls.read_text().splitlines().count("-L") < 4:  # one of the look, three of glances
        assert not waited.wait(0.01)
    prober.stop()
    assert looks.empty()
    assert calls.read_text().splitlines().count("topo") == 2


def test_a_slow_driver_is_not_kept_busy_with_glances(tmp_path: Path) -> None:
    prober = Prober(settings(tmp_path), lambda _: None)
    assert [prober._glance_pause_s(Look(None, None, seconds)) for seconds in (0.3, 9.0)] == [4.0, 9.0]


def test_a_failure_is_a_look_too(tmp_path: Path) -> None:
    looks: Queue[Look] = Queue()
    prober = Prober(settings(write_nvidia_smi(tmp_path, MESH, exit_code=18)), looks.put)
    prober.start()
    look = looks.get(timeout=PATIENCE_S)
    prober.stop()
    assert isinstance(look.error, NvidiaSmiError)
    assert (look.facts, look.error.kind, look.no_gpus, look.all_well) == (None, NvidiaSmiFailure.DRIVER_MISMATCH, False, False)


def test_a_bug_in_the_probe_is_told_like_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("nobody thought of it")

    monkeypatch.setattr(prober, "look", broken)
    looks: Queue[Look] = Queue()
    one = Prober(settings(tmp_path / "nvidia-smi"), looks.put)
    one.start()
    look = looks.get(timeout=PATIENCE_S)
    one.stop()
    assert isinstance(look.error, InternalError)
    assert "nobody thought of it" in str(look.error)


def test_stopping_ends_a_look_that_hangs_and_tells_nobody_of_it(tmp_path: Path) -> None:
    looks: Queue[Look] = Queue()
    prober = Prober(settings(write_nvidia_smi(tmp_path, MESH, hang=True)), looks.put)
    prober.start()
    hanging = tmp_path / "hanging"
    waited = threading.Event()
    while not hanging.exists():
        assert not waited.wait(0.01)
    prober.stop()
    assert not prober.alive()
    assert looks.empty()


def lost(directory: Path) -> Path:
    rows = query_rows(MESH)
    rows[3] = f"3, {MESH.uuids('node-a')[3]}, {MESH.bus_ids[3]}, " + ", ".join(["[GPU is lost]"] * 6) + ", 550"
    return write_nvidia_smi(directory, MESH, replaced={QUERY: Answer("\n".join([QUERY_HEADER, *rows]) + "\n", 15)})


@pytest.mark.parametrize(
    ("machine", "expects_gpus", "pause_s"),
    [
        pytest.param(lambda path: write_nvidia_smi(path, MESH), False, 30.0, id="all is well"),
        pytest.param(lost, False, 10.0, id="a GPU is lost"),
        pytest.param(lambda path: write_nvidia_smi(path, MESH, exit_code=9), False, 10.0, id="the driver fails"),
        pytest.param(lambda path: write_nvidia_smi(path, MESH, replaced=NO_DEVICES), False, 120.0, id="no GPU, and never one"),
        pytest.param(lambda path: write_nvidia_smi(path, MESH, replaced=NO_DEVICES), True, 10.0, id="no GPU where there was one"),
        pytest.param(lambda path: path / "nvidia-smi", False, 120.0, id="no nvidia-smi"),
    ],
)
def test_what_is_broken_is_looked_at_more_often(tmp_path: Path, machine: object, expects_gpus: bool, pause_s: float) -> None:
    assert callable(machine)
    prober = Prober(settings(machine(tmp_path)), lambda _: None)
    prober.expects_gpus = expects_gpus
    assert prober._pause_s(prober._look()) == pause_s
