"""What single GPUs are: identity, model, memory, slot. The companion of the link matrix.

A plain frozen type, filled by `topology.nvidia_smi` (from `-L`, `--query-gpu` CSV, `-q -x`, `nvlink -s`) and by sysfs in the agent, merged here.
Keys are UUID and bus id; ``index`` is for display and for matching rows of one and the same boot only. None always means "was not told".
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class MigInstance:
    """One MIG device as `nvidia-smi -L` lists it; ``uuid`` is None where the list was cut or the UUID elided."""

    index: int
    profile: str
    uuid: str | None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Memory in MiB; ``nvlink_gb_per_s`` is the rate of one active link as `nvlink -s` prints it, ``nvlinks`` how many are active."""

    index: int | None = None
    uuid: str | None = None
    bus_id: str | None = None  # domain:bus:device.function, domain of 8 hex digits, upper case: 00000000:3B:00.0
    minor: int | None = None
    model: str | None = None
    memory_mib: int | None = None
    memory_used_mib: int | None = None
    pcie_generation: int | None = None  # the slot's and the GPU's maximum, not what an idle link has fallen back to
    pcie_width: int | None = None
    numa_node: int | None = None
    cpus: str | None = None
    mig_mode: str | None = None
    mig_instances: tuple[MigInstance, ...] = ()
    nvlinks: int | None = None
    nvlink_gb_per_s: float | None = None
    lost: bool = False

    def same_device(self, other: "Gpu") -> bool:
        """Tell whether both describe one GPU: by UUID, else by bus id, else by index."""
        for key in ("uuid", "bus_id", "index"):
            mine, theirs = getattr(self, key), getattr(other, key)
            if mine is not None and theirs is not None:
                return bool(mine == theirs)
        return False

    def filled_from(self, other: "Gpu") -> "Gpu":
        """Return this GPU with what only ``other`` tells added."""
        news = {}
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine in (None, ()) and theirs not in (None, ()):
                news[field.name] = theirs
        return replace(self, **news, lost=self.lost or other.lost)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The GPUs of one machine and its driver."""

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | None = None
    warnings: tuple[str, ...] = ()

    def merged(self, other: "Inventory") -> "Inventory":
        """Return both in one: this one's facts first, gaps filled from ``other``, GPUs that only ``other`` knows appended."""
        known = list(self.gpus)
        for gpu in other.gpus:
            at = next((i for i, mine in enumerate(known) if mine.same_device(gpu)), None)
            if at is None:
                known.append(gpu)
            else:
                known[at] = known[at].filled_from(gpu)
        known.sort(key=lambda gpu: (gpu.index is None, gpu.index or 0))
        return Inventory(tuple(known), self.driver_version or other.driver_version, self.warnings + other.warnings)

    def by_index(self, index: int) -> Gpu | None:
        """Return the GPU with that index, None where it is not listed."""
        return next((gpu for gpu in self.gpus if gpu.index == index), None)


def normal_bus_id(text: str) -> str:
    """Return a PCI bus id with a domain of 8 hex digits in upper case, as NVML prints it; any other text unchanged.

    >>> normal_bus_id("0000:3b:00.0")
    '00000000:3B:00.0'
    """
    parts = text.strip().upper().split(":")
    if len(parts) == 2:
        parts = ["0", *parts]
    if len(parts) != 3 or not all(part and all(c in "0123456789ABCDEF." for c in part) for part in parts) or len(parts[0]) > 8:
        return text
    return ":".join([parts[0].zfill(8), parts[1], parts[2]])


def merge_all(inventories: Iterable[Inventory]) -> Inventory:
    """Return all of them in one, the first telling first."""
    merged = Inventory()
    for inventory in inventories:
        merged = merged.merged(inventory)
    return merged
