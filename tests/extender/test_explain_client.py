"""`linkwise explain` against a real listener: what it makes of answers, and of their absence."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from extender.explain_client import SERVICE, Way, decision_about, fetch
from topology.errors import InputError

KEPT = {"pod": "default/kept", "error": None, "nodes": [], "chosen": None, "bound": None}
ANSWERS = {
    "/api/v1/pods/default/kept/decision": (200, json.dumps(KEPT)),
    "/api/v1/pods/default/unknown/decision": (404, json.dumps({"Error": "no decision about pod default/unknown is kept"})),
    "/api/v1/pods/default/garbage/decision": (200, "<html>"),
    "/api/v1/pods/default/list/decision": (200, "[]"),
    "/api/v1/pods/default/other/decision": (200, "{}"),
}
PROXY = "/api/v1/namespaces/linkwise-system/services/linkwise-extender:extender/proxy"
NO_ENDPOINTS = {"kind": "Status", "status": "Failure", "message": "no endpoints available for service", "reason": "ServiceUnavailable", "code": 503}
ANSWERS |= {PROXY + path: answer for path, answer in ANSWERS.items()}
ANSWERS["/api/v1/namespaces/other/services/https:extender:443/proxy/api/v1/pods/default/kept/decision"] = (200, json.dumps(KEPT))
ANSWERS["/api/v1/namespaces/empty/services/extender:extender/proxy/api/v1/pods/default/kept/decision"] = (503, json.dumps(NO_ENDPOINTS))


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = ANSWERS[self.path]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{listener.server_port}"
        listener.shutdown()
        thread.join()


def test_a_kept_decision_is_returned(url: str):
    assert fetch(url, "default/kept") == KEPT


def test_a_trailing_slash_of_the_server_does_no_harm(url: str):
    assert fetch(url + "/", "default/kept") == KEPT


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        pytest.param("default/unknown", "no decision about pod default/unknown is kept", id="the extender knows no such pod"),
        pytest.param("default/garbage", "no extender answers", id="something else answers"),
        pytest.param("default/list", r"\[\]", id="an answer of another form"),
        pytest.param("default/other", "not as an extender of Linkwise does", id="another program's object"),
        pytest.param("kept", "Accepted: NAMESPACE/NAME", id="no namespace"),
        pytest.param("a/b/c", "Accepted: NAMESPACE/NAME", id="a slash too many"),
        pytest.param("/b", "Accepted: NAMESPACE/NAME", id="empty namespace"),
    ],
)
def test_trouble_is_a_sentence(url: str, pod: str, sentence: str):
    with pytest.raises(InputError, match=sentence):
        fetch(url, pod)


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "nonsense", "http://[::1"])
def test_nobody_listening_is_a_sentence_that_names_the_server(server: str):
    with pytest.raises(InputError, match="no extender answers at"):
        fetch(server, "default/kept")


# --- through the API server -----------------------------------------------------------------------------------------


@pytest.fixture
def kubeconfig(url: str, tmp_path: Path) -> Path:
    """Write a kubeconfig for a server at that URL."""
    path = tmp_path / "config.yaml"
    written = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(json.dumps(written), encoding="utf-8")
    return path


def test_the_api_servers_proxy_leads_to_the_service_of_the_manifests(kubeconfig: Path):
    assert decision_about("default/kept", Way(kubeconfig=kubeconfig)) == KEPT
    assert SERVICE == "linkwise-system/linkwise-extender:extender"


def test_another_service_and_one_that_serves_tls_are_named_as_in_the_api_servers_paths(kubeconfig: Path):
    assert decision_about("default/kept", Way(kubeconfig=kubeconfig, service="other/https:extender:443")) == KEPT


def test_a_server_that_is_named_is_asked_whatever_the_kubeconfig_says(url: str, tmp_path: Path):
    assert decision_about("default/kept", Way(server=url, kubeconfig=tmp_path / "nowhere")) == KEPT


@pytest.mark.parametrize(
    ("pod", "service", "sentence"),
    [
        pytest.param(
            "default/unknown", SERVICE, r"answered 404: no decision about pod default/unknown is kept$", id="the extender knows no such pod"
        ),
        pytest.param("default/garbage", SERVICE, "gave no answer", id="something else answers"),
        pytest.param("default/other", SERVICE, "not as an extender of Linkwise does", id="another program's object"),
        pytest.param("default/kept", "empty/extender:extender", "no endpoints available for service; accepted: --server URL", id="nobody leads"),
        pytest.param("default/kept", "extender", "--service extender: no service; accepted: NAMESPACE/NAME:PORT", id="no service"),
        pytest.param("kept", SERVICE, "Accepted: NAMESPACE/NAME", id="no namespace"),
    ],
)
def test_trouble_behind_the_api_server_is_a_sentence(kubeconfig: Path, pod: str, service: str, sentence: str):
    with pytest.raises(InputError, match=sentence):
        decision_about(pod, Way(kubeconfig=kubeconfig, service=service))


def test_a_kubeconfig_that_cannot_be_used_is_a_sentence(tmp_path: Path):
    with pytest.raises(InputError, match="cannot be used"):
        decision_about("default/kept", Way(kubeconfig=tmp_path / "nowhere"))
