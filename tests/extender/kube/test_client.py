import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from kubernetes.aio.client import Configuration

from extender.kube.client import MERGE_PATCH, ApiRefusedError, Body, KubeClient, NoAnswerError
from tests.local_api_server import PODS, Fault, LocalApiServer, client_of
from topology.errors import InputError

NODES = "/api/v1/nodes"
NODE = f"{NODES}/node-a"


@pytest.fixture(autouse=True)
def _node(server: LocalApiServer) -> None:
    server.put(NODE, {"metadata": {"name": "node-a"}})


# --- answers --------------------------------------------------------------------------------------------------------


async def test_an_answer_comes_decoded(client: KubeClient) -> None:
    assert (await client.request("GET", NODE))["metadata"]["name"] == "node-a"


async def test_a_body_goes_with_its_media_type(client: KubeClient, server: LocalApiServer) -> None:
    patched = await client.request("PATCH", NODE, body=Body({"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH))
    assert patched["metadata"]["labels"] == {"a": "b"}


async def test_a_refusal_carries_status_reason_and_message(client: KubeClient) -> None:
    with pytest.raises(ApiRefusedError, match="GET /api/v1/nodes/none answered 404: /api/v1/nodes/none not found") as refused:
        await client.raw("GET", "/api/v1/nodes/none")
    assert (refused.value.status, refused.value.reason) == (404, "NotFound")


async def test_a_redirect_is_a_refusal_never_followed(client: KubeClient, server: LocalApiServer) -> None:
    server.fault("GET", NODE, 302)
    with pytest.raises(ApiRefusedError, match="302"):
        await client.raw("GET", NODE)


async def test_an_answer_that_is_no_json_is_a_value_error_for_who_wants_it_decoded(client: KubeClient, server: LocalApiServer) -> None:
    server.fault("GET", NODE, Fault.GARBAGE, times=2)
    assert b"a proxy says hello" in await client.raw("GET", NODE)
    with pytest.raises(ValueError, match="unexpected character"):
        await client.request("GET", NODE)


async def test_the_token_goes_with_every_request(server: LocalApiServer) -> None:
    async with client_of(server, "Bearer secret") as client:
        await client.request("GET", NODE)
    assert server.calls[0].token == "Bearer secret"


# --- no answer ------------------------------------------------------------------------------------------------------


async def test_no_answer_is_asked_for_compressed() -> None:
    """kube-apiserver takes three times as long for a list that it compresses."""
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    configuration = Configuration()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        configuration.host = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with KubeClient(configuration) as client:
            await client.raw("GET", PODS)
            async with client.pieces(PODS, {"limit": "1"}) as pieces:
                assert [piece async for piece in pieces] == [b"{}"]
    assert [b"accept-encoding: identity" in head.lower() for head in heads] == [True, True]


async def test_a_server_that_is_not_there_is_no_answer(server: LocalApiServer) -> None:
    configuration = Configuration()
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        configuration.host = f"http://127.0.0.1:{closed_soon.getsockname()[1]}"
    async with KubeClient(configuration) as client:
        with pytest.raises(NoAnswerError, match=f"GET {NODE}: Cannot connect"):
            await client.raw("GET", NODE)


async def test_a_reset_is_no_answer_and_a_write_is_not_repeated(client: KubeClient, server: LocalApiServer) -> None:
    server.fault("PATCH", NODE, Fault.CUT)
    with pytest.raises(NoAnswerError, match=f"PATCH {NODE}"):
        await client.raw("PATCH", NODE, body=Body({}, MERGE_PATCH))
    assert len(server.asked("PATCH", NODE)) == 1


async def test_a_silent_server_is_no_answer_in_time(client: KubeClient, server: LocalApiServer) -> None:
    server.fault("GET", NODE, Fault.HOLD)
    with pytest.raises(NoAnswerError, match="no answer in time"):
        await client.raw("GET", NODE, timeout_s=0.05)


async def test_a_token_that_cannot_be_read_is_no_answer(server: LocalApiServer) -> None:
    async def unreadable(_: Configuration) -> None:
        raise OSError("the token file is gone")

    configuration = Configuration()
    configuration.host, configuration.refresh_api_key_hook = server.url, unreadable
    configuration.api_key["BearerToken"] = "old"
    async with KubeClient(configuration) as client:
        with pytest.raises(NoAnswerError, match="the token file is gone"):
            await client.raw("GET", NODE)
        with pytest.raises(NoAnswerError, match="the token file is gone"):
            async with client.watch(PODS, {"watch": "1"}, 1.0):
                pytest.fail("the watch is open")


# --- what may still leave -------------------------------------------------------------------------------------------


async def test_a_body_that_may_not_leave_any_more_never_reaches_the_server(client: KubeClient, server: LocalApiServer) -> None:
    with pytest.raises(NoAnswerError, match="too late"):
        await client.post(NODES, {"metadata": {"name": "b"}}, lambda: False, 5.0)
    await client.raw("GET", NODE)  # the server has dealt with everything before
    assert server.asked("POST", ".*") == []


async def test_whether_a_body_may_leave_is_asked_once_and_last(client: KubeClient, server: LocalApiServer) -> None:
    asked: list[int] = []

    def may_leave() -> bool:
        asked.append(len(server.calls))
        return True

    await client.post(NODES, {"metadata": {"name": "b"}}, may_leave, 5.0)
    assert asked == [0]
    assert f"{NODES}/b" in server.objects


async def test_a_post_goes_below_the_servers_path_with_the_token_and_its_query(server: LocalApiServer) -> None:
    configuration = Configuration()
    configuration.host = f"{server.url}/clusters/a"
    configuration.api_key = {"BearerToken": "secret"}
    configuration.api_key_prefix = {"BearerToken": "Bearer"}
    async with KubeClient(configuration) as client:
        await client.post(f"{NODES}?timeout=5ms", {"metadata": {"name": "b"}}, lambda: True, 5.0)
    (call,) = server.calls
    assert (call.path, call.query, call.token) == (f"/clusters/a{NODES}", {"timeout": "5ms"}, "Bearer secret")


async def test_a_token_with_a_line_break_makes_no_header_of_its_own(server: LocalApiServer) -> None:
    configuration = Configuration()
    configuration.host = server.url
    configuration.api_key = {"BearerToken": "Bearer a\r\nX-Remote-User: admin"}
    async with KubeClient(configuration) as client:
        with pytest.raises(NoAnswerError, match="line break"):
            await client.post(NODES, {"metadata": {"name": "b"}}, lambda: True, 5.0)
    assert server.calls == []


@pytest.mark.parametrize("lean", [pytest.param(False, id="by the session"), pytest.param(True, id="by the connections for bindings")])
async def test_bytes_that_a_peer_has_not_taken_are_dropped_with_the_connection(lean: bool) -> None:
    """Else the kernel goes on trying for minutes, and a Binding takes effect long after its promise was forgotten."""
    large = "x" * 100_000
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with KubeClient(configuration) as client:
            with pytest.raises(NoAnswerError, match="no answer in time"):
                await (client.post("/binding", large, lambda: True, 0.1) if lean else client.raw("POST", "/binding", body=Body(large), timeout_s=0.1))
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(5)
            with pytest.raises(ConnectionResetError):
                _read_to_the_end(peer)


def _read_to_the_end(peer: socket.socket) -> None:
    while peer.recv(65536):
        pass


async def test_dead_peers_are_found_out_before_the_state_is_too_old(client: KubeClient, server: LocalApiServer) -> None:
    async with client.watch(PODS, {"watch": "1", "resourceVersion": "1000"}, 5.0):
        (opened,) = [connection for connection in client._session.connector._acquired if connection.transport is not None]  # type: ignore[union-attr]
        made = opened.transport.get_extra_info("socket")
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == struct.pack("ii", 1, 0)
        found = {name: made.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_USER_TIMEOUT")}
        assert found["TCP_KEEPIDLE"] + found["TCP_KEEPINTVL"] < 30
        assert found["TCP_USER_TIMEOUT"] <= 5000


# --- watches --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def lines(client: KubeClient) -> AsyncIterator[AsyncIterator[bytes]]:
    async with client.watch(PODS, {"watch": "1", "resourceVersion": "1000"}, 5.0) as opened:
        yield opened


async def test_a_watch_gives_lines_until_the_server_ends_it(server: LocalApiServer, lines: AsyncIterator[bytes]) -> None:
    server.say(b'{"a":1}\n')
    server.say(b'{"b":')
    server.say(b"2}\n")
    server.end_watches()
    assert [line async for line in lines] == [b'{"a":1}\n', b'{"b":2}\n']


async def test_a_line_of_the_largest_object_that_etcd_holds_passes(server: LocalApiServer, lines: AsyncIterator[bytes]) -> None:
    server.say(b"x" * 1_600_000 + b"\n")
    assert len(await anext(lines)) == 1_600_001


async def test_a_watch_that_is_refused_is_never_open(client: KubeClient, server: LocalApiServer) -> None:
    server.expire()
    with pytest.raises(ApiRefusedError, match="too old"):
        async with client.watch(PODS, {"watch": "1", "resourceVersion": "1"}, 5.0):
            pytest.fail("the watch is open")


async def test_a_watch_that_is_cut_or_silent_for_too_long_is_no_answer(client: KubeClient, server: LocalApiServer) -> None:
    query = {"watch": "1", "resourceVersion": "1000"}
    with pytest.raises(NoAnswerError, match=f"watch {PODS}"):
        await _first_line(client, query, 5.0, server.cut_watches)
    with pytest.raises(NoAnswerError, match="no answer in time"):
        await _first_line(client, query, 0.05, lambda: None)


async def _first_line(client: KubeClient, query: dict[str, str], silence_s: float, then: Callable[[], None]) -> bytes:
    async with client.watch(PODS, query, silence_s) as lines:
        then()
        return await anext(lines)


async def test_watches_leave_room_for_bindings(client: KubeClient, server: LocalApiServer) -> None:
    async with client.watch(PODS, {"watch": "1", "resourceVersion": "1000"}, 5.0):
        answers = await asyncio.gather(*(client.request("GET", NODE) for _ in range(100)))
    assert len(answers) == 100


# --- configuration --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="no file"),
        pytest.param("", id="an empty file"),
        pytest.param("{", id="no YAML"),
        pytest.param("[1, 2]", id="a list"),
        pytest.param("apiVersion: v1\nkind: Config\ncurrent-context: none\ncontexts: []\nclusters: []\nusers: []\n", id="a context that is none"),
        pytest.param(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{name: a, user: {}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"
            "clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1', certificate-authority-data: bm9uZQ==}}]\n",
            id="a certificate authority that is none",
        ),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_a_sentence(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InputError, match=f"kubeconfig {file} cannot be used: .*; accepted: --kubeconfig FILE"):
        await KubeClient.connect(file)


async def test_a_kubeconfig_leads_to_its_server_with_its_token(server: LocalApiServer, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{name: a, user: {token: secret}}]\n"
        f"contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\nclusters: [{{name: a, cluster: {{server: '{server.url}/'}}}}]\n"
    )
    async with await KubeClient.connect(file) as client:
        await client.request("GET", NODE)
    assert server.calls[0].token == "Bearer secret"


async def test_without_a_kubeconfig_a_pod_uses_its_own_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(
        InputError, match=r"the pod's service account cannot be used: .*; accepted: --kubeconfig FILE, or a pod with a service account"
    ):
        await KubeClient.connect()
