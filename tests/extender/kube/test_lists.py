from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from extender.kube.client import ApiRefusedError, KubeClient
from extender.kube.lists import list_all
from extender.kube.watch import NODES


class Pages:
    """A list endpoint of two items a page; ``expires`` says how many times a continued list is answered with 410 first."""

    def __init__(self, names: list[str], expires: int) -> None:
        self.names = names
        self.expires = expires

    async def answer(self, request: web.Request) -> web.Response:
        start = int(request.query.get("continue", "0"))
        if start and self.expires:
            self.expires -= 1
            return web.json_response({"kind": "Status", "reason": "Expired", "message": "the continue token is too old"}, status=410)
        onward = {"continue": str(start + 2)} if start + 2 < len(self.names) else {}
        items = [{"metadata": {"name": name}} for name in self.names[start : start + 2]]
        return web.json_response({"kind": "NodeList", "apiVersion": "v1", "metadata": onward, "items": items or None})


@pytest.fixture
async def pages() -> AsyncIterator[tuple[Pages, KubeClient]]:
    served = Pages(["a", "b", "c", "d", "e"], expires=0)
    app = web.Application()
    app.router.add_get("/api/v1/nodes", served.answer)
    async with TestServer(app) as server:
        configuration = Configuration()
        configuration.host = str(server.make_url("/"))
        async with KubeClient(configuration) as client:
            yield served, client


async def test_all_pages_come_with_the_kind_that_a_list_leaves_out(pages: tuple[Pages, KubeClient]) -> None:
    found = await list_all(pages[1], NODES)
    assert [item["metadata"]["name"] for item in found] == ["a", "b", "c", "d", "e"]
    assert {(item["apiVersion"], item["kind"]) for item in found} == {("v1", "Node")}


async def test_an_empty_list_is_an_answer(pages: tuple[Pages, KubeClient]) -> None:
    pages[0].names.clear()
    assert await list_all(pages[1], NODES) == []


async def test_a_list_that_expires_between_two_pages_starts_again_and_repeats_nothing(pages: tuple[Pages, KubeClient]) -> None:
    pages[0].expires = 2
    assert [item["metadata"]["name"] for item in await list_all(pages[1], NODES)] == ["a", "b", "c", "d", "e"]


async def test_a_list_that_expires_again_and_again_is_given_up(pages: tuple[Pages, KubeClient]) -> None:
    pages[0].expires = 3
    with pytest.raises(ApiRefusedError, match="too old"):
        await list_all(pages[1], NODES)
