"""Five real kinds of GPU machine, written down once: what `nvidia-smi` would say of each, as data.

`extender.demo` builds its cluster from them; the tests render them as the text of nvidia-smi and as a sysfs tree, and compare what the probe makes
of that with `sample`. The link codes are those that such machines print; UUIDs are made up, but the same for the same seed.

Only facts of hardware are here. Rates are `topology.links`' business, and what a running agent observes over time is not described at all. A new
kind of machine is one more `SampleMachine` in `SAMPLE_MACHINES`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from topology.api import (
    GpuSpec,
    GpuStatus,
    GPUTopology,
    GPUTopologySpec,
    GPUTopologyStatus,
    LinkRows,
    NicSpec,
    ObjectMeta,
    PcieSlot,
)
from topology.errors import InputError
from topology.links import LinkCode


@dataclass(frozen=True, slots=True)
class SampleMachine:
    """One kind of machine. One entry a GPU in every tuple, in the order of the index; memory in MiB.

    ``gpu_rows`` and ``nic_rows`` hold the cells of a GPU's row, separated by blanks. ``nvlinks`` is the number of active links of each GPU and
    ``nvlink_gb_per_s`` one link's rate as `nvidia-smi nvlink -s` prints it. ``mig_mode`` is None on models without MIG.
    """

    kind: str
    title: str
    model: str
    memory_mib: int
    idle_mib: int
    pcie: tuple[int, int]  # generation, lanes
    bus_ids: tuple[str, ...]
    minors: tuple[int, ...]
    numa_nodes: tuple[int, ...]
    cpus: tuple[str, ...]
    gpu_rows: tuple[str, ...]
    nics: tuple[str, ...] = ()
    nic_rows: tuple[str, ...] = ()
    nvlinks: int = 0
    nvlink_gb_per_s: str | None = None
    mig_mode: str | None = None
    driver_version: str = "550.127.08"

    @property
    def size(self) -> int:
        """Number of GPUs."""
        return len(self.gpu_rows)

    def uuids(self, seed: str) -> tuple[str, ...]:
        """Return the UUIDs of the GPUs: the same for the same seed, different for another.

        >>> SAMPLE_MACHINES["mesh"].uuids("a") == SAMPLE_MACHINES["mesh"].uuids("b")
        False
        """
        return tuple(f"GPU-{uuid5(NAMESPACE_URL, f'https://linkwise.dev/sample/{seed}/{index}')}" for index in range(self.size))

    def nic_cells(self) -> tuple[tuple[str, ...], ...]:
        """Return one row of codes a GPU, one cell a NIC; empty rows without NICs."""
        return tuple(tuple(row.split()) for row in self.nic_rows) or ((),) * self.size


# HGX H100 behind NVSwitch: every pair shows all 18 links of a GPU. One NIC beside each GPU, as rail-optimised machines have them.
NVSWITCH: Final = SampleMachine(
    kind="nvswitch",
    title="8 x H100 SXM behind NVSwitch",
    model="NVIDIA H100 80GB HBM3",
    memory_mib=81559,
    idle_mib=4,
    pcie=(5, 16),
    bus_ids=tuple(f"00000000:{bus}:00.0" for bus in ("19", "3B", "4C", "5D", "9B", "BB", "CB", "DB")),
    minors=tuple(range(8)),
    numa_nodes=(0, 0, 0, 0, 1, 1, 1, 1),
    cpus=("0-55,112-167",) * 4 + ("56-111,168-223",) * 4,
    gpu_rows=(
        "X    NV18 NV18 NV18 NV18 NV18 NV18 NV18",
        "NV18 X    NV18 NV18 NV18 NV18 NV18 NV18",
        "NV18 NV18 X    NV18 NV18 NV18 NV18 NV18",
        "NV18 NV18 NV18 X    NV18 NV18 NV18 NV18",
        "NV18 NV18 NV18 NV18 X    NV18 NV18 NV18",
        "NV18 NV18 NV18 NV18 NV18 X    NV18 NV18",
        "NV18 NV18 NV18 NV18 NV18 NV18 X    NV18",
        "NV18 NV18 NV18 NV18 NV18 NV18 NV18 X",
    ),
    nics=tuple(f"mlx5_{n}" for n in range(8)),
    nic_rows=(
        "PIX  NODE NODE NODE SYS  SYS  SYS  SYS",
        "NODE PIX  NODE NODE SYS  SYS  SYS  SYS",
        "NODE NODE PIX  NODE SYS  SYS  SYS  SYS",
        "NODE NODE NODE PIX  SYS  SYS  SYS  SYS",
        "SYS  SYS  SYS  SYS  PIX  NODE NODE NODE",
        "SYS  SYS  SYS  SYS  NODE PIX  NODE NODE",
        "SYS  SYS  SYS  SYS  NODE NODE PIX  NODE",
        "SYS  SYS  SYS  SYS  NODE NODE NODE PIX",
    ),
    nvlinks=18,
    nvlink_gb_per_s="26.562",  # what Hopper prints for a nominal 25
    mig_mode="Disabled",
)

# NVIDIA DGX-1 with V100: the hybrid cube mesh, six links a GPU, PCIe switches of two GPUs and a NIC.
DGX1V: Final = SampleMachine(
    kind="dgx1v",
    title="8 x V100 in a cube mesh (DGX-1V)",
    model="Tesla V100-SXM2-32GB",
    memory_mib=32768,
    idle_mib=0,
    pcie=(3, 16),
    bus_ids=tuple(f"00000000:{bus}:00.0" for bus in ("06", "07", "0A", "0B", "85", "86", "89", "8A")),
    minors=tuple(range(8)),
    numa_nodes=(0, 0, 0, 0, 1, 1, 1, 1),
    cpus=("0-19,40-59",) * 4 + ("20-39,60-79",) * 4,
    gpu_rows=(
        "X   NV1 NV1 NV2 NV2 SYS SYS SYS",
        "NV1 X   NV2 NV1 SYS NV2 SYS SYS",
        "NV1 NV2 X   NV2 SYS SYS NV1 SYS",
        "NV2 NV1 NV2 X   SYS SYS SYS NV1",
        "NV2 SYS SYS SYS X   NV1 NV1 NV2",
        "SYS NV2 SYS SYS NV1 X   NV2 NV1",
        "SYS SYS NV1 SYS NV1 NV2 X   NV2",
        "SYS SYS SYS NV1 NV2 NV1 NV2 X",
    ),
    nics=("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"),
    nic_rows=(
        "PIX PHB SYS SYS",
        "PIX PHB SYS SYS",
        "PHB PIX SYS SYS",
        "PHB PIX SYS SYS",
        "SYS SYS PIX PHB",
        "SYS SYS PIX PHB",
        "SYS SYS PHB PIX",
        "SYS SYS PHB PIX",
    ),
    nvlinks=6,
    nvlink_gb_per_s="25.781",
)

# Four NVLink bridges over eight cards. The pairs of the lower half are interleaved, as NVIDIA/k8s-device-plugin issue 546 shows it: who counts
# GPUs from below takes 0 and 1, which share no bridge.
BRIDGES: Final = SampleMachine(
    kind="bridges",
    title="8 x A100 PCIe in four NVLink bridge pairs",
    model="NVIDIA A100 80GB PCIe",
    memory_mib=81920,
    idle_mib=4,
    pcie=(4, 16),
    bus_ids=tuple(f"00000000:{bus}:00.0" for bus in ("01", "25", "41", "61", "81", "A1", "C1", "E1")),
    minors=tuple(range(8)),
    numa_nodes=(0, 0, 0, 0, 1, 1, 1, 1),
    cpus=("0-31",) * 4 + ("32-63",) * 4,
    gpu_rows=(
        "X    SYS  NV12 SYS  SYS  SYS  SYS  SYS",
        "SYS  X    SYS  NV12 SYS  SYS  SYS  SYS",
        "NV12 SYS  X    SYS  SYS  SYS  SYS  SYS",
        "SYS  NV12 SYS  X    SYS  SYS  SYS  SYS",
        "SYS  SYS  SYS  SYS  X    NV12 SYS  SYS",
        "SYS  SYS  SYS  SYS  NV12 X    SYS  SYS",
        "SYS  SYS  SYS  SYS  SYS  SYS  X    NV12",
        "SYS  SYS  SYS  SYS  SYS  SYS  NV12 X",
    ),
    nvlinks=12,
    nvlink_gb_per_s="25",
    mig_mode="Disabled",
)

# Eight cards without NVLink on two sockets, two behind each PCIe switch, one NIC a socket.
PCIE: Final = SampleMachine(
    kind="pcie",
    title="8 x L40S on plain PCIe",
    model="NVIDIA L40S",
    memory_mib=46068,
    idle_mib=4,
    pcie=(4, 16),
    bus_ids=tuple(f"00000000:{bus}:00.0" for bus in ("16", "17", "3A", "3B", "98", "99", "B8", "B9")),
    minors=tuple(range(8)),
    numa_nodes=(0, 0, 0, 0, 1, 1, 1, 1),
    cpus=("0-31,64-95",) * 4 + ("32-63,96-127",) * 4,
    gpu_rows=(
        "X    PIX  NODE NODE SYS  SYS  SYS  SYS",
        "PIX  X    NODE NODE SYS  SYS  SYS  SYS",
        "NODE NODE X    PIX  SYS  SYS  SYS  SYS",
        "NODE NODE PIX  X    SYS  SYS  SYS  SYS",
        "SYS  SYS  SYS  SYS  X    PIX  NODE NODE",
        "SYS  SYS  SYS  SYS  PIX  X    NODE NODE",
        "SYS  SYS  SYS  SYS  NODE NODE X    PIX",
        "SYS  SYS  SYS  SYS  NODE NODE PIX  X",
    ),
    nics=("mlx5_0", "mlx5_1"),
    nic_rows=("NODE SYS", "NODE SYS", "PIX  SYS", "PIX  SYS", "SYS NODE", "SYS NODE", "SYS PIX", "SYS PIX"),
)

# HGX A100 with four GPUs on one EPYC in four NUMA nodes: four links between any two, no switch. The kernel numbers the devices the other way round.
MESH: Final = SampleMachine(
    kind="mesh",
    title="4 x A100 SXM4 in a full mesh",
    model="NVIDIA A100-SXM4-40GB",
    memory_mib=40960,
    idle_mib=4,
    pcie=(4, 16),
    bus_ids=tuple(f"00000000:{bus}:00.0" for bus in ("03", "41", "82", "C1")),
    minors=(3, 2, 1, 0),
    numa_nodes=(3, 2, 1, 0),
    cpus=("48-63,112-127", "32-47,96-111", "16-31,80-95", "0-15,64-79"),
    gpu_rows=("X NV4 NV4 NV4", "NV4 X NV4 NV4", "NV4 NV4 X NV4", "NV4 NV4 NV4 X"),
    nics=("mlx5_0", "mlx5_1"),
    nic_rows=("SYS SYS", "PHB SYS", "SYS PHB", "SYS SYS"),
    nvlinks=12,
    nvlink_gb_per_s="25",
    mig_mode="Disabled",
)

SAMPLE_MACHINES: Final = {machine.kind: machine for machine in (NVSWITCH, DGX1V, BRIDGES, PCIE, MESH)}


def sample(kind: str, node_name: str, seed: str | None = None, observed_at: datetime | None = None) -> GPUTopology:
    """Return the GPUTopology of a healthy, idle node of that kind.

    ``seed`` makes the UUIDs (default: the node's name). Raises InputError for a kind that is not among `SAMPLE_MACHINES`.

    >>> sample("dgx1v", "node-a").spec.links.gpus[0][3]
    'NV2'
    """
    machine = SAMPLE_MACHINES.get(kind)
    if machine is None:
        raise InputError(f"no sample machine of kind {kind!r}; accepted: {', '.join(SAMPLE_MACHINES)}")
    uuids = machine.uuids(seed or node_name)
    return GPUTopology(
        metadata=ObjectMeta(name=node_name),
        spec=_spec(machine, uuids),
        status=GPUTopologyStatus(
            observed_at=observed_at,
            gpus=tuple(GpuStatus(uuid=uuid, memory_used_mib=machine.idle_mib) for uuid in uuids),
            health="Healthy",
        ),
    )


def _spec(machine: SampleMachine, uuids: tuple[str, ...]) -> GPUTopologySpec:
    return GPUTopologySpec(
        gpus=tuple(_gpu(machine, index, uuid) for index, uuid in enumerate(uuids)),
        nics=tuple(NicSpec(label=f"NIC{n}", name=name) for n, name in enumerate(machine.nics)),
        links=LinkRows(gpus=tuple(tuple(row.split()) for row in machine.gpu_rows), nics=machine.nic_cells() if machine.nics else ()),
        driver_version=machine.driver_version,
        gpu_count=machine.size,
        model=machine.model,
        nvlink=_nvlink(machine),
    )


def _gpu(machine: SampleMachine, index: int, uuid: str) -> GpuSpec:
    generation, width = machine.pcie
    return GpuSpec(
        index=index,
        minor=machine.minors[index],
        uuid=uuid,
        bus_id=machine.bus_ids[index],
        model=machine.model,
        memory_mib=machine.memory_mib,
        numa_node=machine.numa_nodes[index],
        cpus=machine.cpus[index],
        pcie=PcieSlot(generation=generation, width=width),
        nvlinks=machine.nvlinks,
        mig_mode=machine.mig_mode,
    )


def _nvlink(machine: SampleMachine) -> str:
    codes = {code.text: code.nvlinks for row in machine.gpu_rows for cell in row.split() if (code := LinkCode.parse(cell)) and code.nvlinks}
    return ",".join(sorted(codes, key=codes.__getitem__)) or "none"
