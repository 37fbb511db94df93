"""The bandwidth model against what was printed and what was measured.

`python -m bench.bandwidth_model --data DIR`. Three looks: the GB/s of every link code over recorded outputs of `nvidia-smi topo -m` (each is read, or refused with
a typed error), all-reduce measured on a DGX-1 with P100 by the number of GPUs, and single measured figures from public reports. DIR holds `links/`, `gpuallocator/`;
the recorded outputs are a folder with an index.csv (file, kind, …), by default `corpus` beside DIR, and are left out where there is none.
Writes bandwidth_model.md, its figures as JSON, and a picture. Nothing is timed.
"""

import csv
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from scipy.stats import spearmanr

from bench import link_figures, machine
from bench.link_figures import Figure
from bench.markdown import table
from bench.reference import LinkTable
from bench.topology_quality import golden, plots
from topology.inspection import inspect

NAME = "bandwidth_model"
# What must hold between the rates of link codes, best first; from PIX on a level may equal the one before.
STRICT: Final = ("NV18", "NV12", "NV4", "PIX")
ORDER: Final = (*STRICT, "PXB", "PHB", "NODE", "SYS")


@dataclass(frozen=True, slots=True)
class Codes:
    """What the recorded outputs gave: GB/s of every code between GPUs, lowest and highest over the files, and how the files ended."""

    rates: dict[str, tuple[float, float]]
    files_with: dict[str, int]
    read: int
    errors: dict[str, int]  # kind of typed error -> files
    order_holds: bool
    out_of_order: tuple[str, ...]  # files in which a better code has a lower rate


@dataclass(frozen=True, slots=True)
class AllReduce:
    """All-reduce over GPUs 0 to n-1 of a DGX-1 with P100, GB/s by n."""

    counts: tuple[int, ...]
    measured: tuple[float, ...]
    modelled: tuple[float, ...]
    regression: tuple[float, ...]  # MAPA's predictor
    spearman: float
    spearman_regression: float

    @property
    def slowest(self) -> int:
        """The number of GPUs that the model ranks last."""
        return self.counts[self.modelled.index(min(self.modelled))]


def main(
    data: Annotated[Path, typer.Option(help="Folder with links/ and gpuallocator/.", exists=True, file_okay=False)],
    corpus: Annotated[Path | None, typer.Option(help="Folder of recorded outputs with an index.csv; by default `corpus` beside DIR.")] = None,
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
) -> None:
    """Compare and write bench/results/bandwidth_model.*."""
    recorded = corpus or data.resolve().parent / "corpus"
    codes = codes_of(recorded) if (recorded / "index.csv").is_file() else None
    reduced = all_reduce(data)
    measured = link_figures.read(data)
    lines = {"measured": reduced.measured, "ring packing": reduced.modelled, "MAPA's regression": reduced.regression}
    plots.by_gpu_count(lines, reduced.counts, results / f"{NAME}.svg")
    machine.write_json(NAME, figures(codes, reduced, measured), results)
    heading = machine.heading("The bandwidth model against recorded and measured figures", timed=False)
    machine.write(NAME, "\n".join([heading, codes_text(codes), all_reduce_text(reduced), measured_text(measured), nccl_text(data)]), results)


def figures(codes: Codes | None, reduced: AllReduce, measured: Sequence[Figure]) -> dict[str, Any]:
    """Return everything as plain data."""
    return {
        "codes": None if codes is None else asdict(codes),
        "all_reduce": {**asdict(reduced), "slowest": reduced.slowest},
        "measured": [{**asdict(figure), "ratio": figure.ratio} for figure in measured],
    }


# --- codes of recorded outputs ------------------------------------------------------------------------------------------


def codes_of(corpus: Path) -> Codes:
    """Return the rates of all codes in the recorded `topo` outputs; an output that raises anything but a typed error ends the benchmark."""
    rates: dict[str, list[float]] = {}
    files_with: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    out_of_order, read = [], 0
    with (corpus / "index.csv").open(encoding="utf-8", newline="") as index:
        names = [row["file"] for row in csv.DictReader(index) if row["kind"].startswith("topo-")]
    for name in names:
        report = inspect(name, (corpus / name).read_bytes().decode("utf-8", errors="replace"))
        if report.error is not None:
            errors[report.error.kind] += 1
            continue
        read += 1
        own: dict[str, list[float]] = {}
        for link in report.links:
            if link.code is not None and link.gb_per_s is not None and link.b.startswith("GPU"):
                own.setdefault("SYS" if link.code == "SOC" else link.code, []).append(link.gb_per_s)
        files_with.update(own.keys())
        for code, found in own.items():
            rates.setdefault(code, []).extend(found)
        if not in_order({code: (min(found), max(found)) for code, found in own.items()}):
            out_of_order.append(name)
    ranges = {code: (min(found), max(found)) for code, found in sorted(rates.items(), key=lambda item: -max(item[1]))}
    return Codes(ranges, dict(files_with), read, dict(errors), in_order(ranges), tuple(out_of_order))


