"""What each answer to a Binding means, and what is never sent at all."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from extender.kube.bind import KubeBinder
from extender.kube.client import ApiRefusedError, KubeClient, NoAnswerError
from extender.protocol import Binding, BindResult, BindVerdict
from tests.builders import pod
from tests.local_api_server import Fault, LocalApiServer, client_of, pod_path, running

PATH = "/api/v1/namespaces/default/pods/train"
BINDING = Binding("default", "train", "uid-default-train", "node-a", {"linkwise.dev/allocation": "{}"})


@dataclass
class Right:
    """What is left of the right to bind, in seconds, each time it is asked for."""

    left: list[float]

    def __call__(self) -> float:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.fixture(autouse=True)
def _pod(server: LocalApiServer) -> None:
    server.put_pod(pod("train").gpus(2).build())


def node_of(server: LocalApiServer) -> str | None:
    found: str | None = server.objects[PATH]["spec"].get("nodeName")
    return found


async def bind(client: KubeClient, right: Callable[[], float] = lambda: 10.0, timeout_s: float = 3.0) -> BindResult:
    return await KubeBinder(client, right).bind(BINDING, timeout_s)


async def test_node_and_allocation_land_in_one_write(client: KubeClient, server: LocalApiServer) -> None:
    assert await bind(client) == BindResult(BindVerdict.BOUND)
    assert node_of(server) == "node-a"
    assert server.objects[PATH]["metadata"]["annotations"] == {"linkwise.dev/allocation": "{}"}
    (posted,) = server.asked("POST", ".*")
    assert posted.body["metadata"]["uid"] == "uid-default-train"
    assert posted.query == {"timeout": "3000ms"}


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        pytest.param(400, BindVerdict.REFUSED, id="a Binding that the server does not understand"),
        pytest.param(403, BindVerdict.REFUSED, id="forbidden"),
        pytest.param(404, BindVerdict.REFUSED, id="the pod is gone"),
        pytest.param(422, BindVerdict.REFUSED, id="refused by validation"),
        pytest.param(429, BindVerdict.REFUSED, id="too many requests: turned away before anything has happened"),
        pytest.param(408, BindVerdict.UNKNOWN, id="the server's own time-out"),
        pytest.param(409, BindVerdict.UNKNOWN, id="bound already, being deleted, gated, or another pod: only the pod tells"),
        pytest.param(500, BindVerdict.UNKNOWN, id="an error after who knows how much"),
        pytest.param(503, BindVerdict.UNKNOWN, id="unavailable"),
        pytest.param(504, BindVerdict.UNKNOWN, id="time-out at the store"),
    ],
)
async def test_a_status_is_a_clear_no_or_unknown(client: KubeClient, server: LocalApiServer, status: int, verdict: BindVerdict) -> None:
    server.fault("POST", f"{PATH}/binding", status)
    result = await bind(client)
    assert result.verdict is verdict
    assert str(status) in result.message
    assert len(server.asked("POST", ".*")) == 1


@pytest.mark.parametrize(
    ("fault", "node"),
    [
        pytest.param(Fault.DROP, None, id="lost on its way"),
        pytest.param(Fault.CUT, "node-a", id="taken, and the answer is lost"),
    ],
)
async def test_a_lost_answer_is_unknown_and_nothing_is_posted_twice(
    client: KubeClient, server: LocalApiServer, fault: Fault, node: str | None
) -> None:
    await client.request("GET", PATH)  # on a kept connection the client might think of trying again
    server.fault("POST", f"{PATH}/binding", fault)
    assert (await bind(client)).verdict is BindVerdict.UNKNOWN
    assert node_of(server) == node
    assert len(server.asked("POST", ".*")) == 1


async def test_a_silent_server_is_unknown_a_little_after_the_servers_own_time_out(client: KubeClient, server: LocalApiServer) -> None:
    server.fault("POST", f"{PATH}/binding", Fault.HOLD)
    started = asyncio.get_running_loop().time()
    result = await bind(client, timeout_s=0.2)
    assert (result.verdict, server.asked("POST", ".*")[0].query) == (BindVerdict.UNKNOWN, {"timeout": "200ms"})
    assert asyncio.get_running_loop().time() - started >= 0.2


async def test_a_server_that_is_not_there_is_a_clear_no_since_nothing_has_left() -> None:
    async with running(LocalApiServer()) as gone:
        client = client_of(gone)
    async with client:
        result = await bind(client)
    assert result.verdict is BindVerdict.REFUSED
    assert "Cannot connect" in result.message


async def test_the_time_out_ends_before_the_lease_could_be_taken(client: KubeClient, server: LocalApiServer) -> None:
    assert (await bind(client, lambda: 1.25)).verdict is BindVerdict.BOUND
    assert server.asked("POST", ".*")[0].query == {"timeout": "1250ms"}


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(-5.0, id="it has ended"),
        pytest.param(0.0, id="it ends now"),
        pytest.param(0.0004, id="0ms would be no limit at all to the API server"),
        pytest.param(0.05, id="too short for any answer"),
    ],
)
async def test_without_a_right_nothing_is_sent(client: KubeClient, server: LocalApiServer, left: float) -> None:
    result = await bind(client, lambda: left)
    assert result.verdict is BindVerdict.REFUSED
    assert "may lose its lease" in result.message
    assert server.calls == []


async def test_a_process_that_was_stopped_between_decision_and_departure_sends_nothing(client: KubeClient, server: LocalApiServer) -> None:
    right = Right([10.0, -20.0])
    result = await bind(client, right)
    assert result.verdict is BindVerdict.REFUSED
    assert "too late" in result.message
    await client.request("GET", PATH)
    assert node_of(server) is None
    assert server.asked("POST", ".*") == []


async def test_the_usual_moment_between_decision_and_departure_costs_nothing(client: KubeClient) -> None:
    assert (await bind(client, Right([2.0, 1.9]))).verdict is BindVerdict.BOUND


async def test_a_pod_is_read_as_it_is_stored_and_none_where_it_is_gone(client: KubeClient, server: LocalApiServer) -> None:
    binder = KubeBinder(client, lambda: 10.0)
    assert await binder.read_pod("default", "train") == server.objects[PATH]
    server.delete(pod_path(server.objects[PATH]))
    assert await binder.read_pod("default", "train") is None


async def test_where_nobody_tells_what_became_of_a_pod_reading_it_raises(client: KubeClient, server: LocalApiServer) -> None:
    binder = KubeBinder(client, lambda: 10.0)
    with server.failing("GET", PATH, 500), pytest.raises(ApiRefusedError):
        await binder.read_pod("default", "train")
    with server.failing("GET", PATH), pytest.raises(NoAnswerError):
        await binder.read_pod("default", "train")


async def test_names_cannot_lead_elsewhere(client: KubeClient, server: LocalApiServer) -> None:
    await KubeBinder(client, lambda: 10.0).read_pod("default", "../../nodes/node-a")
    assert server.calls[0].path.startswith("/api/v1/namespaces/default/pods/")
