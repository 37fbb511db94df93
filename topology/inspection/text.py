"""A report for people: the GPUs by NUMA node, the classes of links with their GB/s, the best set of every size and why, every warning.

Called by `topology.cli`. Readable at 80 columns and without colour; `plain` is what a pipe gets. All words about sets come from `reasons`, all numbers
from the report. Texts that came from outside are shown as they are, never read as markup.
"""

from collections.abc import Iterator
from io import StringIO
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from topology.errors import InternalError
from topology.graph import MachineGraph, machine_title
from topology.inspection.link_classes import LinkClass, link_classes
from topology.inspection.machine import Machine
from topology.inspection.reasons import reason
from topology.inspection.report import Report, ReportedSet

MOST_SETS: Final = 512  # all sets of 9 GPUs and nearly all that anybody reads; each one's reason is a search
_HEAD: Final = "bold"
_QUIET: Final = "dim"


def report_for_people(report: Report) -> RenderableType:
    """Return everything that is printed for one input."""
    if report.machine is None:
        raise InternalError("a report without a machine was to be printed; its error is what people need")
    machine = report.machine
    parts: list[RenderableType] = [_headline(report, machine), "", _gpus(machine)]
    if report.links:
        parts += ["", Text("Links (GB/s, one direction; `linkwise links` tells the sources)", style=_HEAD), _classes(machine)]
    if report.sets:
        parts += ["", Text(_sets_title(report), style=_HEAD), _sets(machine, report.sets[:MOST_SETS])]
    if len(report.sets) > MOST_SETS:
        parts.append(Text(f"… and {len(report.sets) - MOST_SETS} more sets; --output json lists all"))
    parts += _warnings(report.warnings)
    return Group(*parts)


def plain(content: RenderableType, width: int = 80) -> str:
    """Return the content as text without colour and without blanks at the end of lines."""
    paper = StringIO()
    Console(file=paper, width=width, color_system=None, force_terminal=False, legacy_windows=False).print(content)
    return "".join(f"{line.rstrip()}\n" for line in paper.getvalue().splitlines())


def shown(text: str) -> str:
    r"""Return a text from outside without what a terminal would obey.

    >>> shown("a\x1b[2Jb")
    'a?[2Jb'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _headline(report: Report, machine: Machine) -> Text:
    nics, numa = len(machine.matrix.nics), {gpu.numa for gpu in machine.matrix.gpus if gpu.numa not in (None, "N/A")}
    facts = [machine_title(machine.graph)]
    memory = _same([_memory(gpu.memory_mib) for gpu in machine.gpus])
    if memory:
        facts[0] += f" with {memory}"
    if numa:
        facts.append(f"{len(numa)} NUMA node{'' if len(numa) == 1 else 's'}")
    if nics:
        facts.append(f"{nics} NIC{'' if nics == 1 else 's'}")
    return Text.assemble((shown(report.source), _HEAD), "\n", ", ".join(facts))


def _memory(mib: int | None) -> str:
    return f"{mib / 1024:.0f} GiB" if mib else ""


def _same(values: list[str]) -> str:
    """Return the one value that all have, else nothing."""
    return values[0] if values and len(set(values)) == 1 else ""


def airy_table(*columns: tuple[str, str], last: str) -> Table:
    """Return an airy table; the last column takes what is left and wraps. ``columns`` are (name, "left" or "right")."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style=_HEAD, padding=(0, 1, 0, 0))
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=True)
    table.add_column(last, overflow="fold")
    return table


# --- GPUs ---


