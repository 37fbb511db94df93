"""The matrix that `linkwise inspect --p2p FILE` goes by: that of `topo -m`, less what the statuses of `topo -p2p` forbid. Called by `reading`.

The rule itself is `topology.peer_access`; here only the statuses are matched with the rows.
"""

from topology.matrix import LinkMatrix
from topology.nvidia_smi import P2pMatrix
from topology.peer_access import as_allowed


def with_peer_access(matrix: LinkMatrix, p2p: P2pMatrix) -> tuple[LinkMatrix, list[str]]:
    r"""Return the matrix as the driver lets it be used, and what was lowered, in sentences. A pair of which nothing is told stays as it is.

    >>> from topology.matrix import from_codes
    >>> from topology.nvidia_smi import read_p2p
    >>> found, told = with_peer_access(from_codes(["X PIX".split(), "PIX X".split()]), read_p2p(" GPU0 GPU1\nGPU0 X CNS\nGPU1 CNS X\n"))
    >>> found.between(0, 1).text, told
    ('SYS', ['no peer access between GPU0 and GPU1 (CNS): they exchange data through host memory, counted as SYS'])
    """
    if not p2p.is_about_copies:
        return matrix, [
            f"the peer-to-peer statuses are those of `topo -p2p {p2p.capability}`, which tell nothing about copies; wanted: `topo -p2p r`"
        ]
    place = {gpu.index: at for at, gpu in enumerate(matrix.gpus)}
    refused = {
        (min(place[a], place[b]), max(place[a], place[b])): str(status) for (a, b), status in p2p.refused().items() if a in place and b in place
    }
    allowed = as_allowed(matrix, refused)
    return allowed, [*p2p.warnings, *allowed.warnings[len(matrix.warnings) :]]
