"""The command line: bad input is one sentence and exit status 2, and `serve` runs the whole extender on a file."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from extender.cli import main
from tests.builders import cluster, pod
from tests.e2e.program import wait_until

ROOT = Path(__file__).resolve().parents[2]
BUILT = cluster().bridges("pairs").mesh("mesh").with_pods(pod("two").gpus(2), pod("greedy").gpus(2).min_bandwidth(999))

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def linkwise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return ``linkwise(*arguments)``: exit status, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["linkwise", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return run


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "snapshot.yaml"
    path.write_text(yaml.safe_dump(BUILT.snapshot().to_list()))
    return path


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["serve", "--snapshot", "/no/such/file"], "snapshot /no/such/file cannot be read: No such file or directory", id="no file"),
        pytest.param(["serve", "--snapshot", "EMPTY"], "is empty; accepted: the output of kubectl get ", id="an empty file"),
        pytest.param(["serve", "--snapshot", "SNAPSHOT", "--host", "no such host"], "--host no such host: ", id="no address"),
        pytest.param(["serve", "--snapshot", "SNAPSHOT", "--host", "." * 70], "accepted: an address of this machine", id="a name that is none"),
        pytest.param(["serve", "--bindings", "x"], "--bindings goes with --snapshot; ", id="bindings of a real cluster"),
        pytest.param(["serve", "--snapshot", "SNAPSHOT", "--kubeconfig", "x"], "go without --snapshot", id="a snapshot and a cluster"),
        pytest.param(["serve", "--snapshot", "SNAPSHOT", "--probe-port", "8889"], "go without --snapshot", id="a second port for a snapshot"),
        pytest.param(["serve", "--snapshot", "SNAPSHOT", "--bindings", "/"], "--bindings / cannot be written: Is a directory", id="bindings nowhere"),
        pytest.param(["serve", "--kubeconfig", "/no/file"], "kubeconfig /no/file cannot be used: no such file; accepted: ", id="no kubeconfig"),
        pytest.param(["simulate", "EMPTY"], "workload EMPTY is empty; accepted: a list of pods", id="an empty workload"),
        pytest.param(["explain", "node", "a"], "linkwise explain node: unknown kind; accepted: pod", id="another kind"),
        pytest.param(["explain", "pod", "two"], "two: which pod? Accepted: NAMESPACE/NAME", id="no namespace"),
        pytest.param(["explain", "pod", "a/b", "--output", "xml"], "--output xml: unknown form; accepted: text, json", id="another form"),
        pytest.param(["explain", "pod", "a/b", "--server", "http://127.0.0.1:1"], "no extender answers at http://127.0.0.1:1: ", id="nobody there"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(linkwise: Run, snapshot: Path, tmp_path: Path, arguments: list[str], sentence: str):
    (tmp_path / "empty").touch()
    files = {"SNAPSHOT": str(snapshot), "EMPTY": str(tmp_path / "empty")}
    status, out, err = linkwise(*(files.get(argument, argument) for argument in arguments))
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("linkwise: ")
    assert sentence.replace("EMPTY", files["EMPTY"]) in line


def test_a_setting_that_cannot_be_is_one_sentence(linkwise: Run, snapshot: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LINKWISE_POLICY", "binpack")
    status, _, err = linkwise("serve", "--snapshot", str(snapshot))
    assert (status, err) == (2, "linkwise: environment variable LINKWISE_POLICY=binpack: Input should be 'pack', 'spread' or 'gpuallocator'\n")


SMALL = str(ROOT / "examples/topo/dgx1v.txt")
SAMPLE = str(ROOT / "examples/gputopologies.yaml")


def _in_a_shell(line: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of shell in which LINKWISE stands for the command, and $1 and so on for the arguments."""
    command = line.replace("LINKWISE", f"{sys.executable} -m extender")
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        ["/bin/bash", "-c", command, "-", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("command", ["inspect $1", "links --output json", "--version"])
def test_output_that_finds_no_room_is_one_sentence_and_status_1(command: str):
    """A full disk under a redirected output is the user's to hear of, in a line."""
    done = _in_a_shell(f"LINKWISE {command} > /dev/full", SMALL)
    assert (done.returncode, done.stderr) == (1, "linkwise: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("line", ["LINKWISE inspect $1 | head -1", "LINKWISE inspect $1 >&-", "LINKWISE --help | true", "LINKWISE inspect $1 2>&-"])
def test_a_reader_that_goes_away_and_closed_streams_are_no_failure_to_tell_of(line: str):
    """Nothing is said where nobody listens any more."""
    assert _in_a_shell(line, SMALL).stderr == ""


def test_a_closed_stdin_is_an_empty_one():
    """A service manager starts programs without stdin."""
    done = _in_a_shell("LINKWISE inspect <&-")
    assert (done.returncode, done.stderr) == (2, "linkwise: stdin: the text is empty; wanted: the output of `nvidia-smi topo -m` (empty)\n")


def test_help_is_printed_where_the_terminal_has_no_unicode():
    """Letters that it lacks are replaced."""
    done = _in_a_shell("PYTHONIOENCODING=ascii LINKWISE inspect --help")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_argument_that_is_no_text_is_named_as_well_as_it_can_be():
    """File names are bytes, and bad input must not end in a traceback because of them."""
    done = _in_a_shell("LINKWISE simulate $'/no/\\xff'")
    assert (done.returncode, done.stderr) == (2, "linkwise: workload /no/? cannot be read: No such file or directory\n")


@pytest.mark.parametrize("interrupts", [1, 2], ids=["one interrupt", "an impatient one as well"])
@pytest.mark.parametrize("stdout", [">&-", ">/dev/full"])
def test_the_extender_serves_where_nobody_reads_its_stdout(stdout: str, interrupts: int):
    """The line with the address is no reason to fail; an interrupt ends it in good order."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = f"exec {sys.executable} -m extender serve --port {port} --snapshot {SAMPLE} {stdout}"
    with subprocess.Popen(["/bin/bash", "-c", command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for is_up in (True, False)[:interrupts]:  # the second one finds it ending
            wait_until(lambda is_up=is_up: process.poll() is not None or _is_up(port) is is_up, 30, "it is up, or goes")
            process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=20)
    assert (process.returncode, told) == (0, "")


def _is_up(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    "arguments", [["serve", "--port", "99999"], ["explain"], ["explain", "pod", "a/b", "--nodes", "0"], ["nonsense"], ["--nonsense"]]
)
def test_wrong_usage_is_status_2(linkwise: Run, arguments: list[str]):
    status, out, err = linkwise(*arguments)
    assert (status, out) == (2, "")
    assert "Error" in err


def test_every_command_explains_itself(linkwise: Run):
    status, out, _ = linkwise("--help")
    assert status == 0
    for command in ("inspect", "links", "agent", "serve", "explain", "demo", "simulate"):
        assert command in out
        assert linkwise(command, "--help")[0] == 0


def test_importing_the_command_does_not_pay_for_a_web_server_or_numpy():
    heavy = "numpy", "fastapi", "uvicorn", "pydantic", "networkx", "httpx"
    code = f"import sys; import extender.cli; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


# --- the extender on a file -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, subprocess.Popen[str]]]:
    """`linkwise serve` as a process of its own: its URL, its file of bindings, and the process."""
    place = tmp_path_factory.mktemp("served")
    objects = BUILT.snapshot().to_list()
    objects["items"].append({"kind": "Pod"})
    (place / "snapshot.json").write_text(json.dumps(objects))
    arguments = ["serve", "--snapshot", str(place / "snapshot.json"), "--port", "0", "--bindings", str(place / "bindings")]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "extender", *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        announced = process.stdout.readline()
        yield announced.split()[-1], place / "bindings", process
        process.terminate()
        process.wait(timeout=20)


def post(url: str, verb: str, call: dict[str, Any]) -> Any:
    return httpx.post(f"{url}/{verb}", json=call, timeout=10).json()


def test_serve_and_explain(served: tuple[str, Path, subprocess.Popen[str]], linkwise: Run):
    url, bindings, process = served
    two, greedy = pod("two").gpus(2), pod("greedy").gpus(2).min_bandwidth(999)
    names = ["pairs", "mesh"]
    assert post(url, "filter", {"Pod": two.build(), "NodeNames": names})["NodeNames"] == names
    assert post(url, "filter", {"Pod": greedy.build(), "NodeNames": names})["NodeNames"] == []
    assert post(url, "bind", {"PodName": "two", "PodNamespace": "default", "PodUID": two.uid, "Node": "pairs"}) == {"Error": ""}
    (posted,) = (json.loads(line) for line in bindings.read_text().splitlines())
    assert posted["target"]["name"] == "pairs"

    status, out, err = linkwise("explain", "pod", "default/two", "--server", url)
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == "default/two: bound to pairs, GPUs 0,2, 300 GB/s over NV12"
    _, out, _ = linkwise("explain", "pod", "default/greedy", "--server", url)
    assert (
        out.splitlines()
        == [
            "default/greedy: fits on none of 2 nodes",
            "  mesh: 4 of 4 GPUs free, best pair 100 GB/s over NV4, 999 asked",
            "  pairs: 8 of 8 GPUs free, best pair 300 GB/s over NV12, 999 asked",
        ]
        or "8 of 8 GPUs free" in out
    )
    _, out, _ = linkwise("explain", "pod", "default/two", "--server", url, "--output", "json")
    assert json.loads(out)["pod"] == "default/two"
    status, _, err = linkwise("explain", "pod", "default/nobody", "--server", url)
    assert (status, err) == (2, f"linkwise: {url}: no decision about pod default/nobody is kept, and no such pod is known\n")

    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0
    assert process.stderr is not None
    assert "warning: " in (warned := process.stderr.read())
    assert "a Pod without metadata.name" in warned
