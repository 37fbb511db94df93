"""Measured figures of links and of all-reduce, and what the bandwidth model says in their place.

Called by `bench.bandwidth_model`. `read` takes the measured rows from the data folder (`links/link_bandwidth.csv`: GPU, link, metric, GB/s, source); `_MODELLED`
says which machine and set each row stands for. Rows without an entry are not modelled, and are listed as such: transfers staged in the host's memory because peer
access was off or broken, and one row that holds two links.

Measured both-way figures are halved: the model speaks of one direction. All slots are x16 of the model's PCIe generation.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bench.topology_quality.linkwise import topology_class_of

Key = tuple[str, str, str]  # GPU, link, metric as the data has them


@dataclass(frozen=True, slots=True)
class Stand:
    """What a measured row is compared with: a set of ``gpus`` out of GPUs of a model that all show one code, for every one of ``codes``."""

    model: str
    codes: tuple[str, ...]
    gpus: int = 2
    directions: int = 1
    of: int | None = None  # GPUs of the machine, where more than the set: it tells a switch from a mesh


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured row and the model's figure for it, GB/s, one direction; None where the row is not modelled."""

    gpu: str
    link: str
    metric: str
    measured: tuple[float, float]  # lowest and highest figure of the row
    modelled: tuple[float, float] | None
    source: str

    @property
    def ratio(self) -> float | None:
        """Measured over modelled, both at the middle of their range."""
        return None if self.modelled is None else sum(self.measured) / sum(self.modelled)


_MODELLED: Final[Mapping[Key, Stand]] = MappingProxyType(
    {
        ("P100 SXM2", "NV1", "p2p uni"): Stand("Tesla P100-SXM2-16GB", ("NV1",)),
        ("P100 SXM2", "NV1", "p2p bidi"): Stand("Tesla P100-SXM2-16GB", ("NV1",), directions=2),
        ("P100 SXM2", "NV2", "p2p uni"): Stand("Tesla P100-SXM2-16GB", ("NV2",)),
        ("P100 SXM2", "SYS (other socket; no P2P)", "p2p uni"): Stand("Tesla P100-SXM2-16GB", ("SYS",)),
        ("V100 SXM2", "NV2", "p2p uni"): Stand("Tesla V100-SXM2-16GB", ("NV2",)),
        ("A100 SXM4", "NV12", "all-reduce busbw 2 GPUs"): Stand("NVIDIA A100-SXM4-40GB", ("NV12",), of=8),
        ("A100 SXM4", "NV12 (8 GPU NVSwitch)", "all-reduce busbw 8 GPUs"): Stand("NVIDIA A100-SXM4-40GB", ("NV12",), 8),
        ("A100 SXM4", "NV12", "p2p bidi"): Stand("NVIDIA A100-SXM4-40GB", ("NV12",), directions=2, of=8),
        ("A100 PCIe", "NODE (3 GPUs over bridge pair + NODE)", "all-reduce busbw 3 GPUs"): Stand("NVIDIA A100-PCIE-40GB", ("NODE",), 3),
        ("H100 PCIe", "NV12 bridge", "all-reduce busbw 2 GPUs"): Stand("NVIDIA H100 PCIe", ("NV12",)),
        ("H100 SXM5", "NV18", "p2p uni"): Stand("NVIDIA H100 80GB HBM3", ("NV18",), of=8),
        ("H100 SXM5", "NV18", "p2p bidi"): Stand("NVIDIA H100 80GB HBM3", ("NV18",), directions=2, of=8),
        ("H100 SXM5", "NV18 ring", "all-reduce busbw 2-8 GPUs"): Stand("NVIDIA H100 80GB HBM3", ("NV18",), 8),
        ("H100 SXM5", "NV18 NVLS", "all-reduce busbw 5/6/7/8 GPUs"): Stand("NVIDIA H100 80GB HBM3", ("NV18",), 8),
        ("H100 (NV6 pairs; 4-GPU board)", "NV6", "p2p bidi"): Stand("NVIDIA H100 64GB HBM2", ("NV6",), directions=2, of=4),
        ("H800 SXM", "NV8", "all-reduce busbw 8 GPUs"): Stand("NVIDIA H800", ("NV8",), 8),
        ("H200 SXM", "NV18 NVLS", "all-reduce busbw 8 GPUs"): Stand("NVIDIA H200", ("NV18",), 8),
        ("B200 SXM", "NV18", "all-reduce busbw 8 GPUs"): Stand("NVIDIA B200", ("NV18",), 8),
        ("B300 SXM", "NV18 NVLS off/on", "all-reduce busbw 8 GPUs"): Stand("NVIDIA B300 SXM6 AC", ("NV18",), 8),
        ("GB200 NVL72", "NV18", "p2p uni (nvbandwidth)"): Stand("NVIDIA GB200", ("NV18",), of=4),
        ("GB200 NVL72", "NV18", "all-reduce busbw 72 GPUs"): Stand("NVIDIA GB200", ("NV18",), 4),  # one tray: the matrix ends there
        ("RTX 6000 Pro (PCIe 5.0 x16)", "PIX/PHB/NODE same NUMA", "p2p uni"): Stand("NVIDIA RTX PRO 6000", ("PIX", "PHB", "NODE")),
        ("RTX 6000 Pro (PCIe 5.0 x16)", "SYS (dual EPYC)", "p2p uni"): Stand("NVIDIA RTX PRO 6000", ("SYS",)),
        ("RTX 4090 (PCIe 4.0 x16)", "PHB P2P on (patched driver)", "p2p bidi"): Stand("NVIDIA GeForce RTX 4090", ("PHB",), directions=2),
        ("RTX 5090 (PCIe 5.0 x16)", "dual socket", "all-reduce busbw 4/8 GPUs"): Stand("NVIDIA GeForce RTX 5090", ("SYS",), 8),
        ("RTX 3090 / A6000 (GA102)", "NV4 bridge", "link rate uni"): Stand("NVIDIA GeForce RTX 3090", ("NV4",)),
    }
)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")


def read(data: Path) -> list[Figure]:
    """Return every row of the data folder, measured beside modelled."""
    with (data / "links" / "link_bandwidth.csv").open(encoding="utf-8", newline="") as file:
        return [_figure(row) for row in csv.DictReader(file)]


def _figure(row: dict[str, str]) -> Figure:
    stand = _MODELLED.get((row["gpu"], row["link"], row["metric"]))
    halves = 1 if stand is None else stand.directions
    numbers = [float(number) / halves for number in _NUMBER.findall(row["gbps"].split("(")[0])]
    return Figure(row["gpu"], row["link"], row["metric"], (min(numbers), max(numbers)), None if stand is None else _modelled(stand), row["source"])


def _modelled(stand: Stand) -> tuple[float, float]:
    found = [set_bandwidth(uniform(stand.of or stand.gpus, code), stand.model, stand.gpus) for code in stand.codes]
    return min(found), max(found)


def uniform(size: int, code: str) -> tuple[tuple[str, ...], ...]:
    """Return the codes of a machine that shows one code in every cell."""
    return tuple(tuple("X" if i == j else code for j in range(size)) for i in range(size))


def set_bandwidth(codes: Sequence[Sequence[str]], model: str, gpus: int) -> float:
    """Return the model's GB/s for the first ``gpus`` GPUs of a machine."""
    return float(topology_class_of(codes, model).bandwidth[(1 << gpus) - 1])
