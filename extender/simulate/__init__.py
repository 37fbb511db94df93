"""`linkwise simulate`: a workload replayed on a snapshot, under one or more policies, by the code that serves clusters.

    jobs          which pods come, when, and for how long: a list of pods, or a trace in the form of openb
    sides         who places them: Linkwise by its own `Placement`, `score` and ledger, or plain counting; a state of its own each
    selectors     which nodes kube-scheduler would let a pod on
    replay        pods arrive, wait in a queue, run, leave
    figures       what a replay gave, and how the policies compare
    curves        a run over time; `report` prints it, with tables and JSON, `plot` draws it as SVG
    command       what the command line calls

Nothing is decided here: a side asks what filter, prioritize and bind ask, without HTTP and without JSON. The benchmarks of placement quality use the same door. What
kube-scheduler itself checks (CPU, memory, nodeSelector) is checked here; its affinities, taints and priorities are not played.
"""

from extender.simulate.command import Asked, simulate_command

__all__ = ["Asked", "simulate_command"]
