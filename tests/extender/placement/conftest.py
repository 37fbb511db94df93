"""What tests of the search for sets share: a count of its work, which no clock tells."""

from collections.abc import Callable

import pytest

from topology.topology_class import TopologyClass


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return how often the sets of a class were listed since the test began."""
    count = 0
    sets = TopologyClass.sets

    def counting(self: TopologyClass, *args: object, **kwargs: object) -> object:
        nonlocal count
        count += 1
        return sets(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(TopologyClass, "sets", counting)
    return lambda: count
