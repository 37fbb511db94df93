"""The null extender, built by `go build` into a cache outside the checkout.

Used by the benches that compare with it. The cache is `$XDG_CACHE_HOME/linkwise/bench/null-extender-HASH` (default `~/.cache`); the hash covers its sources and the version of Go, so
a changed source is built anew. A build goes to a temporary file that is renamed when it is complete. It needs nothing but Go itself: the sources import the standard library alone.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from topology.errors import InputError

SOURCE: Final = Path(__file__).parent / "null_extender"


def null_extender(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the program, built where the cache lacks it; raises InputError where there is no Go or the build fails.

    ``environment`` replaces that of this process, for tests.
    """
    go = shutil.which("go", path=environment.get("PATH", ""))
    if go is None:
        raise InputError("the null extender is written in Go, and there is no `go` on the PATH: install Go 1.22 or later (https://go.dev/dl)")
    # A go.work file around the checkout would replace this go.mod.
    environment = {**environment, "GOWORK": "off"}
    program = _cache(environment) / f"null-extender-{_digest(_go(go, environment, 'env', 'GOVERSION'))}"
    if not program.is_file():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as folder:
            _go(go, environment, "build", "-trimpath", "-o", str(Path(folder, "null-extender")), ".")
            Path(folder, "null-extender").replace(program)
    return program


def _cache(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".cache")
    return Path(base) / "linkwise" / "bench"


def _digest(version: str) -> str:
    digest = hashlib.sha256(version.encode())
    for file in sorted(SOURCE.glob("*.*")):
        digest.update(hashlib.sha256(file.name.encode() + b"\n" + file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _go(go: str, environment: Mapping[str, str], *arguments: str) -> str:
    done = subprocess.run([go, *arguments], cwd=SOURCE, env=dict(environment), capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        tail = " ".join(done.stderr.strip().splitlines()[-5:])
        raise InputError(f"`go {arguments[0]}` failed in {SOURCE} with exit status {done.returncode}: {tail}")
    return done.stdout.strip()
