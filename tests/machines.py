"""Real machines, written down by hand: link codes, NUMA nodes, product names, and what their links carry.

The codes are those that such machines print, as told by public reports and product briefs. The rates beside them are typed in once more on purpose: the
oracles must not learn them from the code that they judge. Used by the tests of `topology` and by everything that needs a machine by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from hypothesis import strategies as st

from tests.oracles import MachineOracle
from topology.inventory import Gpu, Inventory
from topology.matrix import LinkMatrix, from_codes


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine. ``rows`` are the cells of each GPU's row, separated by blanks; ``numa`` the printed NUMA Affinity cells, None without that column.

    ``nvlink_gb_per_s`` is one link's rate and direction, ``nvlinks`` how many a GPU of the model has (0: none), ``pcie_generation`` the model's, x16.
    """

    name: str
    rows: tuple[str, ...]
    numa: tuple[str, ...] | None
    model: str
    memory_mib: int
    nvlink_gb_per_s: float
    nvlinks: int
    pcie_generation: int

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def everything(self) -> int:
        """Mask of all GPUs."""
        return (1 << self.size) - 1

    @property
    def codes(self) -> list[list[str]]:
        return [row.split() for row in self.rows]

    @property
    def matrix(self) -> LinkMatrix:
        return from_codes(self.codes, self.numa)

    @property
    def inventory(self) -> Inventory:
        """The GPUs as `nvidia-smi -L` and a memory query would tell them: no slot."""
        return Inventory(
            tuple(
                Gpu(
                    index=i,
                    uuid=f"GPU-{self.name}-{i}",
                    bus_id=f"00000000:{16 * i + 7:02X}:00.0",
                    minor=i,
                    model=self.model,
                    memory_mib=self.memory_mib,
                )
                for i in range(self.size)
            )
        )


def matrix_of(*rows: str, numa: Sequence[str] | None = None) -> LinkMatrix:
    """Build a matrix from rows of cells separated by blanks; any text that is no code is a cell that was not printed."""
    return from_codes([row.split() for row in rows], numa)


@lru_cache
def oracle_of(machine: Machine) -> MachineOracle:
    """Return the slow and obvious version of a machine's figures."""
    return MachineOracle(machine.codes, machine.numa, machine.nvlink_gb_per_s, machine.nvlinks, machine.pcie_generation)


def uniform(size: int, code: str) -> tuple[str, ...]:
    """Rows of a machine that shows one code in every cell."""
    return tuple(" ".join("X" if i == j else code for j in range(size)) for i in range(size))


