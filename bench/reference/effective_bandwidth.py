"""MAPA's predictor: the effective bandwidth of a ring, GB/s, from how many of its edges are double NVLinks, single NVLinks and PCIe paths.

A regression that its authors fitted to all-reduce measurements on a DGX-1V: 14 terms in the three counts, their products and the inverses of both. It sees one
ring, not several packed into the same links, and a sum, not a slowest hop: five GPUs with two PCIe hops among the single NVLinks of their ring are predicted
53.6 GB/s, with no PCIe hop 42.9. Rings of two to five edges are predicted above zero; beyond that nobody promises it.

Source: K. Ranganath et al., "MAPA: Multi-Accelerator Pattern Allocation Policy for Multi-Tenant GPU Servers", SC'21, section on effective bandwidth; the
coefficients as published in the artefact, socal-ucr/MAPA src/Props.hh, commit 13bd242.
"""

from typing import Final

# Coefficient and the counts that its term multiplies: "d" double, "s" single, "p" PCIe. The term is the product, or 1 / (product + 1).
_PRODUCTS: Final = {
    "d": 16.39670455,
    "s": 4.536821878,
    "p": 1.55623404,
    "ds": -7.973335727,
    "sp": 12.73323772,
    "dp": -4.195655221,
    "dsp": -5.114108079,
}
_INVERSES: Final = {
    "d": -20.69484581,
    "s": -9.467461958,
    "p": 7.615106783,
    "ds": -8.413419363,
    "sp": 62.85125807,
    "dp": 27.41832588,
    "dsp": -46.97390071,
}


def predicted(double: int, single: int, pcie: int) -> float:
    """Return the predicted effective bandwidth, GB/s, of a ring with so many edges of each kind.

    >>> round(predicted(4, 0, 0), 1), round(predicted(0, 0, 4), 1)
    (94.5, 12.5)
    """
    counts = {"d": double, "s": single, "p": pcie}
    total = 0.0
    for names in _PRODUCTS:
        product = 1
        for name in names:
            product *= counts[name]
        total += _PRODUCTS[names] * product + _INVERSES[names] / (product + 1)
    return total
