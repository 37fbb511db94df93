"""What a link matrix is worth where the driver does not let some GPUs use it: `nvidia-smi topo -p2p` beside `topo -m`.

Two GPUs without peer access exchange data through host memory, whatever connects them. Measured rates of that are 0.58 to 0.70 of the slot: P100 9.2 to 10.8 of 15.75
GB/s behind one switch (uuudown/Tartan, p2p off), RTX 4090 20 to 22 of 31.5 (NVIDIA/nccl issue 814), H100 37 of 63 (NVIDIA/nccl issue 1264). So such a pair counts as
SYS, the longest path, whose share is 0.58: as a link, as a hop of a ring, and for `max-distance`. What the hardware is stays as it was printed (`LinkMatrix.wires`):
that GPUs are behind NVSwitch, or on one NUMA node, is not for the driver to forbid.

One rule for the agent's objects (`api`) and for `linkwise inspect`; who reads the statuses is `nvidia_smi.p2p`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from topology.links import LinkCode
from topology.matrix import LinkMatrix

Refused = Mapping[tuple[int, int], str]  # positions of two GPUs -> the driver's word for it, such as CNS

_THROUGH_THE_HOST: Final = LinkCode("SYS")
_SHOWN: Final = 4


def as_allowed(matrix: LinkMatrix, refused: Refused) -> LinkMatrix:
    """Return the matrix as the driver lets it be used, with a warning that says so; the printed cells go along where any was lowered.

    >>> from topology.matrix import from_codes
    >>> as_allowed(from_codes(["X NV4".split(), "NV4 X".split()]), {(0, 1): "CNS"}).between(0, 1).text
    'SYS'
    """
    if not refused:
        return matrix
    cells = [list(row) for row in matrix.gpu_cells]
    for a, b in refused:
        cells[a][b] = cells[b][a] = _THROUGH_THE_HOST
    lowered = tuple(map(tuple, cells))
    wires = matrix.wires or (None if lowered == matrix.gpu_cells else matrix.gpu_cells)
    return replace(matrix, gpu_cells=lowered, wires=wires, warnings=(*matrix.warnings, told(matrix, refused)))


def told(matrix: LinkMatrix, refused: Refused) -> str:
    """Say which pairs the driver keeps apart, empty where none."""
    if not refused:
        return ""
    pairs = [f"{matrix.gpus[a].label} and {matrix.gpus[b].label} ({status})" for (a, b), status in sorted(refused.items())]
    more = f" and {len(pairs) - _SHOWN} more pairs" if len(pairs) > _SHOWN else ""
    return f"no peer access between {', '.join(pairs[:_SHOWN])}{more}: they exchange data through host memory, counted as SYS"
