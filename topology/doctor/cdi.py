"""The CDI directories: the agent's own, where a spec appears before each start of a container, and NVIDIA's spec, whose edits go into it.

Called by `chain`. Runtimes read every file of their CDI directories: one that is damaged costs its own devices and fills the log, and a device that two files
of a directory have is not resolved at all.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from topology.agent.handoff.nvidia_cdi import NvidiaCdiError, NvidiaSpec, nvidia_spec
from topology.doctor.finding import Finding, broken, ok, skipped
from topology.doctor.node import Node

_AGAIN: Final = "run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` again"
_BY_UUID: Final = f"{_AGAIN} with a toolkit of 1.17 or later, or with --device-name-strategy=uuid"
_ENDINGS: Final = (".json", ".yaml", ".yml")  # .yml is not CDI's, and people write it


def directory(node: Node) -> Finding:
    """Check that the agent can write CDI specs, and that no file there is in the way."""
    if node.hand_off != "cdi":
        return skipped(f"the hand-off is {node.hand_off}")
    path = node.settings.cdi_dir
    if not path.exists():
        above = next(parent for parent in path.parents if parent.exists())
        if os.access(above, os.W_OK | os.X_OK):
            return ok(f"{path} does not exist yet; it is made for the first container")
        return broken(f"{path} does not exist, and {above} cannot be written to", f"make {path} on the node and mount it into the agent's pod")
    if not path.is_dir():
        return broken(f"{path} is no directory", f"remove it and make a directory {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        return broken(f"{path} cannot be written to", f"mount {path} into the agent's pod without readOnly, and run as root")
    return _contents(path)


def _contents(path: Path) -> Finding:
    owner: dict[str, Path] = {}
    count = 0
    for file in sorted(one for one in path.iterdir() if one.suffix in _ENDINGS):
        count += 1
        devices = _devices(file)
        if isinstance(devices, str):
            return broken(f"{file} is no CDI spec: {devices}", f"remove {file}, or have it written again by the program that made it")
        for device in devices:
            if device in owner:
                return broken(
                    f"{device} is in {owner[device].name} and in {file.name}, so the runtime resolves it in neither",
                    f"remove one of the two from {path}",
                )
            owner[device] = file
    return ok(f"{path} can be written to and holds {count} specs" if count else f"{path} can be written to")


def _devices(file: Path) -> list[str] | str:
    """Return the full names of a spec's devices, or why it is none; no devices for one that has just gone."""
    try:
        raw: Any = yaml.load(file.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # both are safe
        return [f"{raw['kind']}={device['name']}" for device in raw["devices"]]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        return " ".join(str(error).split())
    except (KeyError, TypeError, ValueError):
        return "it has no kind, or no list of devices with names"


def nvidia(node: Node) -> Finding:
    """Check that NVIDIA's CDI spec, where there is one, names this node's GPUs as they are now."""
    if node.hand_off != "cdi" or not node.settings.merge_nvidia_cdi:
        return skipped(f"the hand-off is {node.hand_off}" if node.hand_off != "cdi" else "LINKWISE_AGENT_MERGE_NVIDIA_CDI is off")
    try:
        spec = nvidia_spec(node.settings.nvidia_cdi_dirs)
    except NvidiaCdiError as error:
        return broken(str(error), _AGAIN)
    if spec is None:
        where = ", ".join(map(str, node.settings.nvidia_cdi_dirs)) or "nowhere"
        return ok(f"none in {where}: containers get NVIDIA_VISIBLE_DEVICES, and the NVIDIA runtime brings the devices in")
    if node.topology_here is None:
        return skipped(f"{spec.path} is there; which GPUs it should name nvidia-smi does not tell")
    return _named(node, spec)


def _named(node: Node, spec: NvidiaSpec) -> Finding:
    gpus = node.topology_here.spec.gpus if node.topology_here is not None else ()
    try:
        for gpu in gpus:
            spec.edits_of(gpu)
    except NvidiaCdiError as error:
        return broken(str(error), _AGAIN)
    missing = None if node.in_pod else next((path for path in _mounted(spec) if not Path(path).exists()), None)
    if missing is not None:
        return broken(f"{spec.path} is stale: it mounts {missing}, which is gone, as after an update of the driver", _AGAIN)
    if all(gpu.uuid in spec.devices for gpu in gpus):
        return ok(f"{spec.path} names all {len(gpus)} GPUs by UUID")
    unsure = next((gpu for gpu in gpus if gpu.uuid not in spec.devices and gpu.minor is None), None)
    if unsure is not None:
        return broken(f"{spec.path} names devices by index, and nobody can tell whether {unsure.index} is {unsure.uuid} after a reboot", _BY_UUID)
    return ok(f"{spec.path} names devices by index, and each is the right /dev/nvidiaN now")


def _mounted(spec: NvidiaSpec) -> Iterator[str]:
    """Yield what the spec takes from the node for every container."""
    for mount in spec.common.get("mounts") or ():
        if isinstance(mount, dict) and mount.get("hostPath"):
            yield str(mount["hostPath"])
