"""Every free set of a machine, every size: what Linkwise takes, what brute force says is there, and what NVIDIA's allocator takes.

The allocator's answers are recorded ones (`golden`). All three are judged by the bandwidths of `brute_force`, GB/s, so that the judge is not the tables that
Linkwise chooses with.
"""

from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Final

from bench.topology_quality import brute_force
from bench.topology_quality.golden import GoldenMachine, GoldenRow
from bench.topology_quality.linkwise import topology_class_of
from topology.topology_class import TopologyClass, members

SAME: Final = 1e-6  # GB/s; the solver's answers are exact to 1e-9


@dataclass(frozen=True, slots=True)
class Row:
    """One free set and size at which Linkwise and the allocator get different bandwidths, GB/s."""

    free: str
    k: int
    linkwise: str
    linkwise_gb_per_s: float
    allocator: str
    allocator_gb_per_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One machine and one record of the allocator."""

    machine: str
    pcie_known: bool  # whether the allocator saw the PCIe level under NVLinks
    rows: int  # free sets x sizes of two or more
    below_brute_force: int  # rows where Linkwise gets less than the best that is there
    below_allocator: int
    beaten: tuple[Row, ...]  # rows where the allocator gets less than Linkwise

    def facts(self) -> dict[str, Any]:
        """Return everything as plain data, with the means over the beaten rows."""
        ours, theirs = self.means()
        return {**asdict(self), "beaten_mean_linkwise": ours, "beaten_mean_allocator": theirs, "mean_of_ratios": self.mean_of_ratios()}

    def means(self) -> tuple[float, float]:
        """Return the mean GB/s over the beaten rows, Linkwise's and the allocator's; zeros where there is none."""
        count = max(1, len(self.beaten))
        return sum(row.linkwise_gb_per_s for row in self.beaten) / count, sum(row.allocator_gb_per_s for row in self.beaten) / count

    def mean_of_ratios(self) -> float:
        """Return the mean of Linkwise's GB/s over the allocator's on the beaten rows, 1.0 where there is none."""
        return sum(row.linkwise_gb_per_s / row.allocator_gb_per_s for row in self.beaten) / len(self.beaten) if self.beaten else 1.0

    def by_size(self) -> list[tuple[int, int]]:
        """Return (k, beaten rows of that size), smallest k first."""
        return [(k, len(list(rows))) for k, rows in groupby(sorted(row.k for row in self.beaten))]


def compare(machine: GoldenMachine) -> list[Comparison]:
    """Return both comparisons of a machine."""
    product = machine.product
    kind = topology_class_of(machine.codes, product.model)
    own = brute_force.bandwidths(machine.codes, product.nvlink_gb_per_s, product.pcie_generation)
    return [_comparison(machine, known, kind, own) for known in (True, False)]


def _comparison(machine: GoldenMachine, pcie_known: bool, kind: TopologyClass, own: dict[int, float]) -> Comparison:
    rows = [row for row in (machine.rows if pcie_known else machine.topo_rows) if row.k > 1]
    short, below, beaten = 0, 0, []
    for row in rows:
        found = kind.best_set(row.free, row.k)
        mask = 0 if found is None else found.mask
        ours, theirs = own.get(mask, 0.0), own[row.chosen]
        short += ours < brute_force.best(own, row.free, row.k) - SAME
        below += ours < theirs - SAME
        if ours > theirs + SAME:
            beaten.append(_row(row, mask, ours, theirs))
    return Comparison(machine.name, pcie_known, len(rows), short, below, tuple(beaten))


def _row(row: GoldenRow, mask: int, ours: float, theirs: float) -> Row:
    return Row(_named(row.free), row.k, _named(mask), round(ours, 3), _named(row.chosen), round(theirs, 3))


def _named(mask: int) -> str:
    return " ".join(map(str, members(mask)))
