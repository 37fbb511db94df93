"""Whether the figures of a run meet the targets, and by how much.

Rounds are interleaved, so a ratio is taken within each round and the median of the ratios is judged: what disturbed the machine for a while has then disturbed both sides of the ratio.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.end_to_end.binds import Binds
from bench.end_to_end.shares import Shares
from bench.end_to_end.start import Start
from bench.end_to_end.throughput import Round
from bench.end_to_end.variants import LINKWISE, NULL, UNBATCHED, Sampling, Who

LEAST_RATIO: Final = 0.9  # of the null extender's pods a second
MOST_FULL: Final = 1.3  # half full: times as long as empty
MOST_START_S: Final = 5.0
LARGE: Final = 5000  # nodes for which the start is promised


@dataclass(frozen=True, slots=True)
class Size:
    """All figures of a cluster of that many nodes. ``empty`` and ``half`` are rounds on the empty and on the half-full cluster."""

    nodes: int
    gpus: int
    empty: tuple[Round, ...]
    half: tuple[Round, ...]
    binds: tuple[Binds, ...] = ()
    starts: tuple[Start, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target: what was asked, what was found, and whether that meets it."""

    target: str
    found: str
    met: bool


def of(rounds: Iterable[Round], variant: str, sampling: Sampling) -> list[Round]:
    """Return the rounds of a variant under a sampling, in their order."""
    return [one for one in rounds if one.variant == variant and one.sampling == sampling.value]


def ratios(rounds: Sequence[Round], variant: str, to: str, sampling: Sampling) -> list[float]:
    """Return pods a second of a variant over those of another, round by round; empty where one of them was not run."""
    return [one.pods_per_s / other.pods_per_s for one, other in zip(of(rounds, variant, sampling), of(rounds, to, sampling), strict=False)]


def fuller(size: Size, variant: str, sampling: Sampling) -> float | None:
    """Return how many times as long pods take on the half-full cluster as on the empty one, None where that was not run."""
    empty, half = of(size.empty, variant, sampling), of(size.half, variant, sampling)
    if not empty or not half:
        return None
    return median(one.pods_per_s for one in empty) / median(one.pods_per_s for one in half)


def asked_share(rounds: Sequence[Round], variant: str, sampling: Sampling) -> float | None:
    """Return the share of the time that kube-scheduler spent on asking the extender, beyond what it spends outside of its plugins without one."""
    own, alone = of(rounds, variant, sampling), of(rounds, UNBATCHED.name, sampling)
    if not own or not alone:
        return None
    without = median(one.not_in_tree_s / one.pods for one in alone)
    return median((one.not_in_tree_s - without * one.pods) / one.seconds for one in own)


def judge(sizes: Sequence[Size], shares: Sequence[Shares]) -> list[Verdict]:
    """Return a verdict for every target that the run has figures for."""
    found = [verdict for size in sizes for verdict in (*_throughput(size), *_full(size), *_binds(size), *_start(size))]
    return [*found, *_shares(shares)]


def _throughput(size: Size) -> list[Verdict]:
    verdicts = []
    for sampling in Sampling:
        found = ratios(size.half, LINKWISE.name, NULL.name, sampling)
        if found:
            target = f"{size.nodes} nodes, {sampling.value}: at least {LEAST_RATIO:g} of the null extender's pods/s"
            verdicts.append(Verdict(target, f"{median(found):.2f}", median(found) >= LEAST_RATIO))
    checked = [one for one in (*size.empty, *size.half) if one.variant == LINKWISE.name]
    if checked:
        total, right = sum(one.pods for one in checked), sum(one.checked for one in checked)
        verdicts.append(Verdict(f"{size.nodes} nodes: every pod carries a correct allocation", f"{right} of {total} and the warm-up", right >= total))
    return verdicts


def _full(size: Size) -> list[Verdict]:
    verdicts = []
    for sampling in Sampling:
        found, beside = fuller(size, LINKWISE.name, sampling), fuller(size, NULL.name, sampling)
        if found is not None and beside is not None:
            target = f"{size.nodes} nodes, {sampling.value}: a pod takes at most {MOST_FULL:g} times as long half full as empty"
            verdicts.append(Verdict(target, f"{found:.2f} (null extender {beside:.2f})", found <= MOST_FULL))
    return verdicts


def one_node_ratio(binds: Sequence[Binds], who: Who) -> float | None:
    """Return binds a second onto one node over those onto distinct nodes, the median over the rounds."""
    one, distinct = ([each.pods_per_s for each in binds if each.who == who.value and each.onto == onto] for onto in ("one node", "distinct nodes"))
    return median(a / b for a, b in zip(one, distinct, strict=True)) if one else None


def _binds(size: Size) -> list[Verdict]:
    found = one_node_ratio(size.binds, Who.LINKWISE)
    if found is None:
        return []
    return [
        Verdict(
            f"{size.nodes} nodes: binds onto one node at least {LEAST_RATIO:g} as fast as onto distinct nodes", f"{found:.2f}", found >= LEAST_RATIO
        )
    ]


def _start(size: Size) -> list[Verdict]:
    if not size.starts:
        return []
    seconds, changed = median(one.seconds for one in size.starts), sum(one.nodes_changed for one in size.starts)
    written = sum(one.writes.get("nodes", 0) for one in size.starts)
    return [
        Verdict(f"{size.nodes} nodes: first answer within {MOST_START_S:g} s", f"{seconds:.1f} s", seconds <= MOST_START_S),
        Verdict(f"{size.nodes} nodes: no write to any node until then", f"{written} writes, {changed} nodes changed", written == changed == 0),
    ]


def _shares(shares: Sequence[Shares]) -> list[Verdict]:
    verdicts = []
    for count in sorted({one.pods for one in shares}):
        own, null = ([one.pods_per_s for one in shares if one.pods == count and one.who == who] for who in (LINKWISE.name, NULL.name))
        found = median(a / b for a, b in zip(own, null, strict=True))
        verdicts.append(
            Verdict(f"{count} parts of GPUs: at least {LEAST_RATIO:g} of the null extender's pods/s", f"{found:.2f}", found >= LEAST_RATIO)
        )
    steps = sum(one.steps for one in shares)
    if steps:
        verdicts.append(
            Verdict("no GPU gives more memory than it has after any step", f"{steps} steps looked at", met=True)
        )  # else the run has ended
    return verdicts
