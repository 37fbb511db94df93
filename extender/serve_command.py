"""`linkwise serve`: options to a running extender, on a snapshot or on a cluster.

Called by `cli` alone. Checks what the options say together; what is served is put together in `app` (snapshot) and `serving` (cluster).
"""

import ctypes
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from extender.app import from_snapshot
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
        return Tls(self.tls_cert, self.tls_key, self.client_ca)


def serve_snapshot_command(snapshot: Path, bindings: Path | None, options: ServeOptions, say: Callable[[str], None]) -> None:
    """Serve a snapshot until a signal."""
    tls = options.tls()
    write_log_lines()
    collect_rarely()
    keep_freed_memory()
    application, problems = from_snapshot(open_snapshot(snapshot), read_settings(), bindings)
    gc.freeze()
    for problem in problems:
        sys.stderr.write(f"warning: {problem}\n")
    run(application, options.host, options.port, lambda url: say(f"Linkwise serves {snapshot} on {url}"), tls)


def collect_rarely() -> None:
    """Leave what is imported out of every search for garbage, and search less often.

    A list of pods makes hundreds of thousands of objects, next to none of them garbage in cycles: by default Python would go through them again and again,
    a tenth of the time of a start, and later through the whole state in the middle of a call.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


# glibc, malloc.h
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 64 * 1024 * 1024
_MOST_FROM_HEAP: Final = 32 * 1024 * 1024  # the most that glibc takes


def keep_freed_memory() -> None:
    """Let the process keep up to 64 MiB that it has freed: the arrays of one call are as large as those of the next.

    By default glibc gives back everything above 128 kB at once and asks the kernel for it again, page by page, which takes as long as a decision about 5,000 nodes.
    Other C libraries have no such setting, and then nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, _MOST_FROM_HEAP)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def serve_cluster_command(kubeconfig: Path | None, context: str | None, options: ServeOptions, say: Callable[[str], None]) -> None:
    """Serve a cluster until a signal."""
    from extender.serving import Access, Address, serve_cluster  # the Kubernetes client is half a second of import, which a snapshot does without

    address = Address(options.host, options.port, options.tls(), options.probe_port)
    write_log_lines()
    collect_rarely()
    keep_freed_memory()
    uvloop.run(serve_cluster(Access(kubeconfig, context), address, read_settings(), lambda url: say(f"Linkwise serves the cluster on {url}")))
