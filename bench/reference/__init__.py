"""Policies to compare with: how others choose k GPUs among the free ones of one machine, each a file with one function `choose`.

    lowest_index    whatever is free, counted from below; what a device plugin does that knows no links, and MAPA's baseline
    topo_aware      MAPA's second baseline: within one socket where it fits, else counted from below
    greedy          MAPA's greedy: the ring with the greatest sum of GB/s
    preserve        MAPA's own: sensitive jobs the greatest predicted bandwidth, others what leaves most NVLink bandwidth behind
    gpuallocator    NVIDIA's best effort: the best partition of all free GPUs, by scores a pair

Written anew from the descriptions of the MAPA paper (SC'21) and of NVIDIA's README; facts and numbers carry their sources. All see a machine as a
`LinkTable` and answer with a mask, or None where they find nothing. None of them knows Linkwise's tables, and Linkwise knows none of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from bench.reference import gpuallocator, greedy, lowest_index, preserve, topo_aware
from bench.reference.link_table import LinkTable, mask_of

# (free mask, k, whether the job is sensitive to bandwidth) -> mask of the chosen set
Policy = Callable[[int, int, bool], int | None]

CHOICES: Final = {
    "lowest index": lowest_index.choose,
    "topo-aware": topo_aware.choose,
    "greedy": greedy.choose,
    "preserve": preserve.choose,
    "go-gpuallocator": gpuallocator.choose,
}


def policy(name: str, table: LinkTable) -> Policy:
    """Return a reference policy bound to one machine; ``name`` is one of `CHOICES`."""
    return partial(CHOICES[name], table)


__all__ = ["CHOICES", "LinkTable", "Policy", "mask_of", "policy"]
