"""What one link between two devices is, and the rate at which it can carry data.

The lowest module of all: codes of `nvidia-smi topo -m` (`LinkCode`), how far apart they say two devices are (`Distance`), and the only tables of
rates in the project, each row with its source. `linkwise links` prints them. What a *set* of GPUs gets over its links is decided in `collective`.

Rates are nominal, GB/s (10^9 bytes), one direction. A new link code goes into `Distance` and `_DISTANCE_OF`; a new GPU model into `GPU_MODELS`.
"""

import re
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Final


class Distance(IntEnum):
    """How far two devices are apart, nearest first; the names are the values of `max-distance`."""

    NVLINK = 0
    PIX = 1
    PXB = 2
    PHB = 3
    NODE = 4
    SYS = 5


# SOC is what drivers up to 384 print for everything beyond the host bridge of a socket; 390 split it into NODE and SYS.
_DISTANCE_OF: Final = {
    "PIX": Distance.PIX,
    "PXB": Distance.PXB,
    "PHB": Distance.PHB,
    "NODE": Distance.NODE,
    "SYS": Distance.SYS,
    "SOC": Distance.SYS,
}
_NVLINK: Final = re.compile(r"NV([1-9][0-9]?)")


@dataclass(frozen=True)
class LinkCode:
    """One cell of the link matrix: the code as printed (`NV4`, `PIX`, …, `SOC`)."""

    text: str

    @staticmethod
    def parse(text: str) -> "LinkCode | None":
        """Return the code that ``text`` is, or None where it is none (`X`, an affinity, damage).

        >>> LinkCode.parse("NV12").nvlinks, LinkCode.parse("0-23")
        (12, None)
        """
        return _parse_code(text)

    @cached_property
    def nvlinks(self) -> int:
        """Number of bonded NVLinks, 0 for a PCIe path."""
        match = _NVLINK.fullmatch(self.text)
        return int(match.group(1)) if match else 0

    @cached_property
    def distance(self) -> Distance:
        """How far apart the code says the two devices are."""
        return Distance.NVLINK if self.nvlinks else _DISTANCE_OF[self.text]

    def weakness(self) -> tuple[int, int]:
        """Sort key: the stronger link first."""
        return (int(self.distance), -self.nvlinks)

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=256)
def _parse_code(text: str) -> LinkCode | None:
    if text in _DISTANCE_OF or _NVLINK.fullmatch(text):
        return LinkCode(text)
    return None


def weaker(a: LinkCode, b: LinkCode) -> LinkCode:
    """Return the weaker of two codes: farther, or with fewer NVLinks."""
    return max(a, b, key=LinkCode.weakness)


@dataclass(frozen=True, slots=True)
class Rate:
    """GB/s, one direction; ``assumed`` where the hardware did not tell and the lowest rate that fits was taken."""

    gb_per_s: float
    assumed: bool
    source: str


# --- NVLink ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NvLinkGeneration:
    """One generation of NVLink: the rate of a link and direction, and how many links a GPU of it has at most."""

    name: str
    gb_per_s: float
    links_per_gpu: int
    source: str


PASCAL: Final = NvLinkGeneration("NVLink 1 (Pascal)", 20.0, 4, "NVIDIA Tesla P100 white paper WP-08019: 4 links, 40 GB/s each, both directions")
VOLTA: Final = NvLinkGeneration("NVLink 2 (Volta)", 25.0, 6, "NVIDIA Tesla V100 white paper WP-08608: 6 links, 50 GB/s each, both directions")
TURING: Final = NvLinkGeneration("NVLink 2 (Turing)", 25.0, 2, "NVIDIA Turing white paper WP-09183: TU102 2 links, 100 GB/s both directions")
GA10X: Final = NvLinkGeneration(
    "NVLink 3 (GA10x bridge)", 14.0625, 4, "NVIDIA GA102 white paper: 4 links, 14.0625 GB/s each direction; nvidia-smi nvlink -s prints 14.062"
)
AMPERE: Final = NvLinkGeneration("NVLink 3 (Ampere)", 25.0, 12, "NVIDIA A100 white paper: 12 links, 50 GB/s each, both directions")
HOPPER: Final = NvLinkGeneration("NVLink 4 (Hopper)", 25.0, 18, "NVIDIA H100 white paper: 18 links, 50 GB/s each, both directions")
BLACKWELL: Final = NvLinkGeneration("NVLink 5 (Blackwell)", 50.0, 18, "NVIDIA Blackwell architecture brief: 18 links, 100 GB/s each, both directions")

