"""The link matrix of one machine, as `nvidia-smi topo -m` or a GPUTopology tells it: who is there, and the code between any two.

A plain frozen type. `topology.nvidia_smi` and `topology.api` make it; `graph`, `collective` and `topology_class` read it. It holds codes, never
rates: rates are `links`' business. Cells may be missing (None) where the text was cut; the two directions of a pair may differ, and then the
weaker one counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topology.errors import TopologyError
from topology.links import LinkCode, weaker


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU as the matrix names it; the affinity cells are verbatim, None where blank or without a column."""

    index: int
    cpus: str | None = None
    numa: str | None = None
    gpu_numa: str | None = None

    @property
    def label(self) -> str:
        """Name in the matrix."""
        return f"GPU{self.index}"


@dataclass(frozen=True, slots=True)
class NicColumn:
    """One NIC: its label in the header (`NIC0`, `mlx5_0`) and its device name (from the NIC legend, or the label itself in old formats)."""

    label: str
    name: str | None = None


Cells = tuple[tuple[LinkCode | None, ...], ...]


@dataclass(frozen=True, slots=True)
class LinkMatrix:
    """Codes between the devices of one machine.

    ``gpu_cells[i][j]`` is the cell in the row of ``gpus[i]`` and the column of ``gpus[j]`` (None on the diagonal and where nothing was printed);
    ``nic_cells[i][k]`` the cell in the row of ``gpus[i]`` and the column of ``nics[k]``. ``warnings`` are sentences for people. ``wires`` are the GPU cells
    as they were printed, where `peer_access` has lowered some of ``gpu_cells``; None elsewhere.
    """

    gpus: tuple[GpuRow, ...]
    nics: tuple[NicColumn, ...]
    gpu_cells: Cells
    nic_cells: Cells
    warnings: tuple[str, ...] = ()
    wires: Cells | None = None

    def __post_init__(self) -> None:
        """Refuse a matrix whose shape contradicts itself."""
        n, m = len(self.gpus), len(self.nics)
        for rows in (self.gpu_cells, self.gpu_cells if self.wires is None else self.wires):
            if [len(row) for row in rows] != [n] * n:
                raise TopologyError(f"the link matrix names {n} GPUs but its rows have {[len(row) for row in rows]} cells; accepted: {n} rows of {n}")
        if [len(row) for row in self.nic_cells] != [m] * n:
            raise TopologyError(
                f"the link matrix names {m} NICs but its rows have {[len(row) for row in self.nic_cells]} NIC cells; accepted: {n} rows of {m}"
            )

    @property
    def size(self) -> int:
        """Number of GPUs."""
        return len(self.gpus)

    def between(self, i: int, j: int) -> LinkCode | None:
        """Code of the pair of GPU positions: the weaker of both directions, None where neither was printed."""
        return _both_ways(self.gpu_cells, i, j)

    def wired(self, i: int, j: int) -> LinkCode | None:
        """Code of the pair as it was printed: where the two are, and not what the driver lets them use."""
        return _both_ways(self.gpu_cells if self.wires is None else self.wires, i, j)

    def pairs(self) -> Iterator[tuple[int, int, LinkCode | None]]:
        """Every pair of GPU positions once, in order."""
        for i in range(self.size):
            for j in range(i + 1, self.size):
                yield i, j, self.between(i, j)

    def asymmetric(self) -> list[tuple[int, int]]:
        """Pairs of GPU positions whose two directions print different codes."""
        return [
            (i, j)
            for i in range(self.size)
            for j in range(i + 1, self.size)
            if self.gpu_cells[i][j] is not None and self.gpu_cells[j][i] is not None and self.gpu_cells[i][j] != self.gpu_cells[j][i]
        ]

    def missing(self) -> list[tuple[int, int]]:
        """Pairs of GPU positions of which no direction was printed."""
        return [(i, j) for i, j, code in self.pairs() if code is None]


def _both_ways(cells: Cells, i: int, j: int) -> LinkCode | None:
    here, there = cells[i][j], cells[j][i]
    if here is None or there is None:
        return here or there
    return weaker(here, there)


def from_codes(rows: Sequence[Sequence[str]], numa: Sequence[str] | None = None) -> LinkMatrix:
    """Build a matrix of GPUs from rows of codes, `X` on the diagonal: for tables written by hand.

    >>> from_codes(["X NV2".split(), "NV2 X".split()]).between(0, 1).text
    'NV2'
    """
    cells = tuple(tuple(LinkCode.parse(cell) for cell in row) for row in rows)
    gpus = tuple(GpuRow(i, numa=None if numa is None else numa[i]) for i in range(len(rows)))
    return LinkMatrix(gpus, (), cells, tuple(() for _ in rows))
