"""MAPA's "topo-aware" baseline: GPUs of one socket, as schedulers choose that know the PCIe tree and no NVLinks.

Only jobs smaller than a socket are held together; a job as large as a socket is counted from below, as are jobs that fit into none (artefact, function
`topoAware`).
"""

from bench.reference import lowest_index
from bench.reference.link_table import LinkTable, members, sets_of


def choose(table: LinkTable, free: int, k: int, sensitive: bool) -> int | None:
    """Return the first set of ``k`` free GPUs inside one socket, else the lowest free ones."""
    if 1 < k < table.socket:
        for found in sets_of(free, k):
            if len({gpu // table.socket for gpu in members(found)}) == 1:
                return found
    return lowest_index.choose(table, free, k, sensitive)
