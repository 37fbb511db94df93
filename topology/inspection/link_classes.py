"""The classes of links of a machine: how many pairs have which code, at which rate, and where that rate comes from. Called by `text`."""

from collections.abc import Iterable
from dataclasses import dataclass

from topology.inspection.machine import Machine
from topology.links import LinkCode, Rate


@dataclass(frozen=True, slots=True)
class LinkClass:
    """All pairs with one code, GPU to GPU or GPU to NIC. ``rates`` are the lowest and the highest GB/s; ``code`` is `-` where none was printed."""

    code: str
    between: str
    pairs: int
    rates: tuple[float, float] | None
    source: str


def link_classes(machine: Machine) -> list[LinkClass]:
    """Return the classes of GPU pairs, the strongest first, then those of GPUs and NICs."""
    matrix, rates = machine.matrix, machine.rates
    gpus = [(code, rates.gpus.get((i, j))) for i, j, code in matrix.pairs()]
    nics = [(cell, rates.nics.get((i, k))) for i, row in enumerate(matrix.nic_cells) for k, cell in enumerate(row)]
    return [*_classes("GPUs", gpus), *_classes("GPU, NIC", nics)]


def _classes(between: str, pairs: Iterable[tuple[LinkCode | None, Rate | None]]) -> list[LinkClass]:
    found: dict[LinkCode | None, list[Rate | None]] = {}
    for code, rate in pairs:
        found.setdefault(code, []).append(rate)
    printed = sorted((code for code in found if code is not None), key=LinkCode.weakness)
    classes = [_link_class(code.text, between, found[code]) for code in printed]
    return classes + ([_link_class("-", between, found[None])] if None in found else [])


def _link_class(code: str, between: str, rates: list[Rate | None]) -> LinkClass:
    known = [rate for rate in rates if rate is not None]
    if not known:
        return LinkClass(code, between, len(rates), None, "not printed, so not known")
    figures = [rate.gb_per_s for rate in known]
    sources = list(dict.fromkeys(rate.source for rate in known))
    more = f" (and {len(sources) - 1} more)" if len(sources) > 1 else ""
    return LinkClass(code, between, len(rates), (min(figures), max(figures)), sources[0] + more)
