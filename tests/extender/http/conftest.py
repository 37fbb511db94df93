"""Machines are probed once; every test gets an extender of its own over as many of them as it wants."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.builders import PodBuilder
from tests.extender.http.served import FIVE_KINDS, Served, probed, serve

Probe = Callable[[str, str], str]
Serve = Callable[..., Served]


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    """``probe(kind, node)``: what the agent on that node printed."""
    printed: dict[tuple[str, str], str] = {}

    def once_a_node(kind: str, node: str) -> str:
        if (kind, node) not in printed:
            printed[kind, node] = probed(kind, node, tmp_path_factory.mktemp(node))
        return printed[kind, node]

    return once_a_node


@pytest.fixture
def extender(probe: Probe, tmp_path: Path) -> Iterator[Serve]:
    """``extender(a="bridges", b="pcie", pods=[...])``: an extender that serves these nodes; without any, one of each of the five kinds."""
    with ExitStack() as running:

        def started(*, pods: Iterable[PodBuilder] = (), more: str = "", **kinds: str) -> Served:
            nodes = kinds or {kind: kind for kind in FIVE_KINDS}
            documents = [probe(kind, node) for node, kind in nodes.items()]
            return running.enter_context(serve(tmp_path, documents, [each.build() for each in pods], more))

        yield started
