"""`linkwise explain` against a real listener: what it makes of answers, and of their absence."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from extender.explain_client import fetch
from topology.errors import InputError

KEPT = {"pod": "default/kept", "error": None, "nodes": [], "chosen": None, "bound": None}
ANSWERS = {
    "/api/v1/pods/default/kept/decision": (200, json.dumps(KEPT)),
    "/api/v1/pods/default/unknown/decision": (404, json.dumps({"Error": "no decision about pod default/unknown is kept"})),
    "/api/v1/pods/default/garbage/decision": (200, "<html>"),
    "/api/v1/pods/default/list/decision": (200, "[]"),
    "/api/v1/pods/default/other/decision": (200, "{}"),
}


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
        thread = threading.Thread(target=listener.serve_forever)
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
