"""The local API server and a client of it, for tests of everything that speaks to an API server."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from extender.kube.client import KubeClient
from tests.local_api_server import LocalApiServer, client_of, running


@pytest.fixture(autouse=True, scope="session")
def _quiet() -> Iterator[None]:
    """Keep thousands of failed requests from drowning the one failing example that one wants to read."""
    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(wrapper_class=before)


@pytest.fixture
async def server() -> AsyncIterator[LocalApiServer]:
    """Run an empty API server."""
    async with running(LocalApiServer()) as started:
        yield started


@pytest.fixture
async def client(server: LocalApiServer) -> AsyncIterator[KubeClient]:
    """Give a client of it."""
    async with client_of(server) as opened:
        yield opened
