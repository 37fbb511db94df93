"""The tables of a run: what was found, where the time went, and the targets."""

from collections.abc import Sequence
from itertools import groupby
from statistics import median
from typing import Final

from bench.end_to_end.binds import CONNECTIONS, Binds
from bench.end_to_end.judging import Size, Verdict, asked_share, fuller, of, ratios
from bench.end_to_end.shares import POOL, Shares
from bench.end_to_end.start import Start
from bench.end_to_end.throughput import WARM_UP, Round
from bench.end_to_end.variants import NULL, UNBATCHED, VARIANTS, Sampling, Variant
from bench.markdown import table

_PROGRAMS: Final = ("extender", "kube-scheduler", "kube-apiserver", "etcd", "kwok", "load")


def text(sizes: Sequence[Size], shares: Sequence[Shares], verdicts: Sequence[Verdict]) -> str:
    """Return the report below its heading."""
    parts = ["\n## Targets\n", table(("target", "found", "met"), [(one.target, one.found, "yes" if one.met else "**no**") for one in verdicts])]
    for size in sizes:
        parts += _size(size)
    if shares:
        parts += ["\n## Parts of GPUs\n", _SHARES, table(("who binds", "pods", "pods/s (rounds)"), _share_rows(shares))]
    return "\n".join(parts)


_METHOD: Final = (
    "Pods a second from the first creation to the last binding, through a real kube-apiserver and a fresh kube-scheduler for every round, KWOK's nodes; rounds of all variants are interleaved on the same "
    f"cluster. {WARM_UP} pods go before the clock starts, and a fresh extender has worked out what the cluster is asked for. Pods ask for one GPU, every fifth for two. `stock` is kube-scheduler's own sample of nodes, `100 percent` the profile `linkwise`. Figures are medians "
    "over the rounds (least to most in brackets); ratios are taken within each round.\n"
)
_TIMES: Final = (
    "Milliseconds a pod. *In tree*: kube-scheduler's own plugins (PreFilter, Filter, PreScore, Score). *Outside*: the rest of its scheduling algorithm, which is its snapshot and waiting for the extender. *Asked*: the "
    "share of the whole time that it waited for the extender, beyond what it spends outside without one. *Calls*: what Linkwise itself took for filter, prioritize and bind (bind waits for the API server; binds "
    "overlap).\n"
)
_CPU: Final = "Processor milliseconds a pod until all of them run, by program; `load` is the bench's own side. Whatever shares few cores with kube-scheduler takes from its pods.\n"
_BINDS: Final = f"Binds alone, without kube-scheduler, from {CONNECTIONS} connections, a GiB of GPU memory each. `none` posts Bindings to the API server and decides nothing.\n"
_SHARES: Final = (
    f"Pods that ask for 1 to 10 GiB over one to four GPUs, made while kube-scheduler stands still, onto a pool of {POOL} nodes. Plain clients post Bindings one after the other and decide nothing. With Linkwise the node "
    "of a pod is looked at after every event about that pod.\n"
)


