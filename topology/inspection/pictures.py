"""A report as a picture: the whole machine as SVG, and as graphviz text. The drawing itself is `topology.graph`'s."""

from topology.errors import InternalError
from topology.graph import Words, draw_machine, machine_title, standalone, to_dot
from topology.inspection.machine import Machine
from topology.inspection.report import Report

_SHOWN_SIZES = (2, 4, 8, 16)


def svg_of(report: Report) -> str:
    """Return the SVG file of a readable report; raises InternalError for one without a machine."""
    machine = _machine(report)
    subtitle = " · ".join(f"best {len(one.gpus)} GPUs {one.gb_per_s:.3g} GB/s" for one in report.sets if len(one.gpus) in _SHOWN_SIZES)
    return standalone(draw_machine(machine.graph, Words(subtitle=subtitle)), f"GPU topology: {machine_title(machine.graph)}")


def dot_of(report: Report) -> str:
    """Return the graphviz text of a readable report; raises InternalError for one without a machine."""
    return to_dot(_machine(report).graph, report.source)


def _machine(report: Report) -> Machine:
    if report.machine is None:
        raise InternalError("a report without a machine cannot be drawn")
    return report.machine
