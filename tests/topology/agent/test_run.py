"""A call of nvidia-smi ends in time, in bounds, and with nothing of it left behind."""

import os
import select
import threading
import time
from pathlib import Path

import pytest

from extender.sample_machines import DGX1V, MESH
from tests.stand_in import LIST, Answer, texts, write_nvidia_smi
from topology.agent import run
from topology.agent.run import NvidiaSmi, find_nvidia_smi
from topology.errors import NvidiaSmiError, NvidiaSmiFailure

PATIENCE_S = 20.0  # never reached: only what hangs on purpose takes its time
SHORT_S = 0.6


def test_text_and_exit_status_are_returned_unjudged(tmp_path: Path) -> None:
    smi = find_nvidia_smi(str(write_nvidia_smi(tmp_path, DGX1V, topo_exit=255)), PATIENCE_S)
    assert smi("topo", "-m") == run.Answer("Failed to run topology matrix\n", 255)
    assert smi("-L") == run.Answer(texts(DGX1V)[LIST], 0)


def test_what_is_printed_on_stderr_is_read_too(tmp_path: Path) -> None:
    script = executable(tmp_path, "echo one; echo two >&2")
    assert NvidiaSmi(str(script), PATIENCE_S)("-L").text == "one\ntwo\n"


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    script = executable(tmp_path, r"printf 'a\377b'")
    assert NvidiaSmi(str(script), PATIENCE_S)("-L").text == "a\ufffdb"


def test_a_tool_ended_by_a_signal_is_told_by_a_negative_status(tmp_path: Path) -> None:
    script = executable(tmp_path, "kill -ABRT $$")
    assert NvidiaSmi(str(script), PATIENCE_S)("-L").exit_code == -6


def test_a_hanging_tool_is_ended_with_its_children(tmp_path: Path) -> None:
    smi = NvidiaSmi(str(write_nvidia_smi(tmp_path, MESH, hang=True)), SHORT_S)
    before = time.monotonic()
    with pytest.raises(NvidiaSmiError, match=r"nvidia-smi topo -m did not answer within 0\.6 s and was ended") as caught:
        smi("topo", "-m")
    assert time.monotonic() - before < PATIENCE_S / 2
    assert caught.value.kind is NvidiaSmiFailure.UNKNOWN
    assert ends((tmp_path / "hanging").read_text(encoding="utf-8").strip())


def test_a_tool_that_closes_its_output_and_hangs_is_ended_too(tmp_path: Path) -> None:
    script = executable(tmp_path, "exec >&- 2>&-; sleep 600 & echo $! > hanging; wait".replace("hanging", f"{tmp_path}/hanging"))
    with pytest.raises(NvidiaSmiError, match="did not answer"):
        NvidiaSmi(str(script), SHORT_S)("-L")
    assert ends((tmp_path / "hanging").read_text(encoding="utf-8").strip())


@pytest.mark.parametrize("body", ["sleep 600", "exec >&- 2>&-; sleep 600"], ids=["it prints nothing", "it has closed its output"])
def test_a_call_ends_at_once_when_nobody_waits_for_it_any_more(tmp_path: Path, body: str) -> None:
    stop = threading.Event()
    smi = NvidiaSmi(str(executable(tmp_path, f"touch '{tmp_path}/begun'; {body}")), PATIENCE_S, stop)
    caught: list[NvidiaSmiError] = []

    def call() -> None:
        with pytest.raises(NvidiaSmiError, match="nvidia-smi topo -m was ended, as the agent ends") as error:
            smi("topo", "-m")
        caught.append(error.value)

    caller = threading.Thread(target=call)
    caller.start()
    while not (tmp_path / "begun").exists():
        assert not stop.wait(0.01)
    stop.set()
    caller.join(PATIENCE_S / 2)
    assert len(caught) == 1
    with pytest.raises(NvidiaSmiError, match="as the agent ends"):
        smi("-L")  # nor does another one begin


def test_endless_output_is_cut_off(tmp_path: Path) -> None:
    script = executable(tmp_path, "exec cat /dev/zero")
    with pytest.raises(NvidiaSmiError, match=f"-q -x printed more than {run.MOST_OUTPUT_BYTES} bytes and was ended"):
        NvidiaSmi(str(script), PATIENCE_S)("-q", "-x")


@pytest.mark.parametrize(
    ("name", "text", "mode", "said"),
    [
        pytest.param("absent", None, 0, "does not exist", id="a path where nothing is"),
        pytest.param("plain", "#!/bin/sh\n", 0o644, "is not an executable file", id="a file that is not executable"),
    ],
)
def test_a_path_that_cannot_be_run_is_not_found(tmp_path: Path, name: str, text: str | None, mode: int, said: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
    with pytest.raises(NvidiaSmiError, match=said) as caught:
        find_nvidia_smi(str(path), PATIENCE_S)
    assert caught.value.kind is NvidiaSmiFailure.NOT_FOUND


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("#!/nowhere/at/all\n", "No such file or directory", id="a script whose interpreter is missing"),
        pytest.param("\x7fELF, but not really", "Exec format error", id="a file that is no program"),
    ],
)
def test_an_executable_that_does_not_start_is_not_found(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "nvidia-smi"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    with pytest.raises(NvidiaSmiError, match=said) as caught:
        find_nvidia_smi(str(path), PATIENCE_S)("-L")
    assert caught.value.kind is NvidiaSmiFailure.NOT_FOUND


def test_without_a_path_the_one_on_PATH_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802  # the variable's name
    path = write_nvidia_smi(tmp_path / "bin", MESH, replaced={LIST: Answer("here\n")})
    monkeypatch.setenv("PATH", f"{path.parent}:/bin:/usr/bin")
    assert find_nvidia_smi(None, PATIENCE_S)("-L").text == "here\n"


@pytest.mark.parametrize("path", [None, ""])
def test_without_any_the_sentence_says_what_that_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NvidiaSmiError, match="nvidia-smi is not on PATH: this node has no NVIDIA driver") as caught:
        find_nvidia_smi(path, PATIENCE_S)
    assert caught.value.kind is NvidiaSmiFailure.NOT_FOUND


def executable(directory: Path, body: str) -> Path:
    """Write a shell script and return its path."""
    path = directory / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def ends(pid: str) -> bool:
    """Tell whether a process has ended or does so soon: its signal may still be on the way."""
    try:
        process = os.pidfd_open(int(pid))
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], PATIENCE_S)[0])
    finally:
        os.close(process)
