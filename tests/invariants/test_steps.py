"""The state machines behind the invariants take enough steps, also where nobody asks for thorough ones."""

import os
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import settings

LEAST = 20_000  # steps of all machines together
TAKEN = 0.925  # of the steps that are planned: some examples end early. Counted with CI=true, by calls of `check_invariants` less one an example: 19,636 of 21,150


@pytest.mark.skipif("LINKWISE_HYPOTHESIS" in os.environ, reason="another profile was asked for")
def test_all_invariants_together_are_looked_at_after_twenty_thousand_steps():
    found: list[settings] = []
    for path in sorted(Path(__file__).parent.glob("test_[1-8]_*.py")):
        module = import_module(f"tests.invariants.{path.stem}")
        found += [case.settings for name, case in vars(module).items() if name.startswith("Test") and hasattr(case, "settings")]
    assert len(found) == 8
    assert TAKEN * sum(each.max_examples * each.stateful_step_count for each in found) >= LEAST