def in_order(rates: dict[str, tuple[float, float]]) -> bool:
    """Tell whether the rates of the codes of `ORDER` that occur fall in that order: every rate of a better code above, from PIX on not below, the next one's."""
    present = [code for code in ORDER if code in rates]
    for better, worse in itertools.pairwise(present):
        lowest, highest = rates[better][0], rates[worse][1]
        if lowest < highest or (better in STRICT[:-1] and lowest == highest):
            return False
    return True


def codes_text(codes: Codes | None) -> str:
    """Return the part on recorded outputs."""
    if codes is None:
        return "## Link codes\n\nNo recorded outputs were given.\n"
    rows = [(code, codes.files_with[code], f"{low:g}" if low == high else f"{low:g} to {high:g}") for code, (low, high) in codes.rates.items()]
    errors = ", ".join(f"{kind} {count}" for kind, count in sorted(codes.errors.items()))
    holds = "holds" if codes.order_holds and not codes.out_of_order else f"does NOT hold ({', '.join(codes.out_of_order) or 'over all files'})"
    return "\n".join(
        [
            (
                f"## Link codes\n\n{codes.read + sum(codes.errors.values())} recorded outputs of `nvidia-smi topo`: {codes.read} read, the others refused with a typed error ({errors}). Rates "
                "between GPUs, GB/s, one direction, from the matrix alone: what it does not tell (model, slot) is assumed at the lowest rate that fits.\n"
            ),
            table(("code", "files", "GB/s"), rows),
            f"{' > '.join(STRICT)} >= {' >= '.join(ORDER[len(STRICT) :])}: {holds}, over all files and within each.\n",
        ]
    )


# --- all-reduce by the number of GPUs -----------------------------------------------------------------------------------


def all_reduce(data: Path) -> AllReduce:
    """Return the measured all-reduce figures beside the model's and the regression's."""
    with (data / "links" / "dgx1p_allreduce.csv").open(encoding="utf-8", newline="") as file:
        rows = [(int(row["gpus"]), float(row["busbw_gbps"])) for row in csv.DictReader(file)]
    dgx1p = next(found for found in golden.machines(data) if found.name == "dgx1-p100")
    counts, measured = zip(*rows, strict=True)
    modelled = tuple(link_figures.set_bandwidth(dgx1p.codes, dgx1p.product.model, count) for count in counts)
    links = LinkTable(dgx1p.codes, {"NV1": 20.0, "SYS": 10.0}, socket=4)
    regression = tuple(round(links.ring((1 << count) - 1).predicted, 2) for count in counts)
    return AllReduce(counts, measured, modelled, regression, _spearman(measured, modelled), _spearman(measured, regression))


def _spearman(measured: Sequence[float], other: Sequence[float]) -> float:
    return round(float(spearmanr(measured, other).statistic), 4)


def all_reduce_text(found: AllReduce) -> str:
    """Return the part on all-reduce."""
    rows = [
        (count, f"{measured:.1f}", f"{modelled:.1f}", f"{measured / modelled:.2f}", f"{regression:.1f}")
        for count, measured, modelled, regression in zip(found.counts, found.measured, found.modelled, found.regression, strict=True)
    ]
    return "\n".join(
        [
            "## All-reduce on a DGX-1 with P100\n\nGPUs 0 to n-1, bus bandwidth in GB/s: measured with NCCL 2, ring packing, and MAPA's regression (fitted on a V100 machine).\n",
            table(("GPUs", "measured", "ring packing", "measured / packing", "regression"), rows),
            (
                f"Rank correlation (Spearman) with what was measured: ring packing {found.spearman:.3f}, regression {found.spearman_regression:.3f}. Ring packing ranks {found.slowest} GPUs last: "
                "they have no NVLink ring.\n"
            ),
        ]
    )


# --- single figures -----------------------------------------------------------------------------------------------------


def measured_text(measured: Sequence[Figure]) -> str:
    """Return the part on single figures."""
    rows = [
        (figure.gpu, figure.link, figure.metric, _span(figure.measured), _span(figure.modelled), f"{figure.ratio:.2f}", figure.source)
        for figure in measured
        if figure.modelled is not None and figure.ratio is not None
    ]
    left_out = [f"{figure.gpu}, {figure.link}, {figure.metric}" for figure in measured if figure.modelled is None]
    head = ("GPU", "link", "metric", "measured", "nominal", "measured / nominal", "source")
    return "\n".join(
        [
            "## Single figures\n\nGB/s, one direction; both-way figures are halved. Nominal rates are upper bounds for rings; reduction inside NVSwitch (NVLS) may exceed them.\n",
            table(head, rows),
            f"Not modelled: {'; '.join(left_out)}.\n",
        ]
    )


def _span(values: tuple[float, float] | None) -> str:
    if values is None:
        return "-"
    return f"{values[0]:.1f}" if values[0] == values[1] else f"{values[0]:.1f} to {values[1]:.1f}"


def nccl_text(data: Path) -> str:
    """Return the part on the constants that NCCL plans with."""
    with (data / "links" / "nccl_model.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["name"], row["gbps"], row["meaning"]) for row in csv.DictReader(file)]
    return "\n".join(
        [
            "## NCCL's own constants\n\nEffective GB/s that NCCL plans with (src/graph/topo.h); ours are nominal.\n",
            table(("name", "GB/s", "meaning"), rows),
        ]
    )


if __name__ == "__main__":
    typer.run(main)
