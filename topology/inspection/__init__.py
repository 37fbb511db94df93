"""`linkwise inspect`: what one text of `nvidia-smi topo -m` says about a machine, with its links in GB/s and its best sets of GPUs.

`inspect` reads and computes (`reading`), the result is a `Report` that knows its JSON form (`report`); `text` prints it for people, `svg_of` and
`dot_of` draw it (`pictures`). `rates_table` prints the tables of rates of `linkwise links`. Called by `topology.cli`; the demo takes `machine_of` and
the pictures. No Kubernetes here: this is useful to anybody with a GPU machine.
"""

from topology.inspection.machine import Machine, machine_of
from topology.inspection.pictures import dot_of, svg_of
from topology.inspection.reading import inspect, unreadable
from topology.inspection.report import Problem, Report, ReportedLink, ReportedSet

__all__ = ["Machine", "Problem", "Report", "ReportedLink", "ReportedSet", "dot_of", "inspect", "machine_of", "svg_of", "unreadable"]
