"""What `linkwise simulate` does: read snapshot and workload, replay once a policy, print, write what was asked for.

Called by `extender.cli` alone. Every policy gets the same jobs on a cluster of its own; the same files give the same output.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
from rich.console import RenderableType

from extender.demo.scene import make_scene
from extender.settings import Settings, read_settings
from extender.simulate.figures import figures
from extender.simulate.jobs import Job, read_jobs
from extender.simulate.plot import plot
from extender.simulate.replay import Rules, Run, replay
from extender.simulate.report import as_data, for_people
from extender.simulate.sides import POLICIES, side
from extender.snapshot_file import Snapshot, read_snapshot
from topology.errors import InputError

_MIB_PER_GIB: Final = 1024
Hear = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What was typed: the workload, the snapshot (None: the demo's), policies, rules, GiB that a whole GPU of a trace counts (None: the smallest GPU's), and files to write."""

    workload: Path
    snapshot: Path | None
    policies: tuple[str, ...]
    rules: Rules
    gib_per_gpu: int | None
    json_file: Path | None
    svg_file: Path | None


def simulate_command(asked: Asked, hear: Hear) -> tuple[RenderableType, list[str]]:
    """Return what is to be printed, and warnings; ``hear`` is told policy, pods that have arrived, and of how many. Raises InputError with a sentence."""
    unknown = next((name for name in asked.policies if name not in POLICIES), None)
    if unknown is not None:
        raise InputError(f"--policy {unknown}: unknown policy; accepted: {', '.join(POLICIES)}")
    snapshot = read_snapshot(asked.snapshot) if asked.snapshot is not None else make_scene().snapshot()
    jobs = read_jobs(asked.workload, asked.gib_per_gpu or _smallest_gib(snapshot))
    settings = read_settings()
    problems: dict[str, None] = {}
    runs = [_replayed(policy, (snapshot, jobs), (settings, asked.rules), (hear, problems)) for policy in asked.policies]
    if not runs[0].capacity:
        raise InputError(
            f"snapshot {asked.snapshot}: no node with GPUs is open to pods; accepted: at least one GPUTopology of a node that takes pods"
        )
    found = figures(runs)
    opening = _opening(asked, runs[0])
    if asked.json_file is not None:
        data = {"snapshot": _name(asked.snapshot), "workload": str(asked.workload), "gpus": runs[0].capacity, **as_data(runs, found)}
        _write("--json", asked.json_file, orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE))
    if asked.svg_file is not None:
        _write("--svg", asked.svg_file, plot(runs, opening).encode())
    return for_people(opening, runs, found), list(problems)


def _replayed(policy: str, given: tuple[Snapshot, Sequence[Job]], how: tuple[Settings, Rules], tell: tuple[Hear, dict[str, None]]) -> Run:
    (snapshot, jobs), (settings, rules), (hear, problems) = given, how, tell
    own = side(policy, snapshot, settings)
    problems.update(dict.fromkeys(own.problems))
    return replay(policy, jobs, own, rules, lambda done: hear(policy, done, len(jobs)))


def _opening(asked: Asked, run: Run) -> str:
    nodes = f"{_name(asked.snapshot)}: {run.capacity} GPUs open to pods"
    rules = "dropped" if asked.rules.drop else "passed by others" if asked.rules.backfill else "first in, first out"
    return f"{nodes}. {asked.workload}: {len(run.jobs)} pods; who finds no room is {'' if asked.rules.drop else 'kept waiting, '}{rules}."


def _name(snapshot: Path | None) -> str:
    return "the demo's cluster" if snapshot is None else str(snapshot)


def _smallest_gib(snapshot: Snapshot) -> int:
    """Return whole GiB of the smallest GPU: a trace's pods fit on every GPU then, in the parts that they ask for."""
    sizes = [
        size
        for topology in snapshot.topologies
        for gpu in (topology.get("spec") or {}).get("gpus") or ()
        if isinstance(gpu, dict) and isinstance(size := gpu.get("memoryMiB"), int)
    ]
    return max(1, min(sizes, default=_MIB_PER_GIB) // _MIB_PER_GIB)


def _write(option: str, path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError(f"{option} {path} cannot be written: {error.strerror or error}") from error
