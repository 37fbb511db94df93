"""The one container image of the end-to-end tests: an OCI layout in a tar file around the distribution's static busybox, made without a registry.

`tests.e2e.containerd` imports it under `IMAGE`, as the image of the pods and of their sandboxes. Pods name it with `imagePullPolicy: Never`.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path
from typing import Any

IMAGE = "docker.io/linkwise/e2e:local"

_MEDIA = "application/vnd.oci.image"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_FOLDERS = ("bin", "dev", "etc", "proc", "run", "sys", "tmp", "var")


def write_image(busybox: Path, target: Path) -> Path:
    """Write the image to ``target`` and return it."""
    layer = _layer(busybox)
    config = _json(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": ["sleep", "2147483647"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": _descriptor(config, "config.v1+json"),
            "layers": [_descriptor(layer, "layer.v1.tar")],
        }
    )
    named = {**_descriptor(manifest, "manifest.v1+json"), "annotations": {"io.containerd.image.name": IMAGE}}
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "mediaType": f"{_MEDIA}.index.v1+json", "manifests": [named]}),
        **{f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}": blob for blob in (layer, config, manifest)},
    }
    with tarfile.open(target, "w") as tar:
        for name, content in files.items():
            _add(tar, name, content)
    return target


def _layer(busybox: Path) -> bytes:
    """Return the one layer: busybox, and a link for each of its commands."""
    commands = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in _FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        _add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        for name in sorted({*commands, "sh"} - {"busybox"}):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    file = tarfile.TarInfo(name)
    file.size, file.mode = len(content), mode
    tar.addfile(file, io.BytesIO(content))


def _descriptor(blob: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": f"{_MEDIA}.{kind}", "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
