"""The local API server and a client of it, for tests of everything that speaks to an API server."""

from collections.abc import AsyncIterator

import pytest

from extender.kube.client import KubeClient
from tests.local_api_server import LocalApiServer, client_of, running


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
