"""Which pods come, when, and for how long: read from a list of pods, or from a trace in the form of openb.

Called by `command` and by the benchmarks. A pod may say `simulate.linkwise.dev/arrives-at` and `/runs-for`, in seconds, `/copies`, how often it comes, and `/every`, the
seconds between two copies; one without times is there from the start and never leaves. What it asks of GPUs is read later, by `extender.demand`, as in production.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from extender.protocol import JsonObject
from extender.snapshot_file import parse_snapshot
from topology.api.annotations import ALLOCATION, DOMAIN, GPU_MEMORY, GPU_MODEL, WHOLE_GPU
from topology.errors import InputError, SnapshotError

PREFIX: Final = f"simulate.{DOMAIN}/"
ARRIVES_AT: Final = PREFIX + "arrives-at"
RUNS_FOR: Final = PREFIX + "runs-for"
COPIES: Final = PREFIX + "copies"
EVERY: Final = PREFIX + "every"
_KEYS: Final = (ARRIVES_AT, RUNS_FOR, COPIES, EVERY)
_MOST_COPIES: Final = 100_000
_LONGEST_S: Final = 1e10  # three centuries; keeps absurd numbers out of the arithmetic
_ACCEPTED: Final = "a list of pods as `kubectl get pods -A -o yaml` (or json) prints it, or a CSV with the columns of the openb trace"
_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_WHOLE_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class Job:
    """One pod of a workload, as kube-scheduler would send it; ``runs_s`` is None where it never leaves. Times in seconds from the start."""

    pod: JsonObject
    arrives_s: float = 0.0
    runs_s: float | None = None

    @property
    def namespace(self) -> str:
        """Namespace of the pod."""
        return str(self.pod["metadata"].get("namespace") or "default")

    @property
    def name(self) -> str:
        """Name of the pod."""
        return str(self.pod["metadata"]["name"])

    @property
    def uid(self) -> str:
        """NAMESPACE/NAME, which no other job of the workload has."""
        return f"{self.namespace}/{self.name}"


def read_jobs(path: Path, gib_per_gpu: int) -> list[Job]:
    """Return the jobs of a workload file in the order of arrival; raises InputError with a sentence.

    ``gib_per_gpu`` is what a whole GPU of a trace counts, whose pods ask for thousandths of one.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"workload {path} cannot be read: {error.strerror or error}") from error
    found = _of_trace(data, str(path), gib_per_gpu) if path.suffix.lower() == ".csv" else _of_pods(data, str(path))
    jobs = sorted(found, key=lambda job: job.arrives_s)
    if not jobs:
        raise InputError(f"workload {path} holds no pods; accepted: {_ACCEPTED}")
    twice = next((uid for uid, count in _counted(job.uid for job in jobs).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"workload {path} holds pod {twice} twice; accepted: pods with names of their own")
    return jobs


def _counted(names: Iterator[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


# --- a list of pods ---------------------------------------------------------------------------------------------------


def _of_pods(data: bytes, where: str) -> Iterator[Job]:
    try:
        snapshot = parse_snapshot(data, where)
    except SnapshotError as error:  # the same sentence about the other file
        what = str(error).partition("; accepted: ")[0].removeprefix("snapshot ")
        raise InputError(f"workload {what}; accepted: {_ACCEPTED}") from error
    if snapshot.problems:
        raise InputError(f"workload {snapshot.problems[0]}")
    for pod in snapshot.pods:
        yield from _of_pod(pod, where)


def _of_pod(pod: JsonObject, where: str) -> Iterator[Job]:
    metadata = pod["metadata"]
    annotations = metadata.get("annotations") if isinstance(metadata.get("annotations"), Mapping) else {}
    name = f"workload {where}: pod {metadata['name']}"
    arrives = _seconds(annotations, ARRIVES_AT, name) or 0.0
    runs = _seconds(annotations, RUNS_FOR, name)
    copies, every = _copies(annotations, name), _seconds(annotations, EVERY, name) or 0.0
    unknown = next((key for key in annotations if str(key).startswith(PREFIX) and key not in _KEYS), None)
    if unknown is not None:
        raise InputError(f"{name} has annotation {unknown}, which is unknown; accepted: {', '.join(_KEYS)}")
    for copy in range(copies):
        suffix = f"-{copy + 1}" if copies > 1 else ""
        yield Job(_fresh(pod, annotations, suffix), arrives + copy * every, runs)


def _fresh(pod: JsonObject, annotations: Mapping[str, Any], suffix: str) -> JsonObject:
    """Return the pod as it was before anybody placed it, without what only the simulation reads."""
    metadata = pod["metadata"]
    kept = {key: value for key, value in annotations.items() if not str(key).startswith(PREFIX) and key != ALLOCATION}
    name = f"{metadata['name']}{suffix}"
    spec = {key: value for key, value in pod.get("spec", {}).items() if key != "nodeName"}
    labels = {"labels": metadata["labels"]} if "labels" in metadata else {}
    return {"metadata": {"namespace": metadata.get("namespace") or "default", "name": name, "annotations": kept, **labels}, "spec": spec}


def _seconds(annotations: Mapping[str, Any], key: str, name: str) -> float | None:
    if key not in annotations:
        return None
    try:
        value = float(annotations[key])
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value <= _LONGEST_S:
        raise InputError(f"{name} has annotation {key}={str(annotations[key])[:60]}; accepted: seconds, from 0 on")
    return value


def _copies(annotations: Mapping[str, Any], name: str) -> int:
    text = str(annotations.get(COPIES, "1"))
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST_COPIES and len(text) < 9):
        raise InputError(f"{name} has annotation {COPIES}={text[:60]}; accepted: a whole number from 1 to {_MOST_COPIES}")
    return int(text)


# --- a trace ----------------------------------------------------------------------------------------------------------


def _of_trace(data: bytes, where: str, gib_per_gpu: int) -> Iterator[Job]:
    try:
        rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig")))
        columns = rows.fieldnames or ()
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"workload {where} is no CSV: {error}; accepted: {_ACCEPTED}") from error
    missing = [name for name in _COLUMNS if name not in columns]
    if missing:
        raise InputError(f"workload {where} has no column {missing[0]}; accepted: {_ACCEPTED}")
    for number, row in enumerate(rows, start=2):
        yield _of_row(row, f"workload {where} line {number}", gib_per_gpu)


def _of_row(row: Mapping[str, str | None], where: str, gib_per_gpu: int) -> Job:
    amounts = {name: _number(row, name, where) for name in _COLUMNS[1:]}
    gpus, milli = amounts["num_gpu"], amounts["gpu_milli"]
    if milli > _WHOLE_MILLI or (gpus and not milli):
        raise InputError(f"{where}: gpu_milli is {milli}; accepted: 1 to {_WHOLE_MILLI} of each GPU")
    whole = gpus if milli == _WHOLE_MILLI else 0
    gib = 0 if whole or not gpus else -(-milli * gib_per_gpu // _WHOLE_MILLI)
    annotations = {GPU_MODEL: spec.replace("|", ",")} if gpus and (spec := row.get("gpu_spec") or "") else {}
    if gib and gpus > 1:
        annotations |= {f"{DOMAIN}/gpu-count": str(gpus)}
        gib *= gpus
    pod = raw_pod(str(row["name"]), (amounts["cpu_milli"], amounts["memory_mib"]), whole, gib, annotations)
    created = _number(row, "creation_time", where) if row.get("creation_time") else 0
    runs = _number(row, "deletion_time", where) - created if row.get("deletion_time") else None
    return Job(pod, float(created), None if runs is None else float(max(runs, 0)))


def _number(row: Mapping[str, str | None], name: str, where: str) -> int:
    text = (row.get(name) or "").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _LONGEST_S:
        raise InputError(f"{where}: {name} is {text[:60]!r}; accepted: a number from 0 on")
    return int(value)


def raw_pod(name: str, host: tuple[int, int], gpus: int, gib: int, annotations: Mapping[str, str]) -> JsonObject:
    """Return a pod of one container: ``host`` CPU in milli and memory in MiB, whole GPUs, or GiB of GPU memory."""
    cpu_milli, memory_mib = host
    requests = {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"}
    limits = {WHOLE_GPU: str(gpus)} if gpus else {GPU_MEMORY: str(gib)} if gib else {}
    container = {"name": "main", "resources": {"requests": requests, "limits": limits}}
    return {"metadata": {"namespace": "default", "name": name, "annotations": dict(annotations)}, "spec": {"containers": [container]}}
