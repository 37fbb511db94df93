"""What is measured, as processes of their own that end with the block: a bare ASGI echo, the null extender in Go, and Linkwise with a door for deletions.

Used by the commands. Every one listens on a free port of the loopback interface and prints its URL. Where Go is missing its column is left out, and that is said once.
"""

import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import machine
from bench.go_programs import null_extender
from topology.errors import InputError, InternalError


@contextmanager
def process(*command: str) -> Iterator[str]:
    """Run a Python module that prints its URL first, and end it afterwards: the URL."""
    with program([sys.executable, "-m", *command]) as (line, _):
        yield url_in(line)


@contextmanager
def program(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Run a program that prints a line once it serves, and end it afterwards: the line, and its process id."""
    environment = {**os.environ, **machine.COMPILED}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as server:  # noqa: S603
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            raise InternalError(f"`{' '.join(command)}` did not start; run it by hand to see why")
        # What it logs must go somewhere: a full pipe would hold the server up.
        threading.Thread(target=deque, args=(server.stdout, 0), daemon=True).start()
        try:
            yield line, server.pid
        finally:
            server.terminate()


def url_in(line: str) -> str:
    """Return the URL in what a server printed."""
    found = re.search(r"http://\S+", line)
    if found is None:
        raise InternalError(f"a server printed no URL but {line!r}")
    return found.group()


@contextmanager
def echo(*options: str) -> Iterator[str]:
    """Run the bare ASGI echo, or with `--names` the one that reads names: its URL."""
    with process("bench.echo", *options) as url:
        yield url


@contextmanager
def go_null() -> Iterator[str | None]:
    """Run the null extender in Go: its URL, None where there is no Go."""
    try:
        path = null_extender()
    except InputError as error:
        print(f"The column of the null extender is left out: {error}", file=sys.stderr)
        yield None
        return
    with program([str(path)]) as (line, _):
        yield url_in(line)


@contextmanager
def linkwise(snapshot: Path) -> Iterator[tuple[str, str, int]]:
    """Run Linkwise on a snapshot: its URL, HOST:PORT of the door through which pods leave (`linkwise_server`), and its process id."""
    with program([sys.executable, "-m", "bench.latency.linkwise_server", str(snapshot)]) as (line, pid):
        found = re.search(r"http://\S+", line), re.search(r"door (\S+)", line)
        if found[0] is None or found[1] is None:
            raise InternalError(f"Linkwise printed no URL and door but {line!r}")
        yield found[0].group(), found[1].group(1), pid
