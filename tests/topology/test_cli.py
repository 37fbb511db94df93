"""`linkwise inspect`, `linkwise links`, `linkwise agent`, as a shell sees them."""

import io
import json
import stat
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from extender.sample_machines import SAMPLE_MACHINES
from tests.api_door import api_door
from tests.stand_in import write_nvidia_smi
from topology.api import read_gputopology
from topology.cli import MOST_BYTES, app

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ("dgx1v", "hgx-h100", "a100-pcie-bridges")
PAIR = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-23\nGPU1\tNV4\t X \t0-23\n"
GPUS = "GPU 0: NVIDIA RTX A6000 (UUID: GPU-00000000-0000-0000-0000-000000000000)\nGPU 1: NVIDIA RTX A6000 (UUID: GPU-00000000-0000-0000-0000-000000000001)\n"


def run(*arguments: str, stdin: str | bytes = "") -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def pair(tmp_path: Path) -> str:
    path = tmp_path / "pair.txt"
    path.write_text(PAIR)
    return str(path)


def test_the_version_is_told():
    """As that of the package that is installed."""
    assert run("--version") == (0, f"linkwise {version('linkwise')}\n", "")


# --- inspect ---


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize(("output", "ending"), [("text", "txt"), ("json", "json"), ("dot", "dot"), ("svg", "svg")])
def test_the_shipped_samples_look_as_reviewed(
    sample: str, output: str, ending: str, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    code, out, err = run("inspect", "--output", output, f"examples/topo/{sample}.txt")
    assert (code, err) == (0, "")
    golden(f"inspect/{sample}.{ending}", out)


def test_a_pipe_gets_80_columns_without_colour(pair: str) -> None:
    _, out, _ = run("inspect", pair, str(ROOT / "examples/topo/dgx1v.txt"))
    assert "\x1b" not in out
    assert max(len(line) for line in out.splitlines() if str(ROOT) not in line) <= 80
    assert not [line for line in out.splitlines() if line != line.rstrip()]


def test_json_has_the_keys_of_the_contract_in_their_order(pair: str) -> None:
    code, out, _ = run("inspect", "--output", "json", pair)
    report = json.loads(out)
    assert code == 0
    assert list(report) == ["source", "gpus", "nics", "links", "sets", "warnings", "error"]
    assert report["source"] == pair
    assert report["gpus"][0] == {"index": 0, "numa": None, "cpus": "0-23", "gpuNuma": None}
    assert list(report["gpus"][0]) == ["index", "numa", "cpus", "gpuNuma"]
    assert report["links"] == [{"a": "GPU0", "b": "GPU1", "type": "NV4", "bandwidth": 56.25}]
    assert list(report["links"][0]) == ["a", "b", "type", "bandwidth"]
    assert report["sets"] == [{"size": 2, "gpus": [0, 1], "bandwidth": 56.25, "worst": "NV4"}]
    assert list(report["sets"][0]) == ["size", "gpus", "bandwidth", "worst"]
    assert any("assumed" in warning for warning in report["warnings"])
    assert report["error"] is None


def test_free_looks_for_sets_among_those_gpus_alone() -> None:
    sample = str(ROOT / "examples/topo/dgx1v.txt")
    code, out, _ = run("inspect", "--output", "json", "--free", "0,3, 5-7", sample)
    sets = json.loads(out)["sets"]
    assert code == 0
    assert [(one["size"], one["gpus"]) for one in sets][:2] == [(2, [0, 3]), (3, [5, 6, 7])]
    assert len(sets) == 4
    assert "The best set of GPUs 0,3,5-7 of every size" in run("inspect", "--free", "0,3,5-7", sample)[1]
    every = json.loads(run("inspect", "--output", "json", "--sets", "all", "--free", "5-7", sample)[1])["sets"]
    assert sorted(one["gpus"] for one in every) == [[5, 6], [5, 6, 7], [5, 7], [6, 7]]
    assert json.loads(run("inspect", "--output", "json", "--free", "5", sample)[1])["sets"] == []


@pytest.mark.parametrize("free", ["", "a", "1-", "7-5", "0;1", "-1", "0,,1", "1000"])
def test_free_gpus_that_cannot_be_read_are_refused_with_the_accepted_form(free: str, pair: str) -> None:
    code, out, err = run("inspect", f"--free={free}", pair)
    assert (code, out) == (2, "")
    assert err == f"linkwise: --free {free} cannot be read; accepted: numbers of GPUs and ranges, for example 0,3,5-7\n"


def test_free_gpus_that_a_machine_does_not_have_are_told_for_that_machine_alone(pair: str) -> None:
    code, out, err = run("inspect", "--free", "0-2", str(ROOT / "examples/topo/dgx1v.txt"), pair)
    assert code == 2
    assert "0-2" in out
    assert err == f"linkwise: {pair}: there is no GPU 2 in it; accepted: 0, 1 (bad_arguments)\n"


def test_pairs_without_peer_access_are_counted_through_the_host(pair: str, tmp_path: Path) -> None:
    statuses = tmp_path / "p2p.txt"
    statuses.write_text("\tGPU0\tGPU1\nGPU0\tX\tCNS\nGPU1\tCNS\tX\n")
    code, out, _ = run("inspect", "--output", "json", "--p2p", str(statuses), pair)
    report = json.loads(out)
    assert code == 0
    assert report["links"] == [{"a": "GPU0", "b": "GPU1", "type": "NV4", "bandwidth": 9.137}]
    assert report["sets"] == [{"size": 2, "gpus": [0, 1], "bandwidth": 9.137, "worst": "SYS"}]
    assert report["warnings"][0].startswith("no peer access between GPU0 and GPU1 (CNS): ")


def test_peer_statuses_that_cannot_be_read_are_told(pair: str) -> None:
    code, out, err = run("inspect", "--p2p", pair, pair)
    assert (code, out) == (2, "")
    assert err.startswith(f"linkwise: --p2p {pair}: ")


def test_stdin_is_read_when_no_file_or_a_dash_is_given() -> None:
    for arguments in ((), ("-",)):
        code, out, _ = run("inspect", "--output", "json", *arguments, stdin=PAIR)
        assert (code, json.loads(out)["source"]) == (0, "stdin")


def test_one_unreadable_input_does_not_hide_the_others(pair: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.txt"
    broken.write_text("No devices were found\n")
    code, out, _ = run("inspect", "--output", "json", str(broken), pair, str(tmp_path / "absent.txt"))
    reports = [json.loads(line) for line in out.splitlines()]
    assert code == 2
    assert [report["error"] and report["error"]["kind"] for report in reports] == ["no_devices", None, "unknown"]
    assert "No such file" in reports[2]["error"]["message"]
    code, out, err = run("inspect", str(broken), pair)
    assert code == 2
    assert "NV4" in out
    assert "(no_devices)" in err


@pytest.mark.parametrize("output", ["text", "dot", "svg"])
def test_an_unreadable_input_is_a_sentence_on_stderr(output: str) -> None:
    code, out, err = run("inspect", "--output", output, stdin="")
    assert (code, out) == (2, "")
    assert err.startswith("linkwise: stdin: ")
    assert err.endswith("(empty)\n")


def test_sets_all_lists_every_set_of_two_or_more(pair: str) -> None:
    _, out, _ = run("inspect", "--output", "json", "--sets", "all", str(ROOT / "examples/topo/dgx1v.txt"))
    sets = json.loads(out)["sets"]
    assert len(sets) == 2**8 - 8 - 1
    assert len({tuple(one["gpus"]) for one in sets}) == len(sets)
    assert run("inspect", "--sets", "all", pair)[0] == 0


def test_the_inventory_replaces_assumptions_by_facts(pair: str, tmp_path: Path) -> None:
    gpus = tmp_path / "gpus.txt"
    gpus.write_text(GPUS)
    _, out, _ = run("inspect", "--gpus", str(gpus), pair)
    assert "2 × NVIDIA RTX A6000" in out
    assert "NVLink 3 (GA10x bridge)" in out
    assert "NVLink generation" not in out
    code, out, err = run("inspect", "--gpus", pair, pair)
    assert (code, out) == (2, "")
    assert err.startswith(f"linkwise: --gpus {pair}: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("--output", "svg", "a", "b"), "one machine, and 2 files", id="two files in one picture"),
        pytest.param(("--gpus", "-", "-"), "only once", id="stdin for matrix and inventory"),
        pytest.param(("--output", "yaml"), "yaml", id="an output that does not exist"),
        pytest.param(("--gpus", "/does/not/exist"), "No such file or directory", id="an inventory that does not exist"),
    ],
)
def test_a_call_that_cannot_be_is_refused_with_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run("inspect", *arguments, stdin=PAIR)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(PAIR.encode("utf-16"), id="UTF-16 with a byte order mark, as Windows redirects"),
        pytest.param(PAIR.encode("utf-8-sig"), id="UTF-8 with a byte order mark"),
        pytest.param(PAIR.replace("\n", "\r\n").encode(), id="line ends of Windows"),
        pytest.param(b"\xff\x00 garbage \xfe before it\n" + PAIR.encode(), id="bytes that are no text before the matrix"),
    ],
)
def test_the_matrix_is_found_in_other_encodings(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "matrix"
    path.write_bytes(raw)
    code, out, _ = run("inspect", "--output", "json", str(path))
    assert code == 0
    assert json.loads(out)["links"][0]["type"] == "NV4"


def test_an_endless_input_ends_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "endless"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)  # a hole: nothing is written to the disk
    code, _, err = run("inspect", str(path))
    assert code == 2
    assert "larger than 16 MiB" in err


