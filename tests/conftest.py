"""What every test may use: golden files with one switch that writes them anew, and how hard hypothesis tries.

`LINKWISE_HYPOTHESIS=thorough pytest tests/invariants` looks for an hour where `make test` looks for seconds.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

# What builders, oracles and checks assert is told in full, too: they are imported after this.
pytest.register_assert_rewrite(*(f"tests.{path.stem}" for path in Path(__file__).parent.iterdir() if path != Path(__file__)))

GOLDEN = Path(__file__).parent / "golden"
E2E = Path(__file__).parent / "e2e"

# No deadlines: the first use of a topology class makes its tables. In CI the same examples every time: a pipeline tells about its change.
settings.register_profile("quick", max_examples=100, stateful_step_count=30, deadline=None, derandomize=os.environ.get("CI") == "true")
settings.register_profile("thorough", max_examples=3000, stateful_step_count=60, deadline=None)
settings.load_profile(os.environ.get("LINKWISE_HYPOTHESIS", "quick"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than cores, for `-n auto`: a third of the time tests wait for a process or a socket of theirs, and the cores for them."""
    return (os.cpu_count() or 1) + 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out tests/e2e unless the command line names it or something in it: its control plane takes minutes to build and all cores to run."""
    if collection_path != E2E:
        return None
    named = (config.invocation_params.dir / argument.split("::")[0] for argument in config.args)
    return None if any(path.resolve().is_relative_to(E2E) for path in named) else True


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`: review the difference like code before it is committed."""
    parser.addoption("--update-golden", action="store_true", default=False, help="write the golden files anew from what the code gives now")


@pytest.fixture(autouse=True)
def _log_lines_as_before() -> Iterator[None]:
    """Leave it to each test how log lines are written: a command that is run in this process sets it up for a process of its own."""
    before, was_configured = structlog.get_config(), structlog.is_configured()
    yield
    if was_configured:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return ``golden(name, text)``: the text equals the file `tests/golden/NAME`, or is written there with `--update-golden`."""
    update = bool(request.config.getoption("--update-golden"))

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing: run pytest with --update-golden and review the file"
        assert text == path.read_text(encoding="utf-8"), f"differs from {path}; if that is right, run pytest with --update-golden"

    return check
