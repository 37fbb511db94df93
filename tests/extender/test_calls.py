"""What surrounds a call: only POST is one, a caller may hang up, failures are answered and counted; everything that is no verb goes on to the framework."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route as WebRoute

from extender.calls import Calls, Closed, OpenGate, Reply, Route
from extender.metrics import Metrics
from topology.errors import ApiServerError, CallError

Message = dict[str, Any]


class Shut(OpenGate):
    """A gate that lets nobody in."""

    def closed(self) -> Closed | None:
        return Closed("another replica leads", close_connection=True)


def raising(error: Exception) -> Any:
    def answer(_: bytes) -> bytes:
        raise error

    return answer


async def later(body: bytes) -> bytes:
    return body + body


ROUTES = {
    "/filter": Route("filter", at_once=lambda body: body[::-1]),
    "/bind": Route("bind", later=later),
    "/bad": Route("bad", at_once=raising(CallError("no call"))),
    "/gone": Route("gone", at_once=raising(ApiServerError("the API server is away"))),
    "/prioritize": Route("prioritize", at_once=raising(RuntimeError("a bug"))),
}


def calls(*, shut: bool = False) -> tuple[Calls, Metrics]:
    async def web(_: Any) -> PlainTextResponse:
        return PlainTextResponse("the framework")

    metrics = Metrics()
    return Calls(ROUTES, Starlette(routes=[WebRoute("/healthz", web)]), metrics, Shut() if shut else OpenGate(), most_body_bytes=10), metrics


async def told(app: Calls, path: str, *parts: bytes, method: str = "POST", hangs_up: bool = False) -> tuple[int, dict[bytes, bytes], bytes] | None:
    """Call as an ASGI server does, the body in those parts; None where nothing was answered."""
    waiting: list[Message] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    waiting.append({"type": "http.disconnect"} if hangs_up else {"type": "http.request", "more_body": False})
    sent: list[Message] = []

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}, receive, send)
    if not sent:
        return None
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent[1:])


async def test_a_call_in_pieces_is_answered_whole():
    app, _ = calls()
    found = await told(app, "/filter", b"ab", b"cd")
    assert found == (200, {b"content-type": b"application/json", b"content-length": b"4"}, b"dcba")


async def test_a_verb_that_waits_closes_its_connection():
    """Binds overlap, and each would leave an idle connection behind."""
    app, _ = calls()
    found = await told(app, "/bind", b"ab")
    assert found is not None
    assert (found[0], found[1][b"connection"], found[2]) == (200, b"close", b"abab")


@pytest.mark.parametrize(
    ("path", "status", "body", "outcome"),
    [
        pytest.param("/bad", 400, b'{"Error":"no call"}', "no call", id="what is no call"),
        pytest.param("/gone", 200, b'{"Error":"the API server is away"}', "no api server", id="an API server that is away"),
        pytest.param("/prioritize", 200, b"[]", "bug", id="a bug where an answer has no room for errors"),
        pytest.param("/filter", 400, b'{"Error":"the body is larger than 10 bytes"}', "no call", id="too large a body"),
    ],
)
async def test_failures_are_answered_in_the_form_of_the_verb_and_counted(path: str, status: int, body: bytes, outcome: str):
    app, metrics = calls()
    found = await told(app, path, b"x" * (11 if path == "/filter" else 1))
    assert found is not None
    assert (found[0], found[2]) == (status, body)
    assert metrics.registry.get_sample_value("linkwise_calls_total", {"verb": path[1:], "outcome": outcome}) == 1


@pytest.mark.parametrize("path", ["/filter", "/bind"])
async def test_a_closed_gate_says_why_and_closes_the_connection(path: str):
    app, _ = calls(shut=True)
    found = await told(app, path, b"x")
    assert found is not None
    assert (found[0], found[1][b"connection"], found[2]) == (200, b"close", b'{"Error":"another replica leads"}')


async def test_only_a_post_is_a_call():
    app, _ = calls()
    found = await told(app, "/filter", method="GET")
    assert found is not None
    assert (found[0], found[1][b"allow"]) == (405, b"POST")


async def test_who_hangs_up_is_not_answered():
    app, metrics = calls()
    assert await told(app, "/filter", b"ab", hangs_up=True) is None
    assert metrics.registry.get_sample_value("linkwise_calls_total", {"verb": "filter", "outcome": "answered"}) is None


async def test_everything_else_is_the_frameworks():
    app, _ = calls()
    found = await told(app, "/healthz", method="GET")
    assert found is not None
    assert (found[0], found[2]) == (200, b"the framework")


def test_a_call_is_answered_without_a_loop():
    app, metrics = calls()
    assert app.reply_at_once(ROUTES["/filter"], b"ab") == Reply(b"ba")
    assert metrics.registry.get_sample_value("linkwise_call_seconds_count", {"verb": "filter"}) == 1
