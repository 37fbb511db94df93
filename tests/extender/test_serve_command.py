import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from extender.serve_command import ServeOptions, serve_cluster_command, serve_snapshot_command
from extender.server import Tls
from topology.errors import InputError

PLAIN = ServeOptions("127.0.0.1", 0, 0, None, None, None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that is its own authority, its key, and the key under a passphrase, made by openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the throw-away certificates, is not installed")
    place = tmp_path_factory.mktemp("pki")
    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=x")
    lock = ("ec", "-in", "tls.key", "-aes128", "-passout", "pass:secret", "-out", "locked.key")
    for command in ((*new, "-keyout", "tls.key", "-out", "tls.crt"), (*new, "-keyout", "other.key", "-out", "ca.crt"), lock):
        subprocess.run(["openssl", *command], cwd=place, check=True, capture_output=True)
    return place


@pytest.fixture
def files(made: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """Certificate, key and authority, of which a test may take one away."""
    cert, key, ca = (Path(shutil.copy(made / name, tmp_path)) for name in ("tls.crt", "tls.key", "ca.crt"))
    return cert, key, ca


def test_without_certificates_there_is_no_tls() -> None:
    assert PLAIN.tls() is None


def test_certificate_and_key_with_or_without_an_authority(files: tuple[Path, Path, Path]) -> None:
    cert, key, ca = files
    assert replace(PLAIN, tls_cert=cert, tls_key=key).tls() == Tls(cert, key, None)
    assert replace(PLAIN, tls_cert=cert, tls_key=key, client_ca=ca).tls() == Tls(cert, key, ca)


@pytest.mark.parametrize("given", ["tls_cert", "tls_key", "client_ca"])
def test_options_that_belong_together_are_asked_for_together(files: tuple[Path, Path, Path], given: str) -> None:
    with pytest.raises(InputError, match="--tls-cert, --tls-key and --client-ca: the first two belong together"):
        replace(PLAIN, **{given: files[0]}).tls()


def test_an_authority_without_a_key_is_not_served_without_tls(files: tuple[Path, Path, Path]) -> None:
    with pytest.raises(InputError, match="the third needs them"):
        replace(PLAIN, tls_cert=files[0], client_ca=files[2]).tls()


@pytest.mark.parametrize(("position", "option"), [(0, "--tls-cert"), (1, "--tls-key"), (2, "--client-ca")])
def test_a_file_that_is_not_there_is_named_with_its_option(files: tuple[Path, Path, Path], position: int, option: str) -> None:
    files[position].unlink()
    cert, key, ca = files
    with pytest.raises(InputError, match=f"{option} {files[position]}: no such file"):
        replace(PLAIN, tls_cert=cert, tls_key=key, client_ca=ca).tls()


@pytest.mark.parametrize(
    ("position", "content", "sentence"),
    [
        pytest.param(0, "", "--tls-cert .* and --tls-key .* cannot be used together: .*; accepted: PEM files", id="an empty certificate"),
        pytest.param(1, "no key", "--tls-cert .* and --tls-key .* cannot be used together: .*; accepted: PEM files", id="a key that is none"),
        pytest.param(1, "other.key", "cannot be used together: key values mismatch; accepted: PEM files", id="the key of another certificate"),
        pytest.param(1, "locked.key", "which has no passphrase", id="a key under a passphrase"),
        pytest.param(2, "", "--client-ca .* cannot be used: .*; accepted: a PEM file of certificates", id="an empty authority"),
    ],
)
def test_what_is_no_certificate_is_a_sentence_before_anything_is_served(
    files: tuple[Path, Path, Path], made: Path, position: int, content: str, sentence: str
) -> None:
    """It was a traceback of OpenSSL's, after the whole cluster had been listed."""
    files[position].write_text((made / content).read_text() if content.endswith(".key") else content)
    cert, key, ca = files
    with pytest.raises(InputError, match=sentence):
        replace(PLAIN, tls_cert=cert, tls_key=key, client_ca=ca).tls()


@pytest.mark.parametrize(("name", "value"), [("LINKWISE_POLICY", "loose"), ("LINKWISE_LEASE_DURATION_S", "3")])
def test_a_setting_that_cannot_be_is_a_sentence_before_anything_is_served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"environment variable {name}"):
        serve_cluster_command(tmp_path / "none", None, PLAIN, print)


def test_a_cluster_that_cannot_be_reached_by_its_kubeconfig_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"kubeconfig {tmp_path / 'none'} cannot be used"):
        serve_cluster_command(tmp_path / "none", None, PLAIN, print)


def test_a_snapshot_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none"):
        serve_snapshot_command(tmp_path / "none", None, PLAIN, print)


def test_problems_of_a_snapshot_are_told_and_the_rest_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "snapshot.yaml"
    snapshot.write_text(
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: linkwise.dev/v1alpha1, kind: GPUTopology, metadata: {name: node-a}, spec: {}}\n"
    )
    taken = replace(PLAIN, host="no such host")
    with pytest.raises(InputError, match="--host no such host"):
        serve_snapshot_command(snapshot, None, taken, print)
    assert "warning: GPUTopology node-a" in capsys.readouterr().err
