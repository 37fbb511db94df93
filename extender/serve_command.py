"""`linkwise serve`: options to a running extender, on a snapshot or on a cluster.

Called by `cli` alone. Checks what the options say together; what is served is put together in `app` (snapshot) and `serving` (cluster).
"""

import gc
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvloop

from extender.app import from_snapshot
from extender.memory import collect_rarely, keep_freed_memory
from extender.server import Tls, run
from extender.settings import read_settings
from extender.snapshot_file import open_snapshot
from topology.errors import InputError
from topology.log_lines import write_log_lines


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Where to listen and how, as it was typed."""

    host: str
    port: int
    probe_port: int
    tls_cert: Path | None
    tls_key: Path | None
    client_ca: Path | None

    def tls(self) -> Tls | None:
        """Return the certificates; raises InputError where the options do not belong together or a file is not there."""
        if self.tls_cert is None and self.tls_key is None and self.client_ca is None:
            return None
        if self.tls_cert is None or self.tls_key is None:
            raise InputError("--tls-cert, --tls-key and --client-ca: the first two belong together, and the third needs them")
        for option, file in (("--tls-cert", self.tls_cert), ("--tls-key", self.tls_key), ("--client-ca", self.client_ca)):
            if file is not None and not file.is_file():
                raise InputError(f"{option} {file}: no such file; accepted: a PEM file")
        _check_certificates(self.tls_cert, self.tls_key, self.client_ca)
        return Tls(self.tls_cert, self.tls_key, self.client_ca)


def _check_certificates(cert: Path, key: Path, client_ca: Path | None) -> None:
    """Raise InputError for files that TLS cannot be served with: now, and not when the whole cluster has been taken in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=lambda: "")  # nobody is there to type a passphrase
    except (OSError, ValueError) as error:
        accepted = "accepted: PEM files of a certificate and of its own key, which has no passphrase"
        raise InputError(f"--tls-cert {cert} and --tls-key {key} cannot be used together: {_why(error)}; {accepted}") from error
    try:
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except (OSError, ValueError) as error:
        raise InputError(f"--client-ca {client_ca} cannot be used: {_why(error)}; accepted: a PEM file of certificates") from error


def _why(error: Exception) -> str:
    """Return OpenSSL's reason without the place in its source."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is no PEM file").lower().replace("_", " ")
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def serve_snapshot_command(snapshot: Path, bindings: Path | None, options: ServeOptions, say: Callable[[str], None]) -> None:
    """Serve a snapshot until a signal."""
    tls = options.tls()
    if bindings is not None:
        _check_writable(bindings)
    write_log_lines()
    collect_rarely()
    keep_freed_memory()
    application, problems = from_snapshot(open_snapshot(snapshot), read_settings(), bindings)
    gc.freeze()
    for problem in problems:
        sys.stderr.write(f"warning: {problem}\n")
    run(application, options.host, options.port, lambda url: say(f"Linkwise serves {snapshot} on {url}"), tls)


def _check_writable(bindings: Path) -> None:
    """Raise InputError where no Binding could be appended: else the first pod would hear of it."""
    try:
        bindings.open("ab").close()
    except OSError as error:
        raise InputError(f"--bindings {bindings} cannot be written: {error.strerror or error}") from error


def serve_cluster_command(kubeconfig: Path | None, context: str | None, options: ServeOptions, say: Callable[[str], None]) -> None:
    """Serve a cluster until a signal."""
    from extender.serving import Access, Address, serve_cluster  # the Kubernetes client is half a second of import, which a snapshot does without

    address = Address(options.host, options.port, options.tls(), options.probe_port)
    write_log_lines()
    collect_rarely()
    keep_freed_memory()
    uvloop.run(serve_cluster(Access(kubeconfig, context), address, read_settings(), lambda url: say(f"Linkwise serves the cluster on {url}")))
