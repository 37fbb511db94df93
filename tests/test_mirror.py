"""Every module has its twin: tests/extender/test_placement.py for extender/placement.py, or a file in a folder of the same name."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [
    path.relative_to(ROOT) for package in ("extender", "topology") for path in (ROOT / package).rglob("*.py") if not path.name.startswith("__")
]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_module_has_its_twin(module: Path):
    twin = ROOT / "tests" / module.parent / f"test_{module.name}"
    package_twin = ROOT / "tests" / module.parent.parent / f"test_{module.parent.name}.py"
    assert twin.exists() or package_twin.exists(), f"{twin.relative_to(ROOT)} is missing"
