"""What a decision of the production code costs beside a plain numpy replay of FGD: the same pods on the same cluster, one after the other in one process.

`python -m bench.placement_cost --data DIR [--trace NAME] [--rounds N]`. Both replay the whole trace, in turn, so that a busy machine slows both; quote the ratio. Linkwise does in it
what it does in a cluster for each pod, reading the raw pod, filter, scores, sets, the promise in the ledger; not HTTP. Putting the empty cluster up and writing pods
down is not counted on either side; processor time, not time by the clock. Writes placement_cost.md.
"""

import statistics
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import machine
from bench.markdown import table
from bench.openb import replay, trace
from bench.openb.policies import POLICIES
from bench.openb.policies.linkwise import LinkwisePolicy
from bench.placement_quality import read, surroundings
from extender.memory import collect_rarely

NAME: Final = "placement_cost"
SIDES: Final = ("fgd", "linkwise")


def main(
    data: Annotated[Path, typer.Option(help="Folder with openb/.", exists=True, file_okay=False)],
    trace_name: Annotated[str, typer.Option("--trace", help="The trace that is replayed.")] = "default",
    rounds: Annotated[int, typer.Option(min=1, help="How often each side replays it.")] = 3,
    seed: int = 0,
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
) -> None:
    """Replay the trace on both sides in turn and write bench/results/placement_cost.md."""
    collect_rarely()  # as `linkwise serve` does
    found = [{side: seconds(data, trace_name, side, seed) for side in SIDES} for _ in range(rounds)]
    ratios = [one["linkwise"][0] / one["fgd"][0] for one in found]
    rows = [
        (number, *(f"{one[side][0]:.2f}" for side in SIDES), f"{ratio:.2f}") for number, (one, ratio) in enumerate(zip(found, ratios, strict=True), 1)
    ]
    pods = found[0]["fgd"][1]
    parts = [
        machine.heading("What a decision costs"),
        f"Trace {trace_name}, {pods} pods on 1,213 nodes, seconds of processor time of a whole replay. Median ratio {statistics.median(ratios):.2f}.\n",
        table(("round", "fgd, numpy", "linkwise, production code", "ratio"), rows),
    ]
    machine.write(NAME, "\n".join(parts), results)


def seconds(data: Path, trace_name: str, policy: str, seed: int) -> tuple[float, int]:
    """Return how long one replay took, and of how many pods."""
    nodes, pods, target = read(data, trace_name)
    around = surroundings(nodes, target, seed)
    placer = POLICIES[policy](around)
    arrivals = trace.arrivals(pods, around.cluster.capacity_milli, seed)
    if isinstance(placer, LinkwisePolicy):
        placer.prepare(arrivals)
    started = time.process_time()
    replay.run(around, placer, arrivals)
    return time.process_time() - started, len(arrivals)


if __name__ == "__main__":
    typer.run(main)
