"""`linkwise demo`: a self-contained tour. A mixed cluster, the real extender over HTTP, a stream of pods, and the same stream placed by plain counting.

    scene      the cluster as plain Kubernetes objects, from `extender.sample_machines`
    stream     which pods come and go, the same for the same seed
    plain      placing by counting alone, as Kubernetes does without Linkwise; also with the best set of each node
    served     the extender on a socket of its own, and kube-scheduler's part against it
    hardware   what a placement gets, read from the same tables for all sides
    tour       one stream, all sides, step by step
    report     what is printed; `picture` draws the first pod on its machine

Called by `extender.cli`. No network beyond the loopback interface, no files but the picture that is asked for. Everything but the times is the same on
every machine, so the README shows true output and a test compares it.
"""

from extender.demo.picture import picture
from extender.demo.report import for_people, time_line
from extender.demo.tour import FEWEST_PODS, Tour, tour

__all__ = ["FEWEST_PODS", "Tour", "for_people", "picture", "time_line", "tour"]
