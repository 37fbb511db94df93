"""The read API as an app of its own; what it answers is tested through the whole app (`test_app`)."""

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route

from extender.app import OpenGate, make_app
from extender.read_routes import make_read_app
from extender.settings import Settings
from tests.builders import cluster, extender_on

ROOT = Path(__file__).parents[2]
HEAVY = ("fastapi", "networkx", "scipy", "matplotlib", "grpc")


def test_what_the_extender_serves_is_loaded_without_what_only_people_ask_for():
    """Each of these takes a tenth of a second or more of every start."""
    code = f"import sys; import extender.serve_command, extender.serving; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_it_has_every_path_that_is_read_and_none_of_the_verbs():
    extender = extender_on(cluster())
    paths = {route.path for route in make_read_app(extender.verbs, extender.binder, OpenGate()).routes if isinstance(route, Route)}
    assert paths == {
        *("/api/v1/nodes", "/api/v1/nodes/{name}", "/api/v1/pods/{namespace}/{name}/decision", "/api/v1/workload"),
        *("/gpushare-scheduler/inspect", "/gpushare-scheduler/inspect/{name}", "/gpushare-scheduler/version"),
    }


async def test_callers_who_come_while_it_is_loaded_are_answered_and_one_who_hangs_up_takes_nothing_from_the_others():
    extender = extender_on(cluster().bridges("pairs"))
    app = make_app(extender.verbs, extender.binder, extender.metrics, Settings())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://extender") as calls:
        first, *others = [asyncio.create_task(calls.get("/api/v1/nodes")) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        answers = await asyncio.gather(*others)
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await calls.get("/nowhere")).status_code == 404
    assert [[node["name"] for node in answer.json()["nodes"]] for answer in answers] == [["pairs"]] * 2
