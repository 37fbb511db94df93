"""How good the chosen sets of GPUs are, and what they leave behind, beside the policies of others.

`python -m bench.placement_topology --data DIR`. Three experiments, each by its own module of `bench.topology_quality`: MAPA's stream of jobs on five machines,
every free set of the machines on which NVIDIA's allocator was recorded, and pods that come and go. DIR holds `mapa/` and `gpuallocator/`, as described there.
Writes placement_topology.md, its figures as JSON, all rows where the allocator is beaten as CSV, and two pictures. Nothing is timed: the same seeds give the
same figures on every machine.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from bench import machine
from bench.markdown import table
from bench.topology_quality import every_free_set, golden, mapa, plots, remainders, summary
from bench.topology_quality.every_free_set import Comparison
from bench.topology_quality.remainders import Share
from bench.topology_quality.summary import Summary

NAME = "placement_topology"
FIRST_CONFIRMING_SEED = 100  # far from the seeds of the reported runs

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def main(
    data: Annotated[Path, typer.Option(help="Folder with mapa/ and gpuallocator/.", exists=True, file_okay=False)],
    runs: Annotated[int, typer.Option(min=1, help="Streams of jobs, seeds from 0.")] = 10,
    confirm: Annotated[int, typer.Option(min=0, help=f"More streams, seeds from {FIRST_CONFIRMING_SEED}, for a second look.")] = 100,
    sequences: Annotated[int, typer.Option(min=1, help="Sequences of arrivals and departures on each machine.")] = 1000,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
) -> None:
    """Run all three experiments and write bench/results/placement_topology.*."""
    names = list(mapa.machines(data))
    streams = summary.summaries(run for found in spread(partial(mapa.runs, data, seeds=range(runs)), names, jobs) for run in found)
    again = range(FIRST_CONFIRMING_SEED, FIRST_CONFIRMING_SEED + confirm)
    confirmed = summary.summaries(run for found in spread(partial(mapa.runs, data, seeds=again), names, jobs) for run in found) if confirm else []
    comparisons = [one for found in spread(every_free_set.compare, golden.machines(data), jobs) for one in found]
    served = spread(partial(remainders.shares, data, seeds=range(sequences)), remainders.MACHINES, jobs)
    shares = [share for found in served for share in found]

    plots.sensitive_jobs(streams, results / f"{NAME}_jobs.svg")
    plots.best_left(shares, results / f"{NAME}_remainders.svg")
    write_rows(comparisons, results / f"{NAME}_rows.csv")
    machine.write_json(NAME, figures(streams, confirmed, comparisons, shares), results)
    parts = [
        machine.heading("Quality of topology: which set, and what is left", timed=False),
        streams_text(streams, confirmed),
        sets_text(comparisons),
        remainders_text(shares, sequences),
    ]
    machine.write(NAME, "\n".join(parts), results)


def spread(action: Callable[[_In], _Out], items: Sequence[_In], processes: int) -> list[_Out]:
    """Return the action's answer to every item, in order; over that many processes."""
    if processes == 1:
        return [action(item) for item in items]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(action, items))


def figures(streams: list[Summary], confirmed: list[Summary], comparisons: list[Comparison], shares: list[Share]) -> dict[str, Any]:
    """Return everything that was found as plain data; the beaten rows themselves are in the CSV."""
    return {
        "jobs": [asdict(found) for found in streams],
        "jobs_confirming": [asdict(found) for found in confirmed],
        "our_preserve_minus_published": summary.anchor_distances(streams),
        "targets": {policy: [target.facts() for target in summary.targets(streams, policy)] for policy in (mapa.PLUGGED, mapa.PLUGGED_NONE)},
        "every_free_set": [{**found.facts(), "beaten": len(found.beaten)} for found in comparisons],
        "remainders": [asdict(share) for share in shares],
    }


def write_rows(comparisons: Iterable[Comparison], path: Path) -> None:
    """Write every row where the allocator gets less than Linkwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("machine", "pcie_known", "free", "k", "linkwise", "linkwise_gb_per_s", "allocator", "allocator_gb_per_s"))
        for found in comparisons:
            rows.writerows((found.machine, found.pcie_known, *asdict(row).values()) for row in found.beaten)


# --- the three parts of the report ------------------------------------------------------------------------------------


def streams_text(streams: list[Summary], confirmed: list[Summary]) -> str:
    """Return the part on MAPA's jobs."""
    names = list(dict.fromkeys(found.machine for found in streams))
    distances = summary.anchor_distances(streams)
    parts = [
        (
            f"## MAPA's experiment\n\nFive machines, {mapa.JOBS} jobs of 2 to 5 GPUs, first in first out, {streams[0].runs} streams. Every set is judged by MAPA's predicted "
            "effective bandwidth of the best ring over it, GB/s; each cell: mean / 25th percentile of the jobs that are sensitive to bandwidth.\n"
        ),
        table(("policy", *names), [(policy, *_cells(streams, policy)) for policy in mapa.POLICIES]),
        "Our preserve against the published mean: " + ", ".join(f"{name} {mapa.ANCHORS[name]} {distances[name]:+.2f}" for name in names) + ".\n",
        "Jobs that are not sensitive, mean; the makespan is the same under every policy, as service times are given and no policy lets free GPUs wait.\n",
        table(("policy", *names), [(policy, *_insensitive(streams, policy)) for policy in mapa.POLICIES]),
        _targets_text(streams, mapa.PLUGGED),
        _targets_text(streams, mapa.PLUGGED_NONE),
        _percentiles_of_runs_text(streams),
        (
            "*Own rings* ranks sets by ring packing, `linkwise links`' rates, and is judged by a regression that ranks otherwise: it has no slowest hop, and favours sets "
            "without any NVLink ring (five GPUs with two PCIe hops 53.6 GB/s, with five single NVLinks 42.9). *Predictor* is the same choice with the regression in the "
            "place of ring packing: best bandwidth within 1 percent, then the worth of the remainder, weighed by the sizes that the stream asks for. All pods are alike "
            "there, as pods without annotation are; *as none* gives `topology: none` to the others, which then take what harms the next pods least, as they asked. NVIDIA's "
            "allocator does well by this judge: it sums links over pairs, as the regression does over edges.\n"
        ),
    ]
    if confirmed:
        parts += [
            f"The same over {confirmed[0].runs} other streams:\n",
            table(("policy", *names), [(policy, *_cells(confirmed, policy)) for policy in mapa.POLICIES]),
            _targets_text(confirmed, mapa.PLUGGED),
            _percentiles_of_runs_text(confirmed),
        ]
    return "\n".join(parts)