def test_what_a_terminal_would_obey_is_not_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "odd\x1b[2J[red]name"
    path.write_text(PAIR.replace("0-23", "\x1b]0;owned\x070-23"))
    code, out, err = run("inspect", str(path))
    assert code == 0
    assert "\x1b" not in out + err
    assert "[red]name" in out
    path.write_text("\x1b[2Jnothing")
    assert "\x1b" not in run("inspect", str(path))[2]


def test_a_file_name_that_is_no_text_is_shown_as_far_as_it_is() -> None:
    code, out, _ = run("inspect", "--output", "json", "bad\udcffname")
    assert code == 2
    assert json.loads(out)["source"] == "bad?name"


def test_a_terminal_without_the_letters_gets_others_instead_of_a_traceback(monkeypatch: pytest.MonkeyPatch, pair: str) -> None:
    paper = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", paper)
    app(["inspect", pair], standalone_mode=False)
    paper.flush()
    assert b"NV4" in paper.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_closed_pipe_ends_quietly() -> None:
    """What `linkwise inspect … | head -1` does: the reader is gone before everything is written."""
    command = [sys.executable, "-c", "from topology.cli import app; app()", "inspect", "--output", "json", "--sets", "all", "examples/topo/dgx1v.txt"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


def test_help_does_not_load_what_only_commands_need() -> None:
    command = "import sys, topology.cli; print([m for m in ('numpy', 'networkx', 'pydantic', 'rich.table') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- links ---


def test_links_prints_every_rate_with_its_source() -> None:
    code, out, _ = run("links")
    assert code == 0
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    for word in ("NVLink 5 (Blackwell)", "14.0625", "PIX", "SYS", "*H100*", "white paper"):
        assert word in out


def test_links_as_json_is_one_object() -> None:
    code, out, _ = run("links", "--output", "json")
    tables = json.loads(out)
    assert code == 0
    assert all(row["source"] for table in ("nvlink", "pcieLane", "pciePath") for row in tables[table])


# --- agent ---


def test_looking_once_and_printing_go_together() -> None:
    for option in ("--once", "--dry-run"):
        code, out, err = run("agent", "--node-name", "a", option)
        assert (code, out) == (2, "")
        assert "--once and --dry-run go together" in err


def test_the_running_agent_says_where_it_cannot_publish(tmp_path: Path) -> None:
    code, out, err = run("agent", "--node-name", "a", "--kubeconfig", str(tmp_path / "nothing"))
    assert (code, out) == (2, "")
    assert err.startswith(f"linkwise: kubeconfig {tmp_path / 'nothing'} cannot be used: ")


def test_the_running_agent_says_that_its_port_is_taken(tmp_path: Path) -> None:
    with api_door() as door:
        config = str(door.kubeconfig(tmp_path))
        code, _, err = run("agent", "--node-name", "a", "--kubeconfig", config, "--context", "x", "--metrics-port", str(door.port))
    assert code == 2
    assert f"--metrics-port {door.port} cannot be listened on" in err


def test_the_agent_asks_for_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LINKWISE_AGENT_NODE_NAME", raising=False)
    code, _, err = run("agent", "--once", "--dry-run")
    assert code == 2
    assert "--node-name" in err


def stand_in(folder: Path, script: str) -> str:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        pytest.param("echo 'No devices were found'; exit 6", 3, "No devices", id="no GPU"),
        pytest.param("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", 2, "mismatch", id="a driver of another version"),
    ],
)
def test_the_agent_tells_a_node_without_gpus_from_a_broken_one(script: str, status: int, said: str, tmp_path: Path) -> None:
    tool = stand_in(tmp_path, script)
    (tmp_path / "sys").mkdir()
    code, out, err = run("agent", "--once", "--dry-run", "--node-name", "a", "--nvidia-smi", tool, "--sysfs-root", str(tmp_path / "sys"))
    assert (code, out) == (status, "")
    assert said in err
    assert err.startswith("linkwise: ")


def test_the_agent_prints_the_object_that_it_would_publish(tmp_path: Path) -> None:
    tool = write_nvidia_smi(tmp_path, SAMPLE_MACHINES["dgx1v"])
    (tmp_path / "sys").mkdir()
    code, out, err = run("agent", "--once", "--dry-run", "--node-name", "gpu-1", "--nvidia-smi", str(tool), "--sysfs-root", str(tmp_path / "sys"))
    assert (code, err) == (0, "")
    topology = read_gputopology(yaml.safe_load(out))
    assert (topology.name, len(topology.spec.gpus), topology.spec.links.gpus[0][3]) == ("gpu-1", 8, "NV2")


def test_the_agent_refuses_a_name_that_no_node_has() -> None:
    code, _, err = run("agent", "--once", "--dry-run", "--node-name", "Not_A_Node")
    assert code == 2
    assert "Not_A_Node" in err
