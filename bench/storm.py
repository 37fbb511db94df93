"""How far behind the extender is while pods come and go at thousands of events a second, and what its answers take meanwhile.

`python -m bench.storm`: a watch server in another process sends events of pods at a steady rate (short lives of five events each, one pod in ten with a GPU), and filter calls for all nodes are
sent beside them. Lag is the time from when an event was sent to when it has been taken in; beside it stands the time since it was due, which counts what the stream was held up, by the extender or by a server that
was late itself. The three processes share the machine.
"""

import http.client
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import orjson
import typer

from bench import machine, markdown
from bench.api_objects import node_name
from bench.state_sync import list_server

JsonObject = dict[str, Any]


@contextmanager
def watched_extender(api_url: str, output: Path) -> Iterator[str]:
    """Run the extender against an API server until the end of the block, ready to answer, and yield its URL; what its loop was watched for is in ``output`` then."""
    command = [sys.executable, "-m", "bench.watched_extender", api_url, str(output)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as extender:  # noqa: S603
        assert extender.stdout is not None
        url = ""
        while not url:
            line = extender.stdout.readline()
            assert line, "the extender ended before it served"
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            url = found.group() if found else ""
        try:
            yield url
        finally:
            extender.terminate()
            extender.communicate(timeout=60)


def wait_for_answers(url: str, seconds: float = 300) -> None:
    """Wait until the extender answers a filter call: synced, and leading."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answer = orjson.loads(post(f"{url}/filter", filter_body([node_name(0)], "first")))
        if not answer.get("Error"):
            return
        time.sleep(0.1)
    raise AssertionError(f"no answer within {seconds:g} s: {answer}")


def post(url: str, body: bytes = b"", method: str = "POST") -> bytes:
    """Send one call and return the answer."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)  # noqa: S310 - our own servers
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - as above
        answer: bytes = response.read()
    return answer


def filter_body(names: list[str], pod: str, gpus: int = 2) -> bytes:
    """Return a filter call for a pod over these names."""
    metadata = {"namespace": "bench", "name": pod, "uid": f"uid-{pod}"}
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return orjson.dumps({"Pod": {"metadata": metadata, "spec": {"containers": [container]}}, "NodeNames": names, "Nodes": None})


def calls(url: str, names: list[str], per_s: float, seconds: float, seed: int) -> list[float]:
    """Send filter calls at a steady rate, names in a new order each, and return what each took, in ms."""
    rng = random.Random(seed)
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    took: list[float] = []
    began = time.perf_counter()
    while (due := began + len(took) / per_s) < began + seconds:
        body = filter_body(rng.sample(names, len(names)), f"call-{len(took)}", (1, 2, 4, 8)[len(took) % 4])
        time.sleep(max(0.0, due - time.perf_counter()))
        sent = time.perf_counter()
        connection.request("POST", "/filter", body, {"Content-Type": "application/json"})
        answer = connection.getresponse().read()
        took.append(1000 * (time.perf_counter() - sent))
        assert b'"Error":""' in answer or b'"Error":' not in answer, answer[-200:]
    return took


def at(values: list[float], share: float) -> float:
    """Return the value below which that share lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def _row(name: str, values: list[float]) -> list[str]:
    return [name, f"{len(values):,}", *(f"{at(values, share):.1f}" for share in (0.5, 0.99)), f"{max(values, default=0):.1f}"]


def main(
    nodes: int = 5_000,
    pods: int = 50_000,
    rate: Annotated[float, typer.Option(help="Events a second.")] = 5_000,
    seconds: float = 30,
    calls_per_s: Annotated[float, typer.Option(help="Filter calls a second.")] = 20,
    lives: Annotated[int, typer.Option(help="Different pods; they come again when all were there.")] = 4_000,
) -> None:
    """Measure and write bench/results/storm.md."""
    names = [node_name(number) for number in range(nodes)]
    with tempfile.TemporaryDirectory() as folder, list_server(nodes, pods, lives) as api:
        output = Path(folder) / "watched.json"
        with watched_extender(api, output) as url:
            wait_for_answers(url)
            calm = calls(url, names, calls_per_s, 5, 1)
            began = time.monotonic()
            post(f"{api}/bench/storm?rate={rate}&seconds={seconds}")
            stormy = calls(url, names, calls_per_s, seconds, 2)
            ended = time.monotonic()
            time.sleep(2)
        found = orjson.loads(output.read_bytes())
    since_due, lags = ([one[at] for one in found["lags_ms"]] for at in (0, 1))
    stretches = [one for one in found["stretches"] if began <= one[0] <= ended]
    used = [one for one in found["used"] if began <= one[0] <= ended]
    share = (used[-1][1] - used[0][1]) / (used[-1][0] - used[0][0])
    text = machine.heading("A storm of events")
    text += f"\n{nodes:,} nodes, {pods:,} pods, {rate:,.0f} events a second for {seconds:g} s, {calls_per_s:g} filter calls a second for all nodes.\n"
    text += f"The extender used {100 * share:.0f} percent of a core in the storm; load of the machine at its end: {os.getloadavg()[0]:.1f}.\n\n"
    rows = [
        _row("from an event's departure to its arrival, ms", lags),
        _row("from when it was due, ms", since_due),
        _row("filter in the storm, ms", stormy),
        _row("filter before it, ms", calm),
        _row("loop at a stretch above 3 ms, ms", [one[1] for one in stretches]),
    ]
    text += markdown.table(["", "number", "p50", "p99", "max"], rows)
    machine.write("storm", text)
    machine.write_json(
        "storm",
        {
            "lag_ms": {share: at(lags, float(share)) for share in ("0.5", "0.9", "0.99", "0.999", "1")},
            "events": len(lags),
            "resident": found["resident"],
        },
    )


if __name__ == "__main__":
    typer.run(main)
