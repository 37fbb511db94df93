"""Where and when a result was measured: every file in bench/results opens with it."""

import json
import os
import platform
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
# For programs whose start is measured: with compiled modules, as pip and the image leave them. Where an environment keeps Python from writing them, every start would compile all of
# Linkwise and of its packages anew, which takes longer than all the rest of it.
COMPILED = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "linkwise-bench-modules")}


def facts() -> dict[str, str]:
    """Return processor and cores, Python, commit and date."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip() or "unknown"  # noqa: S607
    cpuinfo = Path("/proc/cpuinfo")
    models = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")] if cpuinfo.exists() else []
    return {
        "processor": f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "commit": commit,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def heading(title: str, *, timed: bool = True) -> str:
    """Return the first lines of a result: title, processor, cores, Python, commit, date; ``timed``: its figures are times."""
    found = facts()
    warning = " Compare the ratios: machines are noisy." if timed else ""
    return f"# {title}\n\n{found['processor']}, Python {found['python']}; commit {found['commit']}; {found['date']}.{warning}\n"


def write(name: str, text: str, folder: Path = RESULTS) -> None:
    """Print a result and keep it as NAME.md in the folder of results."""
    print(text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")


def write_json(name: str, figures: dict[str, Any], folder: Path = RESULTS) -> None:
    """Keep the figures behind a result as NAME.json, under what `facts` tells."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"measured": facts(), **figures}, indent=1) + "\n", encoding="utf-8")
