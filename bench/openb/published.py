"""Figures to compare with: what the paper's own runs gave, and what no placer can exceed.

DIR/openb/published_results.csv: trace, policy, alloc50 to alloc130 (GPU allocated percent at that percent arrived), fragpct50 to fragpct130 (F, percent of the cluster):
means of the ten runs in `experiments/analysis/expected_results` of github.com/hkust-adsl/kubernetes-scheduler-simulator (commit 8f3d641).
DIR/openb/bounds.csv: trace, hindsight_alloc100_max, hindsight_alloc130_max: a linear program over pod classes and node classes that knows all arrivals beforehand.
"""

import csv
from pathlib import Path
from typing import Final

NAMES: Final = {
    "random": "Random",
    "dotprod": "DotProd",
    "clustering": "Clustering",
    "packing": "Packing",
    "bestfit": "BestFit",
    "fgd": "FGD",
}
MEANT_WITHIN: Final = 0.15  # points at 100 and 130 percent arrived: ten runs of either side differ by their seeds

Figures = dict[tuple[str, str], float]  # (trace, policy) -> percent


def allocated(data: Path, percent: int) -> Figures:
    """Return the published GPU allocated, by trace and our name of the policy, when that percent has arrived."""
    return _column(data, f"alloc{percent}")


def fragmentation(data: Path, percent: int) -> Figures:
    """Return the published F, percent of the cluster, in the same way."""
    return _column(data, f"fragpct{percent}")


def _column(data: Path, column: str) -> Figures:
    ours = {name: policy for policy, name in NAMES.items()}
    with (data / "openb" / "published_results.csv").open(newline="") as file:
        return {(row["trace"], ours[row["policy"]]): float(row[column]) for row in csv.DictReader(file)}


def bounds(data: Path, percent: int) -> dict[str, float]:
    """Return the highest GPU allocated that any placer could reach, by trace, at 100 or 130 percent arrived."""
    with (data / "openb" / "bounds.csv").open(newline="") as file:
        return {row["trace"]: float(row[f"hindsight_alloc{percent}_max"]) for row in csv.DictReader(file)}
