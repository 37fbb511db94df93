"""The data sets behind the benchmarks, read in place: they lie beside a developer's checkout and are not part of the project.

Tests that read them carry ``needs_data``. In a stranger's clone they skip with a reason; with CI=true their absence is a failure.
"""

import os
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

if not DATA.is_dir() and os.environ.get("CI") == "true":
    raise FileNotFoundError(f"the data of the benchmarks is not at {DATA}")

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the data of the benchmarks is not at {DATA}")
