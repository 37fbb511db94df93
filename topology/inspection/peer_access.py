"""What a link matrix is worth where the driver lets some GPUs not use it: `nvidia-smi topo -p2p` beside `topo -m`.

Called by `reading`. Two GPUs without peer access exchange data through host memory, whatever connects them. Measured rates of that are 0.58 to 0.70 of the slot: P100
9.2 to 10.8 of 15.75 GB/s behind one switch (uuudown/Tartan, p2p off), RTX 4090 20 to 22 of 31.5 (NVIDIA/nccl issue 814), H100 37 of 63 (NVIDIA/nccl issue 1264).
So such a pair counts as SYS, the longest path, whose share is 0.58: as a link, as a hop of a ring, and for `max-distance`.
"""

from dataclasses import replace
from itertools import combinations
from typing import Final

from topology.links import LinkCode
from topology.matrix import LinkMatrix
from topology.nvidia_smi import P2pCapability, P2pMatrix, P2pStatus

_THROUGH_THE_HOST: Final = LinkCode("SYS")
# Atomics and the like may be missing where reads and writes work; `-p2p n` says NS of every pair without NVLinks.
_ABOUT_COPIES: Final = frozenset({P2pCapability.READ, P2pCapability.WRITE, P2pCapability.READ_WRITE, P2pCapability.UNKNOWN})
_SHOWN: Final = 4


def with_peer_access(matrix: LinkMatrix, p2p: P2pMatrix) -> tuple[LinkMatrix, list[str]]:
    r"""Return the matrix as the driver lets it be used, and what was lowered, in sentences. A pair of which nothing is told stays as it is.

    >>> from topology.matrix import from_codes
    >>> from topology.nvidia_smi import read_p2p
    >>> found, told = with_peer_access(from_codes(["X PIX".split(), "PIX X".split()]), read_p2p(" GPU0 GPU1\nGPU0 X CNS\nGPU1 CNS X\n"))
    >>> found.between(0, 1).text, told
    ('SYS', ['no peer access between GPU0 and GPU1 (CNS): they exchange data through host memory, counted as SYS'])
    """
    if p2p.capability not in _ABOUT_COPIES:
        return matrix, [
            f"the peer-to-peer statuses are those of `topo -p2p {p2p.capability}`, which tell nothing about copies; wanted: `topo -p2p r`"
        ]
    place = {index: at for at, index in enumerate(p2p.gpus)}
    refused: dict[tuple[int, int], P2pStatus] = {}
    for a, b in combinations(range(matrix.size), 2):
        i, j = place.get(matrix.gpus[a].index), place.get(matrix.gpus[b].index)
        if i is not None and j is not None:
            for status in (p2p.statuses[i][j], p2p.statuses[j][i]):
                if status is not None and status is not P2pStatus.OK:
                    refused[a, b] = status
    cells = [list(row) for row in matrix.gpu_cells]
    for a, b in refused:
        cells[a][b] = cells[b][a] = _THROUGH_THE_HOST
    return replace(matrix, gpu_cells=tuple(map(tuple, cells))), [*p2p.warnings, *_told(matrix, refused)]


def _told(matrix: LinkMatrix, refused: dict[tuple[int, int], P2pStatus]) -> list[str]:
    if not refused:
        return []
    pairs = [f"{matrix.gpus[a].label} and {matrix.gpus[b].label} ({status})" for (a, b), status in refused.items()]
    more = f" and {len(pairs) - _SHOWN} more pairs" if len(pairs) > _SHOWN else ""
    return [f"no peer access between {', '.join(pairs[:_SHOWN])}{more}: they exchange data through host memory, counted as SYS"]
