"""NVIDIA's own CDI specs: which edits (device files, libraries, hooks) bring one GPU into a container.

Used by `cdi`, which merges them where such a spec exists; the NVIDIA Container Toolkit generates it (`nvidia-ctk cdi generate`, YAML or JSON), and nothing here
invents any of it. Devices are named by UUID, or by index in older toolkits (`0`, or `gpu0`). An index, and a file that was made before the last reboot, may
name another GPU than it seems to: where the minor number is known, the edits have to hold its /dev/nvidiaN, else they are not used.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from topology.api import GpuSpec
from topology.errors import LinkwiseError

KIND: Final = "nvidia.com/gpu"
OURS: Final = "linkwise.dev-allocation_"  # vendor-class_name, the form that CDI's own library uses for specs that come and go
_ENDINGS: Final = (".yaml", ".yml", ".json")
_DEVICE_FILE: Final = re.compile(r"/dev/nvidia([0-9]+)")
_LISTS: Final = ("env", "deviceNodes", "hooks", "mounts", "additionalGids", "netDevices")

JsonObject = dict[str, Any]


class NvidiaCdiError(LinkwiseError):
    """A spec of NVIDIA's is there and cannot be used."""


@dataclass(frozen=True, slots=True)
class NvidiaSpec:
    """One spec: its version, and the edits by device name; ``common`` are those for any of its devices."""

    path: Path
    version: str
    devices: Mapping[str, JsonObject]
    common: JsonObject

    def edits_of(self, gpu: GpuSpec) -> JsonObject:
        """Return the edits of one GPU; raises NvidiaCdiError where they are not here, or are those of another."""
        for name in (gpu.uuid, str(gpu.index), f"gpu{gpu.index}"):
            if name in self.devices:
                self._check(name, gpu)
                return self.devices[name]
        raise NvidiaCdiError(f"{self.path} has no device {gpu.uuid} and no {gpu.index}; run nvidia-ctk cdi generate again")

    def _check(self, name: str, gpu: GpuSpec) -> None:
        files = {int(found.group(1)) for node in self.devices[name].get("deviceNodes") or () if (found := _DEVICE_FILE.fullmatch(_path_of(node)))}
        if gpu.minor is not None and files and gpu.minor not in files:
            shown = ", ".join(f"/dev/nvidia{minor}" for minor in sorted(files))
            raise NvidiaCdiError(
                f"{self.path} gives {shown} for device {name}, and GPU {gpu.uuid} is /dev/nvidia{gpu.minor}; run nvidia-ctk cdi generate again"
            )


def _path_of(node: object) -> str:
    if not isinstance(node, Mapping):
        return ""
    return str(node.get("hostPath") or node.get("path") or "")


def nvidia_spec(directories: tuple[Path, ...]) -> NvidiaSpec | None:
    """Return NVIDIA's spec, None where there is none; the last directory counts most, as runtimes have it. Raises NvidiaCdiError for a damaged one."""
    for directory in reversed(directories):
        for path in _files(directory):
            raw = _read(path)
            if raw.get("kind") == KIND:
                return _spec(path, raw)
    return None


def _files(directory: Path) -> Iterator[Path]:
    """Yield the specs of others: our own are one a container."""
    try:
        found = sorted(directory.iterdir())
    except OSError:
        return
    yield from (path for path in found if path.suffix in _ENDINGS and not path.name.startswith(OURS))


def _read(path: Path) -> JsonObject:
    try:
        text = path.read_text(encoding="utf-8")
        if KIND not in text:
            return {}  # other drivers write a spec a claim; decoding them all would take its time
        raw = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # both are the safe one
    except FileNotFoundError:
        return {}  # gone since it was listed
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise NvidiaCdiError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    return raw if isinstance(raw, dict) else {}


def _spec(path: Path, raw: JsonObject) -> NvidiaSpec:
    version, devices, common = raw.get("cdiVersion"), raw.get("devices"), raw.get("containerEdits") or {}
    if not isinstance(version, str) or not isinstance(devices, list) or not isinstance(common, dict):
        raise NvidiaCdiError(f"{path} is of kind {KIND} and has no cdiVersion, or no list of devices")
    by_name: dict[str, JsonObject] = {}
    for device in devices:
        edits = device.get("containerEdits") if isinstance(device, dict) else None
        if not isinstance(edits, dict) or not isinstance(device.get("name"), str):
            raise NvidiaCdiError(f"{path} has a device without name and containerEdits")
        by_name[device["name"]] = edits
    for edits in (common, *by_name.values()):
        wrong = [key for key in _LISTS if not isinstance(edits.get(key) or [], list)]
        if wrong:
            raise NvidiaCdiError(f"{path} has {wrong[0]} that is no list")
    return NvidiaSpec(path, version, by_name, common)


def merged(parts: list[JsonObject]) -> JsonObject:
    """Return several edits in one, in order, each thing once; lists are joined, single things (intelRdt) are the last one's."""
    found: JsonObject = {}
    for edits in parts:
        for key, value in edits.items():
            if isinstance(value, list):
                known = found.setdefault(key, [])
                known.extend(one for one in value if one not in known)
            elif value is not None:
                found[key] = value
    return found