NVLINK_GENERATIONS: Final = (PASCAL, VOLTA, TURING, GA10X, AMPERE, HOPPER, BLACKWELL)


@dataclass(frozen=True, slots=True)
class GpuModel:
    """What a product name tells: its NVLink generation (None: it has no NVLink), its links, and its PCIe generation."""

    pattern: str  # glob over the upper-cased product name
    nvlink: NvLinkGeneration | None
    nvlinks: int
    pcie_generation: int


# First match wins, so the narrower pattern stands first. Sources: the product briefs of NVIDIA; A800 and H800 are cut to 8 links
# (NVIDIA/nccl issue 1374 shows NV8 in all cells of an H800 machine).
GPU_MODELS: Final = (
    GpuModel("*GB300*", BLACKWELL, 18, 6),
    GpuModel("*GB200*", BLACKWELL, 18, 5),
    GpuModel("*B300*", BLACKWELL, 18, 6),
    GpuModel("*B200*", BLACKWELL, 18, 5),
    GpuModel("*B100*", BLACKWELL, 18, 5),
    GpuModel("*GB10", None, 0, 5),
    GpuModel("*GH200*", HOPPER, 18, 5),
    GpuModel("*H200 NVL*", HOPPER, 18, 5),
    GpuModel("*H200*", HOPPER, 18, 5),
    GpuModel("*H100 NVL*", HOPPER, 12, 5),
    GpuModel("*H100 PCIE*", HOPPER, 12, 5),
    GpuModel("*H800*", HOPPER, 8, 5),
    GpuModel("*H100*", HOPPER, 18, 5),
    GpuModel("*H20*", HOPPER, 18, 5),
    GpuModel("*A800*", AMPERE, 8, 4),
    GpuModel("*A100*", AMPERE, 12, 4),
    GpuModel("*A30", AMPERE, 4, 4),
    GpuModel("*A40", GA10X, 4, 4),
    GpuModel("*RTX A6000*", GA10X, 4, 4),
    GpuModel("*RTX A5500*", GA10X, 4, 4),
    GpuModel("*RTX A5000*", GA10X, 4, 4),
    GpuModel("*RTX A4500*", GA10X, 4, 4),
    GpuModel("*RTX 3090*", GA10X, 4, 4),
    GpuModel("*V100-PCIE*", None, 0, 3),
    GpuModel("*V100*", VOLTA, 6, 3),
    GpuModel("*P100-PCIE*", None, 0, 3),
    GpuModel("*P100*", PASCAL, 4, 3),
    GpuModel("*QUADRO RTX 8000*", TURING, 2, 3),
    GpuModel("*QUADRO RTX 6000*", TURING, 2, 3),
    GpuModel("*QUADRO RTX 5000*", TURING, 1, 3),
    GpuModel("*RTX 2080 SUPER*", TURING, 1, 3),
    GpuModel("*RTX 2080 TI*", TURING, 2, 3),
    GpuModel("*RTX 2080*", TURING, 1, 3),
    GpuModel("*RTX PRO 6000*", None, 0, 5),
    GpuModel("*RTX 50[0-9]0*", None, 0, 5),
    GpuModel("*L40S", None, 0, 4),
    GpuModel("*L40", None, 0, 4),
    GpuModel("*L4", None, 0, 4),
    GpuModel("*A10G", None, 0, 4),
    GpuModel("*A10", None, 0, 4),
    GpuModel("*RTX 40[0-9]0*", None, 0, 4),
    GpuModel("*RTX 6000 ADA*", None, 0, 4),
    GpuModel("*T4", None, 0, 3),
)


@lru_cache(maxsize=1024)
def gpu_model(name: str | None) -> GpuModel | None:
    """Return what the product name tells, None for a name that the table does not know.

    >>> gpu_model("NVIDIA A100-SXM4-80GB").nvlinks
    12
    """
    if name is None:
        return None
    return next((model for model in GPU_MODELS if fnmatchcase(name.strip().upper(), model.pattern)), None)


