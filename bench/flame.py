"""A flame graph of the hot path: where filter, prioritize and bind spend their time at 5,000 nodes.

`python -m bench.flame` runs the load of `bench.decision_latency` (2-GPU pods and mixed ones in turns, the cluster changing between calls) against Linkwise and has py-spy look at it from outside, a few hundred
times a second; the server knows nothing of it. Writes bench/results/hot_path.svg. py-spy reads another process's memory: as a user other than root it may need
`sysctl kernel.yama.ptrace_scope=0`.
"""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import typer

from bench import machine, snapshot
from bench.latency import load, servers
from bench.latency.churn import Churn, Door
from bench.latency.scene import scene
from bench.latency.walk import Server, Walks
from topology.errors import InputError

NAME: Final = "hot_path"
_RATE: Final = 400  # looks a second: a call of 2 ms is seen, and py-spy still keeps up
_AT_ONCE: Final = 50  # pods, before it is asked whether py-spy still looks


def main(
    nodes: Annotated[int, typer.Option(min=1, max=snapshot.MOST_NODES)] = 5000,
    seconds: Annotated[int, typer.Option(min=1, help="How long py-spy looks.")] = 20,
    seed: int = 0,
    results: Annotated[Path, typer.Option(help="Folder to write to.")] = machine.RESULTS,
) -> None:
    """Draw bench/results/hot_path.svg."""
    try:
        spy = py_spy()
        draw(spy, nodes, seconds, seed, results / f"{NAME}.svg")
    except InputError as error:
        raise typer.BadParameter(str(error)) from error
    print(f"{results / f'{NAME}.svg'}: {nodes} nodes, {seconds} s")


def py_spy() -> str:
    """Return the program, beside this Python or on the PATH; raises InputError where it is not installed."""
    found = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if found is None:
        raise InputError("py-spy is not installed: pip install 'linkwise[bench]'")
    return found


def draw(spy: str, nodes: int, seconds: int, seed: int, path: Path) -> None:
    """Run the load and look at the server meanwhile; raises InputError where py-spy cannot look."""
    pods = _mixed_with_pairs(seed, count=_AT_ONCE + 200 * seconds)
    path.parent.mkdir(parents=True, exist_ok=True)
    with scene(snapshot.Plan(nodes, 0.5, seed), pods) as cluster, servers.linkwise(cluster.file) as (url, address, pid):
        judge = Server("linkwise", url)
        names = load.Names(cluster.names, seed)
        with closing(Door(address)) as door:
            churn = Churn(door, cluster.held, seed)
            Walks([judge], judge, names, churn).run(pods[:_AT_ONCE], 0)
            command = [
                spy,
                "record",
                "--pid",
                str(pid),
                "--duration",
                str(seconds),
                "--rate",
                str(_RATE),
                "--format",
                "flamegraph",
                "--output",
                str(path),
            ]
            looking = Looking(command)
            rest = pods[_AT_ONCE:]
            while looking.goes_on() and rest:
                Walks([judge], judge, names, churn).run(rest[:_AT_ONCE], 0)
                rest = rest[_AT_ONCE:]
            looking.finish()
    path.write_text(titled(path.read_text(encoding="utf-8"), f"The hot path at {nodes:,} nodes: filter, prioritize, bind"), encoding="utf-8")


def titled(drawing: str, title: str) -> str:
    """Return a drawing of py-spy under another title: its own is the command line, with the paths of whoever drew it; raises InputError where it has none."""
    found, replaced = re.subn(r'(<text id="title"[^>]*>)[^<]*', rf"\g<1>{title}", drawing)
    if replaced != 1:
        raise InputError("the drawing of py-spy has no title to replace; accepted: that of py-spy 0.4")
    return found


class Looking:
    """py-spy at work, in a thread that waits for it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._done: subprocess.CompletedProcess[str] | None = None
        self._thread = threading.Thread(target=self._run, args=(command,))
        self._thread.start()

    def _run(self, command: Sequence[str]) -> None:
        self._done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603

    def goes_on(self) -> bool:
        """Whether it is still looking."""
        return self._thread.is_alive()

    def finish(self) -> None:
        """Wait for it; raises InputError where it failed."""
        self._thread.join()
        if self._done is None or self._done.returncode:
            raise InputError(f"py-spy failed: {self._done.stderr.strip() if self._done else 'it did not start'}")


def _mixed_with_pairs(seed: int, count: int) -> list[load.Pod]:
    pairs, mixed = load.pods(load.TWO_GPUS, count // 2, 2 * seed), load.pods(load.MIXED, count // 2, 2 * seed + 1)  # names differ by the seed
    return [pod for two in zip(pairs, mixed, strict=True) for pod in two]


if __name__ == "__main__":
    typer.run(main)
