"""Every recorded output of `nvidia-smi topo -m` through `linkwise inspect --output json`, held against what a person read in it."""

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.corpus import CorpusFile, corpus_files
from topology.cli import app

_CELL = re.compile(r"(pair|nic|cpu|numa|gpunuma|nicname)\(([^,)]+)(?:,([^)]+))?\)")
_AFFINITY = {"cpu": "cpus", "numa": "numa", "gpunuma": "gpuNuma"}


def inspected(file: CorpusFile) -> tuple[dict[str, Any], int]:
    result = CliRunner().invoke(app, ["inspect", "--output", "json", str(file.path)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    lines = result.stdout.splitlines()
    assert len(lines) == 1
    return json.loads(lines[0]), result.exit_code


def found(report: dict[str, Any], key: str) -> str | None:
    """Return what the report says under a key of the index, in the index's words."""
    match = _CELL.fullmatch(key)
    if match is None:
        return {
            "gpus": str(len(report["gpus"])),
            "nics": str(len(report["nics"])),
            "error": report["error"]["kind"] if report["error"] else "none",
        }[key]
    what, first, second = match.groups()
    if what in _AFFINITY:
        cell = next(gpu for gpu in report["gpus"] if gpu["index"] == int(first))[_AFFINITY[what]]
        return "none" if cell is None else cell
    if what == "nicname":
        return next(nic["name"] for nic in report["nics"] if nic["label"] == first)
    other = f"GPU{second}" if what == "pair" else second
    ends = {f"GPU{first}", other}
    return next(link["type"] for link in report["links"] if {link["a"], link["b"]} == ends)


# Facts about the file and not about the machine, or with a test of their own below.
_ELSEWHERE = {"rows", "truncated", "header", "flattened", "exit", "busid", "cmd"}


@pytest.mark.parametrize("file", corpus_files("topo-m", "topo-m-truncated", "topo-m-fail"))
def test_every_recorded_cell_reads_right(file: CorpusFile) -> None:
    report, exit_code = inspected(file)
    wrong = {key: (value, found(report, key)) for key, value in file.expected.items() if key not in _ELSEWHERE and found(report, key) != value}
    assert not wrong
    assert exit_code == (0 if file.expected.get("error", "none") == "none" else 2)


def complaints(report: dict[str, Any]) -> list[str]:
    """Return the warnings about the text itself: every machine without an inventory has others, about assumed rates."""
    return [warning for warning in report["warnings"] if re.search(r"\brows? of\b|no link is known|stops", warning)]


@pytest.mark.parametrize("file", corpus_files("topo-m-truncated"))
def test_a_truncated_matrix_is_told_from_a_whole_one(file: CorpusFile) -> None:
    report, _ = inspected(file)
    assert file.expected["truncated"] == "yes"
    assert complaints(report)


@pytest.mark.parametrize("file", corpus_files("topo-m"))
def test_a_whole_matrix_is_read_without_complaint(file: CorpusFile) -> None:
    report, _ = inspected(file)
    assert not complaints(report)


@pytest.mark.parametrize("file", corpus_files("topo-m", "topo-m-truncated"))
def test_every_pair_is_listed_once_and_every_size_has_a_best_set(file: CorpusFile) -> None:
    report, _ = inspected(file)
    gpus, nics = len(report["gpus"]), len(report["nics"])
    pairs = [frozenset((link["a"], link["b"])) for link in report["links"]]
    assert len(pairs) == len(set(pairs)) == gpus * (gpus - 1) // 2 + gpus * nics
    assert [one["size"] for one in report["sets"]] == list(range(2, gpus + 1))
    assert all(link["bandwidth"] > 0 for link in report["links"] if link["type"] is not None)


@pytest.mark.parametrize("file", corpus_files("topo-m-fail"))
def test_a_failure_of_the_tool_is_never_an_empty_machine(file: CorpusFile) -> None:
    report, exit_code = inspected(file)
    assert exit_code == 2
    assert report["error"]["message"]
    assert (report["gpus"], report["nics"], report["links"], report["sets"]) == ([], [], [], [])


OTHERS = ("topo-other", "topo-p2p", "nvlink-s", "list-L", "query-csv", "q-x-xml", "mig-lgi", "mig-lgip", "vendor")


@pytest.mark.parametrize("file", corpus_files(*OTHERS))
def test_no_other_output_crashes_inspect(file: CorpusFile) -> None:
    report, exit_code = inspected(file)
    assert exit_code == (2 if report["error"] else 0)
    assert bool(report["gpus"]) is (report["error"] is None)


@pytest.mark.parametrize("file", corpus_files("topo-m", "topo-m-truncated"))
@pytest.mark.parametrize("output", ["text", "dot", "svg"])
def test_every_recorded_matrix_can_be_shown(file: CorpusFile, output: str) -> None:
    result = CliRunner().invoke(app, ["inspect", "--output", output, str(file.path)])
    assert result.exit_code == 0, result.output
    assert all(f"GPU{i}" in result.stdout for i in range(int(file.expected["gpus"])))
    assert "\x1b" not in result.stdout
