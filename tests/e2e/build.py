"""The programs of a real Kubernetes control plane and of a real node, built from Go modules into a cache outside the checkout.

`make e2e` runs this file; `tests.e2e.conftest` calls `programs`, which returns at once when everything is there. The modules lie in
`controlplane/`: their go.mod and go.sum name the versions and the checksums of every source file, so nothing else is downloaded or trusted.
What a node needs besides comes from the distribution: `tests.e2e.node_needs` looks for it, and without it kubelet and containerd are not built.

The cache is `$XDG_CACHE_HOME/linkwise/controlplane/MODULE-HASH` (default `~/.cache`), where the hash covers go.mod, go.sum, the list of programs and
the version of Go. A build goes to a temporary folder that is renamed when it is complete: a folder with the right name is a finished one. Old folders
are left alone; delete `linkwise/controlplane` to be rid of them.

Only the standard library is used here, so that it runs before anything is installed.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e import node_needs

SOURCES = Path(__file__).parent / "controlplane"


class BuildError(Exception):
    """The programs cannot be built; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Module:
    """One folder of `controlplane/`: its programs by name, and the Go package of each."""

    folder: str
    packages: Mapping[str, str]
    version_of: str = ""  # the Go module whose version the programs report as theirs

    @property
    def source(self) -> Path:
        """Where go.mod and go.sum lie."""
        return SOURCES / self.folder


_KUBERNETES = "k8s.io/kubernetes"

CONTROL_PLANE = (
    Module(
        "kubernetes",
        {
            "etcd": "go.etcd.io/etcd/server/v3",
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
            "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        },
        version_of=_KUBERNETES,
    ),
    Module("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
)

# Apart from the control plane: who cannot run a node need not wait for it, and either can change without the other being built again.
NODE = (
    Module("kubernetes", {"kubelet": "k8s.io/kubernetes/cmd/kubelet"}, version_of=_KUBERNETES),
    Module("containerd", {name: f"github.com/containerd/containerd/v2/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")}),
)


def programs(environment: Mapping[str, str] = os.environ, modules: Sequence[Module] = CONTROL_PLANE) -> dict[str, Path]:
    """Return the path of every program by name, building what the cache lacks (minutes); raises BuildError.

    ``environment`` replaces the process environment, for tests of this file.
    """
    found: dict[str, Path] = {}
    for module in modules:
        folder = _folder(module, environment)
        if not folder.is_dir():
            with _only_one(folder, environment):
                if not folder.is_dir():  # another process may have built it while this one waited
                    _build(module, folder, environment)
        found.update({name: folder / name for name in module.packages})
    return found


def _cache(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".cache")
    return Path(base) / "linkwise" / "controlplane"


def _folder(module: Module, environment: Mapping[str, str]) -> Path:
    digest = hashlib.sha256()
    for part in (
        (module.source / "go.mod").read_bytes(),
        (module.source / "go.sum").read_bytes(),
        repr(sorted(module.packages.items())).encode(),
        _go(["env", "GOVERSION", "GOOS", "GOARCH"], module, environment).encode(),
    ):
        digest.update(hashlib.sha256(part).digest())
    return _cache(environment) / f"{module.folder}-{digest.hexdigest()[:16]}"


@contextmanager
def _only_one(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Two builds at once would do the same work twice: the second one waits."""
    cache = _cache(environment)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(module: Module, folder: Path, environment: Mapping[str, str]) -> None:
    _say(f"building {', '.join(module.packages)} into {folder}; minutes the first time, seconds from Go's own cache")
    started = time.monotonic()
    temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        _go(["build", "-buildvcs=false", "-ldflags", _ldflags(module), "-o", f"{temporary}/", *module.packages.values()], module, environment)
        for name, package in module.packages.items():
            (temporary / _binary(package)).rename(temporary / name)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _say(f"built in {time.monotonic() - started:.0f} s")


def _binary(package: str) -> str:
    """Return the file that `go build` writes: the last part of the path, but a major version (go.etcd.io/etcd/server/v3 gives `server`)."""
    parts = package.split("/")
    return parts[-2] if re.fullmatch(r"v\d+", parts[-1]) else parts[-1]


def _ldflags(module: Module) -> str:
    """Without its version kube-apiserver calls itself v0.0.0-master, and clients that compare versions misjudge it."""
    if not module.version_of:
        return "-s -w"
    version = re.search(
        rf"^\s*(?:require )?{re.escape(module.version_of)} (v(\d+)\.(\d+)\.\S+)", (module.source / "go.mod").read_text(), re.MULTILINE
    )
    if version is None:
        raise BuildError(f"{module.source / 'go.mod'} requires no version of {module.version_of}")
    values = {"gitVersion": version[1], "gitMajor": version[2], "gitMinor": version[3]}
    return "-s -w " + " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())


def _go(arguments: list[str], module: Module, environment: Mapping[str, str]) -> str:
    wanted = re.search(r"^go (\S+)", (module.source / "go.mod").read_text(), re.MULTILINE)
    version = wanted[1] if wanted else "1.26"
    go = shutil.which("go", path=environment.get("PATH", ""))
    if go is None:
        raise BuildError(
            f"The end-to-end tests build Kubernetes from source, and there is no `go` on the PATH: install Go {version} or later (https://go.dev/dl)"
        )
    # A go.work file around the checkout would replace these go.mod files.
    done = subprocess.run(
        [go, *arguments],
        cwd=module.source,
        env={**environment, "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-20:])
        raise BuildError(
            f"`go {arguments[0]}` failed in {module.source} with exit status {done.returncode}; it needs Go {version} or later. It said:\n{tail}"
        )
    return done.stdout


def _say(text: str) -> None:
    sys.stderr.write(f"controlplane: {text}\n")
    sys.stderr.flush()


def main() -> int:
    """Build what is missing and print where the programs are; returns 1 with one clear sentence where that is impossible."""
    unwanted = node_needs.why_not()
    if unwanted:
        _say(f"kubelet and containerd are not built, their tests will not run: {unwanted}")
    try:
        found = programs(modules=CONTROL_PLANE if unwanted else (*CONTROL_PLANE, *NODE))
    except BuildError as error:
        _say(str(error))
        return 1
    for name, path in found.items():
        sys.stdout.write(f"{name:24} {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