def two_sockets(size: int) -> tuple[str, ...]:
    """NUMA Affinity cells of the usual dual-socket server: first half 0, second half 1."""
    return ("0",) * (size // 2) + ("1",) * (size // 2)


# The hybrid cube mesh of the DGX-1, NVLink 2: 6 links a GPU, doubled on the edges of two quads.
DGX1V: Final = Machine(
    "dgx1v",
    (
        "X   NV1 NV1 NV2 NV2 SYS SYS SYS",
        "NV1 X   NV2 NV1 SYS NV2 SYS SYS",
        "NV1 NV2 X   NV2 SYS SYS NV1 SYS",
        "NV2 NV1 NV2 X   SYS SYS SYS NV1",
        "NV2 SYS SYS SYS X   NV1 NV1 NV2",
        "SYS NV2 SYS SYS NV1 X   NV2 NV1",
        "SYS SYS NV1 SYS NV1 NV2 X   NV2",
        "SYS SYS SYS NV1 NV2 NV1 NV2 X",
    ),
    two_sockets(8),
    "Tesla V100-SXM2-32GB",
    32768,
    nvlink_gb_per_s=25.0,
    nvlinks=6,
    pcie_generation=3,
)

# The same mesh with NVLink 1: 4 links a GPU, one a pair.
DGX1P: Final = Machine(
    "dgx1p",
    (
        "X   NV1 NV1 NV1 NV1 SYS SYS SYS",
        "NV1 X   NV1 NV1 SYS NV1 SYS SYS",
        "NV1 NV1 X   NV1 SYS SYS NV1 SYS",
        "NV1 NV1 NV1 X   SYS SYS SYS NV1",
        "NV1 SYS SYS SYS X   NV1 NV1 NV1",
        "SYS NV1 SYS SYS NV1 X   NV1 NV1",
        "SYS SYS NV1 SYS NV1 NV1 X   NV1",
        "SYS SYS SYS NV1 NV1 NV1 NV1 X",
    ),
    two_sockets(8),
    "Tesla P100-SXM2-16GB",
    16280,
    nvlink_gb_per_s=20.0,
    nvlinks=4,
    pcie_generation=3,
)

# Azure NDv2: the V100 cube mesh with the GPUs in another order, behind one NUMA node.
NDV2: Final = Machine(
    "ndv2",
    (
        "X    NV2  NV1  NV2  NODE NODE NV1  NODE",
        "NV2  X    NV2  NV1  NODE NODE NODE NV1",
        "NV1  NV2  X    NV1  NV2  NODE NODE NODE",
        "NV2  NV1  NV1  X    NODE NV2  NODE NODE",
        "NODE NODE NV2  NODE X    NV1  NV1  NV2",
        "NODE NODE NODE NV2  NV1  X    NV2  NV1",
        "NV1  NODE NODE NODE NV1  NV2  X    NV2",
        "NODE NV1  NODE NODE NV2  NV1  NV2  X",
    ),
    ("0",) * 8,
    "Tesla V100-SXM2-32GB",
    32768,
    nvlink_gb_per_s=25.0,
    nvlinks=6,
    pcie_generation=3,
)

HGX_A100_8: Final = Machine("hgx_a100_8", uniform(8, "NV12"), two_sockets(8), "NVIDIA A100-SXM4-80GB", 81920, 25.0, 12, 4)
HGX_H100_8: Final = Machine("hgx_h100_8", uniform(8, "NV18"), two_sockets(8), "NVIDIA H100 80GB HBM3", 81559, 25.0, 18, 5)
HGX_H800_8: Final = Machine("hgx_h800_8", uniform(8, "NV8"), two_sockets(8), "NVIDIA H800", 81559, 25.0, 8, 5)
DGX2_16: Final = Machine("dgx2_16", uniform(16, "NV6"), two_sockets(16), "Tesla V100-SXM3-32GB", 32768, 25.0, 6, 3)

# Boards of four: every pair has its own links, no switch.
A100X4_NV4: Final = Machine("a100x4_nv4", uniform(4, "NV4"), ("0", "0", "1", "1"), "NVIDIA A100-SXM4-40GB", 40960, 25.0, 12, 4)
HOPPER4_NV6: Final = Machine("hopper4_nv6", uniform(4, "NV6"), ("0", "0", "1", "1"), "NVIDIA H100 64GB HBM2", 65247, 25.0, 18, 5)
V100X4_NV2: Final = Machine("v100x4_nv2", uniform(4, "NV2"), ("0", "0", "1", "1"), "Tesla V100-SXM2-16GB", 16160, 25.0, 6, 3)

# Bridges over neighbours, four pairs, two in each socket.
BRIDGES_8: Final = Machine(
    "bridges_8",
    (
        "X    NV12 NODE NODE SYS  SYS  SYS  SYS",
        "NV12 X    NODE NODE SYS  SYS  SYS  SYS",
        "NODE NODE X    NV12 SYS  SYS  SYS  SYS",
        "NODE NODE NV12 X    SYS  SYS  SYS  SYS",
        "SYS  SYS  SYS  SYS  X    NV12 NODE NODE",
        "SYS  SYS  SYS  SYS  NV12 X    NODE NODE",
        "SYS  SYS  SYS  SYS  NODE NODE X    NV12",
        "SYS  SYS  SYS  SYS  NODE NODE NV12 X",
    ),
    two_sockets(8),
    "NVIDIA A100-PCIE-40GB",
    40960,
    nvlink_gb_per_s=25.0,
    nvlinks=12,
    pcie_generation=4,
)

# The layout of NVIDIA/k8s-device-plugin issue 546: bridges 0-2, 1-3, 4-5, 6-7, SYS everywhere else.
BRIDGES_CROSSED: Final = Machine(
    "bridges_crossed",
    (
        "X    SYS  NV12 SYS  SYS  SYS  SYS  SYS",
        "SYS  X    SYS  NV12 SYS  SYS  SYS  SYS",
        "NV12 SYS  X    SYS  SYS  SYS  SYS  SYS",
        "SYS  NV12 SYS  X    SYS  SYS  SYS  SYS",
        "SYS  SYS  SYS  SYS  X    NV12 SYS  SYS",
        "SYS  SYS  SYS  SYS  NV12 X    SYS  SYS",
        "SYS  SYS  SYS  SYS  SYS  SYS  X    NV12",
        "SYS  SYS  SYS  SYS  SYS  SYS  NV12 X",
    ),
    two_sockets(8),
    "NVIDIA A100 80GB PCIe",
    81920,
    nvlink_gb_per_s=25.0,
    nvlinks=12,
    pcie_generation=4,
)

# The layout of NVIDIA/k8s-device-plugin issue 436: one bridged pair, one pair without a bridge.
BRIDGE_AND_PAIR: Final = Machine(
    "bridge_and_pair",
    (
        "X    NV12 SYS  SYS",
        "NV12 X    SYS  SYS",
        "SYS  SYS  X    NODE",
        "SYS  SYS  NODE X",
    ),
    ("0", "0", "1", "1"),
    "NVIDIA A100-PCIE-40GB",
    40960,
    nvlink_gb_per_s=25.0,
    nvlinks=12,
    pcie_generation=4,
)

A6000_PAIR_PLUS_SINGLE: Final = Machine(
    "a6000_pair_plus_single",
    (
        "X    NV4  NODE",
        "NV4  X    NODE",
        "NODE NODE X",
    ),
    ("0",) * 3,
    "NVIDIA RTX A6000",
    49140,
    nvlink_gb_per_s=14.0625,
    nvlinks=4,
    pcie_generation=4,
)

# IBM AC922: three NVLinks between the two GPUs of a socket, three to the processor; this report has no NUMA column.
AC922_4: Final = Machine(
    "ac922_4",
    (
        "X   NV3 SYS SYS",
        "NV3 X   SYS SYS",
        "SYS SYS X   NV3",
        "SYS SYS NV3 X",
    ),
    None,
    "Tesla V100-SXM2-16GB",
    16160,
    nvlink_gb_per_s=25.0,
    nvlinks=6,
    pcie_generation=3,
)

# A node of Summit: two triples, each GPU two links to both others of its socket.
SUMMIT_6: Final = Machine(
    "summit_6",
    (
        "X   NV2 NV2 SYS SYS SYS",
        "NV2 X   NV2 SYS SYS SYS",
        "NV2 NV2 X   SYS SYS SYS",
        "SYS SYS SYS X   NV2 NV2",
        "SYS SYS SYS NV2 X   NV2",
        "SYS SYS SYS NV2 NV2 X",
    ),
    ("0", "0", "0", "8", "8", "8"),
    "Tesla V100-SXM2-16GB",
    16160,
    nvlink_gb_per_s=25.0,
    nvlinks=6,
    pcie_generation=3,
)

# A server with four V100 in a ring of NVLinks, one side of which has a single link.
DELOS_4: Final = Machine(
    "delos_4",
    (
        "X   NV2 NV2 SYS",
        "NV2 X   SYS NV1",
        "NV2 SYS X   NV2",
        "SYS NV1 NV2 X",
    ),
    ("0", "0", "1", "1"),
    "Tesla V100-SXM2-32GB",
    32768,
    nvlink_gb_per_s=25.0,
    nvlinks=6,
    pcie_generation=3,
)

# No NVLink at all. Pairs behind one PCIe switch, two of them a socket.
PCIE8_PHB: Final = Machine(
    "pcie8_phb",
    (
        "X   PIX PHB PHB SYS SYS SYS SYS",
        "PIX X   PHB PHB SYS SYS SYS SYS",
        "PHB PHB X   PIX SYS SYS SYS SYS",
        "PHB PHB PIX X   SYS SYS SYS SYS",
        "SYS SYS SYS SYS X   PIX PHB PHB",
        "SYS SYS SYS SYS PIX X   PHB PHB",
        "SYS SYS SYS SYS PHB PHB X   PIX",
        "SYS SYS SYS SYS PHB PHB PIX X",
    ),
    two_sockets(8),
    "Tesla T4",
    15109,
    nvlink_gb_per_s=0.0,
    nvlinks=0,
    pcie_generation=3,
)
PCIE4_PHB: Final = Machine(
    "pcie4_phb",
    uniform(4, "PHB"),
    ("0",) * 4,
    "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    97887,
    nvlink_gb_per_s=0.0,
    nvlinks=0,
    pcie_generation=5,
)
A40_4: Final = Machine(
    "a40_4",
    (
        "X   PXB SYS SYS",
        "PXB X   SYS SYS",
        "SYS SYS X   PXB",
        "SYS SYS PXB X",
    ),
    ("0", "0", "1", "1"),
    "NVIDIA A40",
    46068,
    nvlink_gb_per_s=14.0625,
    nvlinks=4,
    pcie_generation=4,
)

# Sixteen V100 as two DGX-1 boards would be wired (MAPA, SC'21). On paper only: GPUs 12 and 15 add up to seven links.
CUBEMESH_16: Final = Machine(
    "cubemesh_16",
    (
        "X   NV1 NV1 NV2 SYS SYS SYS SYS SYS SYS SYS NV1 SYS SYS SYS SYS",
        "NV1 X   NV2 NV1 SYS NV1 SYS SYS SYS SYS SYS SYS SYS SYS SYS SYS",
        "NV1 NV2 X   SYS SYS SYS NV1 SYS SYS NV1 SYS SYS SYS SYS SYS SYS",
        "NV2 NV1 SYS X   SYS SYS SYS SYS NV1 SYS SYS SYS SYS SYS SYS SYS",
        "SYS SYS SYS SYS X   NV2 NV1 NV1 SYS SYS SYS SYS SYS SYS SYS NV2",
        "SYS NV1 SYS SYS NV2 X   NV1 NV1 SYS SYS SYS SYS SYS SYS SYS SYS",
        "SYS SYS NV1 SYS NV1 NV1 X   NV2 SYS SYS SYS SYS SYS NV1 SYS SYS",
        "SYS SYS SYS SYS NV1 NV1 NV2 X   SYS SYS SYS SYS NV2 SYS SYS SYS",
        "SYS SYS SYS NV1 SYS SYS SYS SYS X   NV1 NV2 NV1 SYS SYS SYS SYS",
        "SYS SYS NV1 SYS SYS SYS SYS SYS NV1 X   NV2 NV1 SYS NV1 SYS SYS",
        "SYS SYS SYS SYS SYS SYS SYS SYS NV2 NV2 X   SYS SYS SYS NV1 SYS",
        "NV1 SYS SYS SYS SYS SYS SYS SYS NV1 NV1 SYS X   SYS SYS SYS SYS",
        "SYS SYS SYS SYS SYS SYS SYS NV2 SYS SYS SYS SYS X   NV2 NV1 NV2",
        "SYS SYS SYS SYS SYS SYS NV1 SYS SYS NV1 SYS SYS NV2 X   NV1 NV1",
        "SYS SYS SYS SYS SYS SYS SYS SYS SYS SYS NV1 SYS NV1 NV1 X   NV2",
        "SYS SYS SYS SYS NV2 SYS SYS SYS SYS SYS SYS SYS NV2 NV1 NV2 X",
    ),
    None,
    "Tesla V100-SXM2-32GB",
    32768,
    nvlink_gb_per_s=25.0,
    nvlinks=6,
    pcie_generation=3,
)

MACHINES: Final = {
    machine.name: machine
    for machine in (
        DGX1V,
        DGX1P,
        NDV2,
        HGX_A100_8,
        HGX_H100_8,
        HGX_H800_8,
        DGX2_16,
        A100X4_NV4,
        HOPPER4_NV6,
        V100X4_NV2,
        BRIDGES_8,
        BRIDGES_CROSSED,
        BRIDGE_AND_PAIR,
        A6000_PAIR_PLUS_SINGLE,
        AC922_4,
        SUMMIT_6,
        DELOS_4,
        PCIE8_PHB,
        PCIE4_PHB,
        A40_4,
        CUBEMESH_16,
    )
}
SMALL_MACHINES: Final = tuple(machine for machine in MACHINES.values() if machine.size <= 8)


@st.composite
def irregular_machines(draw: st.DrawFn, smallest: int = 3, largest: int = 6) -> Machine:
    """Draw a machine that nobody builds: any code between any two GPUs. At most NV3, so that six Hopper GPUs never show more links than they have."""
    size = draw(st.integers(smallest, largest))
    codes = [["X"] * size for _ in range(size)]
    for i in range(size):
        for j in range(i):
            codes[i][j] = codes[j][i] = draw(st.sampled_from(["NV1", "NV2", "NV3", "NV1", "NV2", "PIX", "PXB", "PHB", "NODE", "SYS"]))
    numa = draw(st.none() | st.lists(st.sampled_from(["0", "1", "0-1", "N/A"]), min_size=size, max_size=size))
    return Machine("irregular", tuple(map(" ".join, codes)), None if numa is None else tuple(numa), "NVIDIA H100 80GB HBM3", 81559, 25.0, 18, 5)


def relabelled(machine: Machine, order: list[int]) -> Machine:
    """Return the machine with its GPUs numbered anew: the GPU at position i was at ``order[i]``."""
    codes = machine.codes
    rows = tuple(" ".join(codes[a][b] for b in order) for a in order)
    numa = None if machine.numa is None else tuple(machine.numa[a] for a in order)
    return replace(machine, rows=rows, numa=numa)
