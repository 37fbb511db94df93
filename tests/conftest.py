"""What every test may use: golden files with one switch that writes them anew."""

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`: review the difference like code before it is committed."""
    parser.addoption("--update-golden", action="store_true", default=False, help="write the golden files anew from what the code gives now")


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
