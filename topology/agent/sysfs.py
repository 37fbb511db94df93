"""What the kernel tells of a GPU in sysfs and procfs: NUMA node, CPUs, slot, minor number, and the PCIe path between two GPUs.

Called by `probe`: for the single facts always, as nvidia-smi leaves some of them out; for the paths only where `nvidia-smi topo -m` failed; and by the
running agent for the name of this boot. The kernel does not know NVLink, so a matrix from here never shows any.

Reads `bus/pci/devices/<bus id>/` below the root of sysfs (a parameter: a container has the node's mounted elsewhere, a test writes its own), and
`driver/nvidia/gpus/<bus id>/information` in the `proc` beside it. What is missing or unreadable is None; nothing here raises.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

from topology.inventory import Gpu, Inventory
from topology.links import LinkCode
from topology.matrix import GpuRow, LinkMatrix

# Transfer rate of one lane, as the kernel prints it in max_link_speed ("16.0 GT/s PCIe"), by generation of PCI Express.
_GENERATION_OF: Final = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5, "64": 6, "64.0": 6}
_NO_WIDTH: Final = (0, 255)  # what the kernel prints for a link that it cannot see (virtual machines)

_HOST_BRIDGE: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_DEVICE: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_BUS_ID: Final = re.compile(r"([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2}\.[0-7])")
_MINOR: Final = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PciePath:
    """Where a device hangs: its host bridge (`pci0000:3a`), then the bridges down to it, nearest to the host first."""

    host_bridge: str
    bridges: tuple[str, ...]


def fill_from_kernel(inventory: Inventory, root: Path) -> Inventory:
    """Return the inventory with what the kernel knows added where nvidia-smi told nothing."""
    told = tuple(gpu if gpu.bus_id is None else gpu.filled_from(_kernel_facts(root, gpu)) for gpu in inventory.gpus)
    return Inventory(told, inventory.driver_version, inventory.warnings)


def read_links(gpus: Sequence[Gpu], root: Path) -> LinkMatrix:
    """Return the PCIe paths between these GPUs as a matrix, in their order; a pair of which the kernel knows too little has no code.

    Raises nothing; every GPU needs an index.
    """
    paths = [None if gpu.bus_id is None else _path(root, gpu.bus_id) for gpu in gpus]
    rows = tuple(GpuRow(gpu.index or 0, cpus=gpu.cpus, numa=None if gpu.numa_node is None else str(gpu.numa_node)) for gpu in gpus)
    cells = tuple(tuple(None if i == j else _code(gpus[i], paths[i], gpus[j], paths[j]) for j in range(len(gpus))) for i in range(len(gpus)))
    return LinkMatrix(rows, (), cells, tuple(() for _ in gpus))


def boot_id(root: Path) -> str | None:
    """Return what the kernel calls this boot, the same in every container; None where it cannot be read."""
    return _text(root.parent / "proc" / "sys" / "kernel" / "random" / "boot_id") or None


def path_level(a: PciePath, b: PciePath, *, same_numa_node: bool) -> str:
    """Return how far two devices are apart, in the words of `nvidia-smi topo -m`.

    Behind one bridge PIX, behind several PXB, below one host bridge PHB, in one NUMA node NODE, else SYS. A PCIe switch shows itself as an upstream
    bridge with a downstream bridge for each device, so one bridge between device and common bridge is still the same switch.

    >>> path_level(PciePath("pci0000:3a", ("up", "down0")), PciePath("pci0000:3a", ("up", "down1")), same_numa_node=True)
    'PIX'
    """
    if a.host_bridge != b.host_bridge:
        return "NODE" if same_numa_node else "SYS"
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a.bridges, b.bridges, strict=False)))
    if shared == 0:
        return "PHB"
    return "PIX" if max(len(a.bridges), len(b.bridges)) - shared <= 1 else "PXB"


def _code(a: Gpu, path_a: PciePath | None, b: Gpu, path_b: PciePath | None) -> LinkCode | None:
    if path_a is None or path_b is None:
        return None
    # Two unknown NUMA nodes are not one: the longer path is the one that never promises too much.
    same_numa_node = a.numa_node is not None and a.numa_node == b.numa_node
    return LinkCode.parse(path_level(path_a, path_b, same_numa_node=same_numa_node))


def _path(root: Path, bus_id: str) -> PciePath | None:
    device = _device_directory(root, bus_id)
    if device is None:
        return None
    parts = device.resolve().parts
    at = next((i for i, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)), None)
    if at is None or not all(_DEVICE.fullmatch(part) for part in parts[at + 1 :]):
        return None
    return PciePath(parts[at], parts[at + 1 : -1])


def _kernel_facts(root: Path, gpu: Gpu) -> Gpu:
    """Return what the kernel tells of the GPU with that bus id, and nothing else."""
    bus_id = gpu.bus_id or ""
    minor = _minor(root, bus_id)
    device = _device_directory(root, bus_id)
    if device is None:
        return Gpu(minor=minor)
    return Gpu(
        minor=minor,
        numa_node=_numa_node(_text(device / "numa_node")),
        cpus=_text(device / "local_cpulist") or None,
        pcie_generation=_least(device, "max_link_speed", _generation),
        pcie_width=_least(device, "max_link_width", _width),
    )


def _least(device: Path, name: str, reading: Callable[[str | None], int | None]) -> int | None:
    """Return the smaller of what device and the bridge above it can do: both ends of the slot decide."""
    here = reading(_text(device / name))
    above = reading(_text(device.resolve().parent / name))
    return min(here, above) if here is not None and above is not None else here


def _generation(text: str | None) -> int | None:
    return None if text is None else _GENERATION_OF.get(text.split(" ")[0])


def _width(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and int(text) not in _NO_WIDTH else None


def _numa_node(text: str | None) -> int | None:
    """Return the NUMA node; the kernel prints -1 where firmware did not tell."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _minor(root: Path, bus_id: str) -> int | None:
    directory = _kernel_name(bus_id)
    if directory is None:
        return None
    match = _MINOR.search(_text(root.parent / "proc" / "driver" / "nvidia" / "gpus" / directory / "information") or "")
    return int(match.group(1)) if match else None


def _device_directory(root: Path, bus_id: str) -> Path | None:
    name = _kernel_name(bus_id)
    if name is None:
        return None
    device = root / "bus" / "pci" / "devices" / name
    return device if device.is_dir() else None


def _kernel_name(bus_id: str) -> str | None:
    """Return the bus id as the kernel writes it: 00000000:3B:00.0 of NVML is 0000:3b:00.0 there; None for what is no bus id."""
    match = _BUS_ID.fullmatch(bus_id)
    return f"{int(match.group(1), 16):04x}:{match.group(2).lower()}:{match.group(3).lower()}" if match else None


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
