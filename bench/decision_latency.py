"""How long filter and prioritize take over HTTP, beside a bare ASGI echo of the same bytes in the same run.

`python -m bench.decision_latency`: a half-full synthetic cluster, one connection, the names in a new order at every call. The echo is the floor: reading a body and
writing one back, in the same server. Quote the ratio.
"""

import http.client
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from urllib.parse import urlsplit

import orjson
import typer

from bench import machine, snapshot

NAMES = (100, 500, 1000, 5000)


@contextmanager
def process(*command: str) -> Iterator[str]:
    """Run a server that prints its URL, and end it afterwards."""
    with subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:  # noqa: S603
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None, f"{command} did not start"
        # What it logs must go somewhere: a full pipe would hold the server up.
        threading.Thread(target=deque, args=(server.stdout, 0), daemon=True).start()
        try:
            yield found.group()
        finally:
            server.terminate()


def timed(url: str, path: str, bodies: list[bytes]) -> list[float]:
    """Return the seconds of each call, over one kept connection."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    seconds = []
    for body in bodies:
        started = time.perf_counter()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        seconds.append(time.perf_counter() - started)
        assert response.status == 200
    connection.close()
    return seconds


def bodies(names: list[str], calls: int, rng: random.Random) -> list[bytes]:
    """Return that many calls for 2-GPU pods over all names, each in a new order."""
    pod = {
        "metadata": {"namespace": "bench", "uid": ""},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
    }
    return [
        orjson.dumps(
            {"Pod": pod | {"metadata": {"namespace": "bench", "name": f"pod-{call}"}}, "NodeNames": rng.sample(names, len(names)), "Nodes": None}
        )
        for call in range(calls)
    ]


def percentile(seconds: list[float], share: float) -> float:
    """Return milliseconds below which that share of the calls lies."""
    return sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))] * 1000


def measure(nodes: int, calls: int, seed: int) -> list[str]:
    """Return the table rows for a cluster of that size."""
    rng = random.Random(seed)
    objects: dict[str, Any] = snapshot.make(nodes, 0.5, seed)
    names = [item["metadata"]["name"] for item in objects["items"] if item["kind"] == "Node"]
    load = bodies(names, calls, rng)
    rows = []
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(orjson.dumps(objects))
        file.flush()
        with process("bench.echo") as echo, process("extender", "serve", "--snapshot", file.name, "--port", "0") as linkwise:
            timed(linkwise, "/filter", load[:5])
            floor = timed(echo, "/", load)
            for verb in ("filter", "prioritize"):
                own = timed(linkwise, f"/{verb}", load)
                ratio = statistics.median(own) / statistics.median(floor)
                rows.append(
                    f"| {verb} | {nodes} | {percentile(own, 0.5):.2f} | {percentile(own, 0.99):.2f} | {percentile(floor, 0.5):.2f} | "
                    f"{percentile(floor, 0.99):.2f} | {ratio:.1f} |"
                )
    return rows


def main(calls: Annotated[int, typer.Option(min=10)] = 300, seed: int = 0, largest: int = NAMES[-1]) -> None:
    """Measure and write bench/results/decision_latency.md."""
    rows = [row for nodes in NAMES if nodes <= largest for row in measure(nodes, calls, seed)]
    head = "| verb | names | p50 ms | p99 ms | echo p50 ms | echo p99 ms | p50 / echo |\n| --- | --- | --- | --- | --- | --- | --- |"
    method = f"{calls} calls each over one connection, names of 31 bytes in a new order at every call, half-full cluster of five kinds of machine.\n"
    machine.write("decision_latency", "\n".join([machine.heading("Filter and prioritize over HTTP"), method, head, *rows, ""]))


if __name__ == "__main__":
    typer.run(main)
