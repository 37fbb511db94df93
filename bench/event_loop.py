"""For how long the event loop of an extender stands still at a time: while it starts, lists again, is asked for everything, or has to go by other demands.

`python -m bench.event_loop`: an extender on a watch server (both in processes of their own), a filter and a prioritize call for all nodes ten times a second all the while, and one thing after the
other that might hold them up. Told is the longest stretch of each, by the clock and as processor time of the loop's thread (which leaves out what else the machine did), and where it was seen. A call
is work as well: the first rows say how long calls alone take.
"""

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import typer

from bench import machine, markdown
from bench.api_objects import node_name
from bench.state_sync import list_server
from bench.storm import filter_body, post, wait_for_answers, watched_extender
from extender.sample_machines import sample
from topology.collective import Depth

JsonObject = dict[str, Any]
_TOPOLOGIES = "/apis/linkwise.dev/v1alpha1/gputopologies"


@dataclass(frozen=True, slots=True)
class Phase:
    """One thing that happens, from when to when."""

    name: str
    began: float
    ended: float


class _Caller(threading.Thread):
    """Filter and prioritize for all nodes, ten times a second each."""

    def __init__(self, url: str, names: list[str]) -> None:
        super().__init__(daemon=True)
        self._url, self._names = url, names
        self.stopped = False

    def run(self) -> None:
        """Call until stopped."""
        number = 0
        while not self.stopped:
            body = filter_body(self._names, f"call-{number}", (1, 2, 4, 8)[number % 4])
            post(f"{self._url}/filter", body)
            post(f"{self._url}/prioritize", body)
            number += 1
            time.sleep(0.1)


def _topology(kind: str, name: str, memory_mib: int = 0, codes: dict[str, str] | None = None) -> JsonObject:
    """Return a GPUTopology like a sample machine's, with other memory or other codes."""
    found = sample(kind, name).to_object()
    for gpu in found["spec"]["gpus"]:
        gpu["memoryMiB"] = memory_mib or gpu["memoryMiB"]
    found["spec"]["links"]["gpus"] = [[(codes or {}).get(code, code) for code in row] for row in found["spec"]["links"]["gpus"]]
    found["status"] |= {"observedAt": f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}", "holdersObserved": True}
    return found


def _added(raw: JsonObject) -> bytes:
    return orjson.dumps({"type": "ADDED", "object": raw})


_CLASSES = [{"gpus": gpus, "cpuMilli": 4000 * gpus, "popularity": 1.0 / gpus} for gpus in (1, 2, 4, 8)] + [
    {"gpus": 1, "memoryMiB": 1024 * gib, "cpuMilli": 500 * gib, "popularity": 0.2} for gib in (3, 5, 7, 10, 12, 20, 24)
]


def _things(api: str, url: str) -> list[tuple[str, Callable[[], object], float]]:
    """Return what happens, in this order: its name, how it is made to happen, and the seconds to wait for it."""
    mesh = _topology("dgx1v", "node-of-a-new-mesh", 40_000, {"NV2": "NV3"})
    return [
        ("calls alone", lambda: None, 5),
        ("a node of a known class comes", lambda: post(f"{api}/bench/event?path={_TOPOLOGIES}", _added(_topology("pcie", "one-more"))), 2),
        (
            "a node of a new class behind NVSwitch",
            lambda: post(f"{api}/bench/event?path={_TOPOLOGIES}", _added(_topology("nvswitch", "large", 190_000))),
            5,
        ),
        ("a node of a new class, an irregular mesh", lambda: post(f"{api}/bench/event?path={_TOPOLOGIES}", _added(mesh)), 6),
        ("GET /metrics", lambda: [post(f"{url}/metrics", method="GET") for _ in range(3)], 1),
        ("GET /api/v1/nodes", lambda: [post(f"{url}/api/v1/nodes", method="GET") for _ in range(3)], 1),
        ("PUT /api/v1/workload with 11 classes", lambda: post(f"{url}/api/v1/workload", orjson.dumps({"classes": _CLASSES}), "PUT"), 6),
        ("PUT /api/v1/workload with weights", lambda: post(f"{url}/api/v1/workload", orjson.dumps({"weights": {"1": 0.2, "3": 0.8}}), "PUT"), 3),
        ("DELETE /api/v1/workload", lambda: post(f"{url}/api/v1/workload", method="DELETE"), 6),
        ("all pods are listed again", lambda: post(f"{api}/bench/expire?path=/api/v1/pods"), 12),
        ("all topologies are listed again", lambda: post(f"{api}/bench/expire?path={_TOPOLOGIES}"), 5),
        ("2,000 events a second", lambda: post(f"{api}/bench/storm?rate=2000&seconds=5"), 6),
    ]


def main(nodes: int = 5_000, pods: int = 50_000) -> None:
    """Measure and write bench/results/event_loop.md."""
    names = [node_name(number) for number in range(nodes)]
    phases: list[Phase] = []
    with tempfile.TemporaryDirectory() as folder, list_server(nodes, pods, 2000) as api:
        output = Path(folder) / "watched.json"
        began = time.monotonic()
        with watched_extender(api, output) as url:
            wait_for_answers(url)
            phases.append(Phase(f"start: {nodes:,} nodes, {pods:,} pods", began, time.monotonic()))
            caller = _Caller(url, names)
            caller.start()
            time.sleep(3)
            for name, happen, seconds in _things(api, url):
                began = time.monotonic()
                happen()
                time.sleep(max(0.0, began + seconds - time.monotonic()))
                phases.append(Phase(name, began, time.monotonic()))
            caller.stopped = True
            caller.join()
        found = orjson.loads(output.read_bytes())
    text = machine.heading("How long the event loop stands still")
    text += f"\n{nodes:,} nodes, {pods:,} pods; classes that come later are worked out to `{Depth.AT_ONCE.name}` on the loop. Stretches above 3 ms are seen.\n\n"
    text += markdown.table(
        ["what happens", "stretches", "longest, ms by the clock", "longest, ms of processor", "where that was seen"],
        _rows(phases, found["stretches"]),
    )
    machine.write("event_loop", text)


def _rows(phases: list[Phase], stretches: list[tuple[float, float, float, str]]) -> list[list[str]]:
    rows = []
    for phase in phases:
        own = [one for one in stretches if phase.began <= one[0] <= phase.ended]
        worst = max(own, key=lambda one: one[2], default=(0.0, 0.0, 0.0, ""))
        wall = max((one[1] for one in own), default=0.0)
        rows.append([phase.name, str(len(own)), f"{wall:.0f}", f"{worst[2]:.0f}", f"`{worst[3]}`" if worst[3] else ""])
    return rows


if __name__ == "__main__":
    typer.run(main)
