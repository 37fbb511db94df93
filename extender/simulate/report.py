"""Runs for people and for programs: a table of the policies, their curves as a line of blocks, why pods were refused, and everything as JSON.

Called by `command`. Readable at 80 columns and without colour; `plot` draws the same curves as SVG.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from extender.reasons import gb_per_s
from extender.simulate.curves import Curve, curves
from extender.simulate.figures import Figures
from extender.simulate.replay import Run

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH: Final = 48
_REASONS_SHOWN: Final = 5
_HEAD: Final = "bold"


def for_people(opening: str, runs: Sequence[Run], found: Sequence[Figures]) -> RenderableType:
    """Return everything that is printed."""
    return Group(Text(opening), "", _table(runs, found), "", *_curves(runs), *_refusals(runs))


def seconds(value: float) -> str:
    """Return a duration in a unit that keeps it short.

    >>> seconds(0.0), seconds(42.4), seconds(5400.0), seconds(360000.0)
    ('0 s', '42 s', '90 min', '100 h')
    """
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 2 * 86_400 else f"{value / 3600:.0f} h"


# --- the table ----------------------------------------------------------------------------------------------------------

_Figure = Callable[[Figures], str]


def _optional(value: float | None, form: Callable[[float], str]) -> str:
    return "-" if value is None else form(value)


def _rows(runs: Sequence[Run], found: Sequence[Figures]) -> Iterator[tuple[str, _Figure]]:
    compared = found[0].pods_compared
    timed = any(run.timed for run in runs)
    yield "GPU allocated, percent", lambda one: f"{one.allocated:.1f}"
    if timed:
        yield "  at most", lambda one: f"{one.most:.1f}"
    yield "fragmentation, percent of the cluster", lambda one: f"{one.fragmentation:.1f}"
    yield f"mean GB/s, several GPUs ({compared})", lambda one: _optional(one.gb_per_s_mean, gb_per_s)
    yield "  median", lambda one: _optional(one.gb_per_s_median, gb_per_s)
    if timed:
        yield "mean waiting", lambda one: _optional(one.waiting_mean_s, seconds)
        yield "  95 of 100 below", lambda one: _optional(one.waiting_p95_s, seconds)
    yield "pods placed", lambda one: str(one.placed)
    yield "  refused", lambda one: str(one.refused)
    if any(one.never_placed for one in found):
        yield "  waiting at the end", lambda one: str(one.never_placed)


def _table(runs: Sequence[Run], found: Sequence[Figures]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style=_HEAD)
    table.add_column("policy")
    for one in found:
        table.add_column(one.policy, justify="right")
    for label, figure in _rows(runs, found):
        table.add_row(label, *map(figure, found))
    return table


# --- curves -------------------------------------------------------------------------------------------------------------


def _curves(runs: Sequence[Run]) -> Iterator[RenderableType]:
    found = [curves(run, _CURVE_WIDTH) for run in runs]
    width = max(len(run.policy) for run in runs)
    for number, title in enumerate(("GPU allocated, percent", "Fragmentation, percent of the cluster")):
        own = [both[number] for both in found]
        top = max(value for curve in own for value in curve.values)
        yield Text(f"{title}, {own[0].axis}; highest block {top:.0f}", style=_HEAD)
        for run, curve in zip(runs, own, strict=True):
            yield Text(f"{run.policy:<{width}}  {blocks(curve, top)}")
        yield ""


def blocks(curve: Curve, top: float) -> str:
    """Return a curve as one character a point, from 0 to ``top`` percent."""
    return "".join(_BLOCKS[round(value / top * (len(_BLOCKS) - 1)) if top > 0 else 0] for value in curve.values)


# --- the no -------------------------------------------------------------------------------------------------------------


def _refusals(runs: Sequence[Run]) -> Iterator[RenderableType]:
    for run in runs:
        counts = Counter(run.refused.values()).most_common()
        if counts:
            yield Text(f"Refused under {run.policy}:", style=_HEAD)
            yield from (Text(f"  {count} x {why}") for why, count in counts[:_REASONS_SHOWN])
            if len(counts) > _REASONS_SHOWN:
                yield Text(f"  … and {len(counts) - _REASONS_SHOWN} more reasons")


# --- for programs -------------------------------------------------------------------------------------------------------


def as_data(runs: Sequence[Run], found: Sequence[Figures]) -> dict[str, Any]:
    """Return figures, curves and what became of every pod, as plain data."""
    return {"policies": [_policy_data(run, one) for run, one in zip(runs, found, strict=True)]}


def _policy_data(run: Run, found: Figures) -> dict[str, Any]:
    starts = {start.job.uid: start for start in run.starts}
    pods = []
    for job in run.jobs:
        start = starts.get(job.uid)
        pods.append(
            {
                "pod": job.uid,
                "arrivedS": job.arrives_s,
                "node": None if start is None else start.placed.node,
                "gpus": None if start is None else [bit for bit in range(start.placed.mask.bit_length()) if start.placed.mask >> bit & 1],
                "bandwidthGBps": None if start is None else round(start.placed.gb_per_s, 3),
                "startedS": None if start is None else start.at_s,
                "leftS": None if start is None else start.until_s,
                "refused": run.refused.get(job.uid),
            }
        )
    return {
        "figures": asdict(found),
        "moments": [[moment.at_s, moment.arrived, round(moment.gpus, 3), moment.waiting, moment.fragmentation] for moment in run.moments],
        "pods": pods,
    }
