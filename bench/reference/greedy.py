"""MAPA's greedy: the set whose best ring has the greatest sum of GB/s, whatever it leaves behind. A sum hides the slowest hop."""

from bench.reference import lowest_index
from bench.reference.link_table import LinkTable, sets_of


def choose(table: LinkTable, free: int, k: int, sensitive: bool) -> int | None:
    """Return the set with the greatest aggregated bandwidth, the first of equals; a single GPU is counted from below."""
    if k < 2:
        return lowest_index.choose(table, free, k, sensitive)
    return max(sets_of(free, k), key=lambda found: table.ring(found).aggregated, default=None)