def _cells(found: list[Summary], policy: str) -> list[str]:
    return [f"{one.sensitive_mean:.2f} / {one.sensitive_p25:.2f}" for one in found if one.policy == policy]


def _insensitive(found: list[Summary], policy: str) -> list[str]:
    return [f"{one.insensitive_mean:.2f}" for one in found if one.policy == policy]


def _targets_text(streams: list[Summary], policy: str) -> str:
    asked = summary.targets(streams, policy)
    missed = [f"{target.machine}: {target.what}: {target.got:.2f}, asked {target.asked:.2f}" for target in asked if not target.met]
    return f"{policy}: {len(asked) - len(missed)} of {len(asked)} targets met." + (f" Missed: {'; '.join(missed)}." if missed else "") + "\n"


def _percentiles_of_runs_text(streams: list[Summary]) -> str:
    by = {(found.machine, found.policy): found.sensitive_p25_mean_of_runs for found in streams}
    behind = [
        f"{name} {by[name, policy]:.2f} against {by[name, 'preserve']:.2f} ({policy})"
        for policy in (mapa.PLUGGED, mapa.PLUGGED_NONE)
        for name in dict.fromkeys(found.machine for found in streams)
        if by[name, policy] < by[name, "preserve"] - 1e-4
    ]
    return f"The runs' own 25th percentiles, averaged, are below preserve's on: {'; '.join(behind) or 'no machine'}.\n"


def sets_text(comparisons: list[Comparison]) -> str:
    """Return the part on every free set."""
    rows = []
    for found in comparisons:
        ours, theirs = found.means()
        sizes = ", ".join(f"{count} x {k}" for k, count in found.by_size())
        gain = f"{ours:.1f} / {theirs:.1f} ({found.mean_of_ratios():.1f}x)" if found.beaten else "-"
        seen = "NVLinks and PCIe" if found.pcie_known else "`topo -m`"
        rows.append((found.machine, seen, found.rows, found.below_brute_force, found.below_allocator, len(found.beaten), gain, sizes or "-"))
    head = (
        "machine",
        "allocator sees",
        "rows",
        "below brute force",
        "below allocator",
        "allocator beaten",
        "GB/s there, ours / theirs (mean ratio)",
        "of k GPUs",
    )
    return "\n".join(
        [
            (
                "## Every free set, every size\n\nLinkwise's set against the best of all sets by brute force (ring packing by a dual program over every order) and against "
                "the recorded answers of NVIDIA's go-gpuallocator, best effort. All rows where it is beaten: placement_topology_rows.csv.\n"
            ),
            table(head, rows),
            (
                "Where the allocator is beaten it took GPUs that score well pair by pair but have no ring of NVLinks (a quad and one GPU that a single link joins to it), or "
                "fewer rings, or for a pair the weaker link, because the rest of its partition scores more.\n"
            ),
        ]
    )


def remainders_text(shares: list[Share], sequences: int) -> str:
    """Return the part on pods that come and go."""
    groups = list(dict.fromkeys((share.machine, share.k) for share in shares))
    by = {(share.machine, share.k, share.policy): share for share in shares}
    rows = []
    for name, k in groups:
        cells = [by[name, k, policy] for policy in remainders.POLICIES]
        rows.append((name, k, cells[0].pods, *(f"{100 * share.best / share.pods:.1f} % ({share.mean_gb_per_s:.1f})" for share in cells)))
    for k in remainders.SIZES[1:]:
        sums = [[share for share in shares if share.k == k and share.policy == policy] for policy in remainders.POLICIES]
        pods = sum(share.pods for share in sums[0])
        rows.append(("all four", k, pods, *(f"{100 * sum(share.best for share in own) / pods:.1f} %" for own in sums)))
    return "\n".join(
        [
            (
                f"## What is left for the next pod\n\n{sequences:,} sequences of {remainders.ARRIVALS} arrivals on each machine, pods of one, two and four GPUs, 85 percent full. Share of pods that "
                "got the best bandwidth which the empty machine could give, and their mean GB/s. Behind NVSwitch every set is equal, so is every policy; so are fours on crossed "
                "bridges, where any four meet SYS.\n"
            ),
            table(("machine", "k", "pods", *remainders.POLICIES), rows),
        ]
    )


if __name__ == "__main__":
    typer.run(main)
