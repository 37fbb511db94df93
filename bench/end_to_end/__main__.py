"""Linkwise beside a real kube-scheduler: pods a second, where the time goes, binds alone, the first answer, and parts of GPUs.

`python -m bench.end_to_end [--nodes N]... [--pods N] [--rounds N] [--part P]...`, from the repository's root; the programs are built with Go the first time, as for the end-to-end tests. For every size a cluster of its
own: rounds on it empty, then half full (`throughput`), interleaved over `variants`; then `binds`, `start`, and on a pool of its own `shares`. Everything runs on this machine, so on few cores all programs take
from each other: that is why processor time stands beside pods a second. Writes end_to_end.md, .json and .svg.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import machine
from bench.end_to_end import binds, pictures, report, shares, start, throughput
from bench.end_to_end.cluster import LoadedCluster, running
from bench.end_to_end.judging import Size, judge
from bench.end_to_end.shares import Shares
from bench.end_to_end.throughput import Round
from bench.end_to_end.variants import LINKWISE, NULL, VARIANTS, Sampling, Variant

NAME: Final = "end_to_end"
SIZES: Final = (500, 5000)


class Part(StrEnum):
    """What may be left out."""

    EMPTY = "empty"
    HALF = "half"
    BINDS = "binds"
    START = "start"
    SHARES = "shares"


def main(
    nodes: Annotated[list[int] | None, typer.Option(min=20, help="Size of a cluster, repeatable; 500 and 5,000 if not given.")] = None,
    pods: Annotated[int, typer.Option(min=10, help="Pods of a round.")] = 1000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each variant.")] = 3,
    part: Annotated[list[Part] | None, typer.Option(help="What to run, repeatable; all of it if not given.")] = None,
    seed: Annotated[int, typer.Option(help="Of what fills the cluster.")] = 0,
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
) -> None:
    """Run everything and write bench/results/end_to_end.*."""
    parts = set(part or Part)
    sizes = [_size(count, pods, rounds, parts, seed) for count in nodes or SIZES] if parts - {Part.SHARES} else []
    pool: list[Shares] = []
    if Part.SHARES in parts:
        with running(shares.POOL, seed) as cluster:
            pool = shares.measure(cluster, rounds, tuple(sorted({min(count, pods) for count in shares.COUNTS})))
    verdicts = judge(sizes, pool)
    figures = {"verdicts": verdicts, "sizes": sizes, "shares": pool}
    machine.write_json(NAME, {name: [asdict(one) for one in found] for name, found in figures.items()}, results)
    machine.write(NAME, f"{machine.heading('Beside a real kube-scheduler')}{report.text(sizes, pool, verdicts)}", results)
    if Part.HALF in parts:
        pictures.draw(sizes, results / f"{NAME}.svg")


def _size(nodes: int, pods: int, rounds: int, parts: set[Part], seed: int) -> Size:
    """Return the figures of a cluster of that size."""
    with running(nodes, seed) as cluster:
        _say(f"{nodes} nodes are there")
        empty = _rounds(cluster, (NULL, LINKWISE), pods, rounds) if Part.EMPTY in parts else []
        cluster.fill()
        _say("the cluster is half full")
        half = _rounds(cluster, VARIANTS, pods, rounds) if Part.HALF in parts else []
        bound = binds.measure(cluster, rounds, min(pods, binds.PODS)) if Part.BINDS in parts else []
        starts = [start.measure(cluster) for _ in range(rounds)] if Part.START in parts else []
        found = Size(nodes, cluster.gpus, tuple(empty), tuple(half), tuple(bound), tuple(starts))
    _say(report.summary(found))
    return found


def _rounds(cluster: LoadedCluster, variants: Sequence[Variant], pods: int, rounds: int) -> list[Round]:
    """Run all variants in each round, beginning with another one every time."""
    found = []
    for number in range(rounds):
        for sampling in Sampling:
            for at in range(len(variants)):
                variant = variants[(at + number) % len(variants)]
                one = throughput.measure(cluster, variant, sampling, pods)
                _say(f"{cluster.nodes} nodes, {sampling.value}, {variant.name}: {one.pods_per_s:.0f} pods/s")
                found.append(one)
    return found


def _say(sentence: str) -> None:
    sys.stderr.write(f"end_to_end: {sentence}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