def _gpus(machine: Machine) -> Table:
    models = [shown(gpu.model or "") for gpu in machine.gpus]
    memories = [_memory(gpu.memory_mib) for gpu in machine.gpus]
    columns = {
        "GPU": [gpu.label for gpu in machine.matrix.gpus],
        "Model": [] if _same(models) or not any(models) else models,
        "Memory": [] if _same(memories) or not any(memories) else memories,
        "Nearest NICs": [_nearest_nics(machine.graph, gpu.label) for gpu in machine.matrix.gpus] if machine.matrix.nics else [],
    }
    kept = {name: cells for name, cells in columns.items() if cells}
    table = airy_table(("NUMA", "left"), *((name, "left") for name in kept), last="CPUs")
    for at, gpu in sorted(enumerate(machine.matrix.gpus), key=lambda item: _numa_order(machine, item[0])):
        cells = [cells[at] for cells in kept.values()]
        table.add_row(*(Text(shown(cell)) for cell in (gpu.numa or "-", *cells, gpu.cpus or "-")))
    return table


def _numa_order(machine: Machine, position: int) -> tuple[int, int]:
    """Group the rows by NUMA node, in the order in which the nodes come up first."""
    cells = [gpu.numa for gpu in machine.matrix.gpus]
    return cells.index(cells[position]), position


def _nearest_nics(graph: MachineGraph, gpu: str) -> str:
    links = {other: graph.edges[gpu, other] for other in graph[gpu] if graph.nodes[other]["kind"] == "nic"}
    if not links:
        return "-"
    best = min(link["distance"] for link in links.values())
    near = [graph.nodes[nic]["name"] or nic for nic, link in links.items() if link["distance"] == best]
    code = next(link["code"] for link in links.values() if link["distance"] == best)
    more = f" and {len(near) - 2} more" if len(near) > 2 else ""
    return f"{code} {', '.join(near[:2])}{more}"


# --- links and sets ---


def _classes(machine: Machine) -> Table:
    table = airy_table(("Link", "left"), ("between", "left"), ("Pairs", "right"), ("GB/s", "right"), last="The rate comes from")
    for one in link_classes(machine):
        table.add_row(one.code, one.between, str(one.pairs), _rates(one), Text(_brief(one.source), style=_QUIET))
    return table


def _brief(source: str) -> str:
    """Return the source without the document, which `linkwise links` prints in full."""
    assumed = "assumed: " if source.startswith("assumed: ") else ""
    bare = source.removeprefix("assumed: ")
    return assumed + (bare if bare.startswith("nvidia-smi") else bare.split(": ")[0])


def _rates(one: LinkClass) -> str:
    if one.rates is None:
        return "-"
    low, high = (f"{rate:.1f}" for rate in one.rates)
    return low if low == high else f"{low} to {high}"


def _sets_title(report: Report) -> str:
    sizes = [len(one.gpus) for one in report.sets]
    gpus = "GPUs" if report.free is None else f"GPUs {_numbers(report.free)}"
    which = f"The best set of {gpus} of every size" if len(set(sizes)) == len(sizes) else f"Every set of {gpus}, the best of each size first"
    return f"{which} (GB/s that all its GPUs sustain together)"


def _sets(machine: Machine, sets: tuple[ReportedSet, ...]) -> Table:
    table = airy_table(("Size", "right"), ("GB/s", "right"), ("Weakest", "left"), ("GPUs", "left"), last="Why")
    for one in sets:
        why = reason(machine, one.positions, one.gb_per_s)
        table.add_row(str(len(one.gpus)), f"{one.gb_per_s:.1f}", one.worst or "-", _numbers(one.gpus), Text(why))
    return table


def _numbers(gpus: tuple[int, ...]) -> str:
    """GPU indices, runs of three or more shortened.

    >>> _numbers((0, 1, 2, 3, 6)), _numbers((4, 5))
    ('0-3,6', '4,5')
    """
    runs: list[list[int]] = []
    for gpu in gpus:
        if runs and gpu == runs[-1][-1] + 1:
            runs[-1].append(gpu)
        else:
            runs.append([gpu])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def _warnings(warnings: tuple[str, ...]) -> Iterator[RenderableType]:
    if warnings:
        yield ""
        yield Text("Warnings" if len(warnings) > 1 else "Warning", style=_HEAD)
    for warning in warnings:
        line = Table.grid(padding=(0, 1))
        line.add_row("-", Text(shown(warning)))
        yield Padding(line, (0, 0, 0, 0))
