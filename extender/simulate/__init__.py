"""`linkwise simulate`: a workload replayed on a snapshot, under one or more policies, by the code that serves clusters.

    jobs          which pods come, when, and for how long: a list of pods, or a trace in the form of openb
    sides         who places them: Linkwise by its own `Placement`, `score` and ledger, or plain counting; a state of its own each
    replay        pods arrive, wait in a queue, run, leave
    figures       what a replay gave, and how the policies compare
    report        tables, curves and JSON; `plot` draws the curves as SVG
    command       what the command line calls

Nothing is decided here: a side asks what filter, prioritize and bind ask, without HTTP and without JSON. The benchmarks of placement quality use the same door. What
kube-scheduler itself checks (CPU, memory, nodeSelector) is checked here; its affinities, taints and priorities are not played.
"""

from extender.simulate.command import Asked, simulate_command

__all__ = ["Asked", "simulate_command"]
