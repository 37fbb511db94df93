"""`linkwise demo` as a user runs it, in this process."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from extender.cli import app
from extender.demo import Tour, for_people, picture
from topology.errors import InputError
from topology.inspection.text import plain


def test_prints_the_tour_and_writes_the_picture(tmp_path: Path, shipped: Tour) -> None:
    target = tmp_path / "placement.svg"
    result = CliRunner().invoke(app, ["demo", "--pods", "5", "--svg", str(target)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("10 nodes with 72 GPUs")
    assert f"Picture: {target}\n" in result.stdout
    assert target.read_text(encoding="utf-8") == picture(shipped)
    assert ET.fromstring(target.read_text(encoding="utf-8")).tag.endswith("svg")


def test_without_options_it_is_the_shipped_tour_and_times_are_one_line(shipped: Tour) -> None:
    result = CliRunner().invoke(app, ["demo"])
    without_times = "".join(line for line in result.stdout.splitlines(keepends=True) if not line.startswith("Time: "))
    assert without_times == plain(for_people(shipped), width=100)
    assert result.stdout.count("\nTime: ") == 1
    assert result.stderr == ""


@pytest.mark.parametrize("pods", ["1", "0", "-3", "many"])
def test_too_few_pods_are_refused(pods: str) -> None:
    result = CliRunner().invoke(app, ["demo", "--pods", pods])
    assert result.exit_code == 2
    assert re.search(r"--pods", result.stderr)


def test_a_picture_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--pods", "2", "--svg", str(tmp_path / "missing" / "a.svg")])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).endswith("a.svg cannot be written: No such file or directory")
