"""The corpus of recorded tool outputs, read in place: it lies beside a developer's checkout and is not part of the project.

Tests that need it are marked ``corpus``. In a stranger's clone they skip with a reason; with CI=true its absence is a failure.
"""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "shared" / "corpus"
_ABSENT = f"the corpus of recorded outputs is not at {ROOT}"

if not ROOT.is_dir() and os.environ.get("CI") == "true":
    raise FileNotFoundError(_ABSENT)

# A stranger's clone has no corpus: a test of its files has nothing to look at there.
needs_corpus = pytest.mark.skipif(not ROOT.is_dir(), reason=_ABSENT)


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """One file of the corpus and what a reader must find in it."""

    path: Path
    kind: str
    gpu_model: str
    expected: dict[str, str]

    @property
    def text(self) -> str:
        return self.path.read_bytes().decode("utf-8", errors="replace")


def _expected(cell: str) -> dict[str, str]:
    return dict(item.split("=", 1) for item in cell.split(";") if item)


def corpus_files(*kinds: str) -> list[object]:
    """Parameters, one a file of those kinds, or one skipped parameter where the corpus is not there."""
    if not ROOT.is_dir():
        return [pytest.param(None, id="no corpus", marks=needs_corpus)]
    with (ROOT / "index.csv").open(newline="", encoding="utf-8") as index:
        return [
            pytest.param(
                CorpusFile(ROOT / row["file"], row["kind"], row["gpu_model"], _expected(row["expected"])), id=row["file"], marks=pytest.mark.corpus
            )
            for row in csv.DictReader(index)
            if row["kind"] in kinds
        ]
