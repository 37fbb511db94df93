"""The lowest free indices: plain counting. MAPA calls it the baseline; its trying of orders changes the ring, never the set."""

from bench.reference.link_table import LinkTable, mask_of, members


def choose(_table: LinkTable, free: int, k: int, _sensitive: bool) -> int | None:
    """Return the ``k`` lowest of the free GPUs, None where there are fewer."""
    gpus = members(free)
    return mask_of(gpus[:k]) if len(gpus) >= k else None