def _size(size: Size) -> list[str]:
    parts = [f"\n## {size.nodes} nodes, {size.gpus} GPUs\n"]
    if size.empty or size.half:
        parts += [_METHOD, table(("cluster", "nodes looked at", "variant", "pods/s", "of null", "of none"), _throughput_rows(size))]
    if size.half:
        head = ("nodes looked at", "variant", "in tree", "outside", "asked", "filter", "prioritize", "bind")
        parts += [_TIMES, table(head, [row for sampling in Sampling for row in _time_rows(size.half, sampling)])]
        parts += [
            _CPU,
            table(("nodes looked at", "variant", *_PROGRAMS, "sum"), [row for sampling in Sampling for row in _cpu_rows(size.half, sampling)]),
        ]
    if size.binds:
        parts += [_BINDS, table(("who", "onto", "binds/s", "p50 ms", "p99 ms"), _bind_rows(size.binds))]
    if size.starts:
        parts += ["First answer of a fresh process about all nodes, half full.\n", table(_START_HEAD, _start_rows(size.starts))]
    return parts


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Write a median, and least to most where there are several."""
    found = f"{median(values):.{digits}f}"
    return found if len(values) == 1 else f"{found} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def _throughput_rows(size: Size) -> list[tuple[str, ...]]:
    rows = []
    for cluster, rounds in (("empty", size.empty), ("half full", size.half)):
        for sampling in Sampling:
            for variant in VARIANTS:
                own = of(rounds, variant.name, sampling)
                if own:
                    to = (_ratio(rounds, variant, other, sampling) for other in (NULL, UNBATCHED))
                    rows.append((cluster, sampling.value, variant.name, spread([one.pods_per_s for one in own]), *to))
    return rows


def _ratio(rounds: Sequence[Round], variant: Variant, to: Variant, sampling: Sampling) -> str:
    found = ratios(rounds, variant.name, to.name, sampling)
    return f"{median(found):.2f}" if found and variant is not to else ""


def _time_rows(rounds: Sequence[Round], sampling: Sampling) -> list[tuple[str, ...]]:
    rows = []
    for variant in VARIANTS:
        own = of(rounds, variant.name, sampling)
        if own:
            share = asked_share(rounds, variant.name, sampling)
            asked = f"{100 * share:.0f} %" if share is not None and variant.who != "none" else ""
            in_tree = median(1000 * sum(one.in_tree_s.values()) / one.pods for one in own)
            outside = median(1000 * one.not_in_tree_s / one.pods for one in own)
            rows.append(
                (
                    sampling.value,
                    variant.name,
                    f"{in_tree:.2f}",
                    f"{outside:.2f}",
                    asked,
                    *(_call(own, verb) for verb in ("filter", "prioritize", "bind")),
                )
            )
    return rows


def _call(rounds: Sequence[Round], verb: str) -> str:
    found = [one.calls[verb] for one in rounds if verb in one.calls]
    return f"{median(1000 * seconds / count for count, seconds in found):.2f}" if found else ""


def _cpu_rows(rounds: Sequence[Round], sampling: Sampling) -> list[tuple[str, ...]]:
    rows = []
    for variant in VARIANTS:
        own = of(rounds, variant.name, sampling)
        if own:
            each = [median(1000 * one.cpu_s.get(program, 0.0) / one.pods for one in own) for program in _PROGRAMS]
            rows.append((sampling.value, variant.name, *(f"{value:.2f}" if value else "" for value in each), f"{sum(each):.1f}"))
    return rows


def _bind_rows(binds: Sequence[Binds]) -> list[tuple[str, ...]]:
    rows = []
    for (who, onto), group in groupby(sorted(binds, key=lambda one: (one.who, one.onto)), key=lambda one: (one.who, one.onto)):
        own = list(group)
        rows.append(
            (
                who,
                onto,
                spread([one.pods_per_s for one in own]),
                f"{median(1000 * one.p50_s for one in own):.1f}",
                f"{median(1000 * one.p99_s for one in own):.1f}",
            )
        )
    return rows


_START_HEAD: Final = ("seconds", "processor s", "MiB", "nodes that fit", "writes by resource", "nodes changed")


def _start_rows(starts: Sequence[Start]) -> list[tuple[object, ...]]:
    return [
        (
            f"{one.seconds:.1f}",
            f"{one.cpu_s:.1f}",
            f"{one.resident_mib:.0f}",
            one.fitting,
            ", ".join(f"{name} {count}" for name, count in sorted(one.writes.items())) or "none",
            one.nodes_changed,
        )
        for one in starts
    ]


def _share_rows(shares: Sequence[Shares]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for (pods, who), group in groupby(sorted(shares, key=lambda one: (one.pods, one.who)), key=lambda one: (one.pods, one.who)):
        rows.append((who, pods, spread([one.pods_per_s for one in group])))
    return rows


def summary(size: Size) -> str:
    """Return one line of a size, for whoever waits at the terminal."""
    found = [f"{sampling.value} {median(ratios(size.half, 'linkwise', NULL.name, sampling) or [0]):.2f}" for sampling in Sampling]
    full = fuller(size, "linkwise", Sampling.STOCK)
    return f"{size.nodes} nodes: of the null extender {', '.join(found)}" + ("" if full is None else f"; half full {full:.2f} x empty")
