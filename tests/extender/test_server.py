"""Sockets and URLs of `linkwise serve`, and TLS on a real connection."""

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from extender.server import Tls, background_server, listen, server, url_of
from topology.errors import InputError


def test_port_zero_takes_a_free_one_and_the_url_names_it():
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert url_of(listener) == f"http://127.0.0.1:{port}"


def test_a_taken_port_is_a_sentence_that_names_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"--port {port} cannot be listened on"):
            listen("127.0.0.1", port)


def test_an_address_that_is_none_is_a_sentence():
    with pytest.raises(InputError, match="--host no such host"):
        listen("no such host", 0)


def test_ipv6_urls_have_brackets():
    try:
        listener = listen("::1", 0)
    except InputError:
        pytest.skip("this machine has no IPv6")
    with listener:
        assert url_of(listener).startswith("http://[::1]:")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority, a server certificate for 127.0.0.1 and a client's, made by openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the throw-away certificates, is not installed")
    place = tmp_path_factory.mktemp("pki")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=place, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes")
    openssl(*new, "-x509", "-days", "2", "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.crt")
    (place / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        sign = ("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
        openssl(*sign, "-out", f"{name}.crt")
    return place


@pytest.fixture
def secured(authority: Path) -> Iterator[str]:
    """URL of a server that lets in only clients of the authority."""
    app = FastAPI()
    app.add_api_route("/", lambda: {"hello": True})
    tls = Tls(authority / "server.crt", authority / "server.key", authority / "ca.crt")
    listener = listen("127.0.0.1", 0)
    started = threading.Event()
    running = server(app, lambda _: started.set(), url_of(listener, tls), tls)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    assert started.wait(10)
    yield url_of(listener, tls)
    running.should_exit = True
    thread.join()
    listener.close()


def _context(authority: Path, *, with_certificate: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority / "ca.crt"))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the throw-away authority has no key identifiers
    if with_certificate:
        context.load_cert_chain(authority / "client.crt", authority / "client.key")
    return context


def test_a_client_with_a_certificate_of_the_authority_is_let_in(secured: str, authority: Path):
    with httpx.Client(verify=_context(authority, with_certificate=True)) as client:
        assert client.get(secured).json() == {"hello": True}


def test_a_client_without_a_certificate_is_not(secured: str, authority: Path):
    with httpx.Client(verify=_context(authority, with_certificate=False)) as client, pytest.raises(httpx.TransportError):
        client.get(secured)


def test_a_server_in_the_background_leaves_signals_alone():
    with background_server(FastAPI()).capture_signals():
        pass  # the ordinary one may be entered in the main thread only, and then takes SIGINT over
