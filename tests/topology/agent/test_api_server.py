"""Requests go out as the API server wants them, and every way not to answer is told apart."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api_door import ApiDoor, Raw, api_door, refused
from topology.agent.api_server import APPLY, METADATA_ONLY, ApiServer, Body, NoAnswerError, RefusedError
from topology.errors import InputError

NODE = "/api/v1/nodes/node-a"
TOPOLOGY = "/apis/linkwise.dev/v1alpha1/gputopologies/node-a"


@pytest.fixture
def door() -> Iterator[ApiDoor]:
    with api_door() as door:
        yield door


@pytest.fixture
def api(door: ApiDoor, tmp_path: Path) -> Iterator[ApiServer]:
    api = ApiServer.connect(door.kubeconfig(tmp_path))
    yield api
    api.close()


def test_requests_carry_account_media_types_and_query(door: ApiDoor, api: ApiServer) -> None:
    answer = api.request(
        "PATCH", TOPOLOGY, {"fieldManager": "a b", "force": "true"}, Body({"metadata": {"name": "node-a"}, "spec": {"model": "ü"}}, APPLY)
    )
    (call,) = door.calls
    assert (call.method, call.path, call.query) == ("PATCH", TOPOLOGY, {"fieldManager": "a b", "force": "true"})
    assert call.headers["Authorization"] == "Bearer a-token"
    assert call.headers["Content-Type"] == "application/apply-patch+yaml"
    assert call.body["spec"] == {"model": "ü"} == answer["spec"]


def test_an_object_is_read_from_the_cache_and_its_absence_is_no_error(door: ApiDoor, api: ApiServer) -> None:
    assert api.get(NODE, accept=METADATA_ONLY) is None
    door.nodes["node-a"] = "uid-1"
    assert api.get(NODE, accept=METADATA_ONLY) == {"metadata": {"name": "node-a", "uid": "uid-1"}}
    assert {(call.query["resourceVersion"], call.headers["Accept"]) for call in door.calls} == {("0", METADATA_ONLY)}


@pytest.mark.parametrize(
    ("answer", "status", "reason", "said"),
    [
        pytest.param(refused(403, "Forbidden", "nodes is forbidden"), 403, "Forbidden", "answered 403: nodes is forbidden", id="no rights"),
        pytest.param(Raw(404, "404 page not found\n"), 404, "", "answered 404: 404 page not found", id="a kind that is not installed"),
        pytest.param(Raw(502, "<html>bad gateway</html>"), 502, "", "answered 502: <html>bad gateway</html>", id="a proxy's own page"),
        pytest.param(Raw(500, ""), 500, "", "answered 500: no message", id="nothing"),
        pytest.param(Raw(301, ""), 301, "", "answered 301: no message", id="a redirect, which is not followed"),
        pytest.param(Raw(200, "hello"), 200, "", "answered 200: hello", id="a success that is no JSON"),
    ],
)
def test_a_refusal_is_told_with_its_words(door: ApiDoor, api: ApiServer, answer: Raw, status: int, reason: str, said: str) -> None:
    door.fault = lambda _: answer
    with pytest.raises(RefusedError, match="GET /api/v1/nodes/node-a") as caught:
        api.get(NODE)
    assert (caught.value.status, caught.value.reason) == (status, reason)
    assert said in str(caught.value)
    assert len(door.calls) == 1, "nothing is sent twice"


def test_a_cut_connection_is_no_answer_and_the_next_request_finds_another(door: ApiDoor, api: ApiServer) -> None:
    door.nodes["node-a"] = "uid-1"
    assert api.get(NODE)
    door.fault = lambda _: Raw(cut=True)
    with pytest.raises(NoAnswerError, match="GET /api/v1/nodes/node-a: "):
        api.get(NODE)
    door.fault = lambda _: None
    assert api.get(NODE)


def test_nobody_listening_is_no_answer_and_reads_the_same_every_time(tmp_path: Path) -> None:
    with api_door() as closed:
        api = ApiServer.connect(closed.kubeconfig(tmp_path))
    said = set()
    for _ in range(2):
        with pytest.raises(NoAnswerError) as caught:
            api.get(NODE)
        said.add(str(caught.value))
    assert len(said) == 1
    assert "Connection refused" in said.pop()
    api.close()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="no file"),
        pytest.param("", id="an empty file"),
        pytest.param("[1, 2]", id="another document"),
        pytest.param("{unclosed", id="no YAML"),
        pytest.param("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: []\n", id="a context that is missing"),
        pytest.param(
            "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\nclusters: [{name: c, cluster: {}}]\n",
            id="a cluster without a server",
        ),
    ],
)
def test_a_kubeconfig_that_leads_nowhere_is_one_sentence(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=re.escape(str(path))) as caught:
        ApiServer.connect(path)
    assert str(caught.value).endswith("accepted: --kubeconfig FILE, or a pod with a service account")
    assert "\n" not in str(caught.value)


def test_a_certificate_that_is_none_is_no_answer(door: ApiDoor, tmp_path: Path) -> None:
    path = door.kubeconfig(tmp_path)
    authority = '"certificate-authority-data": "bm8gY2VydGlmaWNhdGU="'
    path.write_text(path.read_text().replace(f'"server": "http://127.0.0.1:{door.port}/"', f'"server": "https://127.0.0.1:{door.port}", {authority}'))
    with pytest.raises(NoAnswerError, match="GET /api/v1/nodes/node-a"):
        ApiServer.connect(path).get(NODE)


def test_a_context_that_is_not_there_is_named(door: ApiDoor, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no-such-context"):
        ApiServer.connect(door.kubeconfig(tmp_path), "no-such-context")


def test_inside_a_pod_without_a_token_the_sentence_says_whose_account_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(InputError, match="the pod's service account cannot be used"):
        ApiServer.connect()
