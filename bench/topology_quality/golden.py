"""Machines on which NVIDIA's best-effort allocator was asked for every free set and every size, and what it answered.

Read from the data folder (`gpuallocator/NAME.csv`, `NAME.topo.csv`: free mask, k, chosen mask, score; matrices beside them). The allocator answered twice on each
machine: once with the PCIe level of every pair known, as NVML tells it, and once with what `nvidia-smi topo -m` prints, where `NV#` hides it.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.reference import LinkTable

Codes = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Product:
    """The product that a layout stands for, and its rates typed in once more for the brute force: GB/s of an NVLink and direction, PCIe generation."""

    model: str
    nvlink_gb_per_s: float
    pcie_generation: int


_V100: Final = Product("Tesla V100-SXM2-16GB", 25.0, 3)

# The data names layouts; GB/s need a product.
PRODUCTS: Final = {
    "dgx1-v100": _V100,
    "dgx1-p100": Product("Tesla P100-SXM2-16GB", 20.0, 3),
    "v100x4-nv2-full": _V100,
    "a100x4-nv4-full": Product("NVIDIA A100-SXM4-40GB", 25.0, 4),
    "a100pcie8-nv4-pairs": Product("NVIDIA A100-PCIE-40GB", 25.0, 4),
    "pcie8-pix-phb-sys": Product("Tesla T4", 0.0, 3),
    "pcie8-pix-pxb-sys": Product("Tesla T4", 0.0, 3),
}


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """One answer of the allocator."""

    free: int
    k: int
    chosen: int
    score: int


@dataclass(frozen=True, slots=True)
class GoldenMachine:
    """One machine as `topo -m` shows it, its PCIe levels also under NVLink, and the answers."""

    name: str
    product: Product
    codes: Codes
    pcie: Codes
    rows: tuple[GoldenRow, ...]  # with the PCIe levels known
    topo_rows: tuple[GoldenRow, ...]  # from what `topo -m` shows

    def table(self, *, pcie_known: bool) -> LinkTable:
        """Return the machine for the reference policies; rates are not needed for scores and stay out."""
        return LinkTable(self.codes, {}, socket=len(self.codes) // 2, pcie=self.pcie if pcie_known else None)


def machines(data: Path) -> list[GoldenMachine]:
    """Return all golden machines of the data folder that `PRODUCTS` names."""
    folder = data / "gpuallocator"
    return [
        GoldenMachine(
            name,
            product,
            _codes(folder / f"{name}.topo.txt"),
            _codes(folder / f"{name}.pcie.txt"),
            _rows(folder / f"{name}.csv"),
            _rows(folder / f"{name}.topo.csv"),
        )
        for name, product in PRODUCTS.items()
    ]


def _codes(path: Path) -> Codes:
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(tuple(line.split()[1:]) for line in lines[1:])


def _rows(path: Path) -> tuple[GoldenRow, ...]:
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(
            GoldenRow(int(row["free_mask"]), int(row["k"]), int(row["chosen_mask"]), int(row["score_of_chosen_set"])) for row in csv.DictReader(file)
        )
