"""How long a fresh process takes to its first answer on a large cluster, and what it writes meanwhile.

The clock starts before the process does; it is asked about all nodes until it answers. Writes are counted by kube-apiserver (`apiserver_request_total`) and, for Nodes, told by every Node's resourceVersion.
"""

import time
from dataclasses import dataclass
from typing import Any, Final

import httpx

from bench.end_to_end.cluster import NODES, LoadedCluster
from bench.end_to_end.expositions import Counts, read_counts
from bench.end_to_end.processes import read_cpu, read_resident_mib
from bench.end_to_end.programs import SETTINGS
from tests.builders import pod
from tests.e2e.calls import HTTP
from tests.e2e.extender import RunningExtender, serve
from tests.e2e.objects import pod_object

JsonObject = dict[str, Any]

_WRITES: Final = ("POST", "PUT", "PATCH", "DELETE", "APPLY")
_PATIENCE_S: Final = 120.0
_QUIET_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Start:
    """One start: seconds by the clock until the first answer, those of the processor, MiB in memory then, nodes that fit, and writes by resource."""

    seconds: float
    cpu_s: float
    resident_mib: float
    fitting: int
    writes: dict[str, int]
    nodes_changed: int


def measure(cluster: LoadedCluster) -> Start:
    """Start an extender, wait for its answer and end it."""
    before, versions = _quiet(cluster), _versions(cluster)
    started = time.monotonic()
    extender = serve(cluster.plane, environment=SETTINGS)
    try:
        answer, at = _first_answer(extender, cluster.names)
        cpu = read_cpu({"extender": extender.program.pid}).seconds["extender"]
        resident = read_resident_mib(extender.program.pid)
    finally:
        extender.stop()
    after = _versions(cluster)
    writes = writes_of(_counts(cluster).since(before))
    changed = sum(version != after.get(name) for name, version in versions.items())
    return Start(at - started, cpu, resident, len(answer["NodeNames"]), writes, changed)


def _first_answer(extender: RunningExtender, names: list[str]) -> tuple[JsonObject, float]:
    call = {"Pod": pod_object(pod("first").gpus(1)), "NodeNames": names}
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            answer: JsonObject = HTTP.post(f"{extender.url}/filter", json=call, timeout=30).json()
        except httpx.HTTPError:
            time.sleep(0.05)  # it does not listen yet
            continue
        if not answer["Error"]:
            return answer, time.monotonic()
        time.sleep(0.05)
    raise TimeoutError(f"no answer within {_PATIENCE_S:g} s\n{extender.program.tail()}")


def _quiet(cluster: LoadedCluster) -> Counts:
    """Wait until nobody writes any more, such as KWOK about the pods of the last round, and return what has been counted until then."""
    found = _counts(cluster)
    while True:
        time.sleep(_QUIET_S)
        now = _counts(cluster)
        if not writes_of(now.since(found)).keys() - {"leases"}:
            return now
        found = now


def _counts(cluster: LoadedCluster) -> Counts:
    return read_counts(cluster.door.get("/metrics").decode())


def writes_of(counted: Counts) -> dict[str, int]:
    """Return how many objects of each resource were written, by what kube-apiserver counted."""
    sums: dict[str, int] = {}
    for verb in _WRITES:
        for resource, count in counted.by("apiserver_request_total", "resource", verb=verb).items():
            if count:
                sums[resource] = sums.get(resource, 0) + int(count)
    return sums


def _versions(cluster: LoadedCluster) -> dict[str, str]:
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in cluster.door.items(NODES)}
