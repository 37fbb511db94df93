"""MAPA's preserve: bandwidth for the jobs that are sensitive to it, and for the others what they harm least.

A sensitive job takes the ring with the greatest predicted effective bandwidth. Any other takes the set after which the free GPUs keep the greatest sum of NVLink
GB/s over their pairs; among equals the ring with the greatest sum of its own.

One thing is left out: the artefact's loop starts from an empty answer, whose prediction is 12.3 GB/s by the same formula, so that a sensitive job whose best ring
is predicted below that waits although GPUs are free. The paper does not describe it, and the published means are met without it.
"""

from bench.reference.link_table import LinkTable, sets_of


def choose(table: LinkTable, free: int, k: int, sensitive: bool) -> int | None:
    """Return the set of ``k`` free GPUs that preserve takes, the first of equals; None where fewer are free."""
    found = sets_of(free, k)
    if sensitive and k > 1:
        return max(found, key=lambda own: table.ring(own).predicted, default=None)
    return max(found, key=lambda own: (table.left_over(free & ~own), table.ring(own).aggregated if k > 1 else 0.0), default=None)