def nvlink_rate(model: str | None, cell: int, total: int, measured_gb_per_s: float | None = None) -> Rate:
    """Return the rate of ONE NVLink of a GPU.

    ``cell`` is the largest NV count in the GPU's row and ``total`` the row's sum (for a switched machine pass ``cell`` for both). The product
    name decides; else what `nvidia-smi nvlink -s` printed, rounded to the nearest nominal rate; else the lowest generation that has so many links.

    >>> nvlink_rate(None, 12, 12).gb_per_s
    25.0
    >>> nvlink_rate("NVIDIA RTX A6000", 4, 4).gb_per_s
    14.0625
    """
    known = gpu_model(model)
    if known is not None and known.nvlink is not None:
        return Rate(known.nvlink.gb_per_s, assumed=False, source=f"{known.nvlink.name}: {known.nvlink.source}")
    if measured_gb_per_s is not None and measured_gb_per_s > 0:
        nearest = min(NVLINK_GENERATIONS, key=lambda g: abs(g.gb_per_s - measured_gb_per_s))
        return Rate(nearest.gb_per_s, assumed=False, source=f"nvidia-smi nvlink -s printed {measured_gb_per_s:g} GB/s: {nearest.name}")
    need = max(cell, total)
    fitting = [g for g in NVLINK_GENERATIONS if g.links_per_gpu >= need] or [g for g in NVLINK_GENERATIONS if g.links_per_gpu >= cell] or [HOPPER]
    lowest = min(fitting, key=lambda g: g.gb_per_s)
    return Rate(lowest.gb_per_s, assumed=True, source=f"assumed: {lowest.name} is the slowest with {need} links or more")


def nvlink_capacity(model: str | None) -> int:
    """Return how many NVLinks a GPU of this model has; 18, the most of any, for a model that is not known."""
    known = gpu_model(model)
    return known.nvlinks if known is not None and known.nvlinks else HOPPER.links_per_gpu


# --- PCIe -----------------------------------------------------------------------------------------------------------

# GB/s of one lane and direction after line coding. Source: PCI Express base specification, 8b/10b up to generation 2, 128b/130b up to 5, flits in 6.
PCIE_LANE_GB_PER_S: Final = {1: 0.25, 2: 0.5, 3: 0.98462, 4: 1.96923, 5: 3.93846, 6: 7.5625}


@dataclass(frozen=True, slots=True)
class PathShare:
    """What a PCIe path of some length leaves of the line rate of the slot."""

    share: float
    source: str


# One literal for all of them, so that the order PIX >= PXB >= PHB >= NODE >= SYS can be seen.
PCIE_PATH_SHARE: Final = {
    Distance.PIX: PathShare(0.85, "RTX 6000 Pro behind one switch, p2p 53 to 56 of 63 GB/s (voipmonitor/rtx6kpro pcie-bandwidth.md)"),
    Distance.PXB: PathShare(0.82, "between PIX and PHB; no public figure separates it"),
    Distance.PHB: PathShare(0.7617, "NVIDIA/nccl topo.h: 12.0 of 15.75 GB/s for generation 3 x16, 24 for 4, 48 for 5"),
    Distance.NODE: PathShare(0.70, "below PHB; NCCL counts a host-bridge hop of Intel CPUs 6/5 (topo.h, INTEL_P2P_OVERHEAD)"),
    Distance.SYS: PathShare(0.58, "P100 over the socket link: 9.19 of 15.75 GB/s (uuudown/Tartan, dgx1_ascending.txt)"),
}
LOWEST_PCIE: Final = (3, 16)  # every GPU that Linkwise knows has at least this slot in a server


def pcie_rate(distance: Distance, generation: int | None, width: int | None) -> Rate:
    """Return the rate of a PCIe path between two GPUs whose slower slot has that generation and width.

    >>> round(pcie_rate(Distance.PHB, 4, 16).gb_per_s, 1)
    24.0
    """
    if distance is Distance.NVLINK:
        raise ValueError("an NVLink has no PCIe path rate")
    assumed = generation not in PCIE_LANE_GB_PER_S or not width
    gen = generation if generation in PCIE_LANE_GB_PER_S else LOWEST_PCIE[0]
    lanes = width or LOWEST_PCIE[1]
    path = PCIE_PATH_SHARE[distance]
    source = f"PCIe {gen} x{lanes} over {distance.name}: {path.source}"
    return Rate(PCIE_LANE_GB_PER_S[gen] * lanes * path.share, assumed=assumed, source=f"assumed: {source}" if assumed else source)
