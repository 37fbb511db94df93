"""Where and when a result was measured: every file in bench/results opens with it."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def heading(title: str) -> str:
    """Return the first lines of a result: title, processor, cores, Python, commit, date."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip() or "unknown"  # noqa: S607
    cpuinfo = Path("/proc/cpuinfo")
    models = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")] if cpuinfo.exists() else []
    where = f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"# {title}\n\n{where}; commit {commit}; {datetime.now(UTC):%Y-%m-%d}. Compare the ratios: machines are noisy.\n"


def write(name: str, text: str) -> None:
    """Print a result and keep it as bench/results/NAME.md."""
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
