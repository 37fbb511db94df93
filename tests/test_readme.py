"""The README says what is true: its console blocks are run, its links lead somewhere, its length is kept.

Blocks marked `console cluster` need a cluster: `tests/e2e/test_readme.py` runs those.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console import ANY, blocks, commands, matches

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _run(command: str) -> list[str]:
    program, *arguments = shlex.split(command)
    assert program == ".venv/bin/linkwise", f"the README runs {program}; only the project's own command is run by this test"
    environment = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "extender", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return [line.rstrip() for line in done.stdout.splitlines()]


@pytest.mark.readme
@pytest.mark.parametrize(
    ("command", "expected"), [pytest.param(*each, id=each[0]) for block in blocks(README, "console") for each in commands(block)]
)
def test_readme_command_prints_what_the_readme_shows(command: str, expected: list[str]):
    printed = _run(command)
    assert matches(expected, printed), "\n".join(printed)


def test_readme_has_console_blocks():
    assert len(blocks(README, "console")) >= 2


def test_readme_stays_under_150_lines():
    assert len(README.splitlines()) < 150


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`?make ([a-z0-9]+)`?", README))))
def test_make_targets_of_the_readme_exist(target: str):
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "bench").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path):
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    missing = [target for target in targets if not target.startswith("http") and not (document.parent / target).exists()]
    assert not missing


def test_matching_of_elided_lines_is_strict_about_the_others():
    assert matches(["a", ANY, "d"], ["a", "b", "c", "d"])
    assert not matches(["a", ANY, "d"], ["a", "b", "c", "e"])
    assert not matches(["a"], ["a", "b"])
    assert matches(["age 3… end"], ["age 3h end"])
    assert not matches(["age 3… end"], ["age 4h end"])


def test_nothing_is_left_to_be_filled_in():
    assert "@" not in README
